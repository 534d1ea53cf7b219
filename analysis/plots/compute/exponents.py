"""How often each power of two occurs: in all, and tensor by tensor."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fpemu.analysis.asked import several
from fpemu.analysis.parts import Parts
from fpemu.analysis.plots.compute.bands import Band
from fpemu.analysis.plots.compute.binades import BINADES, by_binade
from fpemu.analysis.plots.compute.counts import (
    FORMATS,
    Counts,
    Shares,
    divide,
    freeze,
)
from fpemu.analysis.plots.source import cells, row_labels, tensors
from fpemu.analysis.totals import add_to
from fpemu.cast import Cast
from fpemu.format import Format
from fpemu.tallies import exponent_of

if TYPE_CHECKING:
    from fpemu.analysis.plots.source import Source

__all__ = [
    "ExponentHeatmap",
    "ExponentHistogram",
    "exponent_heatmap",
    "exponent_histogram",
]


@dataclass(frozen=True, eq=False)
class ExponentHistogram:
    """Counts of one or several tensors by binade; zeros, infinities and NaNs apart."""

    labels: tuple[str, ...]
    counts: Counts = field(repr=False)  #: [tensor, binade]
    zero: Counts  #: [tensor]
    inf: Counts
    nan: Counts
    bands: tuple[Band, ...]
    binades: range = BINADES  #: of the columns; beyond float32's where a loss scale was taken out
    unscaled: bool = False  #: whether a loss scale was taken out of any

    @property
    def total(self) -> Counts:
        """All values of each tensor."""
        return freeze(self.counts.sum(1) + self.zero + self.inf + self.nan)


def exponent_histogram(
    source: Source, *, formats: Iterable[Cast | Format | str] = FORMATS, **selection: Any
) -> ExponentHistogram:
    """Count a source by binade: a tensor a row of a mapping, a kind a row of a Trace.

    >>> import numpy as np
    >>> from fpemu.analysis.plots import compute
    >>> h = compute.exponent_histogram(np.float32([0, 1, 1.5, 8, np.inf]), formats=["fp16"])
    >>> h.counts[0][149 + 0], h.counts[0][149 + 3], h.zero[0], h.inf[0]
    (np.int64(2), np.int64(1), np.int64(1), np.int64(1))

    Signs are ignored, -0 is a zero. selection: name=, kind=, step= of a Trace, whose gradients
    are counted without the loss scale that they were recorded times unless unscaled=False.
    """
    bands = tuple(Band.of(to) for to in several("formats", formats, str, Format, Cast))
    rows: dict[str, Parts] = {}
    for cell in cells(source, **selection):
        add_to(rows, cell.kind or cell.name, cell.parts)
    binades, counts = by_binade(list(rows.values()))
    zero, inf, nan = freeze([row.apart for row in rows.values()], 3).T
    unscaled = any(row.scaled for row in rows.values())
    return ExponentHistogram(tuple(rows), freeze(counts), zero, inf, nan, bands, binades, unscaled)


@dataclass(frozen=True, eq=False)
class ExponentHeatmap:
    """Counts by tensor and binade."""

    labels: tuple[str, ...]
    counts: Counts = field(repr=False)  #: [tensor, binade]
    band: Band | None
    scale: float
    binades: range = BINADES  #: of the columns; beyond float32's where a loss scale was taken out
    unscaled: bool = False  #: whether a loss scale was taken out of any

    @property
    def share(self) -> Shares:
        """Fraction of a tensor's finite non-zero values; NaN where it has none."""
        return divide(self.counts, self.counts.sum(1, keepdims=True))


def exponent_heatmap(
    source: Source,
    *,
    to: Cast | Format | str | None = None,
    scale: float = 1.0,
    **selection: Any,
) -> ExponentHeatmap:
    """Count each tensor by binade, over all steps selected.

    >>> import numpy as np
    >>> from fpemu.analysis.plots import compute
    >>> m = compute.exponent_heatmap({"a": np.float32([1, 1, 4]), "b": np.float32([2])})
    >>> m.labels, m.share[:, 149:152].round(2).tolist()
    (('a', 'b'), [[0.67, 0.0, 0.33], [0.0, 1.0, 0.0]])

    to: the format whose range is drawn; scale: the power of two that the values would be
    multiplied by before the cast. selection: name=, kind=, step=, unscaled= of a Trace.
    """
    exponent_of(scale)
    band = None if to is None else Band.of(to)
    rows = tensors(source, **selection)
    binades, counts = by_binade(list(rows.values()))
    unscaled = any(row.scaled for row in rows.values())
    return ExponentHeatmap(row_labels(rows), freeze(counts), band, float(scale), binades, unscaled)
