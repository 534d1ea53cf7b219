"""fpemu.testing: does it find what is wrong, and nothing else?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fpemu
from fpemu.cast import Rounding
from fpemu.errors import FpemuError, InputError
from fpemu.rounding import exact, round_exact, value_of
from fpemu.testing import (
    assert_cast,
    assert_same_bits,
    differences,
    directed_inputs,
    strategies,
)

Array = np.ndarray[Any, Any]

# --- assert_same_bits -----------------------------------------------------------------------------


def test_same_bits_are_the_same_and_nans_are_all_equal() -> None:
    nans = np.array([0x7FC00000, 0xFFC00001, 0x7F800001], np.uint32).view(np.float32)
    assert_same_bits(nans, nans[::-1].copy())
    assert_same_bits(np.float64([1.5, -0.0]), np.float64([1.5, -0.0]))
    assert_same_bits(np.zeros((0, 3), np.float16), np.zeros((0, 3), np.float16))


def test_differences_are_told_with_count_index_and_hex() -> None:
    got, want = np.float32([[1, 2], [3, 4]]), np.float32([[1, 2], [-3, 5]])
    message = r"2 of 4 values differ; first at index \(1, 0\): x 0x41200000 \(10\), " \
              r"got 0x40400000 \(3\), want 0xc0400000 \(-3\)"  # fmt: skip
    with pytest.raises(AssertionError, match=message):
        assert_same_bits(got, want, np.full((2, 2), np.float32(10)))
    with pytest.raises(AssertionError, match=r"0x00000000 .* 0x80000000"):
        assert_same_bits(np.float32(0.0), np.float32(-0.0))
    with pytest.raises(AssertionError, match=r"shapes differ: got \(1,\), want \(2,\)"):
        assert_same_bits(np.float32([1]), np.float32([1, 1]))
    with pytest.raises(InputError, match="got float32 and want float64"):
        assert_same_bits(np.float32([1]), np.float64([1]))


# --- directed_inputs ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", fpemu.formats)
def test_directed_inputs_hold_what_they_promise(name: str) -> None:
    form = fpemu.finfo(name)
    bits = directed_inputs(name).view(np.uint32)
    assert len(np.unique(bits)) == len(bits) < 25_000
    assert set(bits & 0x7FFFFFFF) == set(bits[bits < 0x80000000])  # of both signs
    inputs = set(bits.tolist())
    wanted = {0, 1, 0x007FFFFF, 0x00800000, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000}
    assert wanted <= inputs
    values = np.float32([form.max, form.smallest_normal, form.smallest_subnormal])
    assert set(values.view(np.uint32).tolist()) <= inputs
    if form.bits <= 12:
        every = np.unique(np.abs(fpemu.values(name)))
        every = every[np.isfinite(every)].astype(np.float64)
        middle = ((every[1:] + every[:-1]) / 2).astype(np.float32).view(np.uint32)
        near = [middle + np.uint32(1), middle - np.uint32(1), middle]
        assert set(np.concatenate(near).tolist()) <= inputs
    else:
        exponents = {int(b) >> 23 for b in bits & 0x7FFFFFFF}
        assert exponents == set(range(256))


# --- differences and assert_cast ------------------------------------------------------------------


def nearest(x: Array) -> Array:
    return fpemu.round(x, "e4m3fn")  # type: ignore[no-any-return]


BROKEN = {
    "tie": lambda x: fpemu.round(x, "e4m3fn", rounding="nearest_away"),
    "overflow": lambda x: np.where(
        np.isfinite(x), fpemu.round(x, "e4m3fn", overflow="saturate"), nearest(x)
    ),
    "infinity": lambda x: np.where(np.isinf(x), np.copysign(np.float32(448), x), nearest(x)),
    "subnormal": lambda x: np.where(
        (np.abs(x) < 2.0**-6) & (nearest(x) != x), x * np.float32(0), nearest(x)
    ),
    "zero sign": lambda x: nearest(x) + np.float32(0),
    "nan": lambda x: np.where(np.isnan(x), np.float32(0), nearest(x)),
    "exact": lambda x: np.where(x == 3, np.float32(3.25), nearest(x)),
    "rounding": lambda x: np.where(
        (x > 16.5) & (x < 16.9), np.float32(18), nearest(x)
    ),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_each_kind_of_mistake_is_named(kind: str) -> None:
    found = differences(BROKEN[kind], "e4m3fn")
    assert kind in [d.kind for d in found.kinds]
    first = next(d for d in found.kinds if d.kind == kind)
    # a smallest example that is a true one
    want = float(value_of(fpemu.finfo("e4m3fn"), round_exact(fpemu.Cast("e4m3fn"), first.x).code))
    assert first.want == np.float32(want) or (np.isnan(first.want) and np.isnan(want))
    got = BROKEN[kind](np.array([first.x]))[0]
    assert got == first.got or (np.isnan(got) and np.isnan(first.got))
    if kind in ("tie", "exact", "infinity", "nan", "overflow"):
        assert len(found.kinds) == 1, str(found)


def test_ties_are_counted_and_the_smallest_is_given() -> None:
    found = differences(BROKEN["tie"], "e4m3fn")
    (tie,) = found.kinds
    # every second midpoint of each sign differs, between 0 and 448 and the overflow tie of 464
    assert tie.count == found.count == 2 * 64
    assert tie.x == 2.0**-10
    assert tie.got == 2.0**-9
    assert tie.want == 0


def test_assert_cast_passes_what_is_right_and_reports_what_is_not() -> None:
    assert_cast(lambda x: x.astype(np.float16), "fp16")
    assert_cast(lambda x: fpemu.round(x, "fp4"), fpemu.Cast("fp4"))
    told = r"128 of 7,746 inputs differ from float8_e4m3fn\n  tie"
    with pytest.raises(AssertionError, match=told):
        assert_cast(BROKEN["tie"], "e4m3fn")


def test_numbers_given_to_a_format_without_sign_are_no_exact_values() -> None:
    found = differences(lambda x: fpemu.round(x, "e8m0", negative="abs"), "e8m0")
    assert [d.kind for d in found.kinds] == ["sign"]
    assert found.kinds[0].x < 0
    assert np.isnan(found.kinds[0].want)


def test_functions_that_cannot_be_compared_are_refused() -> None:
    with pytest.raises(InputError, match="stochastic cast has no single result"):
        differences(lambda x: x, "fp16:stochastic")
    with pytest.raises(InputError, match=r"returned shape \(3,\)"):
        differences(lambda x: np.zeros(3, np.float32), "fp4")


def test_the_function_gets_a_copy() -> None:
    def clobbers(x: Array) -> Array:
        rounded = nearest(x)
        x[:] = 0
        return rounded

    assert_cast(clobbers, "e4m3fn")


# --- strategies -----------------------------------------------------------------------------------

names = st.sampled_from([n for n in fpemu.formats if n != "float32"])


@given(names.flatmap(lambda n: st.tuples(st.just(n), strategies.ties(n))))
@settings(max_examples=200)
def test_ties_lie_halfway(drawn: tuple[str, float]) -> None:
    name, x = drawn
    form = fpemu.finfo(name)
    cast = fpemu.Cast(form, overflow="saturate")
    code = round_exact(cast.replace(rounding="toward_zero"), abs(x)).code
    low = form.exact_magnitude(code)
    high = form.exact_magnitude(code + 1)
    number = exact(abs(x))
    assert (low + high) * number.denominator == 2 * number.numerator


@given(names.flatmap(lambda n: st.tuples(st.just(n), strategies.near_overflow(n))))
def test_near_overflow_is_near(drawn: tuple[str, float]) -> None:
    name, x = drawn
    form = fpemu.finfo(name)
    assert abs(abs(x) - form.max) <= 2.0 ** (form.emax - form.mantissa_bits + 1) * (1 + 2**-20)
    assert x > 0 or form.signed


@given(names.flatmap(lambda n: st.tuples(st.just(n), strategies.values(n, finite=True))))
def test_values_are_values(drawn: tuple[str, float]) -> None:
    name, x = drawn
    form = fpemu.finfo(name)
    cast = fpemu.Cast(form, negative="abs") if not form.signed else fpemu.Cast(form)
    assert float(fpemu.round(np.float32(x), cast)) == x


@given(strategies.casts(), st.data())
@settings(max_examples=60)
def test_drawn_casts_round_drawn_arrays_as_defined(cast: fpemu.Cast, data: st.DataObject) -> None:
    assert cast.rounding is not Rounding.STOCHASTIC
    x = data.draw(strategies.arrays(cast.format, shape=5))
    codes = [round_exact(cast, v).code for v in x]
    want = np.float32([float(value_of(cast.format, c)) for c in codes])
    assert_same_bits(fpemu.round(x, cast), want, x)


def test_float32_has_no_ties_in_float32() -> None:
    with pytest.raises(FpemuError, match="float32 cannot lie halfway"):
        strategies.ties("float32")
