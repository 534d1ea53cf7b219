"""The histogram of log2|x|, with the formats' ranges as bands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fpemu.analysis.plots import compute
from fpemu.analysis.plots.compute import BINADES, FORMATS, WIDE, Band, ExponentHistogram
from fpemu.analysis.plots.figures import new_axes
from fpemu.analysis.plots.style import GREY, MARKS, TEXT, ink, percent, power, shorten
from fpemu.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fpemu.analysis.plots.source import Source
    from fpemu.cast import Cast
    from fpemu.format import Format

__all__ = ["exponent_histogram"]

_STRIP = 0.065  #: height of a format's band, as a fraction of the axes
_GAP = 1.5  #: binades between the bins apart and the others


def exponent_histogram(
    source: Source | ExponentHistogram,
    *,
    formats: Iterable[Cast | Format | str] = FORMATS,
    ax: Axes | None = None,
    title: str | None = None,
    log: bool = True,
    **selection: Any,
) -> Axes:
    """Draw how often each power of two occurs, with the formats' ranges above.

    >>> import numpy as np
    >>> from fpemu.analysis import plots
    >>> x = np.random.default_rng(0).normal(0, 2.0**-12, 10_000).astype(np.float32)
    >>> ax = plots.exponent_histogram({"gradient": x}, formats=["fp16", "e4m3fn"])
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('|x|, a bin for each power of two', '% of all values')

    source: an array, a Tally, a mapping of them by name (one outline each, at most 8), or a Trace
    (one outline a kind); selection: name=, kind=, step= of a Trace.
    formats: names, Formats or Casts; a band is solid over the normal range and hatched over the
    subnormal one.
    log: a logarithmic axis, so that a tail of 0.01 % is seen.
    Zeros are a bin apart at the left, infinities and NaNs one at the right, if there are any.
    Nothing recorded gives axes that say so.
    """
    if not isinstance(source, ExponentHistogram):
        source = compute.exponent_histogram(source, formats=formats, **selection)
    if len(source.labels) > len(MARKS):
        raise InputError(
            f"{len(source.labels)} tensors in one histogram: {len(MARKS)} can be told apart; "
            "give fewer, or use exponent_heatmap"
        )
    ax = new_axes() if ax is None else ax
    ax.set_title(title or "Powers of two in the values", loc="left", **TEXT)
    if not source.total.sum():
        return _nothing(ax)
    low, high = _limits(source)
    highest = _draw_bins(ax, source, low, high)
    _draw_bands(ax, source.bands, low, high)
    _label(ax, source, low, high)
    _set_height(ax, source, highest, log)
    return ax


def _nothing(ax: Axes) -> Axes:
    ax.set_axis_off()
    ax.text(0.5, 0.5, "no values recorded", ha="center", transform=ax.transAxes, **TEXT)
    return ax


def _limits(data: ExponentHistogram) -> tuple[int, int]:
    """From the lowest to above the highest binade of the data and of the formats not too wide."""
    used = np.flatnonzero(data.counts.sum(0)) + BINADES[0]
    ends = [int(used[0]), int(used[-1]) + 1] if used.size else [-1, 1]
    for band in data.bands:
        if band.high - band.low <= WIDE:
            ends += [int(np.floor(band.low)), int(np.ceil(band.high))]
    return min(ends), max(ends)


def _draw_bins(ax: Axes, data: ExponentHistogram, low: int, high: int) -> float:
    """Draw the bins in % and return the highest."""
    edges = np.arange(low, high + 1)
    columns = slice(low - BINADES[0], high - BINADES[0])
    lone = len(data.labels) == 1
    handles, highest = [], 0.0
    for row, label in enumerate(data.labels):
        mark, whole = MARKS[row], max(int(data.total[row]), 1)
        heights = 100.0 * data.counts[row, columns] / whole
        if lone:
            look: dict[str, Any] = {"facecolor": mark.colour, "fill": True}
        else:
            look = {"edgecolor": mark.colour, "linestyle": mark.dash, "linewidth": 1.6}
        handles.append(ax.stairs(heights, edges, baseline=0, **look))
        apart = [100.0 * data.zero[row] / whole, 100.0 * (data.inf[row] + data.nan[row]) / whole]
        width = 2.0 / len(data.labels)
        for left, height in zip(_apart(low, high), apart, strict=True):
            if height:
                ax.bar(left + width * row, height, width, align="edge", color=mark.colour)
        highest = max(highest, *apart, float(heights.max()))
    if not lone or data.labels[0]:
        _legend(ax, handles, data.labels)
    return highest
