"""FakeQuantize and prepare against PyTorch's fake quantization and formulas written by hand."""

from __future__ import annotations

import copy
import math
import pickle
from typing import Any

import numpy as np
import pytest
from support import assert_same_bits

import fpemu
from fpemu.errors import FpemuError, InputError

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'fpemu[torch]'")

from torch import nn  # noqa: E402

from fpemu.torch import FakeQuantize, Integer, prepare  # noqa: E402
from fpemu.torch.fake_quantize import amax_of, scale_of  # noqa: E402

inf, nan = float("inf"), float("nan")
Tensor = Any

#: PyTorch warns of its own use of what it has deprecated.
torch_warns = pytest.mark.filterwarnings(
    "ignore:.*torch.jit.script.*:DeprecationWarning",
    "ignore:.*should not be instantiated.*:DeprecationWarning",
)


def same(got: Tensor, want: Tensor, inputs: Tensor = None, what: object = "") -> None:
    numpy = [None if t is None else t.detach().contiguous().numpy() for t in (got, want, inputs)]
    assert_same_bits(numpy[0], numpy[1], numpy[2], what)


def some(*shape: int, seed: int = 0) -> Tensor:
    """Numbers of a wide range, with ties of the integers among them."""
    made = torch.Generator().manual_seed(seed)
    x = torch.randn(*shape, generator=made) * torch.exp(torch.randn(*shape, generator=made))
    x[..., ::3] = (x[..., ::3] * 8).round() / 16
    return x


# --- integers, against PyTorch -----------------------------------------------------------------


@pytest.mark.parametrize("bits", [8, 4, 2, 6])
@pytest.mark.parametrize("scale", ["real", "power_of_two"])
def test_integers_are_pytorchs_per_tensor(bits: int, scale: str) -> None:
    x = some(64, 48).requires_grad_()
    n = 2 ** (bits - 1) - 1
    got = FakeQuantize(Integer(bits), scale=scale)(x)
    step = x.detach().abs().max() / n
    if scale == "power_of_two":
        step = torch.tensor(2.0 ** math.ceil(math.log2(float(step))))
    want = torch.fake_quantize_per_tensor_affine(x, float(step), 0, -n, n)
    same(got, want, x)
    upper = torch.randn(64, 48)
    same(*(torch.autograd.grad(y, x, upper)[0] for y in (got, want)), x)


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("name", ["int8", "int4"])
def test_integers_are_pytorchs_per_channel(axis: int, name: str) -> None:
    x = some(5, 6, 7).requires_grad_()
    n = {"int8": 127, "int4": 7}[name]
    got = FakeQuantize(name, axis=axis)(x)
    at = axis % 3
    steps = torch.stack([part.abs().max() for part in x.detach().unbind(at)]) / n
    zeros = torch.zeros(len(steps), dtype=torch.int32)
    want = torch.fake_quantize_per_channel_affine(x, steps, zeros, at, -n, n)
    same(got, want, x)


def test_gradients_stop_where_integers_are_clipped() -> None:
    quantize = FakeQuantize("int8", observer="maximum")
    quantize(torch.tensor([127.0]))
    quantize.eval()
    x = torch.tensor([127.4, 127.5, -128.0, 3.3, inf, 1e30], requires_grad=True)
    want = torch.fake_quantize_per_tensor_affine(x, 1.0, 0, -127, 127)
    got = quantize(x)
    assert got.tolist() == [127, 127, -127, 3, 127, 127]
    same(got[:4], want[:4])
    same(torch.autograd.grad(got.sum(), x)[0][:4], torch.autograd.grad(want.sum(), x)[0][:4])
    free = FakeQuantize("int8", observer="maximum", clip=False)
    free.load_state_dict(quantize.state_dict())
    assert torch.autograd.grad(free.eval()(x).sum(), x)[0].tolist() == [1.0] * 6


def test_special_numbers() -> None:
    x = torch.tensor([nan, inf, -inf, -0.0, 0.0, 1.0, -1e-9])
    got = FakeQuantize("int8")(x)
    assert got[0].isnan()
    assert got[1:].tolist() == [1.0, -1.0, 0.0, 0.0, 1.0, 0.0]
    assert not torch.signbit(got[[3, 4, 6]]).any(), "integers have one zero"
    floats = FakeQuantize("e4m3fn")(x)
    assert floats[0].isnan()
    assert floats[1:].tolist() == [1.0, -1.0, 0.0, 0.0, 1.0, 0.0]
    assert torch.signbit(floats[3]), "floats keep its sign"
    for nothing in (torch.zeros(3, 4), torch.full((2, 2), nan), torch.zeros(0, 4)):
        for axis in (None, 1):
            same(FakeQuantize("int8", axis=axis)(nothing), nothing)


def test_tiny_and_huge() -> None:
    for x in (torch.tensor([1e-45, -3e-45]), torch.tensor([3.4e38, -1.0])):
        for name in ("int8", "e4m3fn", "fp4"):
            assert FakeQuantize(name)(x).isfinite().all()
    tiny = torch.tensor([1e-40, 2.0**-126])  # nothing to gain: the scale stops at 2**-126
    same(FakeQuantize("int8")(tiny), torch.tensor([0.0, 2.0**-126]))


# --- floats, by hand ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "largest"),
    [("e4m3fn", 448.0), ("e5m2", 57344.0), ("fp4", 6.0), ("fp6_e2m3", 7.5), ("e4m3fnuz", 240.0)],
)
@pytest.mark.parametrize("scale", ["real", "power_of_two"])
@pytest.mark.parametrize("axis", [None, 1])
def test_floats_by_hand(name: str, largest: float, scale: str, axis: int | None) -> None:
    x = some(40, 9).numpy()
    amax = np.abs(x).max() if axis is None else np.abs(x).max(0)
    step = (amax / np.float32(largest)).astype(np.float32)
    if scale == "power_of_two":
        fraction, exponent = np.frexp(step)
        step = np.ldexp(np.float32(1), np.where(fraction == 0.5, exponent - 1, exponent))
    scaled = x * (np.float32(1) / step)
    want = nearest(fpemu.values(name), scaled) * step
    got = FakeQuantize(name, scale=scale, axis=axis)(torch.from_numpy(x)).numpy()
    assert_same_bits(np.abs(got), np.abs(want.astype(np.float32)), x, name)
    assert ((np.sign(got) == np.sign(x)) | (got == 0)).all()


def nearest(values: Any, x: Any) -> Any:
    """By distance, ties to the even code: slow, and shares nothing with the kernels."""
    grid = np.unique(values[np.isfinite(values) & (values >= 0)]).astype(np.float64)
    below = np.clip(np.searchsorted(grid, np.abs(x), "right") - 1, 0, len(grid) - 2)
    low, high = grid[below], grid[below + 1]
    middle = (low + high) / 2
    up = (np.abs(x) > middle) | ((np.abs(x) == middle) & (below % 2 == 1))
    return np.where(up, high, low)


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_float8_is_pytorchs_cast_at_a_scale(dtype: str) -> None:
    x = some(64, 64)
    largest = torch.finfo(getattr(torch, dtype)).max
    step = x.abs().max() / largest
    want = (x * (1 / step)).clamp(-largest, largest).to(getattr(torch, dtype)).float() * step
    same(FakeQuantize(getattr(torch, dtype))(x), want, x)


def test_wide_formats_have_no_scale_unless_asked() -> None:
    x = some(100)
    same(FakeQuantize("fp16")(x), x.half().float())
    same(FakeQuantize("bf16")(x), x.bfloat16().float())
    scaled = FakeQuantize("fp16", scale="power_of_two")(x * 2.0**100)
    assert (scaled / 2.0**100 - x).abs().max() < 2.0**-11 * x.abs().max()


def test_what_the_scale_does_not_reach_is_clipped_unless_the_cast_decides() -> None:
    x = torch.tensor([1.0, 3.0])
    for overflow, want in (("saturate", 1.0), (None, nan)):
        quantize = FakeQuantize("e4m3fn", observer="maximum", overflow=overflow)
        quantize(torch.ones(2))
        got = quantize.eval()(x)
        assert got[0] == 1.0
        assert (math.isnan(got[1]) and math.isnan(want)) or got[1] == want
    y = x.clone().requires_grad_()
    quantize(y).sum().backward()
    assert y.grad.tolist() == [1.0, 0.0]


def test_rules_and_gradients() -> None:
    x = torch.tensor([448.0, 1.06, 0.001], requires_grad=True)
    got = FakeQuantize("e4m3fn", rounding="toward_zero", subnormals="flush", gradient="e5m2")(x)
    assert got.tolist() == [448.0, 1.0, 0.0]
    got.backward(torch.tensor([1.1, 1.2, 1e9]))
    want = torch.tensor([1.1, 1.2, 1e9]).to(torch.float8_e5m2).float()
    same(x.grad, want)


def test_other_dtypes() -> None:
    x = some(50)
    for dtype in (torch.float16, torch.bfloat16):
        y = x.to(dtype).requires_grad_()
        got = FakeQuantize("int8")(y)
        same(got.float(), FakeQuantize("int8")(y.detach().float()).to(dtype).float())
        got.sum().backward()
        assert y.grad.dtype == dtype
    step = float(x.abs().max() / 127)
    got = FakeQuantize("int8")(x.double())
    assert got.dtype == torch.float64
    want = (x.double() * (1 / step)).round().clamp(-127, 127) * step
    torch.testing.assert_close(got, want, rtol=1e-15, atol=0)


# --- amax and scales ---------------------------------------------------------------------------


def test_amax_is_of_finite_numbers() -> None:
    x = torch.tensor([[1.0, -inf], [nan, -3.0]], dtype=torch.float64)
    assert amax_of(x).item() == 3.0
    assert amax_of(x, 0).tolist() == [1.0, 3.0]
    assert amax_of(x, -1).tolist() == [1.0, 3.0]
    assert amax_of(torch.zeros(0, 3), 1).tolist() == [0.0] * 3
    assert amax_of(x).dtype == torch.float64


@pytest.mark.parametrize("largest", [127.0, 7.0, 448.0, 6.0, 57344.0, 1.0])
def test_power_of_two_scales_are_the_smallest_that_reach(largest: float) -> None:
    near = [2.0**k * largest for k in range(-20, 21)]
    amax = torch.tensor(near, dtype=torch.float32)
    amax = torch.cat([amax, amax.nextafter(torch.tensor(inf)), amax.nextafter(torch.tensor(0.0))])
    ratio = (amax / np.float32(largest)).double()  # what is left of the division counts
    got = scale_of(amax, largest, "power_of_two").double()
    assert (got.log2() == got.log2().round()).all()
    assert (got >= ratio).all()
    assert (got / 2 < ratio).all()


# --- observers ---------------------------------------------------------------------------------


def test_a_moving_average_by_hand() -> None:
    quantize = FakeQuantize("int8", observer="moving_average", momentum=0.25)
    average = None
    for factor in (1.0, 8.0, 0.5, 0.5):
        x = some(100) * factor
        now = np.float32(x.abs().max())
        average = now if average is None else average + np.float32(0.25) * (now - average)
        same(quantize(x), fake_int8(x, average), x)
    assert quantize.batches.item() == 4
    quantize.eval()
    same(quantize(100 * some(100)), fake_int8(100 * some(100), average))
    assert quantize.amax.item() == average, "frozen"


def fake_int8(x: Tensor, amax: Any) -> Tensor:
    return torch.fake_quantize_per_tensor_affine(x, float(np.float32(amax) / 127), 0, -127, 127)


def test_a_maximum_by_hand() -> None:
    quantize = FakeQuantize("int8", observer="maximum", axis=1)
    seen = torch.zeros(4)
    for seed in range(3):
        x = some(10, 4, seed=seed)
        seen = torch.maximum(seen, x.abs().amax(0))
        want = torch.fake_quantize_per_channel_affine(
            x, seen / 127, torch.zeros(4, dtype=torch.int32), 1, -127, 127
        )
        same(quantize(x), want)
    assert torch.equal(quantize.amax, seen)


def test_the_current_observer_remembers_nothing() -> None:
    quantize = FakeQuantize("int8")
    assert not quantize.state_dict()
    for x in (some(50), some(50) * 100):
        same(quantize(x), quantize.eval()(x))
        same(quantize(x), fake_int8(x, x.abs().max()))


def test_nothing_observed_is_refused() -> None:
    quantize = FakeQuantize("int8", observer="moving_average").eval()
    with pytest.raises(InputError, match="nothing was observed; run a batch in training mode"):
        quantize(some(3))


@pytest.mark.parametrize("axis", [None, 0])
@pytest.mark.parametrize("assign", [False, True])
def test_state_dicts_go_round(axis: int | None, assign: bool) -> None:
    first = FakeQuantize("e4m3fn", observer="moving_average", axis=axis)
    for seed in range(3):
        first(some(6, 20, seed=seed))
    second = FakeQuantize("e4m3fn", observer="moving_average", axis=axis).eval()
    second.load_state_dict(copy.deepcopy(first.state_dict()), assign=assign)
    same(second(some(6, 20)), first.eval()(some(6, 20)))
    for each in (first.train(), second.train()):
        each(some(6, 20, seed=9))
    same(first.amax, second.amax)
    assert second.batches == 4
    unused = FakeQuantize("e4m3fn", observer="moving_average", axis=axis).state_dict()
    second.load_state_dict(unused)
    with pytest.raises(InputError, match="nothing was observed"):
        second.eval()(some(6, 20))


def test_copies_and_pickles() -> None:
    quantize = FakeQuantize("e4m3fn", observer="moving_average", gradient="e5m2")
    quantize(some(20))
    for other in (copy.deepcopy(quantize), pickle.loads(pickle.dumps(quantize))):
        same(other.eval()(some(20) * 3), copy.deepcopy(quantize).eval()(some(20) * 3))


def test_shown_as_what_it_is() -> None:
    shown = "FakeQuantize(float8_e4m3fn:overflow=saturate, axis=0, scale=real, observer=maximum)"
    assert repr(FakeQuantize("e4m3fn", axis=0, observer="maximum")) == shown
    assert repr(FakeQuantize("int4")) == "FakeQuantize(int4, scale=real, observer=current)"


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"to": "int16x"}, "int16x"),
        ({"to": "e4m3fn:stochastic"}, "draws nothing; call fpemu.torch.round"),
        ({"to": "e8m0fnu"}, "needs a sign and a zero"),
        ({"to": "int8", "scale": "best"}, "unknown scale 'best'; choose one of"),
        ({"to": "int8", "observer": "ema"}, "unknown observer 'ema'; choose one of"),
        ({"to": "int8", "momentum": 0}, "momentum=0"),
        ({"to": "int8", "rounding": "up"}, "integers are rounded to nearest"),
        ({"to": "fp16", "gradient": "nope"}, "nope"),
        ({"to": "fp16", "gradient": "e5m2:stochastic"}, "draws nothing; call fpemu.torch.round"),
        ({"to": "int8", "overflow": "ieee"}, "integers are rounded to nearest and saturate"),
        ({"to": "int8", "momentum": "a"}, "momentum='a': must be a number above 0"),
        ({"to": "int8", "axis": (0, 1)}, "must be an int, or None for the whole tensor"),
        ({"to": "int8", "axis": True}, "must be an int, or None for the whole tensor"),
    ],
    ids=str,
)
def test_wrong_options_are_named(options: dict[str, Any], line: str) -> None:
    with pytest.raises(FpemuError, match=line):
        FakeQuantize(**options)


@pytest.mark.parametrize("bits", [1, 25, 8.0, True, "8"])
def test_integers_of_odd_widths_are_refused(bits: Any) -> None:
    with pytest.raises(FpemuError, match="bits must be an int from 2 to 24"):
        Integer(bits)


def test_wrong_tensors_are_refused() -> None:
    for wrong in (torch.arange(3), torch.ones(3, device="meta"), torch.eye(2).to_sparse()):
        with pytest.raises(InputError):
            FakeQuantize("int8")(wrong)
    with pytest.raises(InputError, match="axis=2: the tensor has 2 axes"):
        FakeQuantize("int8", axis=2)(torch.ones(3, 3))
    stale = FakeQuantize("int8", axis=0, observer="maximum")
    stale(torch.ones(3, 2))
    with pytest.raises(InputError, match="5 along axis 0, but 3 were observed"):
        stale(torch.ones(5, 2))


# --- transforms and graphs ---------------------------------------------------------------------


def test_transforms() -> None:
    x = some(4, 30)
    for quantize in (FakeQuantize("int8"), FakeQuantize("e4m3fn", gradient="e5m2")):
        same(torch.func.vmap(quantize)(x), torch.stack([quantize(row) for row in x]))
        got = torch.func.grad(lambda x, q=quantize: (q(x) ** 2).sum())(x)
        y = x.clone().requires_grad_()
        (quantize(y) ** 2).sum().backward()
        same(got, y.grad)


@torch_warns
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("to", ["int8", "e4m3fn"])
def test_compiled(backend: str, to: str) -> None:
    torch.compiler.reset()
    options: dict[str, Any] = {"observer": "moving_average", "gradient": "e5m2"}
    plain, other = FakeQuantize(to, **options), FakeQuantize(to, **options)
    compiled = torch.compile(other, backend=backend, fullgraph=True)
    for seed in range(4):
        gradients = []
        for quantize in (plain, compiled):
            x = some(30, seed=seed).requires_grad_()
            (quantize(x) ** 2).sum().backward()
            gradients.append(x.grad)
        same(*gradients)
    same(plain.amax, other.amax)
    plain.eval(), other.eval()
    same(compiled(some(30)), plain(some(30)))


@pytest.mark.gpu
@pytest.mark.parametrize("to", ["int8", "int4", "e4m3fn", "fp4"])
@pytest.mark.parametrize("axis", [None, 1])
def test_cuda_gives_the_bits_of_the_cpu(to: str, axis: int | None) -> None:
    if not torch.cuda.is_available():
        pytest.skip("PyTorch sees no CUDA device")
    for scale in ("real", "power_of_two"):
        here = FakeQuantize(to, axis=axis, scale=scale, observer="moving_average")
        there = copy.deepcopy(here).cuda()
        for seed in range(3):
            x = some(50, 30, seed=seed).requires_grad_()
            y = x.detach().cuda().requires_grad_()
            same(there(y).cpu(), here(x))
            (here(x) ** 2).sum().backward()
            (there(y) ** 2).sum().backward()
            same(y.grad.cpu(), x.grad)


# --- a model -----------------------------------------------------------------------------------


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.up = nn.ConvTranspose2d(4, 2, 3)
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 3, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.conv(x))
        x = self.up(x).mean((1, 2))
        return self.head(input=self.norm(x))


def by_hand(net: Net, x: Tensor, limits: list[float]) -> Tensor:
    """The same net, int8 per channel weights and int8 activations of these amax."""
    per_channel = torch.fake_quantize_per_channel_affine

    def weight(w: Tensor, axis: int) -> Tensor:
        others = [i for i in range(w.ndim) if i != axis]
        zeros = torch.zeros(w.shape[axis], dtype=torch.int32)
        return per_channel(w, w.detach().abs().amax(others) / 127, zeros, axis, -127, 127)

    x = fake_int8(x, limits[0])
    x = torch.relu(nn.functional.conv2d(x, weight(net.conv.weight, 0), net.conv.bias))
    x = fake_int8(x, limits[1])
    x = nn.functional.conv_transpose2d(x, weight(net.up.weight, 1), net.up.bias).mean((1, 2))
    return nn.functional.linear(fake_int8(net.norm(x), limits[2]), weight(net.head.weight, 0))


def test_a_prepared_model_is_the_one_by_hand_forward_and_backward() -> None:
    torch.manual_seed(0)
    net = Net()
    plain = copy.deepcopy(net)
    x = torch.randn(5, 1, 8, 8)
    prepared = prepare(net, weights="int8", activations="int8")
    assert prepared.weights == ("conv.weight", "up.weight", "head.weight")
    assert prepared.activations == ("conv", "up", "head")
    assert prepared.left == ("norm (LayerNorm)",)
    got = net(x)
    limits = [net.get_submodule(n).input_quantizer.amax.item() for n in ("conv", "up", "head")]
    want = by_hand(plain, x, limits)
    torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-6)
    (got**2).sum().backward()
    (want**2).sum().backward()
    masters = dict(net.named_parameters())
    for name, parameter in plain.named_parameters():
        module, _, own = name.rpartition(".")
        other = f"{module}.parametrizations.weight.original" if own == "weight" else name
        master = masters.get(other, masters.get(name))
        torch.testing.assert_close(master.grad, parameter.grad, rtol=1e-5, atol=1e-6)


def test_undo_leaves_nothing_behind() -> None:
    net = Net()
    before = {k: v.clone() for k, v in net.state_dict().items()}
    parameters = list(net.parameters())
    shown = repr(net)
    prepared = prepare(net, weights="fp4", activations="e4m3fn")
    assert "FakeQuantize" in repr(net)
    prepared.undo()
    prepared.undo()  # once is enough, twice does no harm
    assert repr(net) == shown
    assert list(net.state_dict()) == list(before)
    assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items())
    assert all(a is b for a, b in zip(net.parameters(), parameters, strict=True))
    assert not net.conv._forward_pre_hooks
    x = torch.randn(2, 1, 8, 8)
    assert torch.equal(net(x), copy.deepcopy(net)(x))


def test_a_context_ends_with_undo() -> None:
    net = Net()
    with prepare(net, activations="int8"):
        assert hasattr(net.conv, "input_quantizer")
    assert not hasattr(net.conv, "input_quantizer")


def test_training_moves_the_masters() -> None:
    torch.manual_seed(0)
    x = torch.randn(64, 8)
    target = torch.sin(x @ torch.randn(8, 2))
    net = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 2))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)  # made before
    prepared = prepare(net, weights="int4", activations="int8")
    losses = []
    for _ in range(200):
        optimizer.zero_grad()
        loss = ((net(x) - target) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.2 * losses[0]
    values = [len(row.unique()) for row in net[0].weight]
    assert max(values) <= 15, "int4"
    net.eval()
    frozen = net[0].input_quantizer.amax.clone()
    net(100 * x)
    assert torch.equal(net[0].input_quantizer.amax, frozen)
    prepared.undo()
    assert max(len(row.unique()) for row in net[0].weight) == 8, "masters are not rounded"


def test_a_state_dict_of_a_prepared_model_goes_round() -> None:
    first, second = Net(), Net()
    for net in (first, second):
        prepare(net, weights="e4m3fn", activations="e4m3fn")
    first(torch.randn(3, 1, 8, 8))
    second.load_state_dict(first.state_dict())
    x = torch.randn(3, 1, 8, 8)
    assert torch.equal(first.eval()(x), second.eval()(x))


def test_a_prepared_model_can_be_copied() -> None:
    net = Net()
    prepare(net, weights="int8", activations="int8")
    x = torch.randn(3, 1, 8, 8)
    net(x)
    assert torch.equal(copy.deepcopy(net.eval())(x), net(x))


@torch_warns
def test_a_prepared_model_compiles_and_exports() -> None:
    torch.compiler.reset()
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
    other = copy.deepcopy(plain)
    for net in (plain, other):
        prepare(net, weights="int8", activations="e4m3fn")
    compiled = torch.compile(other, backend="aot_eager", fullgraph=True)
    x = torch.randn(4, 8)
    for factor in (1, 2, 3):
        for net in (plain, compiled):
            net.zero_grad()
            net(x * factor).square().sum().backward()
        masters = [n[0].parametrizations.weight.original.grad for n in (plain, other)]
        torch.testing.assert_close(*masters)
        same(plain[2].input_quantizer.amax, other[2].input_quantizer.amax)
    exported = torch.export.export(plain.eval(), (x,))
    same(exported.module()(x), plain(x))


def test_what_fails_midway_is_taken_back() -> None:
    net = Net()
    shown = repr(net)
    two_axes = FakeQuantize("int8", axis=2, observer="maximum")  # a linear layer has no such axis
    with pytest.raises(InputError, match="axis=2: the tensor has 2 axes"):
        prepare(net, weights=two_axes)
    assert repr(net) == shown


def test_choosing_modules() -> None:
    net = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.Sequential(nn.Linear(2, 2), nn.ReLU())})
    with prepare(net, weights="int8", only=["b.*"]) as prepared:
        assert prepared.weights == ("b.0.weight",)
        assert prepared.left == ("a (Linear)",)
    with prepare(net, weights="int8", skip="b.*") as prepared:
        assert prepared.weights == ("a.weight",)
    with prepare(nn.Linear(2, 2), weights="int8", activations="int8") as prepared:
        assert prepared.weights == ("weight",)
        assert prepared.activations == ("",)


def test_a_module_of_ones_own_at_every_place() -> None:
    net = Net()
    mine = FakeQuantize("fp4", scale="power_of_two")
    with prepare(net, weights=mine, activations=mine):
        x = torch.randn(4, 8)
        want = mine(x) @ mine(net.head.parametrizations.weight.original).T
        assert torch.equal(net.head(x), want)
        assert net.head.input_quantizer is not mine


def test_tied_weights_stay_tied() -> None:
    embedding, head = nn.Embedding(10, 4), nn.Linear(4, 10, bias=False)
    head.weight = embedding.weight
    net = nn.ModuleList([embedding, head])
    with prepare(net, weights="int8") as prepared:
        assert prepared.weights == ("0.weight", "1.weight")
        assert len(list(net.parameters())) == 1
        assert torch.equal(embedding.weight, head.weight)
    assert head.weight is embedding.weight


def test_a_shared_module_is_prepared_once() -> None:
    layer = nn.Linear(3, 3)
    net = nn.Sequential(layer, nn.ReLU(), layer)
    with prepare(net, weights="int8", activations="int8") as prepared:
        assert prepared.weights == ("0.weight",)
        net(torch.randn(2, 3))
        assert layer.input_quantizer.batches == 2


@pytest.mark.filterwarnings("ignore:.*nested_tensor.*")
def test_attention_and_transformers() -> None:
    torch.manual_seed(0)
    net = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    x = torch.randn(2, 5, 8)
    plain = net(x)
    with prepare(net, weights="int8", activations="int8") as prepared:
        assert "self_attn.in_proj_weight" in prepared.weights
        assert "self_attn.out_proj.weight" in prepared.weights
        assert prepared.activations == ("linear1", "linear2")
        trained = net(x)
        net.eval()
        torch.testing.assert_close(net(x), trained, rtol=0, atol=1e-5)
        assert 0 < (trained - plain).abs().max() < 0.2
    assert nn.LSTM(2, 2).weight_hh_l0 is not None


def test_what_is_left_is_said() -> None:
    net = nn.ModuleDict({"rnn": nn.LSTM(4, 4), "head": nn.Linear(4, 2)})
    with prepare(net, weights="int8") as prepared:
        assert prepared.left == ("rnn (LSTM)",)


def test_prepare_twice_or_for_nothing_is_refused() -> None:
    net = Net()
    with pytest.raises(InputError, match="nothing to quantize"):
        prepare(net)
    with pytest.raises(InputError, match="nothing to quantize"):
        prepare(net, weights="int8", only=["nowhere"])
    for names in ({"only": 3}, {"skip": None}, {"skip": [3]}, {"only": b"0"}):
        with pytest.raises(InputError, match="patterns of module names"):
            prepare(nn.Linear(2, 2), weights="int8", **names)
    with pytest.raises(FpemuError, match="int9x"):
        prepare(net, weights="int8", activations="int9x")
    with pytest.raises(InputError, match=r"Tensor: give a torch\.nn\.Module"):
        prepare(torch.ones(3), weights="int8")
    with pytest.raises(InputError, match="'1' is lazy: run a batch"):
        prepare(nn.Sequential(net, nn.LazyLinear(3)), weights="int8")
    assert "FakeQuantize" not in repr(net), "nothing half done"
    with prepare(net, weights="int8"):
        for again in ({"weights": "int4"}, {"activations": "int4"}):
            with pytest.raises(InputError, match="'conv' is prepared or parametrized already"):
                prepare(net, **again)
