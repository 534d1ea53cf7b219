"""A Cast written a second time, as a step function: what the kernels are compared with.

A deterministic Cast never decreases over the magnitudes of one sign, so it is known by its steps:
for each code the lowest bit pattern that reaches it. The steps come from the format's values and
midpoints, in float64 (exact: both have at most 25 bits); a lookup is a binary search. Nothing of
this is shared with fpemu.kernels, and the exact definition checks it in test_rounding.py.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

import fpemu
from fpemu.cast import Negative, Overflow, Rounding, Subnormals, Zero

Array = np.ndarray[Any, Any]


class Steps(NamedTuple):
    """The step function of one sign, from the magnitude's bit pattern to a code."""

    starts: Array  #: lowest pattern of each step, never decreasing; the first is 0
    codes: Array  #: what the patterns from there on become


def grid(form: fpemu.Format) -> Array:
    """The magnitudes of a format in order, continued above its largest value by one binade."""
    fractions = np.arange(1 << form.mantissa_bits) / (1 << form.mantissa_bits)
    lowest = -form.bias + int(form.zero)
    binades = np.arange(lowest, lowest + (1 << form.exponent_bits) + 1)
    normals = np.ldexp(1.0 + fractions, binades[:, None]).ravel()
    subnormals = np.ldexp(fractions, lowest) if form.zero else np.zeros(0)
    return np.concatenate([subnormals, normals])


@lru_cache(maxsize=256)
def table(form: fpemu.Format) -> Array:
    """The value of every code, as float64."""
    positive = grid(form)[: 1 << form.magnitude_bits].copy()
    positive[form.max_code + 1 :] = np.nan
    if form.inf:
        positive[form.max_code + 1] = np.inf
    if not form.signed:
        return positive
    both = np.concatenate([positive, np.negative(positive)])
    if form.nan is fpemu.NaN.MINUS_ZERO:
        both[len(positive)] = np.nan
    return both


def _first_at(values: Array, dtype: Any) -> Array:
    """The lowest pattern whose float is not below a positive value."""
    with np.errstate(over="ignore"):
        near = values.astype(dtype)
    return _patterns(near) + (near < values)


def _patterns(x: Array) -> Array:
    return x.view(f"u{x.itemsize}")


def _first_above(values: Array, dtype: Any) -> Array:
    with np.errstate(over="ignore"):
        near = values.astype(dtype)
    return _patterns(near) + (near <= values)


@lru_cache(maxsize=64)
def _starts(form: fpemu.Format, mode: Rounding, negative: bool, dtype: Any) -> Array:
    """For each magnitude code from 1 to the first beyond max: its lowest pattern."""
    values = grid(form)[: form.max_code + 2]
    below, above = values[:-1], values[1:]
    middle = (below + above) / 2
    odd = np.arange(1, form.max_code + 2) % 2 == 1
    if mode is Rounding.NEAREST_EVEN:  # the tie belongs to the even code; without zero, upwards
        upwards = ~odd | (not form.zero)
        return np.where(upwards, _first_at(middle, dtype), _first_above(middle, dtype))
    if mode is Rounding.NEAREST_AWAY:
        return _first_at(middle, dtype)
    if mode is Rounding.TO_ODD:  # all that lies between belongs to the odd code
        return np.where(odd, _first_above(below, dtype), _first_at(above, dtype))
    if mode is (Rounding.DOWN if negative else Rounding.UP):
        return _first_above(below, dtype)
    return _first_at(above, dtype)


def _results(cast: fpemu.Cast, negative: bool) -> dict[str, int]:
    """The magnitude codes of the special results; "nan" is a whole code."""
    form = cast.format
    top = form.max_code
    nan = form.nan_code if form.nan_code is not None else top
    infinite = top + 1 if form.inf else nan
    outward = {
        Rounding.NEAREST_EVEN: True,
        Rounding.NEAREST_AWAY: True,
        Rounding.TOWARD_ZERO: False,
        Rounding.TO_ODD: False,
        Rounding.UP: not negative,
        Rounding.DOWN: negative,
    }[cast.rounding]
    over, inf = {
        Overflow.IEEE: (infinite if outward else top, infinite),
        Overflow.SATURATE: (top, top),
        Overflow.SATURATE_KEEP_INF: (top, infinite),
    }[cast.overflow]
    zero = 0 if form.zero or cast.zero is Zero.SMALLEST else nan
    return {"zero": zero, "over": over, "inf": inf, "nan": nan}


@lru_cache(maxsize=64)
def steps(cast: fpemu.Cast, negative: bool, dtype: Any = np.float32) -> Steps:
    """The steps of a Cast for one sign."""
    form = cast.format
    word = f"u{np.dtype(dtype).itemsize}"
    special = _results(cast, negative and form.signed)
    infinity = int(np.array(np.inf, dtype).view(word))
    if negative and not form.signed and cast.negative is Negative.NAN:
        starts, codes = np.array([0, 1]), np.array([special["zero"], special["nan"]])
        return Steps(starts.astype(word), codes.astype(np.uint32))
    reached = _starts(form, cast.rounding, negative and form.signed, dtype)
    codes = np.arange(1, form.max_code + 2)
    codes = np.where(codes > form.max_code, special["over"], codes)
    if cast.subnormals is Subnormals.FLUSH:
        codes = np.where(codes < form.min_normal_code, 0, codes)
    ends = np.array([0, 1, infinity, infinity + 1], word)  # one dtype: int64 would make float64
    starts = np.concatenate([ends[:2], reached, ends[2:]])
    codes = np.concatenate([[special["zero"], 0], codes, [special["inf"], special["nan"]]])
    return Steps(starts, _with_sign(form, codes, negative))


def _with_sign(form: fpemu.Format, codes: Array, negative: bool) -> Array:
    codes = codes.astype(np.uint32)
    if not (negative and form.signed):
        return codes
    sign = np.uint32(1 << form.magnitude_bits)
    signed = codes | sign  # the lone NaN is at the code of -0 already
    if form.nan is fpemu.NaN.MINUS_ZERO:
        signed = np.where(codes == 0, codes, signed)
    if form.nan is fpemu.NaN.NONE:
        signed[-1] = codes[-1]  # NaN becomes the largest positive value
    return signed


def second_codes(cast: fpemu.Cast, x: Array) -> Array:
    """The code of each element."""
    word = x.view(f"u{x.itemsize}")
    top = word.dtype.type(1 << (8 * x.itemsize - 1))
    magnitude = word & ~top
    codes = np.empty(x.shape, np.uint32)
    for negative in (False, True):
        here = (word >= top) == negative
        starts, results = steps(cast, negative, x.dtype.type)
        codes[here] = results[np.searchsorted(starts, magnitude[here], side="right") - 1]
    return codes


def second_round(cast: fpemu.Cast, x: Array) -> Array:
    """The value of each element, in x's dtype."""
    return table(cast.format)[second_codes(cast, x)].astype(x.dtype)


def step_values(cast: fpemu.Cast, negative: bool) -> Steps:
    """The steps with float32 patterns in place of codes; NaN is the quiet one of the sign."""
    starts, codes = steps(cast, negative)
    values = np.abs(table(cast.format)[codes]).astype(np.float32)
    minus = np.signbit(table(cast.format)[codes])
    bits = np.where(np.isnan(values), np.uint32(0x7FC00000), values.view(np.uint32))
    minus = np.where(np.isnan(values), negative, minus)
    return Steps(starts, bits | (minus.astype(np.uint32) << np.uint32(31)))
