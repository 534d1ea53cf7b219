"""How often each power of two occurs: in all, and tensor by tensor."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from fpemu.analysis.plots.compute.counts import (
    BINADES,
    FORMATS,
    Counts,
    Shares,
    divide,
    freeze,
)
from fpemu.analysis.plots.source import cells, row_labels
from fpemu.analysis.totals import add_to
from fpemu.cast import Cast, Subnormals, make_cast
from fpemu.tallies import exponent_of

if TYPE_CHECKING:
    from fpemu.analysis.plots.source import Source
    from fpemu.format import Format

__all__ = [
    "Band",
    "ExponentHeatmap",
    "ExponentHistogram",
    "exponent_heatmap",
    "exponent_histogram",
]


@dataclass(frozen=True)
class Band:
    """The range of a format as log2: its smallest value, its smallest normal, its largest."""

    name: str
    low: float
    normal: float
    high: float

    @classmethod
    def of(cls, to: Cast | Format | str) -> Band:
        """Return the range that a cast can give; flushed subnormals are no part of it."""
        cast = make_cast(to)
        form = cast.format
        flushed = cast.subnormals is Subnormals.FLUSH
        low = form.smallest_normal if flushed else form.smallest_subnormal
        return cls(str(cast), math.log2(low), math.log2(form.smallest_normal), math.log2(form.max))

    @property
    def wide(self) -> bool:
        """Whether it spans so many binades (bfloat16, float32) that no plot should show it all."""
        return self.high - self.low > 64


@dataclass(frozen=True, eq=False)
class ExponentHistogram:
    """Counts of one or several tensors by binade; zeros, infinities and NaNs apart."""

    labels: tuple[str, ...]
    counts: Counts = field(repr=False)  #: [tensor, binade]
    zero: Counts  #: [tensor]
    inf: Counts
    nan: Counts
    bands: tuple[Band, ...]

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

    Signs are ignored, -0 is a zero. selection: name=, kind=, step= of a Trace.
    """
    bands = tuple(Band.of(to) for to in formats)
    rows: dict[str, Counts] = {}
    for cell in cells(source, **selection):
        tally, label = cell.tally, cell.kind or cell.name
        counts = np.append(tally.exponents(), [tally.zero, tally.inf, tally.nan])
        add_to(rows, label, counts)
    table = freeze(list(rows.values()), len(BINADES) + 3)
    zero, inf, nan = table.T[-3:]
    return ExponentHistogram(tuple(rows), table[:, :-3], zero, inf, nan, bands)


@dataclass(frozen=True, eq=False)
class ExponentHeatmap:
    """Counts by tensor and binade."""

    labels: tuple[str, ...]
    counts: Counts = field(repr=False)  #: [tensor, binade]
    band: Band | None
    scale: float

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
    multiplied by before the cast. selection: name=, kind=, step= of a Trace.
    """
    exponent_of(scale)
    band = None if to is None else Band.of(to)
    rows: dict[tuple[str, str], Counts] = {}
    for cell in cells(source, **selection):
        add_to(rows, (cell.name, cell.kind), cell.tally.exponents())
    table = freeze(list(rows.values()), len(BINADES))
    return ExponentHeatmap(row_labels(rows), table, band, float(scale))
