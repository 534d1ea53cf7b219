"""Measured: how far a tensor is from what it was, mergeable piece by piece."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fpemu.analysis.conversion.measure_loop import measure_loop
from fpemu.analysis.conversion.part import Part
from fpemu.analysis.conversion.targets import Target
from fpemu.analysis.what_if import percent
from fpemu.codes import dtype_of_bits

__all__ = ["Measured", "measure", "tops_of"]

Array = np.ndarray[Any, Any]

_NONE = np.zeros(0, np.uint8)


@dataclass(frozen=True, slots=True)
class Measured:
    """Sums and counts over the finite numbers of a tensor.

    >>> from fpemu.analysis.conversion.measure import Measured
    >>> both = Measured(signal=1.0, noise=0.125) + Measured(signal=9.0, noise=0.875, lost=1)
    >>> both.sqnr, both.lost
    (10.0, 1)
    """

    signal: float = 0.0  #: sum of squares
    noise: float = 0.0  #: sum of squared errors of what stayed finite
    relative: float = 0.0  #: the largest relative error of what stayed finite and non-zero
    nonfinite: int = 0  #: infinite or NaN before; not measured
    nonzero: int = 0
    lost: int = 0  #: non-zero numbers that became 0
    clipped: int | None = 0  #: numbers beyond the largest element at their scale; None: unknown
    broken: int = 0  #: finite numbers that became infinite or NaN

    def __add__(self, other: Measured) -> Measured:
        both = None in (self.clipped, other.clipped)
        clipped = None if both else (self.clipped or 0) + (other.clipped or 0)
        return Measured(
            self.signal + other.signal, self.noise + other.noise,
            max(self.relative, other.relative), self.nonfinite + other.nonfinite,
            self.nonzero + other.nonzero, self.lost + other.lost, clipped,
            self.broken + other.broken,
        )  # fmt: skip

    @property
    def sqnr(self) -> float:
        """Signal to quantization noise in decibels; infinite: exact; NaN: nothing to measure."""
        if self.noise == 0:
            return math.inf if self.nonzero > self.broken or not self.nonzero else math.nan
        return 10 * math.log10(self.signal / self.noise) if self.signal else -math.inf

    @property
    def lost_percent(self) -> float:
        """Of the non-zero numbers."""
        return percent(self.lost, self.nonzero)

    @property
    def clipped_percent(self) -> float:
        """Of the non-zero numbers; NaN where it is unknown."""
        return math.nan if self.clipped is None else percent(self.clipped, self.nonzero)


def tops_of(target: Target) -> Array:
    """Return which codes of a target's element are of the largest magnitudes, both signs.

    None, where the largest number of all decides; nor where numbers are rotated, as what is
    clipped then is none of them.
    """
    bits = target.element.bits
    if not math.isinf(target.limit) or target.rotated or bits > 16:
        return np.zeros(0, np.bool_)
    table = _values(target, bits)
    magnitudes = np.where(np.isfinite(table), np.abs(table), 0)
    highest, lowest = np.nanmax(table[magnitudes > 0]), np.nanmin(table[magnitudes > 0])
    found: Array = (table == highest) | (table == lowest)
    return found


def _values(target: Target, bits: int) -> Array:
    """The value of every code; a codebook may have fewer than its bits allow."""
    count = len(getattr(target.element, "values", ())) or 1 << bits
    codes = np.arange(count, dtype=dtype_of_bits(bits))
    table: Array = np.asarray(target.element.decode(codes), np.float64)
    table = np.where(np.isinf(table), np.nan, table)
    return np.concatenate([table, np.full((1 << bits) - count, np.nan)])


def measure(x: Array, q: Array, part: Part, tops: Array, limit: float) -> Measured:
    """Measure numbers before and after, of the codes of a part.

    limit: what is clipped beyond it; infinite: as the codes in `tops` say, if there are any.
    """
    codes = part.codes.reshape(-1) if tops.size else _NONE
    q = q.astype(x.dtype, copy=False)
    figures = measure_loop(tops.size > 0)(x.reshape(-1), q.reshape(-1), codes, tops, limit)
    found = Measured(*figures)
    return found if tops.size or math.isfinite(limit) else replace(found, clipped=None)
