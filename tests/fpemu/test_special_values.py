"""Overflow, NaN, zero, signs and subnormals in the exact definition."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from support import TABLED, every_cast

import fpemu
from fpemu.cast import Cast
from fpemu.rounding import Real, round_exact, value_of

SMALL = [f for f in TABLED if f.bits <= 8]


# --- overflow: design's table --------------------------------------------------------------

# rounding: (what a positive, what a negative number beyond the largest becomes under "ieee")
OUTWARD = {
    "nearest_even": ("over", "over"),
    "nearest_away": ("over", "over"),
    "toward_zero": ("max", "max"),
    "to_odd": ("max", "max"),
    "up": ("over", "max"),
    "down": ("max", "over"),
    "stochastic": ("over", "over"),
}


def value(form: fpemu.Format, word: str, sign: float) -> float:
    """The value that a word of the table stands for."""
    if word == "max":
        return math.copysign(form.max, sign)
    return math.copysign(math.inf, sign) if form.inf else math.nan


def same(a: float, b: float) -> bool:
    return (math.isnan(a) and math.isnan(b)) or a == b


@pytest.mark.parametrize("rounding", OUTWARD)
@pytest.mark.parametrize("form", [f for f in SMALL if f.signed and f.has_nan], ids=str)
def test_overflow_table(form, rounding):
    for sign, word in zip((1.0, -1.0), OUTWARD[rounding], strict=True):
        far, infinite = sign * 2.0 ** (form.emax + 1), sign * math.inf
        for overflow, of_far, of_infinite in (
            ("ieee", word, "over"),
            ("saturate", "max", "max"),
            ("saturate_keep_inf", "max", "over"),
        ):
            cast = Cast(form, rounding, overflow)
            for x, expected in ((far, of_far), (infinite, of_infinite)):
                code, outcome = round_exact(cast, x)
                assert same(float(value_of(form, code)), value(form, expected, sign)), (cast, x)
                told = "saturated" if expected == "max" else "overflow"
                assert outcome == ("inf" if x == infinite else told)


@pytest.mark.parametrize(
    ("name", "last", "first"),
    [  # (facts: the last number that stays, the first that overflows), nearest even
        ("float16", math.nextafter(65520, 0), 65520.0),
        ("float8_e5m2", math.nextafter(61440, 0), 61440.0),
        ("float8_e4m3fn", 464.0, math.nextafter(464, math.inf)),
        ("bfloat16", math.nextafter(511 * 2.0**119, 0), 511 * 2.0**119),
        ("float6_e2m3fn", math.nextafter(7.75, 0), 7.75),
        ("float6_e3m2fn", math.nextafter(30, 0), 30.0),
        ("float4_e2m1fn", math.nextafter(7, 0), 7.0),
        ("float8_e4m3fnuz", math.nextafter(248, 0), 248.0),
    ],
)
def test_overflow_thresholds(name, last, first):
    for sign in (1, -1):
        assert round_exact(Cast(name), sign * last).outcome == "normal"
        assert round_exact(Cast(name), sign * first).outcome in ("overflow", "saturated")


@pytest.mark.parametrize(
    ("name", "half"), [("float16", 2**-25), ("float8_e4m3fn", 2**-10), ("float8_e5m2", 2**-17)]
)
def test_the_tie_below_the_smallest_subnormal_goes_to_zero(name, half):
    assert round_exact(Cast(name), half) == (0, "underflow")
    assert round_exact(Cast(name), math.nextafter(half, 1)) == (1, "subnormal")
    assert round_exact(Cast(name, "nearest_away"), half) == (1, "subnormal")
    assert round_exact(Cast(name), -half).code == 1 << (fpemu.finfo(name).bits - 1)


@pytest.mark.parametrize("rounding", ["toward_zero", "to_odd", "down"])
def test_just_beyond_the_largest_is_not_yet_beyond_when_it_rounds_back(rounding):
    cast = Cast("e4m3fn", rounding)
    x = Fraction(448) + Fraction(1, 1000)
    inside = round_exact(cast, x)
    if rounding == "to_odd":  # 448 has an even code, so the continued grid's 480 is meant
        assert inside == (0x7E, "saturated")
    else:
        assert inside == (0x7E, "normal")
    assert round_exact(Cast("e4m3fn", "up"), x).outcome == "overflow"


# --- special inputs --------------------------------------------------------------------------


@pytest.mark.parametrize("form", SMALL, ids=str)
def test_nan_and_zero_and_their_signs(form):
    for cast in every_cast(form):
        for x in (math.nan, -math.nan, Real(0, 0, 0), Real(1, 0, 0)):
            code, outcome = round_exact(cast, x)
            assert outcome == "nan"
            got = value_of(form, code)
            assert got.is_nan if form.has_nan else float(got) == form.max
        for x in (0.0, -0.0):
            code, outcome = round_exact(cast, x)
            assert outcome == "zero"
            got = float(value_of(form, code))
            if form.zero:
                assert got == 0
                assert math.copysign(1, got) == (math.copysign(1, x) if form.minus_zero else 1)


def test_nan_codes_keep_the_sign_where_there_is_one():
    minus = Real(1, 0, 0)
    assert round_exact(Cast("e4m3fn"), minus).code == 0xFF
    assert round_exact(Cast("e5m2"), minus).code == 0xFE
    assert round_exact(Cast("fp16"), minus).code == 0xFE00
    assert round_exact(Cast("e4m3fnuz"), minus).code == 0x80
    assert round_exact(Cast("e8m0"), minus).code == 0xFF
    assert round_exact(Cast("fp4"), minus).code == 0x7
    assert round_exact(Cast("fp6_e3m2"), minus).code == 0x1F


@pytest.mark.parametrize("x", [-1.0, -1e-30, -math.inf])
def test_negative_numbers_in_unsigned_formats(x):
    for name in ("e8m0", "binary8p4ue"):
        refused, taken = Cast(name), Cast(name, negative="abs")
        code, outcome = round_exact(refused, x)
        assert value_of(refused.format, code).is_nan
        assert outcome == ("inf" if math.isinf(x) else "invalid")
        code, outcome = round_exact(taken, x)
        assert code == round_exact(taken, -x).code
        assert outcome == ("inf" if math.isinf(x) else "invalid")
    assert round_exact(Cast("binary8p4ue"), -0.0) == (0, "zero")


def test_up_and_down_act_on_the_magnitude_after_abs():
    up, down = (Cast("binary8p4ue", mode, negative="abs") for mode in ("up", "down"))
    assert round_exact(up, -1.01).code == round_exact(up, 1.01).code
    assert round_exact(down, -1.01).code == round_exact(down, 1.01).code
    assert round_exact(up, -1.01).code == round_exact(down, -1.01).code + 1


@pytest.mark.parametrize(
    ("x", "code", "outcome"),
    [
        (3.0, 129, "normal"),  # a tie: to the larger magnitude
        (6.0, 130, "normal"),
        (2.9, 128, "normal"),
        (2.0**-127, 0, "normal"),
        (2.0**-127 * 1.25, 0, "normal"),
        (2.0**-127 * 1.5, 1, "normal"),
        (2.0**-128, 0, "underflow"),
        (2.0**-149, 0, "underflow"),
        (2.0**127, 254, "normal"),
        (2.0**127 * 1.4999, 254, "normal"),
        (2.0**127 * 1.5, 255, "overflow"),
        (math.inf, 255, "inf"),
        (0.0, 255, "zero"),
        (-1.0, 255, "invalid"),
    ],
)
def test_e8m0(x, code, outcome):
    assert round_exact(Cast("e8m0"), x) == (code, outcome)


def test_e8m0_zero_may_be_the_smallest():
    assert round_exact(Cast("e8m0", zero="smallest"), 0.0) == (0, "zero")
    assert round_exact(Cast("e8m0", "toward_zero"), 3.9) == (128, "normal")
    assert round_exact(Cast("e8m0", "up"), 2.1) == (129, "normal")
    assert round_exact(Cast("e8m0", "up"), 2.0**-140) == (0, "underflow")


def test_precision_one_ties_go_to_the_even_code():
    form = fpemu.finfo("binary8p1se")
    for code in range(1, form.max_code):
        low, high = form.exact_magnitude(code), form.exact_magnitude(code + 1)
        got = round_exact(Cast(form), (low + high) / 2).code
        assert got == (code if code % 2 == 0 else code + 1)


def test_flush_is_decided_after_rounding():
    cast = Cast("fp16", subnormals="flush")
    normal = Fraction(1, 1 << 14)
    almost = normal * (1 - Fraction(1, 1 << 13))
    assert round_exact(cast, almost) == (0x0400, "normal")  # rounds up to the smallest normal
    assert round_exact(cast, normal * Fraction(1023, 1024)) == (0, "underflow")
    assert round_exact(cast, -normal / 2) == (0x8000, "underflow")
    assert round_exact(cast.replace(rounding="up"), Fraction(1, 1 << 60)) == (0, "underflow")
    assert round_exact(Cast("e4m3fnuz", subnormals="flush"), -(2.0**-9)).code == 0


def test_float64_is_rounded_once():
    x = 1 + 2.0**-11 + 2.0**-40
    assert float(value_of(fpemu.finfo("fp16"), round_exact(Cast("fp16"), x).code)) == 1.0009765625
