"""Noise: the squared error of rounding, predicted from counts.

Numbers are taken to be spread evenly inside each slot of a tally. Under that one assumption the
mean squared error of rounding to the nearest is an integral in closed form; other roundings are
tried on numbers in the slot.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

import fpemu
from fpemu.analysis.by_recipe import ByRecipe, Target
from fpemu.analysis.parts import Parts
from fpemu.cast import Cast, Overflow, Rounding, Subnormals
from fpemu.kernels.bucket import EDGES
from fpemu.tallies import Tally, exponent_of

__all__ = ["NEAREST", "predicted"]

Floats: TypeAlias = npt.NDArray[np.float64]

#: The roundings whose error is known in closed form.
NEAREST = (Rounding.NEAREST_EVEN, Rounding.NEAREST_AWAY)

_EDGES = np.array([float(edge) for edge in EDGES] + [2.0])
_BINADES = Tally.EXPONENTS
_KEPT = range(_BINADES.start - 64, _BINADES.stop + 64)  #: rows kept of each cast: 200 KB
_POINTS = 64  #: numbers tried in a slot
_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0  #: multiples of it, mod 1, fall evenly between any grid


def predicted(parts: Parts, cast: Target, scales: Sequence[float]) -> tuple[float, Floats]:
    """Return the sum of squares, and that of the errors at each scale, as counts let expect.

    >>> import numpy as np, fpemu
    >>> from fpemu.analysis.noise import predicted
    >>> from fpemu.analysis.parts import Parts
    >>> x = np.float32(np.random.default_rng(0).standard_normal(20_000))
    >>> signal, [noise] = predicted(Parts.of(fpemu.tally(x)), fpemu.Cast("e4m3fn"), [1.0])
    >>> sqnr_db = float(10 * np.log10(signal / noise))
    >>> round(sqnr_db, 1), round(fpemu.error(x, fpemu.round(x, "e4m3fn")).sqnr, 1)
    (31.5, 31.5)

    scales: powers of two, by which the numbers are multiplied before the cast and divided again.
    cast: to a format that has a zero. Powers of two and other edges of slots are known exactly.
    Zeros have no error, NaN and infinite numbers are left out; where a finite one becomes infinity
    or NaN, the noise is infinite. Of a recipe, the sums are those that were measured.
    """
    if isinstance(cast, ByRecipe):
        scored = parts.scored(cast)
        return scored.signal, np.full(
            len(scales), math.inf if scored.outcome.overflow else scored.noise
        )
    signal, noise = 0.0, np.zeros(len(scales))
    for exponent, tally in parts.by_exponent.items():
        counts = tally.histogram.sum(0)
        signal += float((counts * _squares()).sum()) * 4.0**exponent
        used = np.flatnonzero(counts.any(1))
        if not used.size:
            continue
        low, inside = int(used[0]), counts[used[0] : used[-1] + 1].astype(np.float64)
        lost = _lost(tally, cast, [math.ldexp(scale, exponent) for scale in scales])
        for column, scale in enumerate(scales):
            shift = exponent_of(scale) + exponent
            table = _rows(cast, _BINADES.start + low + shift, len(inside))
            sums = math.inf if lost[column] else float(np.vdot(inside, table))
            noise[column] += sums * 4.0 ** -exponent_of(scale)
    return signal, noise


def _lost(tally: Tally, cast: Cast, scales: Sequence[float]) -> list[int]:
    """How many finite numbers become infinity or NaN at each scale."""
    if cast.format.signed and cast.overflow is not Overflow.IEEE:
        return [0] * len(scales)
    return [outcome.overflow + outcome.invalid for outcome in tally.outcomes(cast, scales)]


@lru_cache(maxsize=1)
def _squares() -> Floats:
    """The mean of x^2 in each cell, [binade, slot]."""
    return _mean_square(*_bounds(np.array(_BINADES, np.float64)))


def _bounds(binades: Floats) -> tuple[Floats, Floats]:
    """Where each cell begins and ends: the even ones are one number, the odd ones reach on."""
    starts = np.repeat(_EDGES[:-1], 2)
    ends = starts.copy()
    ends[1::2] = _EDGES[1:]
    power = np.exp2(binades)[:, None]
    return starts * power, ends * power


def _mean_square(a: Floats, b: Floats) -> Floats:
    return (a * a + a * b + b * b) / 3.0


def _rows(cast: Cast, first: int, count: int) -> Floats:
    """The mean squared error of each cell, from a binade of the scaled numbers on."""
    if first in _KEPT and first + count - 1 in _KEPT:
        start = first - _KEPT.start
        return _kept(cast)[start : start + count]
    return _noise(cast, range(first, first + count))


@lru_cache(maxsize=64)
def _kept(cast: Cast) -> Floats:
    return _noise(cast, _KEPT)


def _noise(cast: Cast, rows: range) -> Floats:
    a, b = _bounds(np.array(rows, np.float64))
    if cast.rounding not in NEAREST:
        return _tried(a, b, cast)
    form = cast.format
    ulp = np.exp2(np.maximum(np.array(rows), form.emin) - form.mantissa_bits)[:, None]
    found = _nearest(a, b, ulp)
    if cast.subnormals is Subnormals.FLUSH:
        kept = form.smallest_normal - 2.0 ** (form.emin - form.mantissa_bits - 1)
        found = np.where(b <= kept, _mean_square(a, b), found)
    return np.where(a >= form.max, _mean_square(a - form.max, b - form.max), found)


def _nearest(a: Floats, b: Floats, ulp: Floats) -> Floats:
    """The mean over [a, b] of (x - x to the nearest multiple of ulp)^2."""
    u, v = a / ulp, b / ulp
    one = u - np.rint(u)
    width = v - u
    mean = np.divide(_integral(v) - _integral(u), width, out=one * one, where=width > 0)
    return mean * ulp * ulp


def _integral(u: Floats) -> Floats:
    """The integral from 0 to u of (t - t to the nearest integer)^2 dt."""
    whole = np.floor(u + 0.5)
    return whole / 12.0 + (u - whole) ** 3 / 3.0


def _tried(a: Floats, b: Floats, cast: Cast) -> Floats:
    """The mean over some numbers of [a, b], held at the largest value."""
    saturating = cast.replace(overflow=Overflow.SATURATE)
    spread = (np.arange(1, _POINTS + 1) * _GOLDEN) % 1.0
    points = a[..., None] + (b - a)[..., None] * spread
    found: Floats = ((fpemu.round(points, saturating) - points) ** 2).mean(axis=-1)
    return found
