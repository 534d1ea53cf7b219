"""watch: what it records, against plain autograd; what it changes, which is nothing."""

# ruff: noqa: E402 (PyTorch is optional: without it the module is skipped before it is needed)

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="watching a model needs PyTorch, an extra")

import torch.nn.functional as F
from torch import nn
from torch.nn.modules import module as module_hooks
from torch.optim import optimizer as optimizer_hooks
from torch.overrides import TorchFunctionMode
from watched_models import MODELS, Net, batch, train

import fpemu
from fpemu.analysis import Trace, report, watch
from fpemu.errors import FpemuError, InputError
from fpemu.moments import moments


def array(tensor) -> np.ndarray:
    return tensor.detach().clone().numpy()


def keyed(trace: Trace, step: int | None = None):
    return {(r.name, r.kind, r.step): r for r in trace.records(step=step)}


def sgd(model: nn.Module, lr: float = 0.1) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)


def seeded(make) -> nn.Module:
    torch.manual_seed(3)
    return make()


# --- what is recorded ----------------------------------------------------------------------------


def reference(model: Net, optimizer, step: int) -> dict[tuple[str, str], np.ndarray]:
    """Every tensor of one step of Net, kept by hand."""
    found = {(n, "weight"): array(p) for n, p in model.named_parameters()}
    x = batch(step)
    a = F.linear(x, model.fc1.weight, model.fc1.bias)
    b = torch.relu(a)
    c = F.linear(b, model.fc2.weight, model.fc2.bias)
    d = c.square()
    e = d.mean()
    line = Path(sys.modules["watched_models"].__file__).read_text().splitlines()
    here = 1 + next(k for k, text in enumerate(line) if "self.fc1(x).relu()" in text)
    there = 1 + next(k for k, text in enumerate(line) if ".square().mean()" in text)
    names = ["fc1", f"Net.relu@watched_models.py:{here}", "fc2",
             f"square@watched_models.py:{there}", f"mean@watched_models.py:{there}"]  # fmt: skip
    tensors = dict(zip(names, (a, b, c, d, e), strict=True))
    for tensor in tensors.values():
        tensor.retain_grad()
    found |= {(n, "activation"): array(t) for n, t in tensors.items()}
    e.backward()
    found |= {(n, "activation_gradient"): array(t.grad) for n, t in tensors.items()}
    found |= {(n, "weight_gradient"): array(p.grad) for n, p in model.named_parameters()}
    before = {n: array(p) for n, p in model.named_parameters()}
    optimizer.step()
    found |= {(n, "update"): array(p) - before[n] for n, p in model.named_parameters()}
    found |= {
        (f"{n}.momentum_buffer", "optimizer_state"): array(optimizer.state[p]["momentum_buffer"])
        for n, p in model.named_parameters()
    }
    optimizer.zero_grad()
    return found


def test_every_tensor_is_what_autograd_computes():
    model, twin = seeded(Net), seeded(Net)
    optimizer, other = sgd(model), sgd(twin)
    run = watch(model, optimizer)
    train(model, optimizer, 2, run)
    for step in range(2):
        want = reference(twin, other, step)
        got = {(r.name, r.kind): r for r in run.trace.records(step=step)}
        assert got.keys() == want.keys()
        for key, values in want.items():
            assert got[key].tally == fpemu.tally(values), key
            assert got[key].shape == values.shape
            expected = moments(values)
            assert got[key].moments.amax == expected.amax
            assert got[key].moments.mean == pytest.approx(expected.mean, rel=1e-9, abs=1e-12)
            assert got[key].recordings == 1
    losses = [scalar.value for scalar in run.trace.scalars("loss")]
    assert len(losses) == 2
    assert losses[1] < losses[0]


def test_records_come_in_the_order_of_the_step():
    model = seeded(Net)
    run = watch(model, sgd(model))
    train(model, torch.optim.SGD(model.parameters(), 0.1), 0)
    optimizer = sgd(model)
    run = watch(model, optimizer)
    train(model, optimizer, 1, run)
    kinds = list(dict.fromkeys(record.kind for record in run.trace.records()))
    assert kinds == ["weight", "activation", "activation_gradient", "weight_gradient", "update",
                     "optimizer_state"]  # fmt: skip
    gradients = [r.name for r in run.trace.records() if r.kind == "activation_gradient"]
    assert gradients == [r.name for r in run.trace.records(kind="activation")][::-1]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("tensors", ["all", "matmul"])
def test_training_is_the_same_to_the_bit(name, tensors):
    plain, watched = seeded(MODELS[name]), seeded(MODELS[name])
    torch.manual_seed(7)
    train(plain, sgd(plain), 3)
    random = torch.rand(3)
    torch.manual_seed(7)
    optimizer = sgd(watched)
    run = watch(watched, optimizer, every=2, tensors=tensors, to="float16", stop_on="nan")
    train(watched, optimizer, 3, run)
    assert torch.equal(random, torch.rand(3))
    for a, b in zip(plain.parameters(), watched.parameters(), strict=True):
        assert torch.equal(a, b)
    for a, b in zip(plain.buffers(), watched.buffers(), strict=True):
        assert torch.equal(a, b)
    assert run.causes == []
    if (name, tensors) != ("mapped", "matmul"):  # whose one product is inside vmap
        assert run.trace.steps() == [0, 2]
        assert {"activation", "weight", "activation_gradient"} <= set(run.trace.kinds())


@pytest.mark.parametrize("name", ["checkpoint", "reentrant"])
def test_a_checkpoint_is_counted_once(name):
    runs = []
    for which in ("plain", name):
        model = seeded(MODELS[which])
        optimizer = sgd(model)
        runs.append(watch(model, optimizer))
        train(model, optimizer, 2, runs[-1])
    plain, again = (
        {(r.name.split("@")[0], r.kind, r.step): (r.tally, r.recordings) for r in records}
        for records in (run.trace.records() for run in runs)
    )
    assert plain == again


def test_shared_modules_and_weights():
    model = seeded(MODELS["shared"])
    optimizer = sgd(model)
    run = watch(model, optimizer)
    train(model, optimizer, 1, run)
    found = keyed(run.trace)
    assert found["fc", "activation", 0].recordings == 2
    assert found["fc", "activation_gradient", 0].recordings == 2
    assert found["fc.weight", "weight", 0].recordings == 1
    assert found["fc.weight", "weight_gradient", 0].recordings == 1
    assert not any(name == "last.weight" for name, _, _ in found)


def test_gradient_accumulation_adds_to_one_step():
    model, whole = seeded(Net), seeded(Net)
    optimizer = sgd(model)
    run = watch(model, optimizer)
    train(model, optimizer, 2, run, micro=3)
    assert run.trace.steps() == [0, 1]
    found = keyed(run.trace)
    assert found["fc1", "activation", 1].recordings == 3
    assert found["fc1.weight", "weight_gradient", 0].recordings == 3
    assert found["fc1.weight", "weight", 0].recordings == 1
    assert found["fc1.weight", "update", 0].recordings == 1
    parts = fpemu.Tally()
    for part in range(3):
        loss = whole(batch(part)).square().mean()
        (gradient,) = torch.autograd.grad(loss, whole.fc1.weight)
        parts += fpemu.tally(array(gradient))
    assert found["fc1.weight", "weight_gradient", 0].tally == parts


def test_nested_outputs_and_operations_that_no_mode_sees():
    model = seeded(MODELS["nested"])
    optimizer = sgd(model)
    run = watch(model, optimizer)
    train(model, optimizer, 1, run)
    found = keyed(run.trace)
    for name in ("inner[rest][0]", "inner.tanh", "inner.mul"):  # the last in a custom function
        for kind in ("activation", "activation_gradient"):
            [record] = [r for key, r in found.items() if key[0].split("@")[0] == name
                        and key[1] == kind]  # fmt: skip
            assert record.tally.total == 48
            assert record.recordings == 1


def test_functional_operations_have_names_and_lines():
    model = seeded(MODELS["gate"])
    optimizer = sgd(model)
    run = watch(model, optimizer)
    train(model, optimizer, 1, run)
    activations = list(run.trace.records(kind="activation"))
    names = [r.name for r in activations]
    short = [name.split("@")[0] + name[name.find("#") :] * ("#" in name) for name in names]
    assert short == [
        "fc", "Gate.matmul", "Gate.softmax", "Gate.matmul", "Gate.sin", "Gate.add", "Gate.add#2",
        "Gate.mul", "Gate.mul#2", "square", "mean",
    ]  # fmt: skip
    assert {r.name.split("@")[0]: r.recordings for r in activations}["Gate.sin"] == 3
    text = Path(sys.modules["watched_models"].__file__).read_text().splitlines()
    at = {name.split("@")[0]: int(name.rpartition(":")[2].partition("#")[0]) for name in names[1:]}
    assert "(h + x)" in text[at["Gate.add"] - 1]
    assert "torch.sin" in text[at["Gate.sin"] - 1]


def test_masks_are_no_infinities_of_the_run():
    class Masks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(8, 6)
            self.register_buffer("mask", torch.full((6, 6), -torch.inf).triu(1))

        def forward(self, x):
            s = self.fc(x)
            a = (s + self.mask).softmax(-1)
            b = torch.where(self.mask == 0, s, torch.finfo(s.dtype).min).softmax(-1)
            t = s * 1
            t[:, self.mask[0] < 0] = -torch.inf
            c = F.scaled_dot_product_attention(s, s, s, attn_mask=self.mask)
            return a + b + c + t.softmax(-1)

    for tensors in ("all", "matmul"):
        model = seeded(Masks)
        optimizer = sgd(model)
        run = watch(model, optimizer, to="float16", tensors=tensors)
        train(model, optimizer, 1, run)
        assert run.causes == []
        assert not any(record.tally.inf for record in run.trace.records())


def test_matmul_tensors_are_what_products_take():
    model, twin = seeded(Net), seeded(Net)
    optimizer = sgd(model)
    kinds = ["activation", "weight", "activation_gradient"]
    run = watch(model, optimizer, tensors="matmul", kinds=kinds)
    train(model, optimizer, 1, run)
    x = batch(0)
    hidden = twin.fc1(x)
    middle = hidden.relu()
    out = twin.fc2(middle)
    hidden.retain_grad(), out.retain_grad()
    out.square().mean().backward()
    want = {
        ("fc1.input", "activation"): x, ("fc2.input", "activation"): middle,
        ("fc1", "activation_gradient"): hidden.grad, ("fc2", "activation_gradient"): out.grad,
        **{(n, "weight"): p for n, p in twin.named_parameters() if p.ndim == 2},
    }  # fmt: skip
    got = {(r.name, r.kind): r.tally for r in run.trace.records()}
    assert got == {key: fpemu.tally(array(tensor)) for key, tensor in want.items()}


def test_an_input_of_several_products_is_counted_once():
    class Three(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q, self.k = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x):
            x = x.tanh()
            return self.q(x) + self.k(x)

    model = seeded(Three)
    optimizer = sgd(model)
    run = watch(model, optimizer, tensors="matmul", kinds="activation")
    train(model, optimizer, 1, run)
    assert [record.name for record in run.trace.records()] == ["q.input"]


def test_evaluation_is_left_out_unless_asked_for():
    model = seeded(Net)
    optimizer = sgd(model)
    for evaluation, recordings in ((False, 1), (True, 2)):
        with watch(model, optimizer, evaluation=evaluation) as run:
            with torch.no_grad():
                model(batch(9)).argmax()
            model(batch(0)).square().mean().backward()
            optimizer.step()
        assert keyed(run.trace)["fc1", "activation", 0].recordings == recordings


def test_narrow_and_strided_tensors():
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(8, 8)

        def forward(self, x):
            y = self.fc(x).bfloat16()
            return (y.t() * 3)[::2].float().expand(2, 4, 6)

    model, twin = seeded(Odd), seeded(Odd)
    optimizer = sgd(model)
    run = watch(model, optimizer)
    train(model, optimizer, 1, run)
    found = {r.name.split("@")[0]: r.tally for r in run.trace.records(kind="activation")}
    rounded = twin.fc(batch(0)).bfloat16()
    assert found["Odd.bfloat16"] == fpemu.tally(array(rounded.float()))
    assert found["Odd.mul"] == fpemu.tally(array((rounded * 3).float()))


def test_closures_of_an_optimizer():
    model = seeded(Net)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)

    def closure():
        optimizer.zero_grad()
        loss = model(batch(0)).square().mean()
        loss.backward()
        return loss

    with watch(model, optimizer) as run:
        for _ in range(2):
            optimizer.step(closure)
    assert run.trace.steps() == [0, 1]
    assert keyed(run.trace)["fc1", "activation", 0].recordings >= 2
    assert keyed(run.trace)["fc1.weight", "update", 1].recordings == 1


# --- steps -----------------------------------------------------------------------------------


def attached() -> list[object]:
    """What hangs on PyTorch at the moment."""
    return [
        *module_hooks._global_forward_hooks.values(),
        *module_hooks._global_forward_pre_hooks.values(),
        *module_hooks._global_backward_hooks.values(),
        *(torch._C._get_function_stack_at(k) for k in range(torch._C._len_torch_function_stack())),
    ]


def test_nothing_is_attached_on_steps_that_are_not_recorded():
    model = seeded(Net)
    optimizer = sgd(model)
    original = torch.amp.GradScaler.step, torch.amp.GradScaler.scale
    seen = []
    with watch(model, optimizer, every=3) as run:
        for step in range(5):
            loss = model(batch(step)).square().mean()
            hooks = sum(bool(p._backward_hooks) for p in model.parameters())
            seen.append((len(attached()), hooks, bool(loss._backward_hooks)))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            assert run.step == step + 1
    assert seen == [(3, 4, True), (0, 0, False), (0, 0, False), (3, 4, True), (0, 0, False)]
    assert run.trace.steps() == [0, 3]
    assert attached() == []
    assert not optimizer_hooks._global_optimizer_pre_hooks
    assert not optimizer_hooks._global_optimizer_post_hooks
    assert (torch.amp.GradScaler.step, torch.amp.GradScaler.scale) == original
    assert not any(p._backward_hooks for p in model.parameters())


def test_nothing_is_kept_alive():
    made: list[weakref.ref] = []

    class Keeps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(8, 8)

        def forward(self, x):
            y = self.fc(x).tanh()
            made.append(weakref.ref(y))
            return y

    gc.collect()
    gc.disable()  # what dies must die by itself
    try:
        model = seeded(Keeps)
        optimizer = sgd(model)
        with watch(model, optimizer) as run:
            model(batch(0)).square().mean().backward()
            assert made[0]() is None
            optimizer.step()
            left = model(batch(1)).sum()  # never sent backward
        assert left.grad_fn is not None
        assert not left._backward_hooks
        del left
        assert made[1]() is None
    finally:
        gc.enable()
    gone = weakref.ref(model)
    del model, optimizer
    gc.collect()
    assert gone() is None
    assert run.trace.steps() == [0, 1]


def test_a_step_that_breaks_off_is_written():
    model = seeded(Net)
    run = watch(model, sgd(model))

    def training():
        with run:
            model(batch(0))
            raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        training()
    assert run.trace.kinds() == ["activation", "weight"]
    assert attached() == []


def test_modes_that_are_entered_and_left_meanwhile():
    class Counts(TorchFunctionMode):
        calls = 0

        def __torch_function__(self, func, types, args=(), kwargs=None):
            self.calls += 1
            return func(*args, **(kwargs or {}))

    model = seeded(Net)
    optimizer = sgd(model)
    outer, inner = Counts(), Counts()
    with outer, watch(model, optimizer, every=2) as run:
        with inner:  # left after a step in which ours came or went
            for step in range(3):
                train(model, optimizer, 1)
                assert step + 1 == run.step
        train(model, optimizer, 1)
    assert run.trace.steps() == [0, 2]
    assert inner.calls
    assert outer.calls
    assert attached() == []


def test_an_optimizer_that_steps_inside_the_backward_pass():
    model = seeded(Net)
    optimizer = torch.optim.SGD([model.fc1.weight], 0.1)
    model.fc1.weight.register_post_accumulate_grad_hook(lambda weight: optimizer.step())
    with watch(model, optimizer) as run:
        for step in range(3):
            model(batch(step)).square().mean().backward()
            model.zero_grad()
    assert attached() == []
    assert run.step >= 3
    assert ("fc1.weight", "update", 0) in keyed(run.trace)


def test_several_optimizers_and_the_one_that_is_found():
    a, b = seeded(Net), seeded(Net)
    first, second = sgd(a), sgd(b)
    with watch({"a": a, "b": b}, [first, second]) as run:
        for step in range(2):
            (a(batch(step)) + b(batch(step))).square().mean().backward()
            first.step()
            second.step()
    assert run.trace.steps() == [0, 1]
    assert {"a.fc1", "b.fc1", "a.fc1.weight", "b.fc2.bias"} <= set(run.trace.names())
    other = torch.optim.SGD([torch.zeros(1, requires_grad=True)], 0.1)
    with watch(a) as run:
        for step in range(2):
            a(batch(step)).square().mean().backward()
            other.step()  # of nobody's parameters
            first.step()
    assert run.trace.steps() == [0, 1]


def test_a_second_training_with_another_optimizer():
    model = seeded(Net)
    first, second = sgd(model), torch.optim.Adam(model.parameters())
    with watch(model) as run:
        for optimizer in (first, first, second, second, second):
            model(batch(0)).square().mean().backward()
            optimizer.step()
    assert run.step == 4  # the second one's first step still belongs to the first one's next
    assert ("fc1.weight.exp_avg", "optimizer_state", 3) in keyed(run.trace)


def test_one_watch_inside_another():
    model = seeded(Net)
    optimizer = sgd(model)
    with watch(None) as outer:
        train(model, optimizer, 2, inner := watch(model, optimizer, every=2))
        train(model, optimizer, 1)
    assert (outer.trace.steps(), inner.trace.steps()) == ([0, 1, 2], [0])
    a, b = ({r.key: r.tally for r in run.trace.records(step=0)} for run in (outer, inner))
    assert a == b
    assert attached() == []


def test_models_are_found_when_they_are_called():
    model, critic = seeded(Net), nn.Linear(4, 1)
    optimizer = torch.optim.Adam([*model.parameters(), *critic.parameters()])
    with watch(None) as run:
        for step in range(2):
            nn.MSELoss()(critic(model(batch(step))), torch.zeros(6, 1)).backward()
            optimizer.step()
    assert run.trace.steps() == [0, 1]
    names = run.trace.names()
    assert {"fc1", "fc2.weight", "fc2.weight.exp_avg_sq", "Linear", "Linear.weight"} <= set(names)
    assert any(name.startswith("mse_loss@test_watch.py:") for name in names)


def test_steps_without_an_optimizer():
    model = seeded(Net).requires_grad_(False)
    with watch(model, evaluation=True) as run:
        for step in range(2):
            model(batch(step))
            run.next_step()
    assert run.trace.steps() == [0, 1]
    assert run.trace.kinds() == ["activation", "weight"]


def test_compiled_models_run_as_written_while_a_step_is_recorded():
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    model = seeded(Net)
    compiled = torch.compile(model, backend="eager")
    optimizer = sgd(model)
    with watch(compiled, optimizer, every=3) as run:
        for step in range(7):
            compiled(batch(step)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    assert run.trace.steps() == [0, 3, 6]
    assert "fc1" in run.trace.names()  # without the wrapper's name
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    torch._dynamo.reset()


# --- loss scaling ----------------------------------------------------------------------------


def test_a_scaler_is_known_with_its_scale_and_the_steps_it_skips():
    model, twin = seeded(Net), seeded(Net)
    optimizer = sgd(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=1000)
    with watch(model, optimizer) as run:
        for step in range(3):
            x = batch(step) * (float("inf") if step == 1 else 1)
            loss = model(x).square().mean() if step != 1 else model(batch(1)).sum() * x.max()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    assert run.trace.steps() == [0, 1, 2]
    scales = {s.step: s.value for s in run.trace.scalars("loss_scale")}
    assert scales == {0: 1024.0, 1: 1024.0, 2: 512.0}
    [skip] = [event for event in run.trace.events() if event.kind == "skip"]
    assert (skip.step, skip.facts) == (1, {"loss_scale": 1024.0})
    assert ("fc1.weight", "update", 1) not in keyed(run.trace)
    (twin(batch(0)).square().mean() * 1024).backward()
    found = keyed(run.trace)["fc1.weight", "weight_gradient", 0]
    assert found.tally == fpemu.tally(array(twin.fc1.weight.grad))
    assert run.trace.metadata["recorded_loss_scale"] == 512.0
    assert not any(r.moments.amax > 100 for r in run.trace.records(kind="activation", step=0))
    assert report.build(run.trace).provenance


def test_a_scaler_at_work_catches_what_overflows_in_backward():
    model = seeded(Net)
    optimizer = sgd(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)
    with watch(model, optimizer, stop_on=["overflow", "nan"]) as run:
        for step in range(4):
            scaler.scale(model(batch(step) * 64).square().sum()).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    assert run.causes
    assert all(cause.caught for cause in run.causes if cause.phase == "backward")
    assert run.causes[0].loss_scale == 2.0**127


# --- errors ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "match"),
    [
        (lambda: nn.Linear(2, 2, device="meta"), "meta device"),
        (lambda: nn.Linear(2, 2, dtype=torch.complex64), "complex"),
        (lambda: nn.Linear(2, 2).double(), "float64"),
    ],
)
def test_parameters_that_cannot_be_counted_are_refused_at_once(model, match, tmp_path):
    path = tmp_path / "run.fpemu"
    with pytest.raises(InputError, match=match) as error:
        watch(model(), path=path)
    assert "\n" not in str(error.value)
    assert "weight" in str(error.value)
    assert not path.exists()


class Sparse(nn.Module):
    def __init__(self, sparse: bool = True) -> None:
        super().__init__()
        self.embedding = nn.Embedding(8, 4, sparse=sparse)

    def forward(self, x):
        return self.embedding(x.abs().long() % 8)


class Fourier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x):
        return torch.fft.rfft(self.fc(x)).abs()


@pytest.mark.parametrize(("make", "match"), [(Sparse, "sparse"), (Fourier, "complex")])
def test_tensors_that_cannot_be_counted_leave_nothing_of_their_step(make, match):
    model = seeded(make)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with pytest.raises(InputError, match=match) as error:
        train(model, optimizer, 1, run := watch(model, optimizer))
    assert "skip=" in str(error.value)
    assert "\n" not in str(error.value)
    assert run.trace.steps() == []
    assert attached() == []
    model = seeded(make)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    train(model, optimizer, 2, run := watch(model, optimizer, unsupported="skip"))
    assert run.trace.steps() == [0, 1]
    [(name, why)] = run.trace.metadata["not_watched"].items()
    assert match in why
    assert name in str(error.value)


def test_skip_leaves_names_out():
    model = seeded(Fourier)
    optimizer = sgd(model)
    train(model, optimizer, 1, run := watch(model, optimizer, skip=["*fft*", "fc.bias*"]))
    names = set(run.trace.names())
    assert "fc.weight" in names
    assert not any("fft" in n or "bias" in n for n in names)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"every": 0}, "every=0"),
        ({"kinds": "weights"}, "unknown kind 'weights'; did you mean 'weight'"),
        ({"tensors": "some"}, "tensors='some'"),
        ({"to": "float17"}, "float17"),
        ({"stop_on": "infinity"}, "stop_on='infinity'"),
        ({"lead_up": -1}, "lead_up=-1"),
        ({"unsupported": "ignore"}, "unsupported='ignore'"),
        ({"optimizer": "adam"}, "no torch.optim.Optimizer"),
        ({"kinds": []}, "names no kind"),
        ({"lead_up": 10**30}, "must be an int from 0 to"),
        ({"skip": [5]}, "skip=5: must be text"),
        ({"evaluation": "no"}, "evaluation='no': must be True or False"),
        ({"metadata": 5}, "metadata 5: must be a dict"),
        ({"path": 5}, "path 5: "),
    ],
)
def test_options_that_cannot_be_used(options, match):
    with pytest.raises(FpemuError, match=match) as error:
        watch(nn.Linear(2, 2), **options)
    assert "\n" not in str(error.value)


def test_models_that_are_none():
    with pytest.raises(InputError, match=r"no torch\.nn\.Module"):
        watch([1])
    for none in ([], {}):
        with pytest.raises(InputError, match="holds no model"):
            watch(none)


def test_a_watch_is_entered_once():
    run = watch(nn.Linear(2, 2))
    with run:
        pass
    with pytest.raises(InputError, match="entered before"):
        run.__enter__()


def test_importing_analysis_loads_no_framework():
    code = "import sys, fpemu.analysis, fpemu.analysis.collect; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_leaves_that_are_made_in_a_step_are_none_of_its_results():
    lazy = nn.Sequential(nn.LazyLinear(3))
    with watch(lazy) as run:
        lazy(torch.randn(4, 2, requires_grad=True)).sum().backward()
    names = run.trace.names()
    assert "0" in names
    assert not [name for name in names if "uniform" in name or "randn" in name]


def test_what_an_emulation_itself_computes_is_no_operation_of_the_model():
    emulate = pytest.importorskip("fpemu.torch", reason="emulation is not there").emulate
    model = seeded(lambda: nn.Linear(4, 2))
    with emulate("torch.half", model=model), watch(model) as run:
        model(torch.randn(3, 4)).sum().backward()
    labels = {r.name.partition("@")[0] for r in run.trace.records(kind="activation")}
    assert labels == {"Linear", "sum"}


def test_optimizers_that_take_turns_are_one_step():
    """Two models that train each other; once the round is known a step has all of it."""
    makes, judges = nn.Linear(2, 2), nn.Linear(2, 1)
    of_makes, of_judges = sgd(makes), sgd(judges)
    with watch(None, every=4) as run:
        for _ in range(6):
            made = makes(torch.ones(3, 2))
            judges(made.detach()).mean().backward()
            of_judges.step()
            judges(made).mean().backward()
            of_makes.step()
    assert run.trace.steps() == [0, 4]
    late = {record.key[:2] for record in run.trace.records(step=4)}
    for name, weight in (("Linear", "weight"), ("Linear2", "Linear2.weight")):
        assert {(name, "activation_gradient"), (weight, "update")} <= late
