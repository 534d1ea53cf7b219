"""Sums and matrix products against the same steps in integer arithmetic; orders; refusals."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from integer_arithmetic import second
from support import DETERMINISTIC, assert_same_bits, every_cast, names

import fpemu
from fpemu import arithmetic
from fpemu.arithmetic import Accumulation
from fpemu.cast import Cast
from fpemu.errors import InputError
from fpemu.kernels.cpu_arithmetic_rounders import plain_sums
from fpemu.rounding import round_exact, value_of

Array = np.ndarray


def matrices(form: str, rows: int, terms: int, columns: int, seed: int = 0, spread: int = 3):
    """Normal numbers over some binades, of a format, with zeros, small and large ones."""
    random = np.random.default_rng(seed)
    found = []
    for shape in ((rows, terms), (terms, columns)):
        x = random.standard_normal(shape) * 2.0 ** random.integers(-spread, spread + 1, shape)
        x[random.random(shape) < 0.05] = 0.0
        x[random.random(shape) < 0.03] *= 2.0**-12
        found.append(fpemu.round(x.astype(np.float32), form))
    return found


def step(name: str, cast: Cast, *operands: Array) -> Array:
    shape = np.broadcast_shapes(*(x.shape for x in operands))
    flat = [np.broadcast_to(x, shape).ravel() for x in operands]
    return second(name, cast, *flat).values.reshape(shape)


def second_matmul(a: Array, b: Array, how: Accumulation) -> Array:
    """Term by term over whole outputs, by the integer algorithm."""
    zero = np.zeros((a.shape[0], b.shape[1]), np.float32)
    total, blocks = zero, how.length(a.shape[1])
    length = blocks or a.shape[1]
    for start in range(0, a.shape[1], length):
        partial = zero
        for k in range(start, min(start + length, a.shape[1])):
            x, y = a[:, k : k + 1], b[k : k + 1]
            if how.product is None:
                partial = step("fma", how.cast, x, y, partial)
            else:
                partial = step("add", how.cast, partial, step("multiply", how.product, x, y))
        total = step("add", how.total, total, partial) if blocks else partial
    return total


def second_tree(terms: list[Array], cast: Cast) -> Array:
    """Level by level; a last one without a neighbour goes up as it is."""
    if len(terms) == 1:
        return terms[0]
    sums = [step("add", cast, x, y) for x, y in zip(terms[::2], terms[1::2], strict=False)]
    return second_tree(sums + terms[len(sums) * 2 :], cast)


def second_kahan(terms: list[Array], cast: Cast) -> Array:
    total = lost = np.zeros_like(terms[0])
    for term in terms:
        y = step("subtract", cast, term, lost)
        t = step("add", cast, total, y)
        lost = step("subtract", cast, step("subtract", cast, t, total), y)
        total = t
    return total


# --- sequential, blocks -----------------------------------------------------------------------

CASES = [
    ("float16", Accumulation("float16")),
    ("float16", Accumulation("float16", product="float16")),
    ("float16", Accumulation("float16", block=7, outer="float32")),
    ("float16", Accumulation("float16", splits=3)),
    ("float16", Accumulation("float32")),
    ("bfloat16", Accumulation("bfloat16")),
    ("float32", Accumulation("float32")),
    ("float32", Accumulation("float16")),
    ("float8_e4m3fn", Accumulation("float8_e4m3fn:overflow=saturate")),
    ("float8_e5m2", Accumulation("float8_e5m2")),
    ("float8_e4m3fnuz", Accumulation("float8_e4m3fnuz", product="float8_e4m3fnuz")),
]

#: Each of these compiles a loop of its own, for two seconds.
RARE = [
    ("float16", Accumulation("bfloat16", product="float16", block=8)),
    ("bfloat16", Accumulation("float32", product="bfloat16")),
    ("tf32", Accumulation("tf32:toward_zero", block=16, outer="float32")),
    ("float4_e2m1fn", Accumulation("float6_e3m2fn")),
]


@pytest.mark.parametrize(
    ("form", "how"),
    [*CASES, *(pytest.param(*case, marks=pytest.mark.exhaustive) for case in RARE)],
    ids=[f"{f}-{h.cast}" for f, h in CASES + RARE],
)
def test_matmul_is_the_integer_algorithm_s_steps(form, how):
    a, b = matrices(form, 5, 45, 33)
    got = arithmetic.matmul(a, b, how)
    assert_same_bits(got, second_matmul(a, b, how), what=how.to_json())


@pytest.mark.parametrize("rounding", DETERMINISTIC, ids=names(DETERMINISTIC))
@pytest.mark.parametrize("form", ["float16", "bfloat16", "float8_e5m2"])
def test_matmul_in_every_rounding(form, rounding):
    a, b = matrices(form, 3, 40, 20, seed=1, spread=7)
    how = Accumulation(Cast(form, rounding))
    assert_same_bits(arithmetic.matmul(a, b, how), second_matmul(a, b, how), what=how.to_json())


@pytest.mark.parametrize("form", [
    "float8_e5m2fnuz", "float16", pytest.param("float8_e8m0fnu", marks=pytest.mark.exhaustive),
])  # fmt: skip
def test_matmul_under_every_rule(form):
    a, b = matrices("float8_e5m2", 2, 24, 9, seed=2, spread=6)
    a[0, 3], b[5, 2], a[1, 9] = np.inf, -np.inf, np.nan
    for cast in every_cast(fpemu.finfo(form))[::7]:
        got = arithmetic.matmul(a, b, cast)
        want = second_matmul(a, b, Accumulation(cast))
        assert_same_bits(got, want, what=cast)


def test_a_term_at_a_midpoint_and_a_far_smaller_sum():
    """Where rounding twice, through float64, goes wrong: a midpoint, and 2**-90 below it."""
    tiny, tie = np.float32(2.0**-90), np.float32(1 + 2**-8)
    a = np.float32([[tiny, tie], [-tiny, tie]])
    b = np.ones((2, 20), np.float32)
    got = arithmetic.matmul(a, b, "bf16")
    assert (got[0] == 1 + 2**-7).all()
    assert (got[1] == 1).all()
    assert not plain_sums(Cast("bf16"), 9)
    assert plain_sums(Cast("fp16"), 22)
    assert not plain_sums(Cast("fp16", "up"), 22)


def test_float16_products_and_sums_at_random_bits():
    """All exponents, subnormals, infinities and NaN among them, every term from a new sum."""
    random = np.random.default_rng(5)
    for seed in range(3):
        codes = random.integers(0, 1 << 16, (2, 40_000), np.uint32)
        x, y = fpemu.decode(codes, "float16")
        z = fpemu.decode(random.integers(0, 1 << 16, 40_000, np.uint32), "float16")
        a = np.float32([[1, 1]]) if seed else np.float32([[1, -1]])
        got = arithmetic.matmul(a, np.stack([x, z]), "float16")[0]
        first = step("add", Cast("float16"), np.zeros_like(x), x)
        want = step("fma", Cast("float16"), a[:, 1], z, first)
        assert_same_bits(got, want, x)
        # products of two: each column alone, on a diagonal
        part = slice(seed * 600, seed * 600 + 600)
        wide = arithmetic.matmul(x[None, part].T, y[None, part], "float16").diagonal()
        zero = np.zeros(600, np.float32)
        assert_same_bits(wide.copy(), step("fma", Cast("float16"), x[part], y[part], zero))


# --- the other orders --------------------------------------------------------------------------


@pytest.mark.parametrize("terms", [1, 2, 3, 6, 7, 8, 45])
@pytest.mark.parametrize("product", ["exact", "float16"])
def test_pairwise(terms, product):
    a, b = matrices("float16", 3, terms, 18, seed=terms)
    cast = Cast("float16")
    products = [a[:, k : k + 1] * b[k : k + 1] for k in range(terms)]  # exact in float32
    if product != "exact":
        products = [step("multiply", cast, x, np.float32(1)) for x in products]
    want = second_tree(products, cast)
    if terms == 1:
        want = step("multiply", cast, want, np.float32(1))
    got = arithmetic.matmul(a, b, cast, order="pairwise", product=product)
    assert_same_bits(got, want)


@pytest.mark.parametrize("form", ["float16", "bfloat16", "float8_e4m3fn"])
def test_kahan(form):
    a, b = matrices("float8_e4m3fn", 3, 60, 18, seed=8)
    cast = Cast.from_str(form)
    products = [a[:, k : k + 1] * b[k : k + 1] for k in range(60)]
    assert_same_bits(arithmetic.matmul(a, b, cast, order="kahan"), second_kahan(products, cast))


def test_kahan_keeps_what_float16_loses():
    x = np.full(4096, 0.1, np.float32)
    assert arithmetic.sum(x, "fp16") == 256
    assert arithmetic.sum(x, "fp16", order="kahan") == np.float32(np.float16(409.6))
    exact = 4096 * Fraction(float(x[0]))
    assert arithmetic.sum(x, "fp16", block=16, outer="float32") == pytest.approx(float(exact), 2e-3)


def test_sum_by_fractions():
    """float32 into float32 and float64 into bfloat16: no shortcut is exact there."""
    random = np.random.default_rng(4)
    for dtype, to in ((np.float32, "float32:down"), (np.float64, "bfloat16")):
        x = (random.standard_normal(300) * 2.0 ** random.integers(-30, 30, 300)).astype(dtype)
        cast = Cast.from_str(to)
        total = Fraction(0)
        for value in x:
            code = round_exact(cast, total + Fraction(float(value))).code
            total = Fraction(float(value_of(cast.format, code)))
        got = arithmetic.sum(x, cast)
        assert got == float(total)
        assert got.dtype == dtype


def test_sum_along_axes():
    x = np.random.default_rng(6).standard_normal((4, 5, 6)).astype(np.float32)
    for axis in (0, 1, -1, (0, 2), None):
        got = arithmetic.sum(x, "float32", axis=axis)
        assert got.shape == np.sum(x, axis=axis).shape
        np.testing.assert_allclose(got, np.sum(x, axis=axis), rtol=1e-5, atol=1e-5)
    middle = [arithmetic.dot(np.ones(5, np.float32), x[1, :, k], "bf16") for k in range(6)]
    assert_same_bits(arithmetic.sum(x, "bf16", axis=1)[1], np.array(middle))


# --- shapes, threads, draws --------------------------------------------------------------------


def test_shapes_are_numpy_s():
    random = np.random.default_rng(0)
    for left, right in (((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 4)), ((5, 2, 3), (3, 4)),
                        ((5, 1, 2, 3), (6, 3, 4)), ((0, 3), (3, 2)), ((2, 0), (0, 4)),
                        ((0, 2, 3), (0, 3, 4)), ((40, 3), (3, 2))):  # fmt: skip
        a = random.integers(-3, 4, left).astype(np.float32)
        b = random.integers(-3, 4, right).astype(np.float32)
        got = arithmetic.matmul(a, b, "float16")
        assert np.shape(got) == np.shape(a @ b)
        assert np.array_equal(got, a @ b), "small integers are exact"
        for order in ("pairwise", "kahan"):
            assert np.array_equal(arithmetic.matmul(a, b, "float16", order=order), a @ b)


def test_wide_outputs_in_tiles_and_on_threads():
    a, b = matrices("float16", 12, 40, 1200, seed=3)
    one = arithmetic.matmul(a, b, "fp16", threads=1)
    assert_same_bits(arithmetic.matmul(a, b, "fp16", threads=4), one)
    parts = [arithmetic.matmul(a[i : i + 1], b[:, j : j + 300].copy(), "fp16")
             for i in range(2) for j in range(0, 1200, 300)]  # fmt: skip
    assert_same_bits(np.concatenate(parts, axis=1)[0], one[:2].ravel())


def test_a_block_longer_than_any_sum_is_one_block():
    a, b = matrices("float16", 2, 45, 20)
    got = arithmetic.matmul(a, b, "fp16", block=10**30, outer="float32")
    assert_same_bits(got, arithmetic.matmul(a, b, "fp16", splits=1, outer="float32"))


def test_dtypes():
    a, b = matrices("float16", 2, 3, 4)
    half = arithmetic.matmul(a.astype(np.float16), b.astype(np.float16), "fp16")
    assert half.dtype == np.float16
    assert arithmetic.matmul(a.astype(np.float16), b.astype(np.float16), "fp32").dtype == np.float32
    assert isinstance(arithmetic.dot(a[0], a[0], "fp16"), np.float32)
    torch = pytest.importorskip("torch", reason="torch is not installed")
    got = arithmetic.matmul(torch.from_numpy(a), torch.from_numpy(b), "fp16")
    assert_same_bits(got.numpy(), arithmetic.matmul(a, b, "fp16"))


def test_stochastic_sums_keep_the_mean_and_the_seed():
    x = np.full((512, 4000), 0.1, np.float32)
    cast = "float16:stochastic"
    got = arithmetic.sum(x, cast, axis=0, seed=1)
    assert_same_bits(arithmetic.sum(x, cast, axis=0, seed=1, threads=2), got)
    assert not np.array_equal(arithmetic.sum(x, cast, axis=0, seed=2), got)
    error = got.mean(dtype=np.float64) - 512 * float(np.float32(0.1))
    assert abs(error) < 5 * got.std() / math.sqrt(got.size)
    stack = np.broadcast_to(x[:, :40], (3, 512, 40))
    batch = arithmetic.matmul(np.ones((3, 1, 512), np.float32), stack, cast, seed=1)
    assert not np.array_equal(batch[0], batch[1]), "each matrix of a batch has draws of its own"
    with pytest.raises(InputError, match="needs a seed"):
        arithmetic.sum(x, cast)


@pytest.mark.exhaustive
def test_stochastic_pairwise_sums_keep_the_mean():
    x = np.full((256, 3000), 0.1, np.float32)
    got = arithmetic.sum(x, "e5m2:stochastic", axis=0, seed=1, order="pairwise")
    assert len(np.unique(got)) > 1
    error = got.mean(dtype=np.float64) - 256 * float(np.float32(0.1))
    assert abs(error) < 5 * got.std() / math.sqrt(got.size)


def test_an_accumulation_is_a_record():
    how = Accumulation("fp16", product="bf16", block=32, outer="float32")
    assert Accumulation.from_json(how.to_json()) == how
    assert len({how, Accumulation("fp16", "bf16", "sequential", 32, None, "fp32")}) == 1
    a, b = matrices("float16", 2, 64, 20)
    assert_same_bits(arithmetic.matmul(a, b, how),
                     arithmetic.matmul(a, b, "fp16", product="bf16", block=32, outer="fp32"))
    changed = arithmetic.matmul(a, b, how, block=64)
    assert_same_bits(changed, arithmetic.matmul(a, b, "fp16", product="bf16", block=64,
                                                outer="fp32"))  # fmt: skip


ONES = np.ones((2, 3), np.float32)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: arithmetic.matmul(ONES, ONES, "fp16"), r"matmul of shapes \(2, 3\) and \(2, 3\)"),
        (lambda: arithmetic.matmul(ONES, 2.0, "fp16"), "b is float64"),
        (lambda: arithmetic.matmul(ONES, np.float32(2), "fp16"), "b has no axis"),
        (lambda: arithmetic.matmul(ONES, ONES.T.astype(float), "fp16"), "b is float64: products"),
        (lambda: arithmetic.matmul(ONES, np.ones((3, 2), int), "fp16"), "dtype int64"),
        (lambda: arithmetic.dot(ONES[0], ONES[0, :2], "fp16"), r"dot of shapes \(3,\) and \(2,\)"),
        (lambda: arithmetic.sum(ONES, "fp16", axis=2), "axis=2: must be different axes of x"),
        (lambda: arithmetic.sum(ONES, "fp16", order="random"), "order='random': must be one of"),
        (lambda: arithmetic.sum(ONES, "fp16", blocks=2), "option 'blocks': unknown"),
        (lambda: arithmetic.sum(np.array([1e300]), "fp16"), r"float64 operand 1e\+300: must be"),
        (lambda: arithmetic.sum(ONES, "fp16", block=0), "block=0: must be an int, 1 or more"),
        (lambda: arithmetic.sum(ONES, "fp16", outer="fp32"), "outer=fp32: adds blocks"),
        (lambda: arithmetic.sum(ONES, "fp16", block=2, splits=2), "give one of them"),
        (lambda: arithmetic.sum(ONES, "fp16", block=2, order="kahan"), "blocks are for the"),
        (lambda: arithmetic.sum(ONES, "fp16", threads=0), "threads=0"),
        (lambda: Accumulation.from_json({"order": "kahan"}), "must have 'cast'"),
    ],
)  # fmt: skip
def test_refusals_are_one_line(call, message):
    with pytest.raises(InputError, match=message) as refused:
        call()
    assert "\n" not in str(refused.value)
