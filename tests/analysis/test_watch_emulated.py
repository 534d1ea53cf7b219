"""A run that is watched inside an emulation: the trace says under which policy."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from fpemu.analysis import Trace, watch  # noqa: E402
from fpemu.policies import find_policy  # noqa: E402
from fpemu.torch import emulate  # noqa: E402


def train(model: torch.nn.Module, steps: int = 2) -> None:
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.full((4, 32), 0.3)).square().sum().backward()
        optimizer.step()


def watched(around: bool, policy: str | None, **settings: str) -> Trace:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.ReLU(), torch.nn.Linear(32, 32))
    if policy is None:
        with watch(model) as run:
            train(model)
    elif around:
        with emulate(policy, **settings), watch(model) as run:
            train(model)
    else:
        with watch(model) as run, emulate(policy, **settings):
            train(model)
    return run.trace


@pytest.mark.parametrize("around", [True, False])
def test_a_trace_says_what_emulated_the_run(around: bool) -> None:
    trace = watched(around, "te.delayed", accumulate="hopper")
    name = trace.metadata["emulated"]
    assert name == "te.delayed accumulate=hopper"
    assert find_policy(name) == find_policy("te.delayed").accumulating("hopper")


def test_a_plain_run_says_nothing() -> None:
    assert "emulated" not in watched(False, None).metadata


def test_the_accumulator_is_in_what_is_recorded() -> None:
    """The same run, other sums: the tensors that come out differ."""
    def totals(accumulate: str | None) -> list[object]:
        trace = watched(False, "te.current", **({"accumulate": accumulate} if accumulate else {}))
        return [record.tally for record in trace.records(kind="activation")]

    assert totals("hopper") != totals(None)
    assert totals("hopper") == totals("hopper")
