"""Functions through float64, all-reduce and convolution, against the same done step by step."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from support import assert_same_bits

import fpemu
from fpemu import arithmetic
from fpemu.cast import Cast
from fpemu.errors import InputError
from fpemu.rounding import round_exact, value_of

# --- functions ---------------------------------------------------------------------------------


@pytest.mark.parametrize("to", ["float16", "bfloat16:up", "float8_e4m3fn:toward_zero"])
@pytest.mark.parametrize("name", ["exp", "log", "tanh", "sin", "log1p", "expm1", "sigmoid"])
def test_functions_are_python_s_math_rounded_once(name, to):
    """Python's libm has the float64 result, and the exact definition rounds it."""
    x = np.abs(np.random.default_rng(1).standard_normal(300)).astype(np.float32) * 3
    cast = Cast.from_str(to)
    work = getattr(math, name, lambda v: 1 / (1 + math.exp(-v)))
    want = [float(value_of(cast.format, round_exact(cast, work(float(v))).code)) for v in x]
    assert_same_bits(arithmetic.evaluate(name, x, to=cast), np.float32(want), x, name)


def test_exp_of_float32_would_round_twice():
    """float32's exp lands on float16 midpoints that the true result is beside."""
    x = np.random.default_rng(0).uniform(0, 8, 200_000).astype(np.float32)
    once = arithmetic.evaluate("exp", x, to="fp16")
    twice = fpemu.round(np.exp(x), "fp16")
    assert 0 < np.count_nonzero(once != twice) < 100


def test_poles_domains_and_users_functions():
    inf = np.inf
    x = np.float32([0, -1, inf, np.nan])
    got = arithmetic.evaluate("log", x, to="fp16")
    assert np.array_equal(got, [-inf, np.nan, inf, np.nan], equal_nan=True)
    assert not np.signbit(got[[1, 3]]).any()
    assert arithmetic.evaluate("arctan2", np.float32(1), np.float32(1), to="bf16") == 0.78515625
    assert arithmetic.evaluate("sigmoid", np.float32([-1000, 1000]), to="fp16").tolist() == [0, 1]
    with pytest.raises(InputError, match="function 'expp': must be one of"):
        arithmetic.evaluate("expp", x, to="fp16")
    with pytest.raises(InputError, match="takes 1 operands, not 2"):  # numpy's second one is out
        arithmetic.evaluate("exp", x, x, to="fp16")
    with pytest.raises(InputError, match="function 3: must be one of"):
        arithmetic.evaluate(3, x, to="fp16")
    with pytest.raises(InputError, match="function gave float32"):
        arithmetic.evaluate(lambda v: v.astype(np.float32), x, to="fp16")
    with pytest.raises(InputError, match="flags: needs an exact result"):
        arithmetic.evaluate("exp", x, to="fp16", flags=True)


# --- all-reduce --------------------------------------------------------------------------------


def gradients(ranks: int, size: int = 23) -> list[np.ndarray]:
    random = np.random.default_rng(ranks)
    return [random.standard_normal(size).astype(np.float32) for _ in range(ranks)]


def ring_element(values: list[float], part: int, wire: Cast, accumulator: Cast) -> float:
    """One element's way round, in plain Python numbers."""
    def cast(to: Cast, x: float) -> float:
        return float(value_of(to.format, round_exact(to, x).code))

    total = values[part]
    for hop in range(1, len(values)):
        total = cast(accumulator, values[(part + hop) % len(values)] + cast(wire, total))
    return cast(wire, total)


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_ring(ranks):
    arrays = gradients(ranks)
    wire, accumulator = Cast("bfloat16"), Cast("float32")
    got = arithmetic.all_reduce(arrays, wire, accumulator=accumulator)
    part = np.repeat(np.arange(ranks), [len(p) for p in np.array_split(arrays[0], ranks)])
    want = [ring_element([float(a[i]) for a in arrays], part[i], wire, accumulator)
            for i in range(23)]  # fmt: skip
    assert_same_bits(got, np.float32(want))


def test_tree():
    a, b, c, d, e = gradients(5)
    wire, accumulator = Cast("float8_e5m2"), Cast("float16")

    def add(x, y):
        return fpemu.round((x + fpemu.round(y, wire)).astype(np.float64), accumulator)

    wide = [x.astype(np.float64) for x in (a, b, c, d, e)]
    four = add(add(wide[0], wide[1]), add(wide[2], wide[3]))
    want = fpemu.round(add(four, wide[4]), wire).astype(np.float32)
    got = arithmetic.all_reduce([a, b, c, d, e], wire, accumulator=accumulator, topology="tree")
    assert_same_bits(got, want)


def test_average_shapes_and_exact_casts():
    arrays = [x.reshape(4, 6) for x in gradients(4, 24)]
    whole = [np.rint(x * 8) for x in arrays]
    for topology in ("ring", "tree"):
        got = arithmetic.all_reduce(whole, "float32", topology=topology, average=True)
        assert_same_bits(got, sum(whole) / np.float32(4))
    few = arithmetic.all_reduce((np.float32([k, 2]) for k in range(5)), "fp16")
    assert few.tolist() == [10, 10]
    few = arithmetic.all_reduce([np.float32([1, 2])] * 5, "fp16")  # more ranks than elements
    assert few.tolist() == [5, 10]


def test_stochastic_wires_have_draws_of_their_own():
    arrays = [np.full(20_000, 0.1, np.float32)] * 4
    got = arithmetic.all_reduce(arrays, "e4m3fn:stochastic", accumulator="float32", seed=3)
    error = got.mean(dtype=np.float64) - 4 * float(np.float32(0.1))
    assert abs(error) < 5 * got.std() / math.sqrt(got.size)
    with pytest.raises(InputError, match="needs a seed"):
        arithmetic.all_reduce(arrays, "e4m3fn:stochastic")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: arithmetic.all_reduce([], "fp16"), "arrays is empty"),
        (lambda: arithmetic.all_reduce(3, "fp16"), "must be a list of one array a rank"),
        (lambda: arithmetic.all_reduce([np.ones(2, np.float32), np.ones(3, np.float32)], "fp16"),
         r"array of rank 1 is float32\[3\]: all must be"),
        (lambda: arithmetic.all_reduce([np.ones(2)], "fp16"), r"array of rank 0 is float64\[2\]"),
        (lambda: arithmetic.all_reduce([np.ones(2, np.float32)], "fp16", topology="star"),
         "topology='star': must be 'ring' or 'tree'"),
    ],
)  # fmt: skip
def test_all_reduce_refuses_in_one_line(call, message):
    with pytest.raises(InputError, match=message) as refused:
        call()
    assert "\n" not in str(refused.value)


# --- convolution -------------------------------------------------------------------------------


def slow_conv(x, weight, cast, stride, padding, dilation, groups):
    """Window by window with fma, one output at a time."""
    padded = np.pad(x, ((0, 0), (0, 0), (padding,) * 2, (padding,) * 2))
    batch, _, high, wide = padded.shape
    outputs, per_group, rows, columns = weight.shape
    high = (high - (rows - 1) * dilation - 1) // stride + 1
    wide = (wide - (columns - 1) * dilation - 1) // stride + 1
    found = np.zeros((batch, outputs, high, wide), np.float32)
    for i, j in itertools.product(range(high), range(wide)):
        for o in range(outputs):
            total = np.zeros(batch, np.float32)
            first = o // (outputs // groups) * per_group
            for c, r, s in itertools.product(range(per_group), range(rows), range(columns)):
                term = padded[:, first + c, i * stride + r * dilation, j * stride + s * dilation]
                total = arithmetic.fma(weight[o, c, r, s], term, total, cast)
            found[:, o, i, j] = total
    return found


@pytest.mark.parametrize(
    ("stride", "padding", "dilation", "groups"),
    [(1, 0, 1, 1), (2, 1, 1, 1), (1, 2, 2, 1), (2, 1, 1, 2)],
)
def test_conv2d(stride, padding, dilation, groups):
    random = np.random.default_rng(2)
    x = fpemu.round(random.standard_normal((2, 4, 7, 6)).astype(np.float32), "fp16")
    weight = fpemu.round(random.standard_normal((4, 4 // groups, 3, 2)).astype(np.float32), "fp16")
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    got = arithmetic.conv2d(x, weight, "fp16", **options)
    assert_same_bits(got, slow_conv(x, weight, Cast("fp16"), **options))


def test_conv2d_is_pytorch_s():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    random = np.random.default_rng(2)
    x, weight = (torch.from_numpy(random.integers(-3, 4, shape).astype(np.float32))
                 for shape in ((2, 6, 9, 8), (4, 2, 3, 3)))  # fmt: skip
    options = {"stride": (2, 1), "padding": (1, 0), "dilation": (1, 2), "groups": 3}
    weight = torch.cat([weight, weight[:2]])
    got = arithmetic.conv2d(x, weight, "float16", **options)
    want = torch.nn.functional.conv2d(x, weight, **options)
    assert torch.equal(got, want), "small integers are exact"
    assert torch.equal(arithmetic.conv2d(x.numpy(), weight, "float16", **options), want)
    lists = {name: [*v] if name != "groups" else v for name, v in options.items()}
    assert torch.equal(arithmetic.conv2d(x, weight, "float16", **lists), want)
    for few, rows in ((x[:0], weight), (x, weight[:0])):
        want = torch.nn.functional.conv2d(few, weight, **options)[:, : len(rows)]
        assert arithmetic.conv2d(few, rows, "float16", **options).shape == want.shape


@pytest.mark.parametrize(
    ("x", "weight", "options", "message"),
    [
        ((1, 2, 4), (1, 2, 3, 3), {}, "x has 3 axes: must have 4"),
        ((1, 2, 4, 4), (1, 3, 3, 3), {}, "x has 2 channels, weight takes 3"),
        ((1, 2, 4, 4), (1, 2, 5, 3), {}, r"weight reaches over \[5, 3\]"),
        ((1, 2, 4, 4), (1, 2, 3, 3), {"stride": 0}, "stride=0: must be an int of at least 1"),
        ((1, 2, 4, 4), (1, 2, 3, 3), {"groups": 3}, "groups=3: must divide the 2 channels"),
        ((1, 2, 4, 4), (1, 2, 3, 3), {"strides": 2}, "option 'strides': unknown"),
    ],
)
def test_conv2d_refuses_in_one_line(x, weight, options, message):
    with pytest.raises(InputError, match=message) as refused:
        arithmetic.conv2d(np.ones(x, np.float32), np.ones(weight, np.float32), "fp16", **options)
    assert "\n" not in str(refused.value)
