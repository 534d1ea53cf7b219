"""SQNR, signal to quantization noise: against the scale, and layer by layer."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from fpemu.analysis.plots import compute
from fpemu.analysis.plots.compute import SqnrByLayer, SqnrByScale
from fpemu.analysis.plots.compute.counts import FORMATS, check_count
from fpemu.analysis.plots.figures import axes_for
from fpemu.analysis.plots.names import power
from fpemu.analysis.plots.rows import UNSCALED, label_rows, row_height
from fpemu.analysis.plots.style import (
    GREY,
    MARKS,
    TEXT,
    Mark,
    ink,
    legend_below,
    marks_of,
    nothing,
    power_ticks,
    set_title,
    set_xlabel,
)
from fpemu.analysis.scales import SCALES
from fpemu.tallies import exponent_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fpemu.analysis.asked import Asked
    from fpemu.analysis.plots.compute.counts import Shares
    from fpemu.analysis.plots.compute.sqnr import Levels
    from fpemu.analysis.plots.source import Source
    from fpemu.cast import Cast
    from fpemu.format import Format

__all__ = ["sqnr_by_layer", "sqnr_by_scale"]

_PREDICTED = "predicted from counts"


def sqnr_by_scale(
    source: Source | SqnrByScale,
    *,
    formats: Iterable[Cast | Format | str] = FORMATS,
    scales: Iterable[float] = SCALES,
    seed: int | None = None,
    ax: Axes | None = None,
    title: str | None = None,
    **selection: Any,
) -> Axes:
    """Draw the signal-to-noise ratio that each format would give at each power-of-two scale.

    >>> import numpy as np
    >>> from fpemu.analysis import plots
    >>> x = np.random.default_rng(0).normal(0, 2.0**-18, 1000).astype(np.float32)
    >>> ax = plots.sqnr_by_scale(x, formats=["fp16", "e4m3fn"])
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['float16: best 73.6 dB at 2¹⁹', 'float8_e4m3fn: best 31.5 dB at 2¹⁹']

    source: an array or a mapping of arrays, which are measured exactly; a Tally or a Trace, from
    whose counts the ratio is predicted, which the title says; all taken together.
    selection: name=, kind=, step= of a Trace, and unscaled=False for gradients with the loss scale
    that they were recorded times, which is else taken out. formats: at most 8; seed: for stochastic
    casts of arrays. scales: powers of two that the values are multiplied by before the cast.
    A star marks the best scale. A line ends where a value overflows to infinity or NaN, the noise
    being infinite there; a triangle at the top is no error at all.
    """
    if not isinstance(source, SqnrByScale):
        source = compute.sqnr_by_scale(
            source, formats=formats, scales=scales, seed=seed, **selection
        )
    marks = marks_of(len(source.labels), "formats")
    ax = axes_for(ax, 8.0, 4.0 + 0.15 * len(source.labels))
    said = "" if source.exact else f", {_PREDICTED}"
    set_title(ax, title or f"Signal to quantization noise at each scale{said}")
    if not source.labels or np.isnan(source.sqnr).all():
        return nothing(ax, "no non-zero values recorded" if source.labels else "no format given")
    low, high = (exponent_of(source.scales[end]) for end in (0, -1))
    ax.set_xlim(low - 0.5, high + 0.5)
    top = _set_height(ax, source.sqnr)
    handles = [_draw_line(ax, source, row, mark, top) for row, mark in enumerate(marks)]
    ticks, labels = power_ticks(ax, low, high)
    ax.set_xticks(ticks, labels, **TEXT)
    several = f"all {source.tensors} tensors together" if source.tensors > 1 else ""
    words = "scale before the cast; a line ends where a value overflows"
    set_xlabel(ax, words, several, UNSCALED if source.unscaled else "")
    ax.set_ylabel("SQNR, dB" + ("" if source.exact else " (predicted)"), **TEXT)
    legend_below(ax, handles, [_entry(source, row) for row in range(len(marks))])
    return ax


def sqnr_by_layer(
    source: Source | Levels | SqnrByLayer,
    *,
    to: Asked = "float16",
    scale: float = 1.0,
    worst: int = 40,
    seed: int | None = None,
    ax: Axes | None = None,
    title: str | None = None,
    **selection: Any,
) -> Axes:
    """Draw the signal-to-noise ratio of each tensor through a format, the worst first.

    >>> import numpy as np
    >>> from fpemu.analysis import plots
    >>> x = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    >>> ax = plots.sqnr_by_layer({"fc1": x, "fc2": x * 2.0**-20}, to="fp16")
    >>> [text.get_text() for text in ax.get_yticklabels()]
    ['fc2', 'fc1']

    source: a mapping of arrays by name, which are measured; a Trace, from whose counts the ratio
    is predicted; or a mapping of decibels by name. to: a cast, or a recipe, which a Trace has
    counted (`watch(..., recipes=)`) and whose noise is measured. selection: as `sqnr_by_scale`.
    scale: the power of two that the values are multiplied by before the cast.
    worst: how many rows are drawn; what the others come to is said below. A cross at the left is
    an overflow to infinity or NaN, a triangle at the right is no error at all.
    """
    if not isinstance(source, SqnrByLayer):
        source = compute.sqnr_by_layer(source, to=to, scale=scale, seed=seed, **selection)
    shown = min(check_count(worst, "worst"), len(source.labels))
    ax = axes_for(ax, 8.0, row_height(shown))
    set_title(ax, title or _title(source))
    if not source.labels:
        return nothing(ax, "no non-zero values recorded")
    left, right = _set_width(ax, source.sqnr[:shown])
    rows, levels = np.arange(shown), source.sqnr[:shown]
    kept = np.isfinite(levels)
    mark = MARKS[0]
    ax.hlines(rows[kept], left, levels[kept], color=GREY, linewidth=1)
    ax.plot(levels[kept], rows[kept], mark.marker, color=mark.colour, markersize=5)
    for what, at, sign in ((np.isneginf, left, "x"), (np.isposinf, right, ">")):
        there = rows[what(levels)]
        ax.plot(
            np.full(len(there), at), there, sign, color=MARKS[1].colour, markersize=8, mew=2,
            clip_on=False, zorder=5,
        )  # fmt: skip
    ax.set_ylim(shown - 0.5, -0.5)
    label_rows(ax, source.labels[:shown], middle=0.0)
    words = "SQNR, dB" + ("" if source.exact else " (predicted)")
    set_xlabel(ax, words, _signs(levels), _rest(source, shown), UNSCALED if source.unscaled else "")
    return ax


def _set_height(ax: Axes, levels: Shares) -> float:
    finite = levels[np.isfinite(levels)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 10.0)
    low, high = min(low, 0.0), max(high, 10.0)
    top = high + 0.08 * (high - low)
    ax.set_ylim(low - 0.03 * (high - low), top)
    ax.axhline(0, color=GREY, linewidth=0.8)
    return top


def _draw_line(ax: Axes, data: SqnrByScale, row: int, mark: Mark, top: float) -> Any:
    exponents = np.array([exponent_of(scale) for scale in data.scales])
    levels = np.where(np.isfinite(data.sqnr[row]), data.sqnr[row], np.nan)
    look: dict[str, Any] = {"color": mark.colour}
    (line,) = ax.plot(
        exponents, levels, linestyle=mark.dash, marker=mark.marker, markersize=4, **look
    )
    perfect = np.isposinf(data.sqnr[row])
    ax.plot(exponents[perfect], np.full(perfect.sum(), top), "^", clip_on=False, **look)
    best = data.scales.index(data.best[row])
    ax.plot(
        exponents[best], levels[best], "*", markersize=15, markeredgecolor=ink(), zorder=5, **look
    )
    return line


def _entry(data: SqnrByScale, row: int) -> str:
    best = data.scales.index(data.best[row])
    level = data.sqnr[row, best]
    if level == -math.inf:
        return f"{data.labels[row]}: overflows at each scale"
    known = "no error" if level == math.inf else f"best {_level(level)} dB"
    return f"{data.labels[row]}: {known} at {power(exponent_of(data.best[row]))}"


def _title(data: SqnrByLayer) -> str:
    at = f" at scale {power(exponent_of(data.scale))}" if data.scale != 1.0 else ""
    said = "" if data.exact else f", {_PREDICTED}"
    return f"Signal to quantization noise{f' in {data.to}{at}' if data.to else ''}{said}"


def _set_width(ax: Axes, levels: Shares) -> tuple[float, float]:
    finite = levels[np.isfinite(levels)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 10.0)
    left, right = min(low - 2, 0.0), max(high * 1.05, high + 2, 10.0)
    ax.set_xlim(left, right)
    return left, right


def _signs(levels: Shares) -> str:
    signs = ["× overflow to infinity or NaN"] * bool(np.isneginf(levels).any())
    signs += ["▶ no error"] * bool(np.isposinf(levels).any())
    return ", ".join(signs)


def _rest(data: SqnrByLayer, shown: int) -> str:
    others = data.sqnr[shown:]
    if not others.size:
        return ""
    low, high = (_level(float(others[end])) for end in (0, -1))
    return f"the worst {shown}; the {others.size} others: {low} to {high} dB"


def _level(level: float) -> str:
    signs = {math.inf: "∞", -math.inf: "-∞"}
    return signs.get(level) or f"{round(level, 1) + 0.0:.1f}"  # -0.0 is 0.0
