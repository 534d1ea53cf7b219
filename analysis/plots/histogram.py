"""The histogram of log2|x|, with the formats' ranges as bands."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import compress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fpemu.analysis.plots import compute
from fpemu.analysis.plots.compute import Band, ExponentHistogram
from fpemu.analysis.plots.compute.counts import FORMATS
from fpemu.analysis.plots.figures import axes_for
from fpemu.analysis.plots.names import arrow
from fpemu.analysis.plots.rows import UNSCALED
from fpemu.analysis.plots.style import (
    MARKS,
    TEXT,
    inches,
    ink,
    legend_below,
    nothing,
    power_ticks,
    set_title,
    set_xlabel,
)
from fpemu.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fpemu.analysis.plots.source import Source
    from fpemu.cast import Cast
    from fpemu.format import Format

__all__ = ["exponent_histogram"]


def exponent_histogram(
    source: Source | ExponentHistogram,
    *,
    formats: Iterable[Cast | Format | str] = FORMATS,
    ax: Axes | None = None,
    title: str = "How often each power of two occurs",
    log: bool = True,
    **selection: Any,
) -> Axes:
    """Draw how often each power of two occurs, with the formats' ranges above.

    >>> import numpy as np
    >>> from fpemu.analysis import plots
    >>> x = np.random.default_rng(0).normal(0, 2.0**-12, 10_000).astype(np.float32)
    >>> ax = plots.exponent_histogram({"gradient": x}, formats=["fp16", "e4m3fn"])
    >>> ax.get_ylabel()
    '% of all values'

    source: an array, a Tally, a mapping of them by name (one outline each, at most 8), or a Trace
    (one outline a kind); selection: name=, kind=, step= of a Trace, and unscaled=False for
    gradients with the loss scale that they were recorded times, which is else taken out.
    formats: names, Formats or Casts; a band is solid over the normal range and hatched over the
    subnormal one.
    log: a logarithmic axis, so that a tail of 0.01 % is seen.
    Zeros are a bin apart at the left, infinities and NaNs one at the right if there are any.
    Nothing recorded gives axes that say so.
    """
    if not isinstance(source, ExponentHistogram):
        source = compute.exponent_histogram(source, formats=formats, **selection)
    if len(source.labels) > len(MARKS):
        raise InputError(
            f"{len(source.labels)} tensors in one histogram: {len(MARKS)} can be told apart; "
            "give fewer, or use exponent_heatmap"
        )
    ax = axes_for(ax)
    set_title(ax, title)
    if not source.total.sum():
        return nothing(ax, "no values recorded")
    frame = _Frame.around(source)
    ax.set_xlim(*frame.limits)
    handles, lowest, highest = _draw_bins(ax, source, frame)
    strip = 0.21 / inches(ax)[1]  # for one band, as a fraction of the axes
    _set_height(ax, lowest, highest, 1 - strip * (len(source.bands) + 1), log)
    for row, band in enumerate(source.bands):
        _draw_band(ax, band, frame, 1 - strip * (row + 0.9), 0.75 * strip)
    _label(ax, frame, bool(source.bands), source.unscaled)
    if any(source.labels):
        legend_below(ax, handles, source.labels)
    return ax


class _Frame(NamedTuple):
    """Where things stand on the x axis, in binades."""

    low: int
    high: int
    bin: float  #: width of a bin apart
    nonfinite: bool  #: whether there is one for infinities and NaNs

    @classmethod
    def around(cls, data: ExponentHistogram) -> _Frame:
        """Take in all data and each format that is not too wide to show."""
        used = np.flatnonzero(data.counts.sum(0)) + data.binades[0]
        ends = [float(used[0]), float(used[-1]) + 1] if used.size else [-1.0, 1.0]
        for band in data.bands:
            if not band.wide:
                ends += [band.low, band.high]
        low, high = int(np.floor(min(ends))) - 1, int(np.ceil(max(ends))) + 1
        width = max(1.0, (high - low) / 24)
        return cls(low, high, width, bool((data.inf + data.nan).any()))

    @property
    def zero_at(self) -> float:
        return self.low - 1.5 * self.bin

    @property
    def nonfinite_at(self) -> float:
        return self.high + self.bin

    @property
    def limits(self) -> tuple[float, float]:
        right = self.nonfinite_at + 1.5 * self.bin if self.nonfinite else self.high
        return self.zero_at - 0.5 * self.bin, right


def _draw_bins(ax: Axes, data: ExponentHistogram, frame: _Frame) -> tuple[list[Any], float, float]:
    """Draw every bin in %; return what was drawn, the lowest above 0 and the highest."""
    whole = np.maximum(data.total, 1)[:, None] / 100
    columns = slice(frame.low - data.binades[0], frame.high - data.binades[0])
    inside = data.counts[:, max(columns.start, 0) : columns.stop] / whole
    first = max(frame.low, data.binades[0])
    edges = np.arange(first, first + inside.shape[1] + 1)
    apart = np.stack([data.zero, data.inf + data.nan], 1) / whole
    width = frame.bin / len(data.labels)
    handles = []
    for row, mark in enumerate(MARKS[: len(data.labels)]):
        handles.append(ax.stairs(inside[row], edges, **_look(mark, len(data.labels))))
        for left, height in zip((frame.zero_at, frame.nonfinite_at), apart[row], strict=True):
            if height:
                ax.bar(left + width * row, height, width, align="edge", color=mark.colour)
    shown = np.concatenate([inside.ravel(), apart.ravel()])
    return handles, float(shown[shown > 0].min()), float(shown.max())


def _look(mark: Any, tensors: int) -> dict[str, Any]:
    if tensors == 1:
        return {"facecolor": mark.colour, "fill": True}
    return {"edgecolor": mark.colour, "linestyle": mark.dash, "linewidth": 1.7}


def _set_height(ax: Axes, lowest: float, highest: float, part: float, log: bool) -> None:
    """Scale the y axis so that the highest bin reaches `part` of the way up."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

    part = max(part, 0.3)
    if log:
        bottom = lowest / 2
        ax.set_yscale("log", nonpositive="clip")
        ax.set_ylim(bottom, bottom * (highest / bottom) ** (1 / part))
        ax.yaxis.set_major_locator(FixedLocator(_log_ticks(bottom, highest)))
    else:
        ax.set_ylim(0, highest / part)
        ax.yaxis.set_major_locator(MaxNLocator(8, steps=[1, 2, 2.5, 5, 10]))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}" if y <= 100 else ""))


def _log_ticks(bottom: float, top: float) -> list[float]:
    """Powers of ten up to 100 %, at most ten; halves and fifths of them over a short way."""
    decades = range(math.floor(math.log10(bottom)), 3)
    if top < 100 * bottom:
        return [base * 10.0**k for k in decades for base in (1, 2, 5) if base * 10.0**k <= 100]
    return [10.0**k for k in decades[:: -(len(decades) // 10 + 1)]]


def _draw_band(ax: Axes, band: Band, frame: _Frame, y: float, tall: float) -> None:
    from matplotlib.patches import Rectangle

    ends = [band.low, band.normal, band.high]
    low, normal, high = (float(x) for x in np.clip(ends, frame.low, frame.high))
    look: dict[str, Any] = {"transform": ax.get_xaxis_transform(), "linewidth": 0.8}
    look["edgecolor"] = ink()
    ax.add_patch(Rectangle((normal, y), high - normal, tall, facecolor="#BBBBBB", **look))
    if normal > low:
        ax.add_patch(
            Rectangle((low, y), normal - low, tall, facecolor="none", hatch="////", **look)
        )
    before = arrow("←") + " " if band.low < frame.low else ""
    after = " " + arrow("→") if band.high > frame.high else ""
    _name_band(ax, before + band.name + after, (low, normal, high), y + tall / 2)


def _name_band(ax: Axes, name: str, ends: tuple[float, float, float], y: float) -> None:
    """Write a band's name inside its normal range, or beside it if that is too short."""
    low, normal, high = ends
    left, right = ax.get_xlim()
    room = 0.07 * len(name) * (right - left) / inches(ax)[0]
    if room <= high - normal:
        x, side, colour = (normal + high) / 2, "center", "black"
    elif room <= right - high:
        x, side, colour = high + 0.05 * room, "left", ink()
    else:
        x, side, colour = low - 0.05 * room, "right", ink()
    place: dict[str, Any] = {"transform": ax.get_xaxis_transform(), "ha": side, "va": "center"}
    ax.text(x, y, name, fontsize="x-small", color=colour, **place, **TEXT)


def _label(ax: Axes, frame: _Frame, bands: bool, unscaled: bool) -> None:
    ticks, labels = power_ticks(ax, frame.low, frame.high)
    # a power beside the zero bin would be written over its label
    clear = [k > frame.zero_at + 0.06 * (frame.high - frame.zero_at) for k in ticks]
    ticks, labels = list(compress(ticks, clear)), list(compress(labels, clear))
    ticks, labels = [frame.zero_at + frame.bin / 2, *ticks], ["zero", *labels]
    if frame.nonfinite:
        ticks, labels = [*ticks, frame.nonfinite_at + frame.bin / 2], [*labels, "inf,\nNaN"]
    ax.set_xticks(ticks, labels, **TEXT)
    key = "bands: solid = normal range, hatched = subnormal range" if bands else ""
    set_xlabel(ax, "|x|, one bin for each power of two", key, UNSCALED if unscaled else "")
    ax.set_ylabel("% of all values", **TEXT)
