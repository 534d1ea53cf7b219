"""Wrong values seen in other libraries, each with the right one here."""

from __future__ import annotations

import math

import numpy as np
import pytest

import fpemu

# what goes wrong elsewhere, the cast, the input (a float32, as bits or as a number), the result
TRAPS = [
    # ties
    ("a tie goes away from zero", "e4m3fn", 14.5, 14.0),
    ("a tie goes toward zero", "e4m3fn", 15.5, 16.0),
    ("a tie among subnormals", "e4m3fn", 1.5 * 2**-9, 2 * 2**-9),
    ("the tie below the smallest", "e4m3fn", 2**-10, 0.0),
    ("the tie at the end of the range", "e4m3fn", 464.0, 448.0),
    # the top binade and overflow
    ("a largest value of 480", "e4m3fn", 0x43E80001, math.nan),
    ("a largest value of 480", "e4m3fn", 0x43F7FFFF, math.nan),
    ("a largest value of 480, saturating", "e4m3fn:overflow=saturate", 0x43F7FFFF, 448.0),
    ("the all-ones binade becomes 0", "e4m3fn", 384.0, 384.0),
    ("65520 stays finite", "fp16", 65520.0, math.inf),
    ("65519 overflows", "fp16", 65519.0, 65504.0),
    ("just above the largest becomes NaN", "e5m2", 0x47900001, math.inf),
    ("the largest float32 becomes NaN", "fp16", 0x7F7FFFFF, math.inf),
    ("overflow to an infinity that is not there", "e4m3fn", 1e30, math.nan),
    ("overflow to an infinity that is not there", "e4m3fn:overflow=saturate", math.inf, 448.0),
    # NaN and zero
    ("a NaN becomes infinity", "fp16", 0x7F800001, math.nan),
    ("a NaN becomes 0", "fp16", 0xFFFFFFFF, math.nan),
    ("a NaN becomes 448", "e4m3fn", 0x7FC00000, math.nan),
    ("a NaN becomes -0", "fp4", 0x7FC00000, 6.0),
    ("a NaN becomes -0", "e2m3", 0xFFC00000, 7.5),
    ("a NaN with low payload becomes infinity in truncation", "bf16:toward_zero", 0x7F800001,
     math.nan),
    ("-0 is lost", "fp16", -0.0, -0.0),
    ("-0 is lost in round-up", "fp16:up", -1e-30, -0.0),
    ("-0 is lost on underflow", "e4m3fn", -1e-30, -0.0),
    ("-0 appears where there is none", "e4m3fnuz", -1e-30, 0.0),
    # subnormals
    ("rounded twice, up from below half of the smallest", "e4m3fn", 0x3A7FFFFF, 0.0),
    ("just above half of the smallest becomes 0", "e4m3fn", 0x3A800001, 2**-9),
    ("just above half of the smallest becomes 0", "fp16", 0x33000001, 2**-24),
    ("subnormals off the grid", "e4m3fn", 0x3BA22000, 3 * 2**-9),
    ("bfloat16's subnormals are flushed", "bf16", 0x00008001, 0x00010000),
    ("float32 subnormals are flushed", "bf16", 0x00010000, 0x00010000),
    # double rounding
    ("rounded twice, over the edge", "e5m2", 0x476FF000, 57344.0),
    # exponents by logarithm
    ("log2 is one too high", "e4m3fn:toward_zero", 0x417FFFFF, 15.0),
    # E8M0
    ("just above the smallest", "e8m0", 0x00400001, 2.0**-127),
    ("just above the smallest", "e8m0", 0x005FFFFF, 2.0**-127),
    ("a tie to the even code", "e8m0", 3.0, 4.0),
    # formats on the way
    ("TF32 truncated where it is rounded", "tf32:nearest_away", 1024.5, 1025.0),
    ("TF32 rounded where it is truncated", "tf32:toward_zero", 1024.5, 1024.0),
]  # fmt: skip


def float32(x: float | int) -> np.ndarray:
    """Bits if given as an int."""
    return np.array(x, np.uint32).view(np.float32) if isinstance(x, int) else np.float32(x)


@pytest.mark.parametrize(
    ("to", "x", "want"), [pytest.param(*t[1:], id=f"{t[1]} {t[0]}") for t in TRAPS]
)
def test_trap(to, x, want):
    x, want = np.atleast_1d(float32(x)), np.atleast_1d(float32(want))
    got = fpemu.round(x, to)
    assert np.array_equal(got, want, equal_nan=True)
    assert np.isnan(want) or np.signbit(got) == np.signbit(want)
    larger = np.repeat(x, 1000)  # as one of many, too
    assert np.array_equal(fpemu.round(larger, to), np.repeat(want, 1000), equal_nan=True)


def test_double_rounding_of_float64():
    x = np.array([1 + 2.0**-11 + 2.0**-40])
    assert fpemu.round(x, "fp16")[0] == 1.0009765625
    assert fpemu.round(np.array([1 + 2.0**-4 + 2.0**-40]), "e4m3fn")[0] == 1.125
    assert fpemu.round(np.array([1 + 2.0**-8 + 2.0**-40]), "bf16")[0] == 1.0078125


def test_a_signalling_nan_is_quieted():
    """numpy keeps 0x7c01 signalling."""
    x = np.array([0x7F802000], np.uint32).view(np.float32)
    assert fpemu.encode(x, "fp16")[0] == 0x7E00
    own = np.array([0x7C01], np.uint16).view(np.float16)
    assert fpemu.round(own, "fp16").view(np.uint16)[0] == 0x7E00


def test_stochastic_halves_are_halves():
    """Elsewhere: up with probability 1.0 in place of 0.5, and the same bits every call."""
    x = np.full(100_000, 1 + 2.0**-8, np.float32)
    a, b = (fpemu.round(x, "bf16", rounding="stochastic", seed=seed) for seed in (0, 1))
    assert abs((a > 1).mean() - 0.5) < 0.01
    assert not np.array_equal(a, b)


def test_stochastic_leaves_exact_values_alone():
    x = fpemu.values("e4m3fn")
    x = x[np.isfinite(x)]
    for seed in range(20):
        got = fpemu.round(x, "e4m3fn", rounding="stochastic", seed=seed)
        assert np.array_equal(got.view(np.uint32), x.view(np.uint32))


def test_small_gradients_survive_on_average():
    """Draws that were too narrow rounded them to zero always."""
    x = np.full(2**20, 2.0**-9 / 64, np.float32)
    got = fpemu.round(x, "e4m3fn", rounding="stochastic", seed=0)
    assert abs((got > 0).mean() * 64 - 1) < 0.05


def test_the_dtype_does_not_drift():
    assert fpemu.round(np.float16([0.1]), "e4m3fn").dtype == np.float16
    assert fpemu.round(np.float32([0.1]), "e4m3fn").dtype == np.float32
