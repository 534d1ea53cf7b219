"""Values that other rounding libraries were seen to get wrong, each with the right one.

Inputs are float32 bits unless a value says more; the right results were worked out from the
formats' definitions, not from this library.
"""

from __future__ import annotations

import numpy as np
import pytest

import fpemu


def rounded(bits: int, to: str, **rules: str) -> float:
    return float(fpemu.round(np.array([bits], np.uint32).view(np.float32), to, **rules)[0])


def bits_of(bits: int, to: str, **rules: str) -> int:
    x = np.array([bits], np.uint32).view(np.float32)
    return int(fpemu.round(x, to, **rules).view(np.uint32)[0])


nan, inf = float("nan"), float("inf")

#: id: (input bits, format, rules, right value)
VALUES = {
    # ties
    "tie 14.5 goes to the even 14, not away to 15": (0x41680000, "e4m3fn", {}, 14.0),
    "tie 15.5 goes to the even 16": (0x41780000, "e4m3fn", {}, 16.0),
    "tie does not go to zero": (0xC1780000, "e4m3fn", {}, -16.0),
    # the top binade and beyond
    "e4m3fn has no 480": (0x43E80001, "e4m3fn", {}, nan),
    "nor just below 464 + an ulp of 480": (0x43F7FFFF, "e4m3fn", {}, nan),
    "and saturates to 448, not to 480": (0x43F7FFFF, "e4m3fn", {"overflow": "saturate"}, 448.0),
    "464 is a tie to 448": (0x43E80000, "e4m3fn", {}, 448.0),
    "384 in the all-ones exponent binade is a value": (0x43C00000, "e4m3fn", {}, 384.0),
    "65520 overflows float16, it is no 65536": (0x477FF000, "fp16", {}, inf),
    "just below 65520 it does not": (0x477FEFFF, "fp16", {}, 65504.0),
    "e5m2 overflow is inf, not NaN": (0x47900001, "e5m2", {}, inf),
    "FLT_MAX to e5m2 is inf, not NaN": (0x7F7FFFFF, "e5m2", {}, inf),
    "FLT_MAX to bfloat16 is inf": (0x7F7FFFFF, "bf16", {}, inf),
    "e4m3fn overflow is no inf, it has none": (0x44800000, "e4m3fn", {}, nan),
    # NaN stays NaN
    "NaN of low payload is no infinity": (0x7F800001, "fp16", {}, nan),
    "negative NaN of full payload is no zero": (0xFFFFFFFF, "fp16", {}, nan),
    "NaN to e4m3fn is no 448": (0x7FC00000, "e4m3fn", {}, nan),
    "saturation leaves NaN alone": (0x7FC00000, "e4m3fn", {"overflow": "saturate"}, nan),
    "NaN to fp4 is its largest, no -0": (0x7FC00000, "fp4", {}, 6.0),
    "NaN to fp6 is its largest, no -0": (0x7FC00000, "e3m2", {}, 28.0),
    # subnormals
    "just above half the smallest e4m3fn": (0x3A800001, "e4m3fn", {}, 2.0**-9),
    "0x3a7fffff is below half of it": (0x3A7FFFFF, "e4m3fn", {}, 0.0),
    "0x3affffff rounds up to the smallest e4m3fn": (0x3AFFFFFF, "e4m3fn", {}, 2.0**-9),
    "just above half the smallest float16": (0x33000001, "fp16", {}, 2.0**-24),
    "half of it is a tie to zero": (0x33000000, "fp16", {}, 0.0),
    "e4m3fn subnormals lie on the grid, not at 2.5 * 2^-9": (0x3BA22000, "e4m3fn", {}, 3 * 2.0**-9),
    "and three quarters up it is the next": (0x3BB00000, "e4m3fn", {}, 3 * 2.0**-9),
    "a bfloat16 subnormal is kept": (0x00018000, "bf16", {}, 2 * 2.0**-133),
    "just above half the smallest bfloat16": (0x00008001, "bf16", {}, 2.0**-133),
    "1.5 * 2^-9 is a tie to the even code": (0x3B400000, "e4m3fn", {}, 2 * 2.0**-9),
    # double rounding
    "e5m2 just below its overflow stays finite": (0x476FF000, "e5m2", {}, 57344.0),
    # the exponent by bits, not by log2
    "toward zero of just below 16 is 15": (0x417FFFFF, "e4m3fn", {"rounding": "toward_zero"}, 15.0),
    # E8M0 just above its lowest value
    "E8M0 of 1.25 * 2^-127 is 2^-127": (0x00500000, "e8m0", {}, 2.0**-127),
    "and up to the tie": (0x005FFFFF, "e8m0", {}, 2.0**-127),
    "the tie goes up": (0x00600000, "e8m0", {}, 2.0**-126),
    "E8M0 of 3 is 4": (0x40400000, "e8m0", {}, 4.0),
}


@pytest.mark.parametrize("name", VALUES)
def test_trap(name: str) -> None:
    bits, to, rules, want = VALUES[name]
    got = rounded(bits, to, **rules)
    assert got == want or (np.isnan(got) and np.isnan(want))


@pytest.mark.parametrize("mode", ["nearest_even", "nearest_away", "toward_zero", "up", "down"])
def test_minus_zero_and_negative_underflow_keep_their_sign(mode: str) -> None:
    for to in ("fp16", "e4m3fn", "e5m2", "fp4"):
        assert bits_of(0x80000000, to, rounding=mode) == 0x80000000
        if mode != "down":
            assert bits_of(0x80000001, to, rounding=mode) == 0x80000000
    for to in ("e4m3fnuz", "e5m2fnuz"):  # these have no -0
        assert bits_of(0x80000000, to, rounding=mode) == 0


def test_signalling_nan_becomes_quiet() -> None:
    for to in fpemu.formats:
        if fpemu.finfo(to).has_nan:
            assert bits_of(0x7F800001, to) & 0x7FC00000 == 0x7FC00000


def test_float64_is_rounded_once() -> None:
    x = np.array([1 + 2.0**-11 + 2.0**-40])
    assert fpemu.round(x, "fp16")[0] == 1.0009765625
    assert fpemu.round(np.array([1 + 2.0**-8 + 2.0**-40]), "bf16")[0] == 1 + 2.0**-7
    assert fpemu.round(np.array([1 + 2.0**-4 + 2.0**-40]), "e4m3fn")[0] == 1.125
    assert fpemu.encode(x, "fp16")[0] == 0x3C01


def test_stochastic_goes_up_as_often_as_the_fraction_says() -> None:
    half = np.full(100_000, 1 + 2.0**-8, np.float32)  # halfway between two bfloat16
    share = float((fpemu.round(half, "bf16:stochastic", seed=3) > 1).mean())
    assert abs(share - 0.5) < 4 * 0.5 / np.sqrt(half.size)
    exact = fpemu.values("e4m3fn")
    exact = exact[np.isfinite(exact)]
    for seed in range(20):  # exact values never move
        assert np.array_equal(fpemu.round(exact, "e4m3fn:stochastic", seed=seed), exact)


def test_stochastic_differs_from_call_to_call_by_seed() -> None:
    x = np.full(1000, 1 / 3, np.float32)
    a, b, c = (fpemu.round(x, "bf16:stochastic", seed=s) for s in (0, 1, 0))
    assert not np.array_equal(a, b) and np.array_equal(a, c)


def test_dtype_does_not_drift() -> None:
    for dtype in (np.float16, np.float32, np.float64):
        assert fpemu.round(np.ones(3, dtype), "e4m3fn").dtype == dtype
