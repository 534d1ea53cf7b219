"""Advice on watched PyTorch runs: followed in emulation, it mends what the format breaks."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="runs models in PyTorch: pip install 'fpemu[torch]'")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

from fpemu.analysis import Trace, advise, watch  # noqa: E402
from fpemu.analysis.metadata import READ_BY_PRODUCTS  # noqa: E402
from fpemu.analysis.updates import update_tally  # noqa: E402
from fpemu.policies import Policy  # noqa: E402
from fpemu.torch import emulate  # noqa: E402
from tests.watched_models import Net, batch  # noqa: E402


def model(seed: int, width: int = 24) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(8, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 2)
    )


def data(seed: int) -> tuple[Any, Any]:
    drawn = torch.Generator().manual_seed(seed + 100)
    x = torch.randn(64, 8, generator=drawn)
    return x, torch.tanh(x @ torch.randn(8, 2, generator=drawn))


def train(
    seed: int,
    policy: Policy | str | None = None,
    *,
    small: float = 1.0,
    large: float = 1.0,
    watched: bool = False,
    steps: int = 60,
) -> tuple[float, Trace | None]:
    """The final loss of a run whose gradients are `small` times as large, and its inputs `large`.

    The learning rate makes up for both, so that float32 trains alike.
    """
    net, (x, y) = model(seed), data(seed)
    with torch.no_grad():
        net[0].weight.div_(large)
    rate = 0.1 / small
    groups = [{"params": [net[0].weight], "lr": rate / large**2}, {"params": [
        p for p in net.parameters() if p is not net[0].weight]}]  # fmt: skip
    optimizer = torch.optim.SGD(groups, lr=rate, momentum=0.9)
    scale = getattr(policy, "loss_scale", None)
    scale = scale if isinstance(scale, float) else 1.0
    run: Any = watch(net, optimizer, every=10) if watched else nullcontext()
    with emulate(policy, model=net) if policy is not None else nullcontext(), run:
        for _ in range(steps):
            loss = F.mse_loss(net(x * large), y) * small
            (loss * scale).backward()
            for weight in net.parameters():
                weight.grad.div_(scale)
            optimizer.step()
            optimizer.zero_grad()
    with torch.no_grad():
        return float(F.mse_loss(net(x * large), y)), run.trace if watched else None


CASES = {
    "float16, gradients below 2^-24": (
        "torch.autocast.cuda.float16", ["fp16", "bf16"], {"small": 1e-8}),
    "E4M3 without scales": ("fp8_hybrid", ["e4m3fn", "e5m2", "bf16"], {"small": 1e-4}),
    "E4M3 everywhere": ("uniform:e4m3fn", ["e4m3fn", "e5m2", "bf16"], {"small": 1e-4}),
    "float16, activations that overflow": (
        "torch.autocast.cuda.float16", ["fp16", "bf16"], {"large": 2.0**18}),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_the_advised_run_closes_the_gap_to_float32(case: str) -> None:
    naive, formats, how = CASES[case]
    best, trace = train(0, watched=True, **how)
    assert trace is not None
    advice = advise(trace, formats=formats)
    assert advice.status in ("safe_with_loss_scale", "needs_changes")
    before, _ = train(0, naive, **how)
    before = before if np.isfinite(before) else 1.0  # a mean squared error of no use
    assert before > 2 * best
    for policy in (advice.policy(naive), advice.policy()):
        after, _ = train(0, policy, **how)
        assert (before - after) / (before - best) >= 0.9


def test_on_a_run_that_is_safe_the_advice_says_so() -> None:
    _, trace = train(0, watched=True, small=1.0)
    assert trace is not None
    advice = advise(trace, formats=["bf16"])
    assert (advice.status, advice.keep) == ("safe", ())


def test_finalists_are_really_run() -> None:
    best, trace = train(1, watched=True, small=1e-4)
    assert trace is not None
    losses: list[float] = []

    def evaluate(policy: Policy) -> float:
        loss, _ = train(1, policy, small=1e-4)
        losses.append(loss)
        return loss

    advice = advise(trace, formats=["e4m3fn", "e5m2", "bf16"], memory=0.6, evaluate=evaluate)
    [picked] = [choice for choice in advice.pareto if choice.chosen]
    assert len(losses) >= 2
    assert picked.measured == min(losses) == pytest.approx(best, rel=0.5)
    again, _ = train(1, advice.policy(), small=1e-4)
    assert again == picked.measured


def test_a_watch_counts_the_updates_of_each_weight() -> None:
    net = Net()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    kept: list[dict[str, np.ndarray]] = []

    def now() -> dict[str, np.ndarray]:
        return {name: p.detach().numpy().copy() for name, p in net.named_parameters()}

    with watch(net, optimizer) as run:
        for step in range(3):
            kept.append(now())
            net(batch(step)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    kept.append(now())
    counted = list(run.trace.counted("updates"))
    assert len(counted) == 3 * 4
    for one in counted:
        old, new = kept[one.step][one.name], kept[one.step + 1][one.name]
        assert one.value == update_tally(old, new - old)
    rows = advise(run.trace).updates
    assert len(rows) == 2 * 4
    assert not any(row.estimated for row in rows)


def test_a_watch_notes_what_products_read() -> None:
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with watch(net, optimizer) as run:
        (net(batch(0)) @ torch.ones(4, 2)).square().mean().backward()
        optimizer.step()
    read = run.trace.metadata[READ_BY_PRODUCTS]
    [relu] = [name for name in run.trace.names() if ".relu@" in name]
    [product] = [name for name in run.trace.names() if name.startswith("matmul@")]
    assert read == {"fc1": [""], "fc2": [relu], product: ["fc2", ""]}
    advice = advise(run.trace, formats=["e4m3fn", "bf16"])
    kept = {one.layer: one.reason for one in advice.keep}
    assert "reads what the trace does not hold" in kept["fc1"]
    assert "fc2" not in kept


def test_a_watch_of_products_holds_what_they_read() -> None:
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with watch(net, optimizer, tensors="matmul") as run:
        net(batch(0)).square().mean().backward()
        optimizer.step()
    advice = advise(run.trace, formats=["e4m3fn", "e5m2", "bf16"])
    assert advice.keep == ()
    assert {row.layer: row.to for row in advice.layers} == {
        "fc1": "float8_e4m3fn", "fc2": "float8_e4m3fn"}  # fmt: skip


@pytest.mark.parametrize("skip", [("fc1.*",), ("*",)])
def test_weights_left_out_are_not_counted(skip: tuple[str, ...]) -> None:
    net: nn.Module = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with watch(net, optimizer, skip=skip) as run:
        net(batch(0)).square().mean().backward()
        optimizer.step()
    names = {one.name for one in run.trace.counted("updates")}
    assert names == ({"fc2.weight", "fc2.bias"} if skip == ("fc1.*",) else set())


