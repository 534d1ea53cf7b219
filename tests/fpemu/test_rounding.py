"""The exact definition, against the words of the standards read with Fractions."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from fractions import Fraction

import numpy as np
import pytest
import second_algorithm
from hypothesis import given
from hypothesis import strategies as st
from support import (
    DETERMINISTIC,
    ODD,
    P3109,
    TABLED,
    WIDE,
    every_cast,
    names,
    sample,
    wide_range,
)

import fpemu
from fpemu.cast import Cast, Rounding
from fpemu.errors import InputError
from fpemu.rounding import Real, exact, round_exact, value_of

SMALL = [f for f in TABLED if f.bits <= 8]
OUTCOMES = ["nan", "inf", "zero", "invalid", "saturated", "overflow", "underflow", "subnormal",
            "normal"]  # fmt: skip


def grid(form: fpemu.Format) -> list[Fraction]:
    """The magnitudes of a format's codes, continued above its largest value."""
    m = form.mantissa_bits
    found = []
    for code in range(form.max_code + 2):
        field, fraction = code >> m, Fraction(code % (1 << m), 1 << m)
        if form.zero and field == 0:
            found.append(Fraction(2) ** (1 - form.bias) * fraction)
        else:
            found.append(Fraction(2) ** (field - form.bias) * (1 + fraction))
    return found


def inputs(form: fpemu.Format) -> list[Fraction]:
    """Each value and midpoint, and a little beside each."""
    points = grid(form)
    points += [(a + b) / 2 for a, b in itertools.pairwise(points)]
    little = Fraction(1, 1 << 40)
    near = [x * (1 + d) for x in points if x for d in (-little, 0, little)]
    return near + [x / 1000 for x in points[1:3]]


def neighbours(points: list[Fraction], x: Fraction) -> tuple[int, int]:
    """Codes of the grid points at or below and at or above x (-1: x is below them all)."""
    below = bisect_right(points, x) - 1
    return below, below if below >= 0 and points[below] == x else below + 1


def rounded(form: fpemu.Format, mode: Rounding, x: Fraction, negative: bool, points) -> int:
    """The magnitude code on the continued grid, by the standards' words."""
    below, above = neighbours(points, x)
    if below == above or below < 0:
        return max(below, 0)
    even, odd = sorted((below, above), key=lambda code: code % 2)
    match mode:
        case Rounding.NEAREST_EVEN | Rounding.NEAREST_AWAY:
            to_below, to_above = x - points[below], points[above] - x
            if to_below != to_above:
                return below if to_below < to_above else above
            return above if mode is Rounding.NEAREST_AWAY or not form.zero else even
        case Rounding.TOWARD_ZERO:
            return below
        case Rounding.TO_ODD:
            return odd
        case Rounding.UP:  # the least value that is not less
            return below if negative else above
        case Rounding.DOWN:
            return above if negative else below
    raise AssertionError(mode)


@pytest.mark.parametrize("rounding", DETERMINISTIC, ids=names(DETERMINISTIC))
@pytest.mark.parametrize("form", SMALL, ids=str)
def test_every_value_and_midpoint(form, rounding):
    """On the continued grid: what overflows becomes the largest value here."""
    cast = Cast(form, rounding, "saturate", negative="nan" if form.has_nan else "abs")
    points = grid(form)
    top = points[form.max_code]
    for x in inputs(form):
        if x > points[-1]:
            continue
        for sign in (0, 1) if form.signed else (0,):
            code, outcome = round_exact(cast, -x if sign else x)
            want = rounded(form, rounding, x, bool(sign), points)
            if outcome == "saturated":
                assert want == form.max_code + 1
                assert x > top
                want = form.max_code
            got = code % (1 << form.magnitude_bits)
            assert got == want, f"{float(x)!r} to {cast}: code {got}, want {want}"
            assert (code >> form.magnitude_bits) == int(sign and (want > 0 or form.minus_zero))


@pytest.mark.parametrize("form", SMALL, ids=str)
def test_values_stay_in_every_cast(form):
    for cast in every_cast(form):
        for code in range(form.min_code, form.max_code + 1):
            if cast.subnormals.value == "flush" and code < form.min_normal_code:
                continue
            x = value_of(form, code)
            outcome = "subnormal" if code < form.min_normal_code else "normal"
            assert round_exact(cast, x) == (code, outcome)


@pytest.mark.parametrize("mode", DETERMINISTIC, ids=names(DETERMINISTIC))
@pytest.mark.parametrize("form", [*P3109, *WIDE, *ODD], ids=str)
def test_modes_by_their_definition(form, mode):
    """Any number inside the range, against the two values around it."""
    cast = Cast(form, mode, negative="nan" if form.has_nan else "abs")
    random = np.random.default_rng(7)
    for _ in range(20):
        code = int(random.integers(0, form.max_code))
        low, high = form.exact_magnitude(code), form.exact_magnitude(code + 1)
        x = low + (high - low) * Fraction(int(random.integers(1, 1 << 30)), 1 << 30)
        for negative in (False, True) if form.signed else (False,):
            signed = -x if negative else x
            result = value_of(form, round_exact(cast, signed).code)
            got = Fraction(result.numerator, result.denominator) * (-1 if result.sign else 1)
            assert abs(got) in (low, high)
            match mode:
                case Rounding.NEAREST_EVEN | Rounding.NEAREST_AWAY:
                    assert abs(abs(got) - x) <= (high - low) / 2
                case Rounding.TOWARD_ZERO:
                    assert abs(got) == low
                case Rounding.UP:
                    assert got >= signed
                case Rounding.DOWN:
                    assert got <= signed
                case Rounding.TO_ODD:
                    assert abs(got) == (high if code % 2 == 0 else low)


# --- stochastic ------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 3, 8])
def test_the_share_of_draws_that_go_away_is_the_fraction_cut_to_n_bits(n):
    cast = Cast("e4m3fn", "stochastic")
    low, gap = Fraction(1), Fraction(1, 8)
    for eighths in range(1, 64):
        fraction = Fraction(eighths, 64)
        away = sum(
            round_exact(cast, low + gap * fraction, draw=draw, random_bits=n).code == 0x39
            for draw in range(1 << n)
        )
        assert away == math.floor(fraction * 2**n)


def test_stochastic_among_subnormals_and_below_them():
    cast = Cast("fp16", "stochastic")
    x = Fraction(1, 1 << 24) * Fraction(3, 16)  # between 0 and the smallest
    codes = [round_exact(cast, x, draw=draw, random_bits=4).code for draw in range(16)]
    assert codes == [0] * 13 + [1] * 3
    assert round_exact(cast, -x, draw=15, random_bits=4).code == 0x8001
    assert round_exact(cast, -x, draw=0, random_bits=4).code == 0x8000


def test_stochastic_overflows_only_if_its_draw_lands_beyond():
    x = Fraction(448) + Fraction(32, 4)
    cast = Cast("e4m3fn", "stochastic")
    outcomes = [round_exact(cast, x, draw=draw, random_bits=2).outcome for draw in range(4)]
    assert outcomes == ["normal"] * 3 + ["overflow"]


# --- numbers and codes -----------------------------------------------------------------------


def test_exact_takes_numbers_of_every_kind():
    assert exact(0.1) == Real(0, *(0.1).as_integer_ratio())
    assert exact(-0.0) == Real(1, 0, 1)
    assert exact(-3) == Real(1, 3, 1)
    assert exact(Fraction(-1, 3)) == Real(1, 1, 3)
    assert exact(np.float32(0.1)) == Real(0, 13421773, 134217728)
    assert exact(np.float16(-2)) == Real(1, 2, 1)
    assert exact(-math.inf) == Real(1, 1, 0)
    assert exact(math.nan).is_nan
    assert exact(Real(1, 0, 0)) == Real(1, 0, 0)
    assert float(exact(-0.0)) == 0
    assert math.copysign(1, float(exact(-0.0))) == -1


@pytest.mark.parametrize("x", ["abc", None, [1.0, 2.0], 1j])
def test_what_is_no_number_is_refused(x):
    with pytest.raises(InputError, match="not a number"):
        exact(x)


@pytest.mark.parametrize("code", [-1, 256])
def test_codes_outside_the_format_are_refused(code):
    with pytest.raises(InputError, match="has codes 0 to 255"):
        value_of(fpemu.finfo("e4m3fn"), code)


@given(st.floats(width=32), st.sampled_from([*TABLED, *WIDE]), st.data())
def test_results_are_codes_and_outcomes_of_the_list(x, form, data):
    cast = data.draw(st.sampled_from(every_cast(form)))
    code, outcome = round_exact(cast, x)
    assert 0 <= code < 1 << form.bits
    assert outcome in OUTCOMES
    got = value_of(form, code)
    if got.is_nan:
        assert outcome in ("nan", "inf", "invalid", "overflow", "zero")
    elif not got.is_inf and outcome != "nan":  # a value stays when rounded again
        again = round_exact(cast, got)
        assert again.code == code


# --- the second algorithm, which the other tests trust ---------------------------------------


def test_the_second_algorithm_is_the_definition_on_100_000_inputs():
    casts = [cast for form in TABLED for cast in every_cast(form)]
    each = -(-100_000 // len(casts))
    for seed, cast in enumerate(casts):
        random = wide_range(each // 2, seed)
        near = np.abs(second_algorithm.grid(cast.format)[1 : cast.format.max_code + 2])
        middle = (near[:-1] + near[1:]) / 2 if near.size > 1 else near
        ties = sample(np.concatenate([near, middle]), each - each // 2, seed)
        with np.errstate(over="ignore"):
            ties = ties.astype(np.float32)
        bits = ties.view(np.int32) + np.random.default_rng(seed).integers(-1, 2, ties.size)
        ties = bits.clip(0, 0x7F800000).astype(np.uint32).view(np.float32)
        x = np.concatenate([random, ties * np.float32(1 - 2 * (seed % 2))])
        got = second_algorithm.second_codes(cast, x)
        want = np.array([round_exact(cast, v).code for v in x])
        assert np.array_equal(got, want), f"{cast}: {x[got != want][:3]!r}"
