"""Elementwise operations against integer significands, those against Fractions; flags; refusals."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from integer_arithmetic import OPERATIONS, second
from support import DETERMINISTIC, ODD, P3109, assert_same_bits, every_cast, names

import fpemu
from fpemu import arithmetic
from fpemu.cast import Cast, Rounding
from fpemu.errors import InputError
from fpemu.format import Format
from fpemu.rounding import Real, round_exact, value_of

BYTES = [f for f in fpemu.formats.values() if f.bits == 8]
NARROW = [f for f in fpemu.formats.values() if f.bits <= 6]
PAIRED = ["add", "subtract", "multiply", "divide"]
ARITY = {"sqrt": 1, "fma": 3}
FLAGS = ["invalid", "divide_by_zero", "overflow", "underflow", "inexact"]


def plain_cast(form: Format, rounding: Rounding | str = "nearest_even") -> Cast:
    return Cast(form, rounding, negative="nan" if form.has_nan else "abs")


def check(name: str, cast: Cast, *operands: np.ndarray, after: bool = True) -> None:
    """Values and flags, against the integer algorithm."""
    tininess = "after" if after else "before"
    got, flags = getattr(arithmetic, name)(*operands, cast, flags=True, tininess=tininess)
    want = second(name, cast, *operands, after=after)
    shown = operands[0] if len(operands) == 1 else None
    if not np.array_equal(got, want.values, equal_nan=True):
        wrong = np.argwhere(~((got == want.values) | np.isnan(got) & np.isnan(want.values)))[0][0]
        shown = np.full(got.shape, operands[0][wrong])
        assert_same_bits(got, want.values, shown, f"{name} {[o[wrong] for o in operands]} {cast}")
    assert_same_bits(got, want.values, shown, f"{name} {cast}")
    for flag in FLAGS:
        different = flags.where(flag) != want.flags[flag]
        if different.any():
            i = int(np.argmax(different))
            raise AssertionError(
                f"{name} {cast}: {flag} differs {int(different.sum())} times, first at "
                f"{[o[i] for o in operands]} -> {got[i]}: got {flags.where(flag)[i]}"
            )


def pairs(form: Format) -> tuple[np.ndarray, np.ndarray]:
    values = fpemu.values(form)
    a, b = np.meshgrid(values, values)
    return a.ravel(), b.ravel()


def directed(form: Format, count: int, seed: int = 0) -> np.ndarray:
    """Codes near the ends of the significands and the exponents, and random ones."""
    random = np.random.default_rng(seed)
    m = form.mantissa_bits
    fractions = np.concatenate([[0, 1, 2, 3, (1 << m) - 1, (1 << m) - 2, 1 << m >> 1],
                                random.integers(0, 1 << m, 3)]) & ((1 << m) - 1)
    fields = np.arange(1 << form.exponent_bits)
    if fields.size > 40:
        fields = np.concatenate([fields[:12], fields[60:190:3], fields[-8:]])
    codes = (fields[:, None] << m | fractions).ravel()
    codes = np.concatenate([codes, random.integers(0, 1 << form.magnitude_bits, 300)])
    codes = random.choice(codes, count) | random.integers(0, 2, count) << form.magnitude_bits
    return fpemu.decode(codes.astype(np.uint32), form)


def close_operands(form: Format, count: int, arity: int, seed: int) -> list[np.ndarray]:
    """Directed operands; of a part, exponents close to each other, or cancelling ones."""
    found = [directed(form, count, seed + i) for i in range(arity)]
    if arity > 1:
        third = count // 3
        near = np.abs(fpemu.decode(np.random.default_rng(seed).integers(
            0, 1 << form.magnitude_bits, third).astype(np.uint32), form))
        scale = np.ldexp(1.0, np.random.default_rng(seed + 9).integers(-14, 15, third))
        with np.errstate(over="ignore"):
            found[1][:third] = fpemu.round(-near * scale.astype(np.float32), plain_cast(form))
        found[0][:third] = near
    if arity == 3:
        with np.errstate(over="ignore", invalid="ignore"):
            product = found[0][third : 2 * third] * found[1][third : 2 * third]
        found[2][third : 2 * third] = fpemu.round(-product, plain_cast(form))
    return found


# --- the second algorithm against Fractions ----------------------------------------------------


def exact_result(name: str, operands: tuple[float, ...], cast: Cast) -> int | None:
    """The code of a result by Fractions; None where an operand is not finite or divides by 0."""
    if not all(map(math.isfinite, operands)) or (name == "divide" and operands[1] == 0):
        return None
    x = [Fraction(v) for v in operands]
    match name:
        case "add":
            exact, signs = x[0] + x[1], [operands[0], operands[1]]
        case "subtract":
            exact, signs = x[0] - x[1], [operands[0], -operands[1]]
        case "multiply":
            exact, signs = x[0] * x[1], [math.prod(math.copysign(1, v) for v in operands)]
        case "divide":
            exact, signs = x[0] / x[1], [math.prod(math.copysign(1, v) for v in operands)]
        case "fma":
            exact = x[0] * x[1] + x[2]
            signs = [math.copysign(1, operands[0]) * math.copysign(1, operands[1]), operands[2]]
        case _:
            return exact_root(operands[0], cast)
    if exact == 0:
        minus = [math.copysign(1, s) < 0 for s in signs]
        down = cast.rounding is Rounding.DOWN
        sign = minus[0] if all(m == minus[0] for m in minus) else down
        return round_exact(cast, Real(int(sign), 0)).code
    return round_exact(cast, exact).code


def exact_root(x: float, cast: Cast) -> int | None:
    """By the integer root of x * 4**200, one more digit standing for what is lost."""
    if x <= 0:
        return None if x < 0 else round_exact(cast, x).code
    scaled = Fraction(x) * 4**200
    whole = scaled.numerator // scaled.denominator
    root = math.isqrt(whole)
    lost = Fraction(int(root * root != scaled), 2)
    return round_exact(cast, (root + lost) / 2**200).code


def against_fractions(name: str, size: int) -> int:
    """Compare operations over all formats, modes and rules; return how many."""
    random = np.random.default_rng(len(name))
    forms = [fpemu.finfo(n) for n in ("float16", "bfloat16", "tf32", "float32")] + BYTES + NARROW
    count = 0
    for form in [*forms, *ODD, *P3109]:
        casts = every_cast(form)
        for cast in random.choice(np.array(casts, object), min(len(casts), 6), replace=False):
            source = form if form.signed else fpemu.finfo("float8_e5m2")
            operands = close_operands(source, size, ARITY.get(name, 2), int(random.integers(1000)))
            operands = [np.abs(x) for x in operands] if name == "sqrt" else operands
            got = second(name, cast, *operands).values
            for i, values in enumerate(zip(*operands, strict=True)):
                code = exact_result(name, tuple(map(float, values)), cast)
                if code is not None:
                    count += 1
                    want = float(value_of(form, code))
                    assert alike(got[i], want), f"{name}{values} {cast}: {got[i]}, want {want}"
    return count


def alike(got: float, want: float) -> bool:
    """Equal, zeros of one sign; any NaN for NaN."""
    if math.isnan(want):
        return math.isnan(got)
    return got == want and (want != 0 or math.copysign(1, got) == math.copysign(1, want))


@pytest.mark.parametrize("name", OPERATIONS)
def test_the_integer_algorithm_is_what_fractions_say(name):
    assert against_fractions(name, 10) > 1_000


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", OPERATIONS)
def test_the_integer_algorithm_is_what_fractions_say_of_100_000(name):
    assert against_fractions(name, 100) > 17_000


# --- all codes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PAIRED)
@pytest.mark.parametrize("form", BYTES, ids=names(BYTES))
def test_all_pairs_of_codes(form, name):
    a, b = pairs(form)
    check(name, plain_cast(form), a, b)


@pytest.mark.parametrize("form", [*BYTES, *NARROW], ids=names([*BYTES, *NARROW]))
def test_sqrt_of_all_codes(form):
    for rounding in DETERMINISTIC:
        check("sqrt", plain_cast(form, rounding), fpemu.values(form))


@pytest.mark.parametrize("form", NARROW[-1:], ids=names(NARROW[-1:]))
def test_fma_of_all_triples_of_codes(form):
    values = fpemu.values(form)
    a, b, c = (x.ravel() for x in np.meshgrid(values, values, values))
    for rounding in DETERMINISTIC:
        check("fma", plain_cast(form, rounding), a, b, c)


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("form", ["float16", "bfloat16", "tf32", "float32"])
@pytest.mark.parametrize("rounding", DETERMINISTIC, ids=names(DETERMINISTIC))
def test_wider_formats_in_every_rounding(form, rounding, name):
    operands = close_operands(fpemu.finfo(form), 6000, ARITY.get(name, 2), 1)
    check(name, Cast(form, rounding), *operands)


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_float32_operands_into_every_cast_of_every_kind_of_format(name, every):
    single = fpemu.finfo("float32")
    for seed, form in enumerate([fpemu.finfo("float16"), *BYTES[:2], BYTES[-1], *ODD]):
        wide = close_operands(single, 300, ARITY.get(name, 2), seed)
        close = close_operands(form if form.signed else fpemu.finfo("float8_e5m2"), 300,
                               ARITY.get(name, 2), seed)  # fmt: skip
        operands = [np.concatenate(both) for both in zip(wide, close, strict=True)]
        for after, cast in zip(itertools.cycle([True, False]), every_cast(form)[::every]):
            check(name, cast, *operands, after=after)


# --- the heavy sizes ---------------------------------------------------------------------------


@pytest.mark.exhaustive
@pytest.mark.parametrize("form", BYTES, ids=names(BYTES))
def test_every_rounding_of_all_pairs_and_a_million_triples(form):
    a, b = pairs(form)
    for name, rounding in itertools.product(PAIRED, DETERMINISTIC[1:]):
        check(name, plain_cast(form, rounding), a, b)
    random = np.random.default_rng(form.bias)
    triple = [random.choice(fpemu.values(form), 10**6) for _ in range(3)]
    check("fma", plain_cast(form), *triple)


@pytest.mark.exhaustive
@pytest.mark.parametrize("form", NARROW, ids=names(NARROW))
def test_every_triple_of_narrow_codes(form):
    values = fpemu.values(form)
    a, b, c = (x.ravel() for x in np.meshgrid(values, values, values))
    for rounding in DETERMINISTIC:
        check("fma", plain_cast(form, rounding), a, b, c)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("form", ["float16", "bfloat16"])
def test_ten_million_operations(form, name):
    """Over the six operations and the six roundings, two formats: 10**7 for each format."""
    found = fpemu.finfo(form)
    random = np.random.default_rng(7)
    for rounding in DETERMINISTIC:
        codes = random.integers(0, 1 << found.bits, (ARITY.get(name, 2), 280_000), np.uint32)
        check(name, Cast(form, rounding), *fpemu.decode(codes, form))


# --- float64 operands, special cases ----------------------------------------------------------


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("to", ["float16", "float32:up", "bfloat16:down", "float8_e5m2:to_odd"])
def test_float64_operands_are_exact_too(name, to):
    random = np.random.default_rng(3)
    cast = Cast.from_str(to)
    operands = [random.standard_normal(400) * 2.0 ** random.integers(-20, 20, 400)
                for _ in range(ARITY.get(name, 2))]  # fmt: skip
    if name in ("add", "fma"):  # sums that lie close to the midpoint of two values
        operands[-1][:200] = np.ldexp(1 + random.integers(0, 2048, 200) / 2048, 4)
        operands[0][:200] = 2.0**-60 * random.choice([-1, 1], 200)
    got = getattr(arithmetic, name)(*operands, cast)
    assert got.dtype == np.float64
    for i, values in enumerate(zip(*operands, strict=True)):
        code = exact_result(name, values, cast)
        if code is not None:
            assert got[i] == float(value_of(cast.format, code)), f"{name}{values}"


def test_sums_of_the_largest_float64():
    top = np.finfo(np.float64).max
    assert arithmetic.add(top, top, "float16", rounding="toward_zero") == 65504
    assert arithmetic.add(top, top, "float16") == np.inf
    assert arithmetic.add(top, -top, "float16") == 0


def test_an_exact_zero_has_ieee_s_sign():
    one, minus = np.float32(1), np.float32(-0.0)
    for rounding in DETERMINISTIC:
        down = rounding is Rounding.DOWN
        options = {"to": "fp16", "rounding": rounding}
        assert np.signbit(arithmetic.subtract(one, one, **options)) == down
        assert np.signbit(arithmetic.add(np.float32(0), minus, **options)) == down
        assert np.signbit(arithmetic.fma(one, one, -one, **options)) == down
        assert np.signbit(arithmetic.fma(minus, one, minus, **options))
        assert not np.signbit(arithmetic.fma(minus, minus, np.float32(0), **options))
        assert np.signbit(arithmetic.add(minus, minus, **options))


def test_nan_results_are_positive():
    minus_nan = np.uint32(0xFFC00000).view(np.float32)
    inf = np.float32(np.inf)
    for result in (arithmetic.add(minus_nan, 1.0, "fp16"), arithmetic.subtract(inf, inf, "fp16"),
                   arithmetic.multiply(inf, -0.0, "fp16"), arithmetic.sqrt(-inf, "fp16"),
                   arithmetic.fma(inf, 0.0, minus_nan, "fp16")):  # fmt: skip
        assert np.isnan(result)
        assert not np.signbit(result)


def test_double_rounding_through_float32_would_be_wrong():
    """1 + 2**-11 is a tie of float16; the 2**-30 above it is lost in float32."""
    a, b = np.float32(1 + 2**-11), np.float32(2**-30)
    assert fpemu.round(a + b, "fp16") == 1.0
    assert arithmetic.add(a, b, "fp16") == np.float32(1 + 2**-10)


# --- stochastic --------------------------------------------------------------------------------


def test_stochastic_rounding_is_round_s_where_the_result_is_exact():
    x = np.random.default_rng(0).standard_normal(2000).astype(np.float32)
    y = np.float32(0.5)
    want = fpemu.round(x * y, "e4m3fn:stochastic", seed=5, offset=17)
    got = arithmetic.multiply(x, y, "e4m3fn:stochastic", seed=5, offset=17)
    assert_same_bits(got, want)
    want = fpemu.round(x * y, "fp16:stochastic", seed=5, random_bits=13)
    got = arithmetic.multiply(x, y, "fp16:stochastic", seed=5, random_bits=13)
    assert_same_bits(got, want)


def test_stochastic_rounding_keeps_the_mean():
    n = 200_000
    a, b = np.full(n, 1.0, np.float32), np.full(n, 3.0, np.float32)
    got = arithmetic.divide(a, b, "e5m2:stochastic", seed=1).astype(np.float64)
    error = got.mean() - 1 / 3
    assert abs(error) < 5 * got.std() / math.sqrt(n)
    assert len(set(got)) == 2


def test_stochastic_overflow_is_flagged_where_the_draw_lands_beyond():
    a = np.full(1000, 448.0, np.float32)
    got, flags = arithmetic.add(a, np.float32(16), "e4m3fn:stochastic,overflow=saturate", seed=0,
                                flags=True)  # fmt: skip
    assert (got == 448).all()
    ieee = arithmetic.add(a, np.float32(16), "e4m3fn:stochastic", seed=0)
    assert np.array_equal(flags.where("overflow"), np.isnan(ieee))
    assert 400 < flags.overflow < 600


# --- what it takes and gives -------------------------------------------------------------------


def test_broadcasting_dtypes_and_scalars():
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert arithmetic.add(x, x[0], "fp16").shape == (2, 3)
    assert arithmetic.add(x, 0.5, "fp16").dtype == np.float32
    assert arithmetic.add(x, np.float64(0.5), "fp16").dtype == np.float64
    half = x.astype(np.float16)
    assert arithmetic.add(half, half, "fp16").dtype == np.float16
    assert arithmetic.add(half, half, "bf16").dtype == np.float32
    assert isinstance(arithmetic.add(np.float32(1), 2, "fp16"), np.float32)
    assert arithmetic.add(x[:0], x[:0], "fp16").shape == (0, 3)
    assert_same_bits(arithmetic.add(x.T, x.T, "fp16"), (x + x).T)


def test_out_may_be_an_operand():
    x = np.linspace(0, 9, 8, dtype=np.float32)
    want = arithmetic.multiply(x, x, "bf16")
    got, flags = arithmetic.multiply(x, x, "bf16", out=x, flags=True)
    assert got is x
    assert_same_bits(x, want)
    assert flags.total == 8


def test_flags_are_of_the_operands_that_out_replaces():
    x = np.float32([np.inf, 1, 0])
    want = arithmetic.divide(x, 0.0, "fp16", flags=True)[1]
    same = arithmetic.subtract(x, x, "fp16", flags=True)[1]
    assert (want.divide_by_zero, want.invalid, same.invalid) == (1, 1, 1)
    y = x.copy()
    assert arithmetic.subtract(y, y, "fp16", out=y, flags=True)[1] == same
    wide = x.astype(float)
    assert arithmetic.divide(wide, 0.0, "fp16", out=wide, flags=True)[1] == want


def test_threads_change_nothing():
    x = np.random.default_rng(1).standard_normal(1_200_000).astype(np.float32)
    want = arithmetic.divide(x, x[::-1], "fp16:stochastic", seed=2, threads=1)
    assert_same_bits(arithmetic.divide(x, x[::-1], "fp16:stochastic", seed=2, threads=3), want)


def test_torch_tensors_come_back_as_such():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    x = torch.tensor([1.0, 2.0])
    got = arithmetic.add(x, 3.0, "fp16")
    assert isinstance(got, torch.Tensor)
    assert got.tolist() == [4, 5]


def test_flags_add_up():
    x = np.float32([1, 2, 0])
    _, one = arithmetic.divide(x, np.float32(0), "fp16", flags=True)
    both = one + one
    assert both.to_json() == {"total": 6, "invalid": 2, "divide_by_zero": 4, "overflow": 0,
                              "underflow": 0, "inexact": 0}  # fmt: skip
    assert sum([one, one]) == both
    with pytest.raises(InputError, match="only single calls know where"):
        both.where("invalid")
    with pytest.raises(InputError, match="flag 'invald': must be one of"):
        one.where("invald")


def test_tininess_before_and_after_rounding_differ_just_below_the_smallest_normal():
    x = np.float32(2**-14 * (1 - 2**-12))
    for tininess, count in (("after", 0), ("before", 1)):
        got, flags = arithmetic.multiply(x, 1.0, "fp16", flags=True, tininess=tininess)
        assert got == 2**-14
        assert (flags.underflow, flags.inexact) == (count, 1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: arithmetic.add(np.ones(2, np.float32), np.ones(3, np.float32), "fp16"),
         r"operands of shapes \(2,\) and \(3,\): must broadcast together"),
        (lambda: arithmetic.add(np.ones(2, int), 1.0, "fp16"), "dtype int64"),
        (lambda: arithmetic.multiply(np.array([1e300]), 1.0, "fp16"),
         r"float64 operand 1e\+300: must be"),
        (lambda: arithmetic.sqrt(np.array([1e-300]), "fp16"), "float64 operand 1e-300"),
        (lambda: arithmetic.add(1.0, 1.0, "fp16:stochastic"), "needs a seed"),
        (lambda: arithmetic.add(1.0, 1.0, "fp16", tininess="never"), "tininess='never'"),
        (lambda: arithmetic.add(1.0, 1.0, "fp16", flag=True), "option 'flag': unknown"),
        (lambda: arithmetic.add(2**60 + 1, 1.0, "fp16"), "is no float64"),
        (lambda: arithmetic.add(np.ones(2, np.float32), 1.0, "fp16", out=np.ones(3, np.float32)),
         "out has shape"),
    ],
)  # fmt: skip
def test_refusals_are_one_line(call, message):
    with pytest.raises(InputError, match=message) as refused:
        call()
    assert "\n" not in str(refused.value)
