"""Noise: the squared error of rounding, measured on arrays or predicted from counts.

The prediction takes numbers to be spread evenly inside each slot of a tally. Under that one
assumption the mean squared error of rounding to the nearest is an integral in closed form.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

import fpemu
from fpemu.analysis.parts import Parts
from fpemu.analysis.plots.compute.binades import BINADES
from fpemu.analysis.plots.compute.counts import Shares
from fpemu.cast import Cast, Rounding, Subnormals
from fpemu.errors import InputError
from fpemu.kernels.bucket import EDGES
from fpemu.tallies import exponent_of

__all__ = ["decibels", "measured", "predicted"]

Array = np.ndarray[Any, Any]

_EDGES = np.array([float(edge) for edge in EDGES] + [2.0])
_NEAREST = (Rounding.NEAREST_EVEN, Rounding.NEAREST_AWAY)
_KEPT = range(BINADES.start - 64, BINADES.stop + 64)  #: rows kept of each cast: 200 KB
_FINEST = 16  #: mantissa bits: the slots say nothing of where float32's last bits are


def decibels(signal: Any, noise: Any) -> Shares:
    """Return 10 log10(signal / noise): inf without noise, NaN without signal."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.divide(signal, noise)
        found = 10.0 * np.log10(ratio)
    return np.where(np.asarray(signal) > 0, found, np.nan)


def measured(
    x: Array, cast: Cast, scales: Sequence[float], seed: int | None = None
) -> tuple[float, Shares]:
    """Return the sum of an array's squares, and that of its errors at each scale, in float64.

    Products with a scale are exact. Infinities and NaNs of x are left out; where a finite value
    became one, the noise is infinite.
    """
    every = np.asarray(x, np.float64).ravel()
    finite = every[np.isfinite(every)]
    noise = np.zeros(len(scales))
    for row, scale in enumerate(scales):
        scaled = np.ldexp(finite, exponent_of(scale))
        rounded = fpemu.round(scaled, cast, seed=seed)
        error = np.ldexp(rounded - scaled, -exponent_of(scale))
        noise[row] = np.dot(error, error) if np.isfinite(error).all() else math.inf
    return float(np.dot(finite, finite)), noise


def predicted(parts: Parts, cast: Cast, scales: Sequence[float]) -> tuple[float, Shares]:
    """Return the sum of squares, and that of the errors at each scale, as counts let expect.

    Errors: InputError for a cast that does not round to nearest, or so finely that counts say
    nothing of its error.
    """
    _check(cast)
    signal, noise = 0.0, np.zeros(len(scales))
    for exponent, tally in parts.by_exponent.items():
        counts = tally.histogram.sum(0)
        signal += float((counts * _squares()).sum()) * 4.0**exponent
        used = np.flatnonzero(counts.any(1))
        if not used.size:
            continue
        low, inside = int(used[0]), counts[used[0] : used[-1] + 1].astype(np.float64)
        outcomes = tally.outcomes(cast, [math.ldexp(scale, exponent) for scale in scales])
        for column, (scale, outcome) in enumerate(zip(scales, outcomes, strict=True)):
            shift = exponent_of(scale) + exponent
            table = _rows(cast, BINADES.start + low + shift, len(inside))
            lost = outcome.overflow + outcome.invalid
            sums = math.inf if lost else float(np.vdot(inside, table))
            noise[column] += sums * 4.0 ** -exponent_of(scale)
    return signal, noise


def _check(cast: Cast) -> None:
    form = cast.format
    if cast.rounding in _NEAREST and form.zero and form.mantissa_bits <= _FINEST:
        return
    raise InputError(
        f"cast {cast}: its SQNR is predicted from counts only if it rounds to nearest, has a zero "
        f"and at most {_FINEST} mantissa bits; give arrays, where it is measured"
    )


@lru_cache(maxsize=1)
def _squares() -> Shares:
    """The mean of x^2 in each cell, [binade, slot]."""
    return _mean_square(*_bounds(np.array(BINADES, np.float64)))


def _bounds(binades: Shares) -> tuple[Shares, Shares]:
    """Where each cell begins and ends: the even ones are one number, the odd ones reach on."""
    starts = np.repeat(_EDGES[:-1], 2)
    ends = starts.copy()
    ends[1::2] = _EDGES[1:]
    power = np.exp2(binades)[:, None]
    return starts * power, ends * power


def _mean_square(a: Shares, b: Shares) -> Shares:
    return (a * a + a * b + b * b) / 3.0


def _rows(cast: Cast, first: int, count: int) -> Shares:
    """The mean squared error of each cell, from a binade of the scaled numbers on."""
    if first in _KEPT and first + count - 1 in _KEPT:
        start = first - _KEPT.start
        return _kept(cast)[start : start + count]
    return _noise(cast, range(first, first + count))


@lru_cache(maxsize=64)
def _kept(cast: Cast) -> Shares:
    return _noise(cast, _KEPT)


def _noise(cast: Cast, rows: range) -> Shares:
    form = cast.format
    binades = np.array(rows, np.float64)
    a, b = _bounds(binades)
    ulp = np.exp2(np.maximum(binades, form.emin) - form.mantissa_bits)[:, None]
    found = _nearest(a, b, ulp)
    if cast.subnormals is Subnormals.FLUSH:
        kept = form.smallest_normal - 2.0 ** (form.emin - form.mantissa_bits - 1)
        found = np.where(b <= kept, _mean_square(a, b), found)
    return np.where(a >= form.max, _mean_square(a - form.max, b - form.max), found)


def _nearest(a: Shares, b: Shares, ulp: Shares) -> Shares:
    """The mean over [a, b] of (x - x to the nearest multiple of ulp)^2."""
    u, v = a / ulp, b / ulp
    one = u - np.rint(u)
    width = v - u
    mean = np.divide(_integral(v) - _integral(u), width, out=one * one, where=width > 0)
    return mean * ulp * ulp


def _integral(u: Shares) -> Shares:
    """The integral from 0 to u of (t - t to the nearest integer)^2 dt."""
    whole = np.floor(u + 0.5)
    return whole / 12.0 + (u - whole) ** 3 / 3.0
