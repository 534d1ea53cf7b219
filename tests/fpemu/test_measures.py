"""spacing, nextafter and error against numpy, ml_dtypes and figures worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import fpemu
from fpemu.errors import InputError

#: Formats whose own nextafter exists in ml_dtypes (E8M0's and bfloat16's raise or warn there).
PEERS = [
    "float8_e4m3fn", "float8_e5m2", "float8_e4m3", "float8_e3m4", "float8_e4m3fnuz",
    "float8_e5m2fnuz", "float8_e4m3b11fnuz", "float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn",
]  # fmt: skip


def every_value(name: str) -> np.ndarray[Any, Any]:
    values = fpemu.values(name)
    return values[np.isfinite(values)]


@pytest.mark.parametrize("name", PEERS)
@pytest.mark.parametrize("goal", [-1.0, 0.0, 1.0])
def test_nextafter_is_ml_dtypes(name: str, goal: float) -> None:
    dtype = getattr(ml_dtypes, name)
    direction = np.float32(goal * fpemu.finfo(name).max)  # a value that every format has
    x = every_value(name)
    want = np.nextafter(x.astype(dtype), np.full(x.shape, direction).astype(dtype))
    got = fpemu.nextafter(x, direction, name)
    assert np.array_equal(got, want.astype(np.float32))
    assert np.array_equal(np.signbit(got), np.signbit(want.astype(np.float32)))


def test_nextafter_is_numpys_for_float16_and_float32() -> None:
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    halves = halves[~np.isnan(halves) & (halves != 0)]  # numpy's half keeps -0 at -0, C does not
    for direction in (-np.inf, 0.0, np.inf):
        with np.errstate(all="ignore"):
            want = np.nextafter(halves, np.float16(direction)).astype(np.float32)
        got = fpemu.nextafter(halves.astype(np.float32), direction, "fp16")
        assert np.array_equal(got.view(np.uint32), want.view(np.uint32))
    x = np.float32([1.0, -0.0, 3.4028235e38, 1e-45])
    with np.errstate(all="ignore"):
        want = np.nextafter(x, np.float32(np.inf))
    assert np.array_equal(fpemu.nextafter(x, np.inf, "fp32"), want)


def test_nextafter_leaves_the_finite_values_as_the_format_can() -> None:
    assert np.isnan(fpemu.nextafter(np.float32(448), np.inf, "e4m3fn"))  # no infinity
    assert fpemu.nextafter(np.float32(57344), np.inf, "e5m2") == np.inf
    assert fpemu.nextafter(np.float32(6), np.inf, "fp4") == 6  # neither NaN nor infinity
    assert fpemu.nextafter(np.float32(np.inf), 0, "e5m2") == 57344
    assert fpemu.nextafter(np.float32(2.0**-127), 0, "e8m0") == np.float32(2.0**-127)
    assert np.isnan(fpemu.nextafter(np.float32(np.nan), 0, "e5m2"))
    with pytest.raises(InputError, match=r"0\.1.*not a value of float16: round it first"):
        fpemu.nextafter(np.float32(0.1), 1, "fp16")


@pytest.mark.parametrize("name", [n for n in fpemu.formats if fpemu.finfo(n).bits <= 16])
def test_spacing_is_the_difference_of_neighbouring_values(name: str) -> None:
    values = np.unique(np.abs(every_value(name).astype(np.float64)))
    gaps = np.diff(values)
    below = values[:-1]
    assert np.array_equal(fpemu.spacing(below, name), gaps)
    assert np.array_equal(fpemu.spacing(-below - gaps / 2, name), gaps)  # anywhere in between


def test_spacing_is_numpys_and_defined_everywhere() -> None:
    x = np.float32([1.0, -3.5, 1e-40, 0.0, 1e38, np.inf, np.nan])
    with np.errstate(all="ignore"):
        want = np.abs(np.spacing(x))
    got = fpemu.spacing(x, "float32")
    assert np.array_equal(got, want, equal_nan=True)
    assert fpemu.spacing(np.float32(1e30), "e4m3fn") == 32  # above the largest: its last gap


def test_error_of_a_known_case() -> None:
    x, q = np.float32([1.0, 2.0, 4.0, 0.0]), np.float32([1.25, 2.0, 3.5, 0.0])
    e = fpemu.error(x, q, "e4m3fn")
    assert (e.count, e.nonfinite) == (4, 0)
    assert e.sqnr == pytest.approx(10 * math.log10(21 / (0.0625 + 0.25)))
    assert e.rms == pytest.approx(math.sqrt(0.3125 / 4))
    assert (e.max_ulp, e.mean_ulp) == (2.0, 0.75)  # ulp of 1 is 1/8, of 4 is 1/2
    assert (e.max_relative, e.mean_relative) == (0.25, pytest.approx((0.25 + 0 + 0.125) / 3))
    norm = math.sqrt(21) * math.sqrt(1.25**2 + 4 + 3.5**2)
    assert e.cosine == pytest.approx((1.25 + 4 + 14) / norm)


@pytest.mark.parametrize("name", ["fp16", "bf16", "e4m3fn", "e5m2"])
def test_nearest_rounding_errs_by_half_an_ulp(name: str) -> None:
    form = fpemu.finfo(name)
    rng = np.random.default_rng(0)
    x = np.float32(rng.uniform(-1, 1, 20_000) * min(form.max, 1e30))
    e = fpemu.error(x, fpemu.round(x, name), name)
    assert e.max_ulp is not None
    assert e.mean_ulp is not None
    assert e.max_ulp <= 0.5
    assert e.mean_ulp == pytest.approx(0.25, abs=0.02)


def test_error_counts_what_is_not_finite_apart_and_survives_extremes() -> None:
    x = np.float32([3e38, np.nan, 1e-45, np.inf, 5.0])
    e = fpemu.error(x, fpemu.round(x, "fp16"))
    assert (e.count, e.nonfinite) == (2, 3)
    assert e.max_ulp is None
    assert e.mean_ulp is None
    big = np.array([1e300, -1e300])
    assert fpemu.error(big, big * (1 + 2**-10)).sqnr == pytest.approx(60.2, abs=0.01)
    assert fpemu.error(big, big).sqnr == math.inf
    assert fpemu.error(big, big).cosine == 1.0
    nothing = fpemu.error(np.float32([]), np.float32([]))
    assert nothing.count == 0
    assert math.isnan(nothing.sqnr)
    assert math.isnan(nothing.cosine)
    assert fpemu.error(big, big).to_json()["sqnr"] == "inf"
    with pytest.raises(InputError, match=r"shape \(2,\) and q \(3,\)"):
        fpemu.error(big, np.zeros(3))


@pytest.mark.parametrize("name", ["binary8p4ue", "binary6p3uf", "binary8p2se", "binary5p2sf"])
def test_nextafter_walks_through_every_value(name: str) -> None:
    """Up from the lowest to the highest and back, in P3109 formats, unsigned ones too."""
    values = np.unique(every_value(name))
    assert np.array_equal(fpemu.nextafter(values[:-1], np.inf, name), values[1:])
    assert np.array_equal(fpemu.nextafter(values[1:], -np.inf, name), values[:-1])
    lowest = fpemu.nextafter(values[0], -np.inf, name)
    form = fpemu.finfo(name)
    beyond = -np.inf if form.inf and form.signed else np.nan if form.signed else values[0]
    assert lowest == beyond or (np.isnan(lowest) and np.isnan(beyond))


def test_directions_that_are_none_are_refused() -> None:
    with pytest.raises(InputError, match="direction 'up': must be a number"):
        fpemu.nextafter(np.float32(1), "up", "fp16")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="broadcast"):
        fpemu.nextafter(np.ones(3, np.float32), np.ones(2), "fp16")
