"""The range of each layer's numbers, forward and backward."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from fpemu.analysis.asked import several
from fpemu.analysis.plots.compute.bands import Band
from fpemu.analysis.plots.source import Cell, cells
from fpemu.analysis.records import check_kind
from fpemu.analysis.totals import add_to
from fpemu.tallies import exponent_of

if TYPE_CHECKING:
    from fpemu.analysis.plots.compute.counts import Shares
    from fpemu.analysis.plots.source import Source
    from fpemu.cast import Cast
    from fpemu.format import Format

__all__ = ["Extent", "ScalePlot", "scale_plot"]

#: Of each pair the first kind that a source holds: what a step meets forward, then backward.
_FORWARD = ("activation", "weight")
_BACKWARD = ("activation_gradient", "weight_gradient")


@dataclass(frozen=True, slots=True)
class Extent:
    """How far finite numbers reach; `a + b` is that of the joined data."""

    count: int
    squares: float  #: sum of the squares
    amax: float  #: 0.0 if all are zero
    smallest: float  #: smallest non-zero magnitude; 0.0 if there is none

    @classmethod
    def of(cls, cell: Cell) -> Extent:
        """Return the extent of a cell's true numbers."""
        known, scale = cell.moments, cell.loss_scale
        rms = known.rms / scale if known.count else 0.0
        return cls(
            known.count, known.count * rms * rms, known.amax / scale, known.smallest_nonzero / scale
        )

    def __add__(self, other: Extent) -> Extent:
        return Extent(
            self.count + other.count,
            self.squares + other.squares,
            max(self.amax, other.amax),
            min(filter(None, (self.smallest, other.smallest)), default=0.0),
        )

    @property
    def rms(self) -> float:
        """Root of the mean square; NaN of nothing."""
        return math.sqrt(self.squares / self.count) if self.count else math.nan


@dataclass(frozen=True, eq=False)
class ScalePlot:
    """Largest, root mean square and smallest magnitude, by kind and layer."""

    labels: tuple[str, ...]  #: the layers, in the order in which they were first seen
    kinds: tuple[str, ...]  #: "" where the source knows no kinds
    amax: Shares = field(repr=False)  #: [kind, layer]; NaN where there is no finite non-zero value
    rms: Shares = field(repr=False)
    smallest: Shares = field(repr=False)
    band: Band | None
    scale: float
    unscaled: bool  #: whether a loss scale was taken out of any


def scale_plot(
    source: Source,
    *,
    to: Cast | Format | str | None = None,
    scale: float = 1.0,
    kinds: str | Iterable[str] | None = None,
    **selection: Any,
) -> ScalePlot:
    """Measure how far the numbers of each layer reach, over all steps selected.

    >>> import numpy as np
    >>> from fpemu.analysis.plots import compute
    >>> layers = {"a": np.float32([0, 3, 4]), "b": np.float32([2.0**-20])}
    >>> found = compute.scale_plot(layers)
    >>> found.amax.tolist(), found.smallest.tolist()
    ([[4.0, 9.5367431640625e-07]], [[3.0, 9.5367431640625e-07]])

    kinds: which to measure; unless given, activations (or weights) and activation gradients (or
    weight gradients), whichever of them the source holds. to: the format whose range is drawn;
    scale: the power of two that the values would be multiplied by before the cast.
    NaN and infinities are left out. A Tally has no moments: an InputError says what to give.
    selection: name=, kind=, step=, unscaled= of a Trace.
    """
    exponent_of(scale)
    band = None if to is None else Band.of(to)
    asked = None if kinds is None else [check_kind(k) for k in several("kinds", kinds, str)]
    found: dict[tuple[str, str], Extent] = {}
    unscaled = False
    for cell in cells(source, **selection):
        if asked is None or cell.kind in asked:
            add_to(found, (cell.kind, cell.name), Extent.of(cell))
            unscaled |= cell.scaled
    rows = asked or _both_ways([kind for kind, _ in found])
    layers = list(dict.fromkeys(name for kind, name in found if kind in rows))
    table = [[found.get((kind, name)) for name in layers] for kind in rows]
    amax, rms, smallest = (_column(table, what) for what in ("amax", "rms", "smallest"))
    return ScalePlot(tuple(layers), tuple(rows), amax, rms, smallest, band, float(scale), unscaled)


def _both_ways(kinds: Sequence[str]) -> list[str]:
    ways = [next((k for k in way if k in kinds), None) for way in (_FORWARD, _BACKWARD)]
    return [kind for kind in ways if kind is not None] or list(dict.fromkeys(kinds))


def _column(table: Sequence[Sequence[Extent | None]], what: str) -> Shares:
    values = [[getattr(e, what) if e and e.amax else math.nan for e in row] for row in table]
    array = np.array(values, np.float64).reshape(len(table), len(table[0]) if table else 0)
    array.setflags(write=False)
    return array
