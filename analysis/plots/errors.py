"""The errors of one cast or two on an array, as a histogram."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from fpemu.analysis.plots import compute
from fpemu.analysis.plots.compute import ErrorDistribution
from fpemu.analysis.plots.figures import axes_for
from fpemu.analysis.plots.style import (
    TEXT,
    legend_below,
    marks_of,
    nothing,
    power_ticks,
    set_title,
    set_xlabel,
)
from fpemu.analysis.shown import share
from fpemu.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fpemu.cast import Cast
    from fpemu.format import Format

__all__ = ["error_distribution"]

_WORDS = {
    "ulp": ("Errors in ulp", "error, in gaps of the format's grid at each value"),
    "relative": ("Relative errors", "|error| / |x|, two bins for each power of two"),
}


def error_distribution(
    x: Any,
    a: Cast | Format | str | None = None,
    b: Cast | Format | str | None = None,
    *,
    measure: str = "ulp",
    format: Format | str | None = None,
    seed: int | None = None,
    ax: Axes | None = None,
    title: str | None = None,
) -> Axes:
    """Draw how often each rounding error occurs, for one cast or for two on the same values.

    >>> import numpy as np
    >>> from fpemu.analysis import plots
    >>> x = np.random.default_rng(0).normal(size=10_000).astype(np.float32)
    >>> ax = plots.error_distribution(x, "e4m3fn", "e4m3fn:toward_zero")
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['float8_e4m3fn', 'float8_e4m3fn:toward_zero']

    x: an array of floats, or the record that `compute` made. a, b: casts. measure: "ulp", the
    signed error in gaps of the cast's own grid at |x| (or of `format`'s); "relative", |error| /
    |x| on a logarithmic axis. seed: for stochastic casts.
    Values without any error are in the middle bin in "ulp", and in none in "relative": a log axis
    has no zero. What is exact, off the axis or overflowed is said in the legend.
    """
    if not isinstance(x, ErrorDistribution):
        if a is None:
            raise InputError("error_distribution(x, a): give the cast whose errors are to be drawn")
        x = compute.error_distribution(x, a, b, measure=measure, format=format, seed=seed)
    marks = marks_of(len(x.labels), "casts")
    ax = axes_for(ax)
    words, axis = _WORDS[x.measure]
    set_title(ax, title or f"{words} of {' and '.join(x.labels)}")
    if not x.total:
        return nothing(ax, "no values recorded")
    percents = 100.0 * x.counts / x.total
    edges = np.log2(x.edges) if x.measure == "relative" else x.edges
    first, last = _used(x)
    handles = []
    for row, mark in enumerate(marks):
        look: dict[str, Any] = {"linestyle": mark.dash, "linewidth": 1.7}
        heights, ends = percents[row, first:last], edges[first : last + 1]
        ax.stairs(heights, ends, fill=True, facecolor=mark.colour, alpha=0.2)
        handles.append(ax.stairs(heights, ends, edgecolor=mark.colour, **look))
    ax.set_xlim(edges[first], edges[last])
    ax.set_ylim(0, 1.05 * max(percents.max(), 1e-9))
    if x.measure == "relative":
        low, high = math.floor(edges[first]), math.ceil(edges[last])
        ticks, labels = power_ticks(ax, low, high)
        ax.set_xticks(ticks, labels, **TEXT)
    set_xlabel(ax, axis)
    ax.set_ylabel("% of the values, each bin", **TEXT)
    legend_below(ax, handles, [_entry(x, row) for row in range(len(marks))])
    return ax


def _used(data: ErrorDistribution) -> tuple[int, int]:
    """The bins from the first to the last in use, with one more at each side."""
    used = np.flatnonzero(data.counts.any(0))
    if data.measure == "ulp":  # symmetric, half an ulp each way at least
        middle = len(data.edges) // 2 - 1
        reach = max(17, *(abs(int(k) - middle) + 1 for k in used)) if used.size else 17
        return max(middle - reach, 0), min(middle + reach + 1, len(data.edges) - 1)
    low, high = (int(used[0]), int(used[-1])) if used.size else (50, 60)
    return max(low - 1, 0), min(high + 2, len(data.edges) - 1)


def _entry(data: ErrorDistribution, row: int) -> str:
    """A cast's name, and what of it has no bin to be seen in."""
    off = data.below[row] + data.above[row]
    apart = [("exact", data.exact[row]), ("off the axis", off), ("not finite", data.nonfinite[row])]
    said = [f"{share(100.0 * count / data.total)} {what}" for what, count in apart if count]
    return ": ".join([data.labels[row], *([", ".join(said)] if said else [])])
