"""The laws of design.md, each with its domain, on numbers that Hypothesis picks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from support import DETERMINISTIC, ODD, P3109, TABLED, WIDE, assert_same_bits, every_cast

import fpemu
from fpemu.cast import Cast, Rounding
from fpemu.rounding import round_exact, value_of

FORMATS = [*fpemu.formats.values(), *P3109, *ODD, *WIDE]
CASTS = [cast for form in FORMATS for cast in every_cast(form)]
FLIPPED = {Rounding.UP: Rounding.DOWN, Rounding.DOWN: Rounding.UP}


@st.composite
def numbers(draw, form: fpemu.Format, dtype=np.float32):
    """Any bits, or close to a value or a midpoint of the format."""
    width = 32 if dtype == np.float32 else 64
    words = st.integers(0, (1 << width) - 1)
    anything = words.map(lambda word: np.array(word, f"u{width // 8}").view(dtype)[()])
    return draw(st.one_of(anything, _near(form, dtype)))


@st.composite
def _near(draw, form: fpemu.Format, dtype):
    code = draw(st.integers(0, form.max_code))
    low, high = form.exact_magnitude(code), form.exact_magnitude(code + 1)
    point = draw(st.sampled_from([low, (low + high) / 2]))
    with np.errstate(over="ignore", invalid="ignore"):
        x = np.array(float(point)).astype(dtype)
        for _ in range(draw(st.integers(0, 2))):
            x = np.nextafter(x, dtype(draw(st.sampled_from([0, np.inf]))))
    return x[()] if draw(st.booleans()) else -x[()]


@st.composite
def cast_and_numbers(draw, casts=CASTS, dtype=np.float32, count=2):
    cast = draw(st.sampled_from(casts))
    x = [draw(numbers(cast.format, dtype)) for _ in range(count)]
    return cast, np.array(x, dtype)


@given(cast_and_numbers())
def test_round_is_the_exact_definition(pair):
    cast, x = pair
    codes = [round_exact(cast, v).code for v in x]
    assert fpemu.encode(x, cast).tolist() == codes
    want = np.array([float(value_of(cast.format, code)) for code in codes], x.dtype)
    assert_same_bits(fpemu.round(x, cast), want, x, cast)


@given(cast_and_numbers(dtype=np.float64))
def test_round_of_float64_is_the_exact_definition(pair):
    cast, x = pair
    codes = [round_exact(cast, v).code for v in x]
    assert fpemu.encode(x, cast).tolist() == codes
    want = np.array([float(value_of(cast.format, code)) for code in codes])
    assert_same_bits(fpemu.round(x, cast), want, x, cast)


@given(cast_and_numbers())
def test_decode_of_encode_is_round(pair):
    cast, x = pair
    codes = fpemu.encode(x, cast)
    assert_same_bits(fpemu.decode(codes, cast.format), fpemu.round(x, cast), x, cast)
    assert int(codes.max()) < 1 << cast.format.bits


@given(st.sampled_from(FORMATS), st.data())
def test_encode_of_decode_gives_the_code_back(form, data):
    """Every code but the NaNs that are not canonical."""
    code = data.draw(st.integers(0, (1 << form.bits) - 1))
    cast = Cast(form, negative="nan" if form.has_nan else "abs")
    x = fpemu.decode(np.array([code]), form)
    back = int(fpemu.encode(x, cast)[0])
    assert back == code or np.isnan(x[0])
    assert_same_bits(fpemu.decode(np.array([back]), form), x, code, form)


@given(cast_and_numbers())
def test_round_is_idempotent(pair):
    """All casts: overflow stays what it became, infinity or NaN."""
    cast, x = pair
    once = fpemu.round(x, cast)
    assert_same_bits(fpemu.round(once, cast), once, x, cast)


@given(cast_and_numbers())
def test_round_is_monotone(pair):
    """Where the results are numbers, and not over the signs that "abs" folds together."""
    cast, x = pair
    if cast.negative.value == "abs" or not cast.format.zero:
        x = np.abs(x)
    x = np.sort(x)
    got = fpemu.round(x, cast)
    if not np.isnan(x).any() and not np.isnan(got).any():
        assert got[0] <= got[1], f"{cast}: {x} to {got}"


SIGNED = [cast for cast in CASTS if cast.format.signed]


@given(cast_and_numbers(SIGNED))
def test_round_of_minus_x_is_minus_round_of_x_in_the_flipped_mode(pair):
    """Signed formats: nearest, toward_zero and to_odd are odd functions, up(x) == -down(-x).

    Zeros are compared without sign where the format has no -0; NaN is left out where it becomes
    the largest positive value.
    """
    cast, x = pair
    if not cast.format.has_nan:
        x = np.nan_to_num(x, nan=1.0, posinf=np.inf, neginf=-np.inf)
    other = cast.replace(rounding=FLIPPED.get(cast.rounding, cast.rounding))
    got, mirrored = fpemu.round(x, cast), -fpemu.round(-x, other)
    if not cast.format.minus_zero:
        got, mirrored = got + np.float32(0), mirrored + np.float32(0)
    assert_same_bits(got, mirrored, x, cast)


@given(cast_and_numbers())
def test_directed_modes_enclose_the_nearest(pair):
    """Where nothing overflows: down <= x <= up, and the nearest is one of the two."""
    cast, x = pair
    form = cast.format
    x = np.clip(np.nan_to_num(x), form.smallest_normal, form.max).astype(np.float32)
    down, up, nearest = (
        fpemu.round(x, Cast(form, mode, negative="nan" if form.has_nan else "abs"))
        for mode in ("down", "up", "nearest_even")
    )
    assert (down <= x).all()
    assert (x <= up).all()
    assert ((nearest == down) | (nearest == up)).all()


@given(cast_and_numbers(), st.integers(1, 5))
def test_scaling_by_a_power_of_two_commutes_away_from_the_ends(pair, power):
    cast, _ = pair
    form = cast.format
    x = np.float32([form.smallest_normal * 1.37])
    if form.emin + power + 2 < form.emax and form.mantissa_bits:
        scale = np.float32(2.0**power)
        left, right = fpemu.round(x * scale, cast), fpemu.round(x, cast) * scale
        assert np.float32(0) in right or np.array_equal(left, right)


@given(
    st.sampled_from(CASTS),
    hnp.arrays(np.float32, hnp.array_shapes(max_dims=3, max_side=5), elements=st.floats(width=32)),
)
def test_arrays_are_rounded_element_by_element(cast, x):
    want = np.array([fpemu.round(v, cast) for v in x.ravel()], np.float32).reshape(x.shape)
    assert_same_bits(fpemu.round(x, cast), want, x, cast)
    assert_same_bits(fpemu.round(x.T, cast), want.T, x.T, cast)


@pytest.mark.parametrize("cast", [Cast(f, r) for f in TABLED[3:8] for r in DETERMINISTIC], ids=str)
def test_float64_and_float32_agree_on_float32(cast):
    x = np.random.default_rng(0).integers(0, 1 << 32, 5000, np.uint32).view(np.float32)
    with np.errstate(invalid="ignore"):
        wide = fpemu.round(x.astype(np.float64), cast)
    assert_same_bits(wide, fpemu.round(x, cast).astype(np.float64), x, cast)
