"""The emulation context: formats of tensors, phases, policies, steps, refusals, nothing left."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
import weakref
from typing import Any

import numpy as np
import pytest
from support import assert_same_bits, directed_inputs

import fpemu
from fpemu.cast import make_cast
from fpemu.errors import FpemuError, InputError
from fpemu.policies import Override, Policy, find_policy

torch = pytest.importorskip("torch", reason="emulate needs PyTorch")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

from fpemu.torch import emulate  # noqa: E402

FP16 = "torch.autocast.cuda.float16"
CPU = "torch.autocast.cpu.bfloat16"


def bits(tensor: Any) -> Any:
    return tensor.detach().numpy().view(np.uint32)


def same(a: Any, b: Any) -> bool:
    return bool((bits(a) == bits(b)).all())


def through(tensor: Any, to: str) -> Any:
    return torch.from_numpy(fpemu.round(tensor.detach().numpy(), to))


def named(emulation: Any, *tensors: Any) -> list[str]:
    return [emulation.format(t).format.name for t in tensors]


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(inplace=True), nn.Linear(8, 3))


def batch() -> tuple[Any, Any]:
    random = torch.Generator().manual_seed(5)
    return torch.randn(16, 4, generator=random), torch.arange(16) % 3


def train(model: nn.Module, policy: Any, steps: int = 2, make: Any = None, **options: Any) -> Any:
    """(emulation, optimizer, last loss)."""
    x, y = batch()
    optimizer = (make or torch.optim.SGD)(model.parameters(), lr=0.1)
    with emulate(policy, **options) as emulation:
        for _ in range(steps):
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return emulation, optimizer, loss


# --- numbers, against the same steps written out --------------------------------------------------


def test_forward_and_backward_step_by_step() -> None:
    """linear, relu, linear, sum in float16, each result rounded by hand."""
    torch.manual_seed(1)
    x, a, b = torch.randn(5, 6), torch.randn(7, 6), torch.randn(3, 7)
    wa, wb = a.clone().requires_grad_(), b.clone().requires_grad_()
    with emulate(FP16) as emulation:
        hidden = F.linear(x, wa).relu()
        out = F.linear(hidden, wb)
        loss = out.float().square().sum()
        loss.backward()
        assert named(emulation, hidden, out, loss) == ["float16", "float16", "float32"]

    def r(t: Any) -> Any:
        return through(t, "fp16")

    x16, a16, b16 = r(x), r(a), r(b)
    before = r(x16 @ a16.T)
    h = before.relu()
    y = r(h @ b16.T)
    assert same(out, y)
    upper = r(2 * y)
    assert same(wb.grad, r(upper.T @ h))
    lower = r(upper @ b16) * (before > 0)
    assert same(wa.grad, r(lower.T @ x16))


def test_fp8_hybrid_rounds_inputs_and_gradients_to_their_own_formats() -> None:
    torch.manual_seed(2)
    x, w, upper = torch.randn(5, 6), torch.randn(7, 6), torch.randn(5, 7)
    weight, given = w.clone().requires_grad_(), x.clone().requires_grad_()
    with emulate("fp8_hybrid") as emulation:
        out = F.linear(given, weight)
        out.backward(upper)
    x8, w8 = (through(t, "torch.float8_e4m3fn") for t in (x, w))
    g8 = through(upper, "e5m2")
    assert named(emulation, out) == ["float32"]
    assert torch.allclose(out, x8 @ w8.T, rtol=1e-6, atol=1e-6)
    assert torch.allclose(weight.grad, g8.T @ x8, rtol=1e-6, atol=1e-6)
    assert torch.allclose(given.grad, g8 @ w8, rtol=1e-6, atol=1e-6)
    assert not torch.allclose(out, x @ w.T, rtol=1e-3)


def test_an_addition_beyond_65504_overflows() -> None:
    """As the residual additions of T5 do."""
    with emulate("torch.half") as emulation:
        x = torch.tensor([40000.0]).half()
        assert (x + x).isinf().all()
        assert not x.isinf().any()
    with emulate("torch.bfloat16"):
        x = torch.tensor([40000.0]).bfloat16()
        assert (x + x) == 79872  # 39936 twice
    assert not emulation.not_emulated


@pytest.mark.parametrize("to", ["fp16", "bf16", "e4m3fn", "fp16:toward_zero", "tf32"])
def test_numbers_are_those_of_round(to: str) -> None:
    """PyTorch's own cast serves float16; in place and not, of every layout."""
    x = directed_inputs(make_cast(to).format)
    x = np.tile(np.concatenate([x, np.resize(x, -len(x) % 64)]), 8).reshape(4, -1, 16)
    plain = torch.from_numpy(x)
    for t in (plain, plain.transpose(0, 2), plain[:, ::2]):
        want = fpemu.round(t.numpy(), make_cast(to))
        with emulate(Policy("mine", to, operations={"positive": "lower"})) as emulation:
            got = torch.positive(t)
            second = torch.positive(torch.zeros_like(t)).clone()
            second.copy_(t)
        assert named(emulation, got, second) == [make_cast(to).format.name] * 2
        assert_same_bits(got.numpy(), want)
        assert_same_bits(second.numpy(), want)


@pytest.mark.gpu
@pytest.mark.parametrize("policy", [FP16, "uniform:e4m3fn", "torch.half"])
def test_cuda_gives_what_the_cpu_gives_but_for_sums(policy: str) -> None:
    results = []
    for device in ("cpu", "cuda"):
        model, (x, y) = network().to(device), batch()
        with emulate(policy, model=model) as emulation:
            loss = F.cross_entropy(model(x.to(device)), y.to(device))
            loss.backward()
        gradients = [p.grad.cpu() for p in model.parameters()]
        results.append((loss.item(), gradients, named(emulation, *gradients)))
    assert results[0][2] == results[1][2]
    assert abs(results[0][0] - results[1][0]) < 0.05
    for a, b in zip(results[0][1], results[1][1], strict=True):
        assert (a - b).norm() <= 0.1 * a.norm() + 1e-3


# --- formats travel with storages -----------------------------------------------------------------


def test_views_and_writes_keep_formats() -> None:
    with emulate(CPU) as emulation:
        x = torch.randn(4, 6).bfloat16()
        views = [x.view(2, 12), x.t(), x[1:], x.detach(), x[None].expand(3, 4, 6), x.chunk(2)[1]]
        assert named(emulation, *views) == ["bfloat16"] * 6
        assert named(emulation, x.clone(), x.contiguous(), x.reshape(24)) == ["bfloat16"] * 3
        x[0] = torch.full((6,), 0.1)
        assert x[0, 0].item() == 0.10009765625
        x.add_(torch.full((6,), 1e-4))
        assert same(x, through(x, "bf16"))
        wide = torch.zeros(6)
        wide.copy_(x[0])
        wide.add_(1e-4)
        assert named(emulation, wide) == ["float32"]
        assert not same(wide, through(wide, "bf16"))


def test_promotion_is_pytorchs() -> None:
    with emulate(CPU) as emulation:
        low, other = torch.randn(3).bfloat16(), torch.randn(3).half()
        wide, ints = torch.randn(3), torch.arange(3)
        cases = {
            "bfloat16": [low + low, low + 1, low * 0.1, low + ints, low * torch.tensor(0.1)],
            "float32": [low + wide, low + other, low.sum(dtype=torch.float32), wide * low[0]],
            "float16": [other + other, low.to(other), torch.zeros(3, dtype=torch.float16)],
        }
        for name, tensors in cases.items():
            assert named(emulation, *tensors) == [name] * len(tensors)
        assert (low + low.double()).dtype is torch.float64
        assert (low > 0).dtype is torch.bool


def test_tags_go_with_their_tensors() -> None:
    with emulate(CPU) as emulation:
        x = torch.randn(4).bfloat16()
        y = x.exp()
        assert len(emulation._state.tags) == 2
        del x, y
        gc.collect()
        assert len(emulation._state.tags) == 0


def test_nothing_keeps_a_model_alive() -> None:
    model = network()
    train(model, FP16)
    emulation = emulate(FP16, model=model)
    with emulation:
        model(batch()[0]).sum().backward()
    seen = weakref.ref(model)
    parameter = weakref.ref(model[0].weight)
    del model
    gc.collect()
    assert seen() is None
    assert parameter() is None


def test_conversions_that_a_program_writes() -> None:
    with emulate(FP16) as emulation:
        x = torch.tensor([0.1, 70000.0])
        makers = [x.half(), x.to(torch.float16), x.to("cpu", torch.float16), x.type(torch.half),
                  x.to(dtype=torch.half), x.half().float().half()]  # fmt: skip
        for made in makers:
            assert made.dtype is torch.float32
            assert named(emulation, made) == ["float16"]
            assert made.tolist() == [0.0999755859375, float("inf")]
        assert named(emulation, x.half().float(), x.half().to(torch.float32)) == ["float32"] * 2
        assert x.half().double().dtype is torch.float64
        double = torch.tensor([1 + 2**-11 + 2**-40], dtype=torch.float64)
        assert double.half().item() == 1 + 2**-10  # rounded once: in float32 it would be a tie
        assert named(emulation, torch.randn(3).to(torch.float8_e5m2)) == ["float8_e5m2"]


# --- phases ---------------------------------------------------------------------------------------


def test_rules_do_not_hold_in_optimizers() -> None:
    """On CUDA, pow and addcdiv are listed; an optimizer's own are not cast."""
    plain, other = network(), network()
    train(plain, "apex.O0", make=torch.optim.Adam)
    x, y = batch()
    optimizer = torch.optim.Adam(other.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        F.cross_entropy(other(x), y).backward()
        optimizer.step()
    for a, b in zip(plain.parameters(), other.parameters(), strict=True):
        assert same(a, b)  # apex.O0 is float32: emulating it changes no bit


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoints_compute_the_same_again(reentrant: bool) -> None:
    from torch.utils.checkpoint import checkpoint

    gradients = []
    for run in (lambda m, x: m(x), lambda m, x: checkpoint(m, x, use_reentrant=reentrant)):
        model, x = network(), batch()[0].requires_grad_()
        with emulate(FP16):
            F.cross_entropy(run(model, x), batch()[1]).backward()
        gradients.append([x.grad, *(p.grad for p in model.parameters())])
    for a, b in zip(*gradients, strict=True):
        assert same(a, b)


def test_double_backward_is_that_of_the_real_autocast() -> None:
    torch.manual_seed(4)
    a, w = torch.randn(4, requires_grad=True), torch.randn(4, 4, requires_grad=True)
    found = []
    for inside in (False, True):
        w.grad = None
        with emulate(CPU) if inside else torch.autocast("cpu", torch.bfloat16):
            out = F.linear(a[None], w).tanh().square().sum()
            if inside:
                (first,) = torch.autograd.grad(out, a, create_graph=True)
                first.square().sum().backward()
        if not inside:
            (first,) = torch.autograd.grad(out, a, create_graph=True)
            first.square().sum().backward()
        found.append((first.detach(), w.grad.clone()))
    assert same(found[0][0], found[1][0])
    assert same(found[0][1], found[1][1])


def test_functions_of_ones_own() -> None:
    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 3

        @staticmethod
        def backward(ctx: Any, upper: Any) -> Any:
            return upper * 3

    x = torch.full((2,), 0.1, requires_grad=True)
    with emulate(CPU) as emulation:
        y = Scaled.apply(x.bfloat16())
        y.sum().backward()
    assert named(emulation, y, x.grad) == ["bfloat16", "float32"]
    assert y[0].item() == through(through(torch.tensor([0.1]), "bf16") * 3, "bf16").item()


def test_an_optimizer_that_fails_does_not_stop_the_emulation() -> None:
    class Failing(torch.optim.SGD):
        @torch.no_grad()
        def step(self, closure: Any = None) -> None:
            raise RuntimeError("no step")

    model = network()
    optimizer = Failing(model.parameters(), lr=0.1)
    with emulate(FP16) as emulation:
        with pytest.raises(RuntimeError, match="no step"):
            optimizer.step()
        with torch.no_grad():
            assert named(emulation, model(batch()[0])) == ["float16"]
        assert emulation.step == 0


def test_closures_are_forward_passes() -> None:
    model, (x, y) = network(), batch()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)
    seen = set()
    with emulate(FP16) as emulation:

        def closure() -> Any:
            optimizer.zero_grad()
            out = model(x)
            seen.update(named(emulation, out))
            loss = F.cross_entropy(out, y)
            loss.backward()
            return loss

        optimizer.step(closure)
    assert seen == {"float16"}


def test_the_loss_scaler_sees_overflow() -> None:
    """A scale that lifts gradients beyond 65504: the step is left out, the scale halved."""
    model, (x, y) = network(), batch()
    before = copy.deepcopy(model.state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**20)
    with emulate(FP16):
        scaler.scale(F.cross_entropy(model(x), y)).backward()
        scaler.step(optimizer)
        scaler.update()
    assert scaler.get_scale() == 2.0**19
    assert same(model[0].weight, before["0.weight"])


# --- weights --------------------------------------------------------------------------------------


def test_a_weight_is_cast_once_as_long_as_it_stays() -> None:
    weight, x = torch.randn(4, 4, requires_grad=True), torch.randn(2, 4)
    with emulate(FP16):
        first, second = F.linear(x, weight), F.linear(x, weight)
        paths = [out.grad_fn.next_functions[-1][0].next_functions for out in (first, second)]
        assert paths[0] == paths[1]  # through the transpose, to one node
        for change in (lambda: weight.data.mul_(2), lambda: weight.detach().add_(1)):
            change()
            want = F.linear(through(x, "fp16"), through(weight, "fp16"))
            assert same(F.linear(x, weight), through(want, "fp16"))
        with torch.no_grad():
            assert not F.linear(x, weight).requires_grad
        assert F.linear(x, weight).requires_grad


OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, foreach=False),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.1, weight_decay=0.1, foreach=False),
    "AdamW fused": lambda p: torch.optim.AdamW(p, lr=0.1, weight_decay=0.1, fused=True),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_pure_bfloat16_steps_are_those_of_a_bfloat16_model(name: str) -> None:
    """Weights, momentum and variance in bfloat16: the CPU's kernels, to the bit."""
    uppers = torch.randn(3, 8, 8, generator=torch.Generator().manual_seed(3))
    torch.manual_seed(0)
    first = nn.Linear(8, 8, bias=False)
    second = copy.deepcopy(first).bfloat16()
    one, two = (OPTIMIZERS[name](m.parameters()) for m in (first, second))
    for upper in uppers:
        second.weight.grad = upper.bfloat16()
        two.step()
    with emulate("torch.bfloat16", model=first, device="cpu") as emulation:
        for upper in uppers:
            first.weight.grad = upper.bfloat16()
            one.step()
    assert same(first.weight, second.weight.float())
    state = [v for v in one.state[first.weight].values() if torch.is_tensor(v) and v.dim()]
    assert named(emulation, first.weight, *state) == ["bfloat16"] * (1 + len(state))


def test_the_last_elements_of_an_array_are_as_the_others() -> None:
    """PyTorch's own kernels round the product too in what is left over of 32 elements."""
    random = torch.Generator().manual_seed(3)
    x, y = torch.randn(2, 4000 + 31, generator=random).bfloat16()
    want = torch.add(x, y, alpha=0.1)
    wide = x.float(), y.float()
    with emulate("torch.bfloat16", device="cpu"):
        got = torch.add(*(t.bfloat16() for t in wide), alpha=0.1)
    wrong = (bits(got) != bits(want.float())).nonzero()[0]
    assert (wrong >= 4000).all()


def test_master_weights_are_read_narrow() -> None:
    """Apex O2: float32 weights with float16 copies, batch normalization in float32."""
    model = network()
    x = batch()[0]
    with emulate("apex.O2") as emulation:
        out = model(x)
        assert named(emulation, model[0].weight, model[1].running_mean, out) == ["float32"] * 3
    half = copy.deepcopy(network())
    hidden = F.linear(*(through(t, "fp16") for t in (x, half[0].weight, half[0].bias)))
    hidden = half[1](through(hidden, "fp16"))
    hidden = through(hidden, "fp16").relu()
    want = F.linear(hidden, *(through(t, "fp16") for t in (half[3].weight, half[3].bias)))
    assert torch.allclose(out, through(want, "fp16"), rtol=2e-3, atol=1e-4)
    assert not same(model[0].weight, through(model[0].weight, "fp16"))


def test_master_weights_can_be_written_to() -> None:
    model = network()
    with emulate("apex.O2") as emulation:
        model(batch()[0])
        before = model[0].weight.detach().clone()
        with torch.no_grad():
            model[0].weight.mul_(1.0001)
    assert named(emulation, model[0].weight) == ["float32"]
    assert same(model[0].weight, before * 1.0001)


def test_pure_half_holds_weights_and_state_in_float16() -> None:
    model = network()
    emulation, optimizer, _ = train(
        model, "torch.half", make=lambda p, lr: torch.optim.SGD(p, lr, momentum=0.9)
    )
    weight = model[0].weight
    momentum = optimizer.state[weight]["momentum_buffer"]
    held = [weight, weight.grad, momentum, model[1].weight, model[1].running_mean]
    assert named(emulation, *held) == ["float16"] * 5
    for tensor in held:
        assert same(tensor, through(tensor, "fp16"))


def test_state_in_a_format_of_its_own() -> None:
    model = network()
    policy = find_policy(f"{FP16}; state: e5m2")
    emulation, optimizer, _ = train(model, policy, make=torch.optim.Adam)
    state = optimizer.state[model[0].weight]
    assert named(emulation, state["exp_avg"], state["step"]) == ["float8_e5m2", "float32"]
    assert same(state["exp_avg_sq"], through(state["exp_avg_sq"], "e5m2"))
    assert named(emulation, model[0].weight) == ["float32"]


def test_state_of_one_module() -> None:
    policy = find_policy(FP16).replace(overrides=[Override("bf16", module="3", kind="state")])
    model = network()
    emulation, optimizer, _ = train(model, policy, make=torch.optim.Adam)
    averages = [optimizer.state[model[i].weight]["exp_avg"] for i in (0, 3)]
    assert named(emulation, *averages) == ["float32", "bfloat16"]


def test_inputs_and_outputs_of_the_model() -> None:
    class Wrapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 2)

        def forward(self, x: Any, *, more: Any) -> Any:
            seen.extend(named(emulation, x, more["a"]))
            return {"out": [self.layer(x), 3], "kept": torch.arange(2)}

    seen: list[str] = []
    model = Wrapped()
    emulation = emulate("jmp:params=float32,compute=float16,output=bfloat16", model=model)
    with emulation:
        result = model(torch.randn(3, 4), more={"a": torch.randn(2)})
    assert seen == ["float16", "float16"]
    assert named(emulation, result["out"][0]) == ["bfloat16"]
    assert result["kept"].dtype is torch.int64


# --- overrides and steps --------------------------------------------------------------------------


def test_overrides_by_module_operation_and_step() -> None:
    overrides = [
        Override("float32", module="0"),
        Override("e4m3fn", module="3", first_step=1, last_step=1),
        Override("bf16", operation="softmax"),
    ]
    model, (x, y) = network(), batch()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen = []
    hook = model[0].register_forward_hook(lambda m, a, out: seen.append(out))
    with emulate(find_policy(FP16).replace(overrides=overrides)) as emulation:
        for _ in range(3):
            out = model(x)
            seen.append(out.softmax(-1))
            seen.append(out)
            F.cross_entropy(out, y).backward()
            optimizer.step()
        names = named(emulation, *seen)
        assert emulation.step == 3
        emulation.step = 1
        assert named(emulation, model(x)) == ["float8_e4m3fn"]
        optimizer.step()
        assert emulation.step == 1  # counted by hand from now on
    hook.remove()
    assert names[::3] == ["float32"] * 3
    assert names[1::3] == ["bfloat16"] * 3
    assert names[2::3] == ["float16", "float8_e4m3fn", "float16"]
    with pytest.raises(InputError, match="steps are ints from 0"):
        emulation.step = -1


def test_steps_are_the_first_optimizers() -> None:
    one, two = (torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0) for _ in range(2))
    with emulate(FP16) as emulation:
        for optimizer in (one, two, two, one):
            optimizer.step()
    assert emulation.step == 2


def test_weights_of_a_kind_of_their_own() -> None:
    policy = Policy("mine", "bf16", operations={"linear": "lower"},
                    overrides=[Override("e4m3fn", kind="weight")])  # fmt: skip
    weight, x = torch.randn(3, 4, requires_grad=True), torch.randn(2, 4)
    with emulate(policy) as emulation:
        out = F.linear(x, weight)
    assert named(emulation, out) == ["bfloat16"]
    assert same(out, through(through(x, "bf16") @ through(weight, "e4m3fn").T, "bf16"))


def test_every_operation_in_one_format() -> None:
    with emulate("uniform:e5m2") as emulation:
        x = torch.tensor([0.3, 1.1, 300.0])
        y = (x * 1.0).softmax(-1)
        assert named(emulation, y, x.exp(), x.view(3, 1), x) == [
            "float8_e5m2", "float8_e5m2", "float32", "float32"]  # fmt: skip
        assert x.exp().tolist() == [1.25, 2.5, float("inf")]


def test_stochastic_casts_take_a_seed() -> None:
    x = torch.full((1000,), 0.3)
    with pytest.raises(InputError, match="seed="), emulate("uniform:bf16:stochastic"):
        _ = x * 1
    results = []
    for seed in (1, 1, 2):
        with emulate("uniform:bf16:stochastic", seed=seed):
            first = x * 1
            results.append((first, x * 1))
    assert same(results[0][0], results[1][0])
    assert not same(results[0][0], results[2][0])
    assert not same(results[0][0], results[0][1])  # fresh bits each time
    assert abs(results[0][0].mean() - 0.3) < 1e-4


FOREIGN = {
    # policy: formats of linear, softmax of it, its sum with itself, layer_norm of it
    "keras.mixed_float16": ["float16", "float16", "float16", "float16"],
    "tensorflow.float16": ["float16", "float16", "float16", "float16"],
    "mxnet.amp.float16": ["float16", "float32", "float16", "float32"],
    "caffe2.float16": ["float16", "float16", "float16", "float16"],
    "keras.float8": ["float32", "float32", "float32", "float32"],
    "apex.O1": ["float16", "float32", "float16", "float32"],
    "mxnet.amp.bfloat16": ["bfloat16", "float32", "bfloat16", "float32"],
}


@pytest.mark.parametrize("policy", FOREIGN)
def test_policies_of_other_frameworks(policy: str) -> None:
    layer = nn.Linear(4, 3)
    with emulate(policy) as emulation:
        y = layer(torch.randn(2, 4))
        results = [y, y.softmax(-1), y + y, F.layer_norm(y, (3,))]
    assert named(emulation, *results) == FOREIGN[policy]
    whole = policy in ("keras.float8", "apex.O1")
    loss = policy.startswith("caffe2")
    assert len(emulation.not_emulated) == (0 if whole or loss else 1)


def test_other_frameworks_lists_hold_as_in_torch_says() -> None:
    """Not by a table of its own: MXNet lowers addmm and products, and has det in float32."""
    low = torch.eye(3)
    with emulate("mxnet.amp.float16") as emulation:
        results = [low @ low, torch.addmm(low, low, low), torch.linalg.det((low + 0).half())]
        assert named(emulation, *results) == ["float16", "float16", "float32"]
    (left_out,) = emulation.not_emulated
    assert "PyTorch has no operation for" in left_out
    with emulate("keras.mixed_float16") as emulation:
        loss = F.hinge_embedding_loss(low.half(), torch.ones(3, 3))
        assert named(emulation, loss) == ["float32"]


def test_functions_in_python_that_a_policy_lists() -> None:
    """Apex patches cross_entropy itself; the dispatcher has cross_entropy_loss."""
    with emulate("apex.O1") as emulation:
        low = torch.randn(4, 3).half()
        assert named(emulation, F.cross_entropy(low, torch.arange(4) % 3)) == ["float32"]
        assert named(emulation, F.normalize(low), F.relu(low)) == ["float32", "float16"]


def by_method(x: Any, dtype: Any) -> Any:
    return x.softmax(-1, dtype)


CONVERTING = {
    "softmax": lambda x, dtype: torch.softmax(x, -1, dtype=dtype),
    "log_softmax": lambda x, dtype: torch.special.log_softmax(x, -1, dtype=dtype),
    "F.softmax": lambda x, dtype: F.softmax(x, -1, dtype=dtype),
    "F.softmin": lambda x, dtype: F.softmin(x, -1, dtype=dtype),
    "by position": by_method,
}


@pytest.mark.parametrize("function", CONVERTING)
@pytest.mark.parametrize("policy", ["torch.bfloat16", FP16, CPU])
def test_softmax_in_a_dtype_of_its_own(function: str, policy: str) -> None:
    """As attention does it: softmax(scores, dtype=float32), whose gradient is narrow again."""
    torch.manual_seed(0)
    values, upper = torch.randn(64, 8), torch.randn(64, 8)
    real = values.bfloat16().requires_grad_()
    expected = CONVERTING[function](real, torch.float32)
    expected.backward(upper)
    source = values.clone().requires_grad_()
    with emulate(policy) as emulation:
        narrow = source.bfloat16()
        narrow.retain_grad()
        got = CONVERTING[function](narrow, torch.float32)
        got.backward(upper)
        assert named(emulation, got, narrow.grad) == ["float32", "bfloat16"]
    assert same(got, expected)
    assert same(narrow.grad, real.grad.float())


@pytest.mark.filterwarnings("ignore:Mismatch dtype")  # PyTorch's, of what it does in one kernel
@pytest.mark.parametrize("weight", [None, "float32", "bfloat16"])
def test_rms_norm_is_float32_inside_and_narrow_outside(weight: str | None) -> None:
    torch.manual_seed(0)
    values, upper, gain = torch.randn(64, 8) * 3, torch.randn(64, 8), torch.rand(8)
    real = [values.bfloat16()]
    if weight is not None:
        real.append(gain.to(getattr(torch, weight)))
    for tensor in real:
        tensor.requires_grad_()
    expected = F.rms_norm(real[0], (8,), *real[1:])
    expected.backward(upper.bfloat16())
    ours = [t.detach().float().requires_grad_() for t in real]
    with emulate("torch.bfloat16", device="cpu") as emulation:
        x = ours[0].bfloat16()
        w = [t.bfloat16() if weight == "bfloat16" else t for t in ours[1:]]
        got = F.rms_norm(x, (8,), *w)
        got.backward(upper.bfloat16())
        assert named(emulation, got) == ["bfloat16"]
    assert same(got, expected.float())
    assert same(ours[0].grad, real[0].grad.float())
    for mine, true in zip(ours[1:], real[1:], strict=True):  # a sum over rows
        torch.testing.assert_close(mine.grad, true.grad.float(), rtol=2**-8, atol=0)


def test_softmax_in_a_narrow_dtype_by_position() -> None:
    with emulate("torch.half") as emulation:
        assert named(emulation, by_method(torch.randn(3), torch.float16)) == ["float16"]
        assert by_method(torch.randn(3).half(), torch.float64).dtype is torch.float64


# --- what is not emulated -------------------------------------------------------------------------


def test_attention_in_one_kernel_is_named_and_can_be_taken_apart() -> None:
    q = torch.full((1, 1, 4, 64), 300.0)
    with emulate(FP16) as emulation:
        assert F.scaled_dot_product_attention(q, q, q).isfinite().all()
    assert [text.partition(":")[0] for text in emulation.not_emulated] == [
        "scaled_dot_product_attention"]  # fmt: skip
    from torch.nn.attention import SDPBackend, sdpa_kernel

    before = torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed()
    torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(True)
    try:
        with emulate(FP16) as emulation, sdpa_kernel(SDPBackend.MATH):
            # 64 * 300 * 300 / 8 is beyond 65504, and inf - inf is NaN
            assert F.scaled_dot_product_attention(q, q, q).isnan().all()
    finally:
        torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(before)
    assert emulation.not_emulated == []


def quantized() -> Any:
    values, scale = torch.zeros(2, dtype=torch.int8), 0.1
    return torch._make_per_tensor_quantized_tensor(values, scale, 0)


REFUSED = {
    "a real torch.float16 tensor": lambda: torch.zeros(2, dtype=torch.float16),
    "a real torch.bfloat16 tensor": lambda: torch.zeros(2, dtype=torch.bfloat16),
    "a real torch.float8_e5m2 tensor": lambda: torch.zeros(2).to(torch.float8_e5m2),
    "a tensor torch.sparse_coo": lambda: torch.eye(2).to_sparse(),
    "a real torch.qint8 tensor": quantized,
    "a meta tensor": lambda: torch.zeros(2, device="meta"),
}


@pytest.mark.filterwarnings("ignore")  # sparse and quantized tensors are in beta, or leaving
@pytest.mark.parametrize("message", REFUSED)
def test_refusals_are_one_line(message: str) -> None:
    tensor = REFUSED[message]()
    with pytest.raises(InputError, match=message) as caught, emulate("uniform:fp16"):
        tensor * tensor
    assert "\n" not in str(caught.value)
    assert_nothing_is_left()


def test_a_real_autocast_inside_is_refused() -> None:
    with pytest.raises(InputError, match=r"switch torch\.autocast off"), emulate(FP16), \
            torch.autocast("cpu", torch.bfloat16):  # fmt: skip
        F.linear(torch.randn(2, 2), torch.randn(2, 2))


def test_a_real_half_tensor_can_be_brought_in() -> None:
    real = torch.tensor([0.1]).half()
    with emulate(FP16) as emulation:
        assert named(emulation, real.float() + 1) == ["float32"]


def test_transforms_of_torch_func_are_refused() -> None:
    with pytest.raises(InputError, match=r"inside of torch\.func"), emulate("uniform:fp16"):
        torch.func.vmap(lambda x: x.sin())(torch.randn(3, 2))


def test_float64_integers_and_complex_numbers_are_left_alone() -> None:
    double, number = torch.full((2,), 0.1).double(), torch.full((2,), 0.1 + 0.2j)
    with emulate("uniform:e4m3fn"):
        assert (double * 3).tolist() == (np.full(2, np.float64(np.float32(0.1))) * 3).tolist()
        assert (number * 3).tolist() == (number.numpy() * np.complex64(3)).tolist()
        assert (torch.arange(3) + 1).tolist() == [1, 2, 3]


def test_policies_with_unknown_operations_are_refused() -> None:
    with pytest.raises(FpemuError, match="unknown operation 'sofmax'; did you mean 'softmax'"):
        emulate(f"{FP16}; lower: sofmax")
    with pytest.raises(InputError, match="choose 'cpu' or 'cuda'"):
        emulate(FP16, device="tpu")


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_run_as_single_operations(kind: type) -> None:
    """CUDA's autocast casts all of a layer; its steps are rounded one by one."""
    torch.manual_seed(0)
    layer, x = kind(4, 3), torch.randn(5, 2, 4)
    packed = nn.utils.rnn.pack_padded_sequence(x, [5, 3])
    with emulate(FP16) as emulation, torch.no_grad():
        out, other = layer(x)[0], layer(packed)[0].data
    assert named(emulation, out, other) == ["float16"] * 2
    assert same(out, through(out, "fp16"))
    assert torch.allclose(out, layer(x)[0], atol=2e-3)
    assert not same(out, through(layer(x)[0], "fp16"))  # not only the last result is rounded
    assert emulation.not_emulated == []


@pytest.mark.filterwarnings("ignore")  # of the compiler's own
def test_compiled_models_run_as_they_are_written() -> None:
    model, x = network().eval(), batch()[0]
    compiled = torch.compile(model, backend="eager")
    with emulate(FP16) as emulation:
        want, got = model(x), compiled(x)
    assert named(emulation, got) == ["float16"]
    assert same(want, got)


# --- the context ----------------------------------------------------------------------------------


def assert_nothing_is_left() -> None:
    from torch.nn.modules import module
    from torch.optim import optimizer
    from torch.overrides import _get_current_function_mode
    from torch.utils._python_dispatch import _get_current_dispatch_mode

    assert _get_current_function_mode() is None
    assert _get_current_dispatch_mode() is None
    assert not module._global_forward_hooks
    assert not module._global_forward_pre_hooks
    assert not optimizer._global_optimizer_pre_hooks
    assert not optimizer._global_optimizer_post_hooks


@pytest.mark.parametrize("policy", [FP16, "torch.half", "apex.O2"])
def test_nothing_is_left_behind(policy: str) -> None:
    model = network()

    def fails() -> None:
        model(batch()[0])
        raise ArithmeticError("inside")

    with pytest.raises(ArithmeticError), emulate(policy, model=model):
        fails()
    assert_nothing_is_left()
    assert not model._forward_pre_hooks
    assert same(torch.full((1,), 0.1) * 3, torch.from_numpy(np.float32([0.1]) * np.float32(3)))


def test_a_module_that_raises_leaves_the_names_in_order() -> None:
    class Raises(nn.Module):
        def forward(self, x: Any) -> Any:
            raise KeyError("inside")

    model = nn.Sequential(Raises())
    policy = find_policy(FP16).replace(overrides=[Override("bf16", module="0")])
    with emulate(policy) as emulation:
        with pytest.raises(KeyError):
            model(torch.randn(2, 4))
        assert named(emulation, F.linear(torch.randn(2, 2), torch.randn(2, 2))) == ["float16"]


def test_it_can_be_entered_again_and_again() -> None:
    emulation = emulate(CPU)
    with emulation:
        x = torch.randn(3).bfloat16()
        with emulation:
            y = x.exp()
        z = y * 2
    assert torch.get_default_dtype() is torch.float32
    assert_nothing_is_left()
    with emulation:  # it still knows its tensors
        assert named(emulation, x, y, z, z + 1) == ["bfloat16"] * 4


def test_an_inner_emulation_takes_the_outer_ones_place() -> None:
    outer, inner = emulate(FP16), emulate(CPU)
    x, w = torch.randn(2, 3), torch.randn(4, 3)
    with outer:
        with inner:
            y = F.linear(x, w)
            assert named(inner, y) == ["bfloat16"]
            with pytest.raises(InputError, match="is entered already"), outer:
                pass
        assert named(outer, F.linear(x, w)) == ["float16"]
    assert_nothing_is_left()


def test_hooks_of_an_emulation_leave_what_is_not_its_own() -> None:
    """PyTorch's hooks on all modules and optimizers run in other threads and emulations, too."""

    def step() -> None:
        for model in models:
            optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
            model(batch()[0]).sum().backward()
            optimizer.step()

    models = [network(), network()]
    before = [copy.deepcopy(model.state_dict()) for model in models]
    with emulate("torch.half") as half:
        thread = threading.Thread(target=step)
        thread.start()
        thread.join()
        with emulate("apex.O0") as inner:
            step()
        assert (half.step, inner.step) == (0, 1)
        for model, state in zip(models, before, strict=True):
            assert all(same(p, state[name]) for name, p in model.named_parameters())
        step()
        assert half.step == 1
    assert same(models[0][0].weight, through(before[0]["0.weight"], "fp16"))


def test_a_model_is_copied_and_pickled_while_it_is_emulated() -> None:
    model = network()
    with emulate("torch.half", model=model) as emulation:
        model(batch()[0])
        copies = [copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
        for made in copies:
            assert same(made[0].weight, model[0].weight)
            made(batch()[0])
        assert named(emulation, copies[0][0].weight) == ["float16"]
    assert not model._forward_pre_hooks_with_kwargs
    assert_nothing_is_left()


def test_a_format_is_asked_of_float32_tensors() -> None:
    with pytest.raises(InputError, match="carries no format"):
        emulate(FP16).format(torch.arange(3))
    with pytest.raises(InputError, match=r"list: give a torch\.Tensor"):
        emulate(FP16).format([1.0])


def test_what_was_not_entered_last_is_not_left() -> None:
    outer, inner = emulate(FP16), emulate(CPU)
    with pytest.raises(InputError, match="is not what this thread entered last"):
        outer.__exit__(None, None, None)
    with outer, inner:
        with pytest.raises(InputError, match="is not what this thread entered last"):
            outer.__exit__(None, None, None)
        assert named(inner, torch.ones(2, 2) @ torch.ones(2, 2)) == ["bfloat16"]
    assert_nothing_is_left()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": [nn.Linear(2, 2)]}, r"give a torch\.nn\.Module, or leave it out"),
        ({"model": nn.Linear}, r"give a torch\.nn\.Module, or leave it out"),
        ({"seed": -1}, "seed=-1: must be an int from 0"),
        ({"seed": "a"}, "seed='a': must be an int from 0"),
        ({"seed": True}, "seed=True: must be an int from 0"),
    ],
    ids=str,
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        emulate(FP16, **options)


def test_a_device_of_torch_is_a_device() -> None:
    """CPU kernels round the number first, to half a step of bfloat16: a tie."""
    for device, expected in (("cpu", 1.0), ("cuda", 1.0078125)):
        with emulate("torch.bfloat16", device=torch.device(device)):
            assert (torch.ones(2).bfloat16() + 0.00390625 * 1.001).tolist() == [expected] * 2


def test_a_copy_of_a_tensor_has_its_format() -> None:
    with emulate("torch.half") as emulation:
        x, wide = torch.randn(3).half(), torch.randn(3)
        assert named(emulation, copy.deepcopy(x), copy.deepcopy([wide])[0]) == [
            "float16", "float32",
        ]  # fmt: skip
        assert copy.deepcopy(torch.eye(2).to_sparse()).is_sparse
        assert copy.deepcopy(torch.arange(2)).tolist() == [0, 1]
