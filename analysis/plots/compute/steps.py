"""The staircase of a format: what each number becomes near zero, and the error of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

import fpemu
from fpemu.analysis.by_recipe import check_cast
from fpemu.analysis.plots.compute.counts import Shares
from fpemu.cast import Cast, Rounding, Subnormals
from fpemu.errors import InputError

if TYPE_CHECKING:
    from fpemu.format import Format

__all__ = ["Staircase", "staircase"]

#: Steps that can be seen one by one, and the most that are worked out.
_SEEN, _MOST = 48, 4096


@dataclass(frozen=True, eq=False)
class Staircase:
    """The corners of a staircase: x and what a cast makes of it, one step after another."""

    x: Shares = field(repr=False)
    rounded: Shares = field(repr=False)  #: NaN or infinite where the cast has no finite result
    low: float
    high: float
    to: str
    ulp: float  #: the smallest gap between values of the format
    normal: float  #: the smallest normal value
    largest: float  #: the largest value

    @property
    def error(self) -> Shares:
        """What the cast adds to each x."""
        with np.errstate(invalid="ignore"):
            return self.rounded - self.x


def staircase(
    to: Cast | Format | str, *, low: float | None = None, high: float | None = None
) -> Staircase:
    """Return what a cast makes of every number between two, as the corners of its steps.

    >>> from fpemu.analysis.plots import compute
    >>> found = compute.staircase("fp4", low=0, high=1.0)
    >>> sorted(set(found.rounded.tolist())), found.normal, abs(found.error).max()
    ([0.0, 0.5, 1.0], 1.0, np.float64(0.25))

    low, high: the numbers between which; unless given, from 0 (the lowest of an unsigned format)
    to four times the smallest normal value, so that the subnormals are seen beside normal values,
    or so far that 48 steps are seen; if subnormals are flushed, to twice it. A stochastic cast has
    no staircase, and a range of more than 4,096 steps is none that can be drawn: both are an
    InputError.
    """
    why = "what it makes of a number depends on the others of its block; give a format"
    cast = check_cast("staircase", to, why)
    form = cast.format
    if cast.rounding is Rounding.STOCHASTIC:
        raise InputError(f"cast {cast}: a stochastic rounding has no staircase; give another")
    ulp = math.ldexp(1.0, form.emin - form.mantissa_bits)
    start, stop = _ends(cast, ulp, low, high)
    grid = _grid(form, start, stop)
    corners = np.unique(np.concatenate([grid, (grid[1:] + grid[:-1]) / 2, [start, stop]]))
    if cast.subnormals is Subnormals.FLUSH:
        edge = form.smallest_normal - ulp / 2
        corners = np.unique(np.concatenate([corners, [edge, -edge]]))
    near = np.concatenate([corners, np.nextafter(corners, -np.inf), np.nextafter(corners, np.inf)])
    x = np.unique(near[(near >= start) & (near <= stop)])
    rounded = np.asarray(fpemu.round(x, cast), np.float64)
    return Staircase(x, rounded, start, stop, str(cast), ulp, form.smallest_normal, form.max)


def _ends(cast: Cast, ulp: float, low: float | None, high: float | None) -> tuple[float, float]:
    form = cast.format
    start = (0.0 if form.zero else form.smallest_normal / 2) if low is None else float(low)
    far = min(4 * form.smallest_normal, _SEEN * ulp)
    if cast.subnormals is Subnormals.FLUSH and form.mantissa_bits <= 10:
        far = 2 * form.smallest_normal  # all of what is flushed
    stop = max(far, start + _SEEN * ulp if start else far) if high is None else float(high)
    if not (math.isfinite(start) and math.isfinite(stop) and start < stop):
        raise InputError(f"low={start!r}, high={stop!r}: must be two finite numbers, low < high")
    return start, stop


def _grid(form: Format, start: float, stop: float) -> Shares:
    """The values of the format's grid, continued beyond its largest, around a range."""
    points: list[Any] = []
    steps = 0.0
    for sign in (-1.0, 1.0):
        far = max(0.0, sign * start, sign * stop)
        near = max(0.0, min(sign * start, sign * stop))
        top = max(form.emin, math.frexp(far)[1] if far else form.emin)
        bottom = max(form.emin, math.frexp(near)[1] - 1 if near else form.emin)
        for binade in range(bottom, min(top, form.emax + 1) + 1):
            gap = math.ldexp(1.0, binade - form.mantissa_bits)
            first = 0.0 if binade == form.emin else math.ldexp(1.0, binade)
            a, b = max(near - gap, first), min(far + gap, math.ldexp(2.0, binade))
            steps += max((b - a) / gap, 0)
            if steps > _MOST:
                raise InputError(
                    f"low={start!r}, high={stop!r}: more than {_MOST} steps of {form.name}; give "
                    "a narrower range"
                )
            if b >= a and far:
                points.append(sign * gap * np.arange(math.floor(a / gap), math.ceil(b / gap) + 1))
    return np.unique(np.concatenate([*points, [0.0]]))
