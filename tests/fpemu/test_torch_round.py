"""fpemu.torch.round against PyTorch's own casts, the exact definition, and plain loops."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support import assert_same_bits, directed_inputs, sample, wide_range

import fpemu
from fpemu.errors import InputError
from fpemu.rounding import round_exact
from fpemu.testing import differences

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'fpemu[torch]'")

import fpemu.torch  # noqa: E402
from fpemu.torch.operators import cast_text, read_cast  # noqa: E402

inf, nan = float("inf"), float("nan")
Tensor = Any

MINE = fpemu.Format("mine", 4, 3, 9, "top_code", inf=False)

#: PyTorch warns of its own use of what it has deprecated.
torch_warns = pytest.mark.filterwarnings(
    "ignore:.*torch.jit.script.*:DeprecationWarning",
    "ignore:.*should not be instantiated.*:DeprecationWarning",
)


@pytest.fixture(autouse=True)
def fresh_graphs() -> None:
    torch.compiler.reset()


def same(got: Tensor, want: Tensor, inputs: Tensor = None, what: object = "") -> None:
    assert got.dtype == want.dtype, f"{what}: {got.dtype}, want {want.dtype}"
    wide = [
        None if t is None else t.detach().to(torch.float32).numpy() for t in (got, want, inputs)
    ]
    assert_same_bits(wide[0], wide[1], wide[2], what)


# --- values ------------------------------------------------------------------------------------

DTYPES = [
    torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz,
    torch.float8_e5m2fnuz, torch.float8_e8m0fnu,
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_dtype_is_pytorchs_own_cast(dtype: Any) -> None:
    form = fpemu.finfo(str(dtype).removeprefix("torch."))
    x = torch.from_numpy(directed_inputs(form))
    want = x.to(dtype).to(torch.float32)
    if dtype is torch.float8_e8m0fnu:  # the preset's note: PyTorch does not round these
        odd = (x.abs() > 2.0**-127) & (x.abs() < 1.5 * 2.0**-127)
        x, want = x[~odd], want[~odd]
    for to in (dtype, str(dtype), fpemu.casts[str(dtype)]):
        same(fpemu.torch.round(x, to), want, x, to)
    same(fpemu.torch.round(x, dtype).to(dtype).to(torch.float32), want, x, "a cast of the rounded")


def test_float32_is_the_identity() -> None:
    x = torch.from_numpy(wide_range(1000))
    same(fpemu.torch.round(x, torch.float32), x, x)


@pytest.mark.parametrize(
    "cast",
    [
        "e4m3fn:toward_zero", "e5m2:nearest_away", "fp16:to_odd", "bf16:down", "fp4", "tf32:up",
        "binary8p4se:overflow=saturate", "e4m3fn:subnormals=flush", "e8m0fnu:negative=abs",
    ],
)  # fmt: skip
def test_any_cast_is_its_definition(cast: str) -> None:
    def rounded(x: Any) -> Any:
        return fpemu.torch.round(torch.from_numpy(x), cast).numpy()

    found = differences(rounded, fpemu.Cast.from_str(cast))
    assert not found, str(found)


def test_rules_take_the_place_of_the_casts_own() -> None:
    x = torch.tensor([1.9, 500.0, -500.0, 2.0**-9])
    got = fpemu.torch.round(
        x, "e4m3fn:up", rounding="toward_zero", overflow="saturate", subnormals="flush"
    )
    assert got.tolist() == [1.875, 448.0, -448.0, 0.0]
    assert fpemu.torch.round(x, "e8m0fnu", negative="abs", zero="smallest")[2] == 512.0


def test_a_format_of_ones_own() -> None:
    x = torch.tensor([0.3, 100.0, -0.01])
    values = fpemu.values(MINE)
    finite = torch.from_numpy(values[np.isfinite(values)])
    nearest = finite[(x[:, None] - finite).abs().argmin(1)]
    assert torch.equal(fpemu.torch.round(x, MINE, overflow="saturate"), nearest)
    for cast in (fpemu.Cast(MINE, "up"), fpemu.Cast("fp16"), fpemu.Cast("binary8p3se", "up")):
        assert read_cast(cast_text(cast)) == cast


def test_float64_is_rounded_once() -> None:
    x = torch.tensor([1 + 2**-11 + 2**-40, 1 + 2**-11, -1e300, 5e-324], dtype=torch.float64)
    got = fpemu.torch.round(x, "fp16")
    assert got.dtype == torch.float64
    assert got.tolist() == [1 + 2**-10, 1.0, -inf, 0.0]
    assert x.to(torch.float16)[0] == 1.0, "PyTorch rounds twice"


@pytest.mark.parametrize(
    ("given", "to", "dtype"),
    [
        (torch.float16, "e4m3fn", torch.float16),
        (torch.float16, "bf16", torch.float32),
        (torch.bfloat16, "e5m2", torch.bfloat16),
        (torch.bfloat16, "fp16", torch.float32),
        (torch.float8_e5m2, "e4m3fn", torch.float32),
        (torch.float8_e4m3fn, "e4m3fn", torch.float8_e4m3fn),
    ],
    ids=str,
)
def test_narrow_dtypes_are_kept_where_they_hold_the_result(given: Any, to: str, dtype: Any) -> None:
    x = torch.linspace(-300, 300, 5000).to(given)
    got = fpemu.torch.round(x, to)
    want = torch.from_numpy(fpemu.round(x.to(torch.float32).numpy(), to))
    same(got, want.to(dtype), x)
    if dtype is not torch.float8_e4m3fn:  # which has no arithmetic
        y = x.to(torch.float32).requires_grad_()
        fpemu.torch.round(y.to(given), to).to(torch.float32).sum().backward()
        assert (y.grad == 1).all()


# --- layouts -----------------------------------------------------------------------------------

LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.transpose(1, 3),
    "channels last": lambda x: x.to(memory_format=torch.channels_last),
    "strided": lambda x: x[:, ::2, 1:, ::3],
    "expanded": lambda x: x[:, :1].expand(-1, 7, -1, -1),
    "scalar": lambda x: x[0, 0, 0, 0],
    "empty": lambda x: x[:0],
    "conjugate view": lambda x: torch.complex(x, x).conj().imag,
    "parameter": lambda x: torch.nn.Parameter(x),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("rules", [{}, {"rounding": "stochastic", "seed": 1}], ids=["", "drawn"])
def test_layouts(layout: str, rules: dict[str, Any]) -> None:
    x = LAYOUTS[layout](torch.from_numpy(wide_range(4 * 6 * 5 * 7)).reshape(4, 6, 5, 7))
    plain = torch.from_numpy(np.array(x.detach().resolve_neg().numpy(), order="C"))
    want = torch.from_numpy(np.asarray(fpemu.round(plain.numpy(), "e5m2", **rules)))
    got = fpemu.torch.round(x, "e5m2", **rules)
    same(got, want, plain)
    assert got.stride() == x.neg().stride(), "as PyTorch's own elementwise operations"
    assert type(got) is torch.Tensor


def test_the_input_is_left_alone() -> None:
    x = torch.tensor([0.1, 70000.0])
    y = fpemu.torch.round(x, "fp16")
    assert x.tolist() == torch.tensor([0.1, 70000.0]).tolist()
    assert fpemu.torch.round(y, "fp16") is not y


def test_many_elements() -> None:
    x = torch.randn(1 << 20)
    same(fpemu.torch.round(x, "fp16"), x.half().float())


def test_autocast_lets_it_be() -> None:
    x = torch.randn(16, 16)
    with torch.autocast("cpu", torch.bfloat16):
        same(fpemu.torch.round(x, "e4m3fn"), fpemu.torch.round(x, "e4m3fn"))


# --- random bits -------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 7, 2**63 - 1, 2**63, 2**64 - 1])
def test_draws_are_those_of_fpemu_round(seed: int) -> None:
    x = torch.randn(999)
    options: dict[str, Any] = {"rounding": "stochastic", "seed": seed, "random_bits": 13}
    got = fpemu.torch.round(x, "fp16", **options)
    same(got, torch.from_numpy(fpemu.round(x.numpy(), "fp16", **options)))
    shards = [fpemu.torch.round(x[a : a + 333], "fp16", offset=a, **options) for a in (0, 333, 666)]
    same(torch.cat(shards), got)


def test_both_neighbours_come_as_often_as_they_are_near() -> None:
    x = torch.full((1 << 16,), 1 + 2.0**-12)  # a quarter of float16's step there
    got = fpemu.torch.round(x, "fp16", rounding="stochastic", seed=0)
    assert abs((got > 1).double().mean() - 0.25) < 0.01


def test_a_gradients_draws_are_its_own() -> None:
    x = torch.full((1 << 16,), 1 + 2.0**-11, requires_grad=True)  # ties
    y = fpemu.torch.round(x, "fp16:stochastic", gradient="fp16:stochastic", seed=0)
    y.backward(x.detach())
    forward, backward = (y > 1).detach(), x.grad > 1
    same(x.grad, fpemu.torch.round(x.detach(), "fp16:stochastic", seed=2**63))
    assert abs(backward.double().mean() - 0.5) < 0.01
    assert abs((forward == backward).double().mean() - 0.5) < 0.01


# --- gradients ---------------------------------------------------------------------------------


def gradient_of(x: Tensor, upper: Tensor | None = None, **options: Any) -> Tensor:
    y = x.clone().requires_grad_()
    out = fpemu.torch.round(y, **options)
    out.backward(torch.ones_like(out) if upper is None else upper)
    return y.grad


def test_straight_through_everywhere() -> None:
    x = torch.tensor([0.1, 1e-9, 1e9, -inf, inf, nan, 0.0])
    assert gradient_of(x, to="e4m3fn").tolist() == [1.0] * 7
    upper = torch.randn(7)
    same(gradient_of(x, upper, to="e4m3fn"), upper)


@pytest.mark.parametrize("dtype", [torch.float8_e5m2, torch.float8_e4m3fn, torch.bfloat16], ids=str)
def test_the_gradient_is_rounded(dtype: Any) -> None:
    upper = torch.from_numpy(directed_inputs(fpemu.finfo(str(dtype).removeprefix("torch."))))
    got = gradient_of(torch.zeros(upper.shape), upper, to="e4m3fn", gradient=dtype)
    same(got, upper.to(dtype).to(torch.float32), upper)


CLIPPED = [
    "e4m3fn", "e4m3fn:overflow=saturate", "e4m3fn:toward_zero", "e4m3fn:up", "e5m2:down",
    "e5m2:to_odd,overflow=saturate_keep_inf", "fp4", "float6_e2m3fn", "e4m3fnuz:nearest_away",
    "binary8p3se", "e8m0fnu:negative=abs",
]  # fmt: skip


@pytest.mark.parametrize("cast", CLIPPED)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_clip_is_zero_where_the_definition_saturates_or_overflows(cast: str, dtype: Any) -> None:
    found = fpemu.Cast.from_str(cast)
    x = sample(directed_inputs(found.format, dtype), 3000)
    outcomes = [round_exact(found, value).outcome for value in x.tolist()]
    beyond = np.array([o in ("saturated", "overflow", "inf") for o in outcomes])
    if not found.format.signed:  # what a sign makes of a number is not overflow
        beyond &= x > 0
        x = np.abs(x) if "abs" in cast else x
        beyond = np.array([
            round_exact(found, v).outcome in ("saturated", "overflow", "inf") for v in x.tolist()
        ])  # fmt: skip
    got = gradient_of(torch.from_numpy(x), to=cast, clip=True).numpy()
    assert_same_bits(got, np.where(beyond, 0, 1).astype(dtype), x, cast)


@pytest.mark.parametrize(
    ("to", "beyond", "within"),
    [("fp16", 65520.0, 65519.0), ("e5m2", 61440.0, 61439.0), ("e4m3fn", 464.5, 464.0)],
)
def test_known_thresholds(to: str, beyond: float, within: float) -> None:
    x = torch.tensor([beyond, -beyond, within, -within, inf, nan])
    assert gradient_of(x, to=to, clip=True).tolist() == [0, 0, 1, 1, 0, 1]
    half = gradient_of(torch.tensor([1e9, 400.0]).half(), to="e4m3fn", clip=True)
    assert half.tolist() == [0, 1]


def test_clip_sees_what_the_draw_decides() -> None:
    options: dict[str, Any] = {"rounding": "stochastic", "seed": 5}
    x = torch.full((1 << 14,), 65520.0)
    x[:2] = torch.tensor([inf, nan])
    shown = fpemu.torch.round(x, "fp16", **options)
    for overflow in ("ieee", "saturate"):
        got = gradient_of(x, to="fp16", overflow=overflow, clip=True, **options)
        assert torch.equal(got == 0, shown.isinf())
    seven = torch.full((1 << 14,), 7.0)  # FP4: between 6, its largest, and 8
    got = gradient_of(seven, to="fp4", clip=True, **options)
    assert abs(got.double().mean() - 0.5) < 0.02


def test_double_backward() -> None:
    x = torch.tensor([0.3, 700.0, -2.6], requires_grad=True)
    y = fpemu.torch.round(x, "e4m3fn", overflow="saturate", clip=True, gradient="e5m2")
    (first,) = torch.autograd.grad((y**3).sum(), x, create_graph=True)
    want = 3 * torch.tensor([0.3125, 0.0, -2.5]) ** 2
    same(first, want.to(torch.float8_e5m2).float() * torch.tensor([1.0, 0.0, 1.0]))
    first.sum().backward()
    # d/dx of e5m2(3 y**2), straight through both roundings, and rounded itself on its way back
    same(x.grad, (6 * torch.tensor([0.3125, 0.0, -2.5])).to(torch.float8_e5m2).float())


def test_no_graph_is_made_where_nobody_differentiates() -> None:
    x = torch.randn(3, requires_grad=True)
    with torch.no_grad():
        assert not fpemu.torch.round(x, "fp16").requires_grad
    with torch.inference_mode():
        assert fpemu.torch.round(x, "fp16").is_inference()
    assert fpemu.torch.round(x, "fp16").requires_grad
    assert not fpemu.torch.round(x.detach(), "fp16").requires_grad


def test_a_rounded_tensor_may_be_changed_in_place() -> None:
    x = torch.tensor([0.1, 3.0], requires_grad=True)
    y = fpemu.torch.round(x, "fp16", clip=True)
    y *= 2
    y.sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]


def test_checkpointing() -> None:
    x = torch.randn(50, requires_grad=True)

    def cube(x: Tensor) -> Tensor:
        return fpemu.torch.round(x, "e4m3fn", gradient="e5m2", clip=True) ** 3

    torch.utils.checkpoint.checkpoint(cube, x, use_reentrant=False).sum().backward()
    same(x.grad, torch.autograd.grad(cube(x).sum(), x)[0])


# --- transforms and graphs ---------------------------------------------------------------------

USES: dict[str, Callable[[Tensor], Tensor]] = {
    "plain": lambda x: fpemu.torch.round(x, "fp16"),
    "dtypes": lambda x: fpemu.torch.round(x, torch.float8_e4m3fn, gradient=torch.float8_e5m2),
    "rules": lambda x: fpemu.torch.round(
        x, "e4m3fn", rounding="up", overflow="saturate", clip=True
    ),
    "own format": lambda x: fpemu.torch.round(x, MINE, overflow="saturate"),
    "drawn": lambda x: fpemu.torch.round(
        x, "fp16:stochastic", gradient="bf16:stochastic", seed=2**63 + 3, clip=True
    ),
    "half": lambda x: fpemu.torch.round(x.half(), "e5m2", clip=True),
}
each_use = pytest.mark.parametrize("name", USES)


def points() -> Tensor:
    torch.manual_seed(0)
    return torch.randn(4, 6) * 300


def loss_of(use: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    return lambda x: (use(x).float().clamp(-1e5, 1e5) ** 2).sum()


def plain_gradient(loss: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    y = x.clone().requires_grad_()
    loss(y).backward()
    return y.grad


@each_use
def test_vmap_is_a_loop(name: str) -> None:
    x, use = points(), USES[name]
    same(torch.func.vmap(use)(x), torch.stack([use(row) for row in x]))
    same(torch.func.vmap(use, in_dims=1)(x), torch.stack([use(row) for row in x.T]))


@each_use
def test_func_grad(name: str) -> None:
    x, loss = points(), loss_of(USES[name])
    same(torch.func.grad(loss)(x), plain_gradient(loss, x))
    rows = torch.stack([plain_gradient(loss, row) for row in x])
    same(torch.func.vmap(torch.func.grad(loss))(x), rows)
    through = torch.func.grad(lambda x: torch.func.vmap(loss)(x).sum())(x)
    same(through, rows)


@torch_warns
@each_use
def test_forward_mode_and_second_derivatives(name: str) -> None:
    x, use = points(), USES[name]
    tangent = torch.randn(4, 6)
    got = torch.func.jvp(use, (x,), (tangent,))[1].float()
    want = torch.where(gradient_of_use(use, x) == 0, 0, tangent)
    torch.testing.assert_close(got, want, rtol=1e-3, atol=0)  # half's tangents are rounded
    if name in ("plain", "rules", "own format"):
        second = torch.func.hessian(lambda x: (use(x) ** 2).sum())(x[0])
        assert torch.equal(second, 2 * torch.diag(gradient_of_use(use, x)[0]))


def gradient_of_use(use: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    return plain_gradient(lambda x: use(x).sum(), x)


@torch_warns
@each_use
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled(name: str, backend: str) -> None:
    x, loss = points(), loss_of(USES[name])
    compiled = torch.compile(loss, backend=backend, fullgraph=True)
    same(compiled(x), loss(x))
    same(plain_gradient(compiled, x), plain_gradient(loss, x))


@torch_warns
def test_a_seed_that_changes_does_not_compile_each_time() -> None:
    from torch._dynamo.testing import CompileCounter

    counter = CompileCounter()

    @torch.compile(backend=counter, fullgraph=True)
    def noisy(x: Tensor, seed: int) -> Tensor:
        return fpemu.torch.round(x, "e4m3fn:stochastic", seed=seed)

    x = points()
    for seed in range(2, 12):
        same(noisy(x, seed), fpemu.torch.round(x, "e4m3fn:stochastic", seed=seed))
    assert counter.frame_count <= 2, "once for a number, once for any"


@torch_warns
def test_a_graph_holds_one_operator() -> None:
    found = []

    def backend(graph: Any, inputs: Any) -> Any:
        found.extend(str(node.target) for node in graph.graph.nodes if node.op == "call_function")
        return graph

    torch.compile(USES["plain"], backend=backend, fullgraph=True)(points())
    assert found.count("fpemu.round.default") == 1


@torch_warns
@pytest.mark.parametrize("strict", [False, True])
def test_exported(strict: bool) -> None:
    class Rounded(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return 2 * USES["dtypes"](x)

    x = points()
    exported = torch.export.export(Rounded(), (x,), strict=strict)
    same(exported.module()(x), Rounded()(x))


@torch_warns
def test_transforms_inside_a_graph_are_refused() -> None:
    gradient = torch.func.grad(loss_of(USES["plain"]))
    with pytest.raises(Exception, match=r"InputError: torch\.func inside a graph loses"):
        torch.compile(gradient, backend="eager")(points())


@torch_warns
def test_a_cast_made_inside_a_graph_is_refused() -> None:
    @torch.compile(backend="eager", fullgraph=True)
    def made_inside(x: Tensor) -> Tensor:
        return fpemu.torch.round(x, fpemu.Cast("fp16", "up"))

    with pytest.raises(Exception, match="InputError: a Cast made inside a compiled function"):
        made_inside(points())


@pytest.mark.parametrize("arguments", [("float16",), ("float8_e5m2:stochastic", 3, 8, 16)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_operator_is_registered_well(arguments: tuple[Any, ...], dtype: Any) -> None:
    for x in (points().to(dtype), points().to(dtype).T.requires_grad_()):
        found = torch.library.opcheck(torch.ops.fpemu.round, (x, *arguments))
        assert set(found.values()) == {"SUCCESS"}


def test_the_bare_operator_is_straight_through() -> None:
    x = points().requires_grad_()
    torch.ops.fpemu.round(x, "float16").sum().backward()
    assert (x.grad == 1).all()


def test_a_mode_sees_one_call() -> None:
    from torch.overrides import TorchFunctionMode

    seen = []

    class Seeing(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any, kwargs: Any = None) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))

    x = points().requires_grad_()
    quantize = fpemu.torch.FakeQuantize("e4m3fn", observer="maximum")
    with Seeing():
        y = fpemu.torch.round(x, "e4m3fn", overflow="saturate", clip=True)
        z = quantize(x)
    assert seen == [fpemu.torch.round]
    same(y, fpemu.torch.round(x, "e4m3fn", overflow="saturate", clip=True))
    same(z, fpemu.torch.FakeQuantize("e4m3fn")(x))


class Metres(torch.Tensor):
    pass


def test_subclasses_stay_what_they_are() -> None:
    x = points().as_subclass(Metres)
    got = fpemu.torch.round(x, "fp16")
    assert type(got) is Metres
    same(got.as_subclass(torch.Tensor), fpemu.torch.round(points(), "fp16"))


# --- refusals ----------------------------------------------------------------------------------

REFUSED = {
    "sparse": (lambda: torch.eye(3).to_sparse(), "sparse_coo tensor: .* give x.to_dense()"),
    "csr": (lambda: torch.eye(3).to_sparse_csr(), "sparse_csr tensor"),
    "nested": (
        lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
        "nested tensor: .* x.unbind()",
    ),
    "quantized": (
        lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8),
        "torch.qint8 tensor: .* x.dequantize()",
    ),
    "complex": (lambda: torch.ones(3, dtype=torch.complex64), "complex64 tensor: .*view_as_real"),
    "integer": (lambda: torch.arange(3), "torch.int64 tensor: only floats"),
    "bool": (lambda: torch.ones(3, dtype=torch.bool), "torch.bool tensor"),
    "meta": (lambda: torch.ones(3, device="meta"), "meta tensor: it has no numbers"),
    "array": (lambda: np.ones(3), "ndarray: give a torch.Tensor, or call fpemu.round"),
    "number": (lambda: 1.5, "float: give a torch.Tensor"),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta", "ignore:.*nested")
@pytest.mark.filterwarnings("ignore:.*quantize_per_tensor|.*torch.ao")
@pytest.mark.parametrize("kind", REFUSED)
def test_refused_in_one_line(kind: str) -> None:
    make, line = REFUSED[kind]
    with pytest.raises(InputError, match=line) as refusal:
        fpemu.torch.round(make(), "fp16")
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"to": "e4m3"}, "e4m3"),
        ({"to": torch.int8}, "int8"),
        ({"to": "fp16", "rounding": "nearest"}, "unknown rounding 'nearest'"),
        ({"to": "fp16", "gradient": "fp61"}, "unknown format 'fp61'"),
        ({"to": "fp16:stochastic"}, "stochastic rounding needs a seed"),
        ({"to": "fp16", "gradient": "fp16:stochastic"}, "a stochastic gradient needs a seed"),
        ({"to": "fp16:stochastic", "seed": -1}, "seed=-1: must be an int from 0"),
        ({"to": "fp16:stochastic", "seed": True}, "seed=True"),
        ({"to": "fp16:stochastic", "seed": 1.5}, "seed=1.5"),
        ({"to": "fp16:stochastic", "seed": 1, "random_bits": 40}, "random_bits=40"),
        ({"to": "fp16:stochastic", "seed": 1, "offset": -1}, "offset=-1"),
    ],
    ids=str,
)
def test_wrong_options_are_named(options: dict[str, Any], line: str) -> None:
    with pytest.raises(fpemu.FpemuError, match=line):
        fpemu.torch.round(torch.ones(3), **options)


# --- loading -----------------------------------------------------------------------------------


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_loaded_when_it_is_asked_for() -> None:
    loaded = "print('torch' in sys.modules)"
    code = f"import fpemu, sys; {loaded}; fpemu.torch; {loaded}"
    assert run(code).split() == ["False", "True"]


def test_without_torch_the_extra_is_named() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import fpemu\n"
        "try: fpemu.torch\n"
        "except fpemu.errors.MissingExtraError as missing: print(missing)"
    )
    assert "pip install 'fpemu[torch]'" in run(code)


# --- on a GPU ----------------------------------------------------------------------------------

gpu = pytest.mark.gpu


@pytest.fixture
def cuda() -> Any:
    if not torch.cuda.is_available():
        pytest.skip("PyTorch sees no CUDA device")
    return torch.device("cuda")


@gpu
@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name != "parameter"])
@pytest.mark.parametrize("to", ["fp16", "e4m3fn:overflow=saturate", "e5m2:stochastic", "fp4:up"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16], ids=str)
def test_cuda_gives_the_bits_of_the_cpu(cuda: Any, layout: str, to: str, dtype: Any) -> None:
    x = LAYOUTS[layout](torch.from_numpy(wide_range(4 * 6 * 5 * 7)).reshape(4, 6, 5, 7)).to(dtype)
    got = fpemu.torch.round(x.to(cuda), to, seed=3)
    assert got.device.type == "cuda"
    assert got.stride() == x.to(cuda).neg().stride()
    want = fpemu.torch.round(x, to, seed=3)
    assert got.dtype == want.dtype
    assert_same_bits(got.cpu().double().numpy(), want.double().numpy(), x.double().numpy())


@gpu
@torch_warns
@each_use
def test_cuda_gradients_transforms_and_graphs(cuda: Any, name: str) -> None:
    x, loss = points(), loss_of(USES[name])
    want = plain_gradient(loss, x)
    same(plain_gradient(loss, x.to(cuda)).cpu(), want)
    same(torch.func.grad(loss)(x.to(cuda)).cpu(), want)
    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)
    same(plain_gradient(compiled, x.to(cuda)).cpu(), want)


@gpu
def test_cuda_is_pytorchs_own_cast(cuda: Any) -> None:
    for dtype in DTYPES[:4]:
        form = fpemu.finfo(str(dtype).removeprefix("torch."))
        x = torch.from_numpy(directed_inputs(form)).to(cuda)
        same(fpemu.torch.round(x, dtype).cpu(), x.to(dtype).to(torch.float32).cpu(), x.cpu())
