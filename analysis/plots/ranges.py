"""The range of each layer's numbers, forward and backward, over the whole network."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from fpemu.analysis.plots import compute
from fpemu.analysis.plots.compute import ScalePlot
from fpemu.analysis.plots.figures import axes_for
from fpemu.analysis.plots.names import power
from fpemu.analysis.plots.rows import UNSCALED, label_rows, limits_of, row_height
from fpemu.analysis.plots.style import (
    TEXT,
    Mark,
    inches,
    ink,
    legend_below,
    marks_of,
    nothing,
    power_ticks,
    set_title,
    set_xlabel,
)
from fpemu.tallies import exponent_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fpemu.analysis.plots.source import Source
    from fpemu.cast import Cast
    from fpemu.format import Format

__all__ = ["scale_plot"]


def scale_plot(
    source: Source | ScalePlot,
    *,
    to: Cast | Format | str | None = "float16",
    scale: float = 1.0,
    kinds: str | Iterable[str] | None = None,
    ax: Axes | None = None,
    title: str | None = None,
    **selection: Any,
) -> Axes:
    """Draw how far each layer's numbers reach, forward and backward, with a format's limits.

    >>> import numpy as np
    >>> from fpemu.analysis import plots
    >>> layers = {f"layer{i}": np.float32([2.0**-i, 1, 0]) for i in range(3)}
    >>> ax = plots.scale_plot(layers, to="fp16")
    >>> [text.get_text() for text in ax.get_yticklabels()]
    ['layer0', 'layer1', 'layer2']

    source: a Trace (activations and their gradients, or weights and theirs; or the kinds= given),
    a mapping of arrays by name; selection: name=, kind=, step= of a Trace, and unscaled=False for
    gradients with the loss scale that they were recorded times, which is else taken out.
    A row is a layer, in the order of the network. A bar, or a shaded band where rows are many,
    reaches from the smallest non-zero magnitude to the largest over all steps; the mark is the
    root of the mean square. Zeros, infinities and NaNs are left out.
    to: lines mark this format's smallest value, smallest normal and largest value, moved by scale,
    a power of two that the values would be multiplied by before the cast; None for no lines.
    """
    if not isinstance(source, ScalePlot):
        source = compute.scale_plot(source, to=to, scale=scale, kinds=kinds, **selection)
    marks = marks_of(len(source.kinds), "kinds")
    ax = axes_for(ax, 8.0, 0.4 + row_height(len(source.labels)))
    set_title(ax, title or _title(source))
    if not np.isfinite(source.amax).any():
        return nothing(ax, "no non-zero values recorded")
    low, high = _binades(source)
    ax.set_xlim(low, high)
    ax.set_ylim(len(source.labels) - 0.5, -0.5)
    handles = [_draw_kind(ax, source, row, mark) for row, mark in enumerate(marks)]
    words = [kind.replace("_", " ") or "values" for kind in source.kinds]
    if source.band:
        more = limits_of(
            ax, source.band, exponent_of(source.scale), (low, high), ink(), ax.get_facecolor()
        )
        handles, words = handles + more[0], words + more[1]
    label_rows(ax, source.labels, middle=0.0)
    ticks, labels = power_ticks(ax, low, high)
    ax.set_xticks(ticks, labels, **TEXT)
    key = "|x| from the smallest non-zero to the largest; mark: root mean square"
    set_xlabel(ax, key, UNSCALED if source.unscaled else "")
    legend_below(ax, handles, words)
    return ax


def _title(data: ScalePlot) -> str:
    at = f" at scale {power(exponent_of(data.scale))}" if data.scale != 1.0 else ""
    return f"Range of each layer{f'; lines: {data.band.name}{at}' if data.band else ''}"


def _binades(data: ScalePlot) -> tuple[int, int]:
    """From below the lowest to above the highest of the data and of the format's range."""
    ends = [*np.log2(data.smallest[data.smallest > 0]), *np.log2(data.amax[data.amax > 0])]
    if data.band and not data.band.wide:
        shift = exponent_of(data.scale)
        ends += [data.band.low - shift, data.band.high - shift]
    return int(np.floor(min(ends))) - 1, int(np.ceil(max(ends))) + 1


def _draw_kind(ax: Axes, data: ScalePlot, row: int, mark: Mark) -> Any:
    """Draw one kind's extents, beside those of the others while there is room for each."""
    from matplotlib.lines import Line2D

    kinds, layers = len(data.kinds), len(data.labels)
    low, rms, high = (np.log2(a[row]) for a in (data.smallest, data.rms, data.amax))
    at = np.arange(layers) + 0.5 * ((row + 0.5) / kinds - 0.5)
    room = 72 * inches(ax)[1] / layers / kinds  # points
    look: dict[str, Any] = {"color": mark.colour}
    if room >= 4:
        width = min(4.0, 0.35 * room)
        ax.hlines(at, low, high, alpha=0.45, linewidth=width, **look)
        ax.plot(rms, at, mark.marker, markersize=min(6.0, 0.6 * room), **look)
        return Line2D([], [], marker=mark.marker, markersize=5, linewidth=width, **look)
    ax.fill_betweenx(np.arange(layers), low, high, alpha=0.25, linewidth=0, **look)
    ax.plot(rms, np.arange(layers), linestyle=mark.dash, linewidth=1.5, **look)
    return Line2D([], [], linestyle=mark.dash, linewidth=1.5, **look)
