"""Delayed scaling in an emulation: when its states go on, and to what; files; several passes."""

from __future__ import annotations

import copy
import io
import json
import math
import os
from typing import Any

import numpy as np
import pytest

import fpemu
from fpemu.errors import InputError
from fpemu.policies import Products, find_policy
from fpemu.scaling import Delayed

torch = pytest.importorskip("torch", reason="emulate needs PyTorch")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

from fpemu.torch import emulate  # noqa: E402

SHORT = 'x="delayed(length=3) e4m3fn" w="delayed(length=3) e4m3fn" dy="delayed(length=3) e5m2"'


class ByHand:
    """One operand's delayed scaling: scale and history as plain numbers, saturating casts."""

    def __init__(self, to: str, largest: float, length: int) -> None:
        self.to, self.largest, self.length = to, np.float32(largest), length
        self.scale, self.history = np.float32(1), []

    def __call__(self, x: Any) -> Any:
        scaled = fpemu.round(x * self.scale, self.to, overflow="saturate")
        out = scaled * (np.float32(1) / self.scale)
        amax = np.abs(x).max(initial=0)
        if amax > 0:
            self.history = [*self.history, amax][-self.length :]
            self.scale = np.float32(self.largest / max(self.history))
        return out


def batches(count: int) -> list[tuple[Any, Any]]:
    """Inputs and upper gradients whose magnitudes wander over many binades."""
    random = torch.Generator().manual_seed(0)
    sizes = torch.randn(count, 2, generator=random).mul(3).exp()
    return [(torch.randn(16, 24, generator=random) * a, torch.randn(16, 8, generator=random) * b)
            for a, b in sizes]  # fmt: skip


def test_five_steps_by_hand() -> None:
    torch.manual_seed(0)
    model = nn.Linear(24, 8)
    w, b = model.weight.detach().numpy().copy(), model.bias.detach().numpy().copy()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    of_x, of_w, of_dy = ByHand("e4m3fn", 448, 3), ByHand("e4m3fn", 448, 3), ByHand("e5m2", 57344, 3)
    with emulate(Products.of(SHORT)) as emulation:
        for x, dy in batches(5):
            y = model(x.requires_grad_())
            optimizer.zero_grad()
            y.backward(dy)
            optimizer.step()
            scales = {role: s.scale for role, s in emulation.delayed["weight"].items()}

            rounded_x, rounded_w = of_x(x.detach().numpy()), of_w(w)
            rounded_dy = of_dy(dy.numpy())
            assert scales == {"x": of_x.scale, "w": of_w.scale, "dy": of_dy.scale}
            want = (rounded_x @ rounded_w.T + b, rounded_dy @ rounded_w, rounded_dy.T @ rounded_x)
            for got, one in zip((y, x.grad, model.weight.grad), want, strict=True):
                size = np.abs(one).max()
                np.testing.assert_allclose(got.detach().numpy(), one, rtol=0, atol=1e-5 * size)
            w = model.weight.detach().numpy().copy()
            b = model.bias.detach().numpy().copy()


def test_the_known_policy_is_transformer_engines() -> None:
    p = find_policy("te.delayed").products
    assert (p.x, p.w, p.dy) == (Delayed("e4m3fn"), Delayed("e4m3fn"), Delayed("e5m2"))
    assert {p.x.length, p.dy.length} == {1024}
    assert (p.x.element.max, p.dy.element.max) == (448, 57344)


def test_keras_float8_dense_step_by_step() -> None:
    os.environ.setdefault("KERAS_BACKEND", "torch")
    keras = pytest.importorskip("keras", reason="keras is not installed: pip install keras")
    if keras.backend.backend() != "torch":
        pytest.skip(f"Keras runs on {keras.backend.backend()} here: KERAS_BACKEND=torch")
    dense = keras.layers.Dense(8)
    dense.build((None, 24))
    layer = nn.Linear(24, 8)
    with torch.no_grad():
        layer.weight.copy_(dense.kernel.value.detach().T)
        layer.bias.copy_(dense.bias.value.detach())
    dense.quantize("float8")
    states = [v for v in dense.trainable_variables if v.overwrite_with_gradient]
    assert len(states) == 6
    emulation = emulate("keras.float8.delayed")
    for x, dy in batches(5):
        theirs, ours = (x.clone().requires_grad_() for _ in range(2))
        for variable in dense.trainable_variables:
            variable.value.grad = None
        y = dense(theirs, training=True)
        y.backward(dy)
        layer.zero_grad()
        with emulation:
            z = layer(ours)
            z.backward(dy)
        for variable in states:  # what their optimizers do
            variable.assign(variable.value.grad)
        pairs = ((z, y), (ours.grad, theirs.grad),
                 (layer.weight.grad, dense.kernel.value.grad.T))  # fmt: skip
        for got, want in pairs:
            size = float(want.detach().abs().max())
            torch.testing.assert_close(got, want, rtol=0, atol=1e-6 * size)
        scales = [emulation.delayed["weight"][role].scale for role in ("x", "w", "dy")]
        found = (dense.inputs_scale, dense.kernel_scale, dense.outputs_grad_scale)
        assert scales == [scale.value.item() for scale in found]


# --- when states go on -------------------------------------------------------------------------


def scale(emulation: Any, layer: str = "0", role: str = "x") -> float:
    return emulation.delayed[layer][role].scale


def model(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))


def test_a_pass_goes_by_what_came_before_it() -> None:
    net = model()
    with emulate("te.delayed; compute: float32") as emulation:
        net(torch.full((2, 8), 8.0))
        assert scale(emulation) == 448 / 8
        net(torch.full((2, 8), 2.0))
        assert scale(emulation) == 448 / 8, "the largest of the window"
        net(torch.full((2, 8), 64.0))
        assert scale(emulation) == 448 / 64


def test_passes_without_gradients_use_states_and_change_none() -> None:
    net = model()
    with emulate("te.delayed; compute: float32") as emulation:
        net(torch.full((2, 8), 8.0))
        with torch.no_grad():
            y = net(torch.full((2, 8), 80.0))
        assert scale(emulation) == 448 / 8
        assert torch.equal(y, net(torch.full((2, 8), 8.0))), "80 saturates at 8"


def test_gradients_go_on_where_a_backward_pass_ends() -> None:
    net = model()
    with emulate("te.delayed; compute: float32") as emulation:
        y = net(torch.ones(2, 8))
        assert "dy" not in emulation.delayed["2"]
        y.backward(torch.full((2, 4), 4.0))
        assert scale(emulation, "2", "dy") == 57344 / 4
        assert scale(emulation, "2", "x") == scale(emulation, "2", "x")


def test_calls_of_one_pass_are_one_step() -> None:
    """A layer that is used twice: one scale for both, the largest amax of both."""

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.shared = nn.Linear(8, 8)

        def forward(self, x: Any) -> Any:
            return self.shared(x * 16), self.shared(x)

    net = Twice()
    with emulate("te.delayed; compute: float32") as emulation:
        large, small = net(torch.ones(2, 8))
        state = emulation.delayed["shared"]["x"]
        assert (state.scale, state.window) == (448 / 16, (16.0,))
        (large.sum() * 8 + small.sum()).backward()
        state = emulation.delayed["shared"]["dy"]
        assert (state.scale, state.window) == (57344 / 8, (8.0,))


def test_a_pass_that_is_computed_again_counts_once() -> None:
    from torch.utils.checkpoint import checkpoint

    found = []
    for run in (lambda net, x: net(x), lambda net, x: checkpoint(net, x, use_reentrant=False)):
        net = model()
        with emulate("te.delayed", model=net) as emulation:
            for size in (1.0, 3.0, 2.0):
                run(net, torch.full((2, 8), size).requires_grad_()).sum().backward()
        found.append((emulation.state_dict(), [p.grad for p in net.parameters()]))
    assert found[0][0] == found[1][0]
    assert len(found[0][0]["delayed"]["0"]["x"]["window"]) == 3
    assert all(torch.equal(a, b) for a, b in zip(found[0][1], found[1][1], strict=True))


def test_a_backward_pass_that_breaks_off_is_forgotten() -> None:
    net = model()

    def fail(gradient: Any) -> None:
        raise RuntimeError("broken")

    with emulate("te.delayed; compute: float32") as emulation:
        x = torch.ones(2, 8).requires_grad_()
        x.register_hook(fail)
        with pytest.raises(RuntimeError, match="broken"):
            net(x).backward(torch.full((2, 4), 64.0))
        net(torch.ones(2, 8)).backward(torch.full((2, 4), 4.0))
        assert emulation.delayed["2"]["dy"].window == (4.0,)


def test_zero_and_broken_gradients_leave_the_scale() -> None:
    net = model()
    with emulate("te.delayed; compute: float32") as emulation:
        for value in (4.0, 0.0, math.inf, math.nan, 4.0):
            net(torch.ones(2, 8)).backward(torch.full((2, 4), value))
            assert scale(emulation, "2", "dy") == 57344 / 4
        window = emulation.delayed["2"]["dy"].window
    assert len(window) == 4, "all but the zero"


# --- names -------------------------------------------------------------------------------------


def test_two_models_have_states_of_their_own() -> None:
    a, b = model(0), model(1)
    with emulate("te.delayed; compute: float32") as emulation:
        a(torch.ones(2, 8))
        b(torch.full((2, 8), 2.0))
    assert {name: scale(emulation, name) for name in ("0", "0#2")} == {"0": 448, "0#2": 224}


def test_products_of_activations_are_told_apart() -> None:
    class Attention(nn.Module):
        def forward(self, q: Any) -> Any:
            return (q @ q.mT).softmax(-1) @ q

    net = nn.Sequential(Attention())
    policy = find_policy("te.delayed; scaled: matmul; compute: float32")
    with emulate(policy) as emulation:
        for _ in range(2):
            net(torch.full((2, 4, 8), 2.0).requires_grad_()).sum().backward()
        found = emulation.delayed
    assert sorted(found) == ["0.matmul", "0.matmul#2"]
    assert found["0.matmul"]["x"].window == (2.0, 2.0)
    assert found["0.matmul#2"]["x"].window == (0.25, 0.25)


def test_parameters_of_no_module_are_numbered() -> None:
    a, b = (torch.ones(4, 4, requires_grad=True) for _ in range(2))
    with emulate("te.delayed; compute: float32") as emulation:
        for size in (2.0, 1.0):
            F.linear(F.linear(torch.full((2, 4), size), a), b)
    states = {name: roles["x"].window for name, roles in emulation.delayed.items()}
    assert states == {"weight": (2.0, 1.0), "weight#2": (8.0, 4.0)}


# --- files -------------------------------------------------------------------------------------


def run(net: Any, optimizer: Any, emulation: Any, steps: range) -> list[float]:
    losses = []
    y = torch.arange(16) % 4
    with emulation:
        for step in steps:
            x = torch.randn(16, 8, generator=torch.Generator().manual_seed(step)) * 2.0**step
            loss = F.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses


DRAWN = 'x="delayed(length=2) e4m3fn:stochastic,overflow=saturate"'


@pytest.mark.parametrize("policy", [
    "te.delayed", "te.nvfp4", "te.delayed; override: to=mxfp4 module=2 steps=4..",
    f"te.delayed; override: to='{DRAWN}' module=0",
])  # fmt: skip
@pytest.mark.parametrize("through", ["json", "torch"])
def test_a_run_that_goes_on_equals_one_that_was_not_interrupted(policy: str, through: str) -> None:
    def start() -> tuple[Any, Any, Any]:
        net = model()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
        return net, optimizer, emulate(policy, seed=11)

    whole = run(*start(), range(7))
    net, optimizer, emulation = start()
    begun = run(net, optimizer, emulation, range(3))
    saved = [net.state_dict(), optimizer.state_dict(), emulation.state_dict()]
    if through == "json":
        saved[2] = json.loads(json.dumps(saved[2], allow_nan=False))
    else:
        file = io.BytesIO()
        torch.save(saved[2], file)
        file.seek(0)
        saved[2] = torch.load(file, weights_only=True)
    saved = copy.deepcopy(saved)
    net, optimizer, emulation = start()
    for one, state in zip((net, optimizer, emulation), saved, strict=True):
        one.load_state_dict(state)
    assert emulation.step == 3
    assert begun + run(net, optimizer, emulation, range(3, 7)) == whole


def test_a_window_with_a_nan_goes_through_json() -> None:
    net = model()
    with emulate("te.delayed") as emulation:
        net(torch.full((2, 8), math.nan))
    text = json.dumps(emulation.state_dict(), allow_nan=False)
    again = emulate("te.delayed")
    again.load_state_dict(json.loads(text))
    window = again.delayed["0"]["x"].window
    assert len(window) == 1
    assert math.isnan(window[0])


@pytest.mark.parametrize(("facts", "message"), [
    ({}, "is not what state_dict gives"),
    ({"step": -1}, "state step=-1: must be an int"),
    ({"drawn": 0.5}, "state drawn=0.5"),
    ({"seed": "x"}, "seed='x'"),
    ({"delayed": {"0": {"x": {"scale": 1.0}}}}, "state of x of layer '0'"),
    ({"delayed": {"0": {"x": {"delayed": "delayed e4m3", "scale": 1, "window": []}}}}, "e4m3"),
])  # fmt: skip
def test_other_states_are_refused(facts: dict[str, Any], message: str) -> None:
    whole = {"step": 0, "seed": None, "drawn": 0, "delayed": {}}
    with pytest.raises(InputError, match=message):
        emulate("te.delayed").load_state_dict({**whole, **facts} if facts else {})


def test_a_policy_holds_no_state() -> None:
    _, used = Delayed("e4m3fn").round(np.float32([2.0]))
    with pytest.raises(InputError, match="a Delayed that has seen steps"):
        Products(used)
