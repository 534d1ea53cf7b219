"""Noise: the rounding error of a cast, predicted from the histogram of a tally.

A tally knows in which slot of which binade a number lies, not where in the slot. Its squared error
is taken as the mean over numbers spread evenly in the slot; numbers on an edge of a slot (powers of
two, say) are known exactly.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fpemu.cast import Cast, Overflow
from fpemu.kernels.bucket import EDGES, SLOTS
from fpemu.tallies import Tally

if TYPE_CHECKING:
    from fpemu.analysis.parts import Parts

__all__ = ["Noise", "decibels", "noise_of"]

Array = np.ndarray[Any, Any]

_POINTS = 64  # numbers tried in a slot
_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0  # multiples of it, mod 1, fall evenly between any grid


class Noise(NamedTuple):
    """Sums of squares over the finite numbers of a tensor."""

    error: float  #: of what rounding changes
    signal: float  #: of the numbers

    @property
    def ratio(self) -> float:
        """The error's share of the signal: 0 for exact numbers, and at most about 1."""
        return self.error / self.signal if self.signal else 0.0

    @property
    def sqnr_db(self) -> float | None:
        """Signal to quantization noise in decibels; None if nothing is changed or nothing there."""
        return decibels(self.ratio)


def decibels(ratio: float) -> float | None:
    """Return noise over signal as decibels of signal to noise; None for 0."""
    return -10.0 * math.log10(ratio) if ratio > 0 else None


def noise_of(values: Parts, cast: Cast, scales: Sequence[float]) -> list[Noise]:
    """Return the predicted noise of values times each scale, divided by it again after the cast.

    >>> import numpy as np, fpemu
    >>> from fpemu.analysis.advice.noise import noise_of
    >>> from fpemu.analysis.parts import Parts
    >>> x = np.float32(np.random.default_rng(0).standard_normal(20_000))
    >>> [noise] = noise_of(Parts.of(fpemu.tally(x)), fpemu.Cast("e4m3fn"), [1.0])
    >>> true = fpemu.error(x, fpemu.round(x, "e4m3fn")).sqnr
    >>> abs(noise.sqnr_db - true) < 0.1
    True

    scales: powers of two. NaN and infinite numbers are left out; what overflows counts as
    saturated, so look at overflow first. For data that fill their binades the prediction is
    within about 0.6 dB of the error of the real cast while little is lost at either end; where much
    saturates it may be 4 dB off, as a slot says little of how far beyond the end a number lies.
    """
    table = _table(_saturating(cast))
    sums = [[0.0, 0.0] for _ in scales]
    for shift, tally in values.by_exponent.items():
        cells = tally.histogram.sum(axis=0)
        rows = np.flatnonzero(cells.any(axis=1))
        if not rows.size:
            continue
        cells = cells[rows[0] : rows[-1] + 1].astype(np.float64)
        exponents = np.arange(rows[0], rows[-1] + 1) + Tally.EXPONENTS.start
        exponents = exponents + shift
        weights = cells * np.ldexp(1.0, 2 * exponents)[:, None]  # of significands, squared
        signal = float((weights * table.power).sum())
        for sum_, scale in zip(sums, scales, strict=True):
            errors = table.at(exponents + round(math.log2(scale)))
            sum_[0] += float((weights * errors).sum())
            sum_[1] += signal
    return [Noise(*sum_) for sum_ in sums]


class _Table(NamedTuple):
    """Mean squared errors by binade and slot, in units of the binade's square."""

    low: int  #: the first binade
    errors: Array  #: (binades, SLOTS)
    power: Array  #: (SLOTS,) mean square of the significands

    def at(self, exponents: Array) -> Array:
        """The errors of some binades; those below the table lose everything."""
        places = np.clip(exponents - self.low, 0, len(self.errors) - 1)
        found: Array = self.errors[places]
        return found


@lru_cache(maxsize=256)
def _table(cast: Cast) -> _Table:
    import fpemu

    form = cast.format
    points = _points()
    power = (points**2).mean(axis=1)
    low, high = form.emin - form.mantissa_bits - 3, form.emax + 3
    exponents = np.arange(low, high + 1)
    values = np.ldexp(points[None], exponents[:, None, None])
    errors = np.ldexp(fpemu.round(values, cast) - values, -exponents[:, None, None])
    return _Table(low, (errors**2).mean(axis=2), power)


def _points() -> Array:
    """Significands in each slot: its edge, or numbers spread over the interval above it."""
    edges = [float(edge) for edge in EDGES] + [2.0]
    spread = (np.arange(1, _POINTS + 1) * _GOLDEN) % 1.0
    points = np.empty((SLOTS, _POINTS))
    for place, (edge, end) in enumerate(itertools.pairwise(edges)):
        points[2 * place] = edge
        points[2 * place + 1] = edge + (end - edge) * spread
    return points


def _saturating(cast: Cast) -> Cast:
    return replace(cast, overflow=Overflow.SATURATE)
