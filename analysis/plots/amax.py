"""The largest magnitude of each tensor by step, against the largest value of a format."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from fpemu.analysis.plots import compute
from fpemu.analysis.plots.compute import AmaxByStep
from fpemu.analysis.plots.figures import axes_for
from fpemu.analysis.plots.names import power, shorten_all
from fpemu.analysis.plots.rows import UNSCALED
from fpemu.analysis.plots.style import (
    GREY,
    MARKS,
    TEXT,
    inches,
    ink,
    legend_below,
    legend_room,
    nothing,
    power_ticks,
    set_title,
    set_xlabel,
    step_axis,
)
from fpemu.tallies import exponent_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from fpemu.analysis.plots.source import Source
    from fpemu.cast import Cast
    from fpemu.format import Format

__all__ = ["amax_by_step"]

_FAR = 40  #: binades above the data from which a limit is named and not drawn
_FEW = 60  #: steps up to which each is marked


def amax_by_step(
    source: Source | AmaxByStep,
    *,
    to: Cast | Format | str = "float16",
    scale: float = 1.0,
    ax: Axes | None = None,
    title: str | None = None,
    **selection: Any,
) -> Axes:
    """Draw the largest magnitude of each tensor by step, and how near a format's largest it comes.

    >>> import numpy as np
    >>> from fpemu.analysis import plots
    >>> run = {"layer": {step: np.float32([2.0**step]) for step in range(15)}}
    >>> ax = plots.amax_by_step(run, to="fp16")
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['layer', 'largest of float16: 65504', 'latent: within a binade of it']

    source: a Trace, or a mapping of name to {step: array}; selection: name=, kind=, step= of a
    Trace, and unscaled=False for gradients with the loss scale that they were recorded times,
    which is else taken out. scale: the power of two that the values would be multiplied by before
    the cast; the limit is divided by it.
    Of more than 8 tensors (fewer on low axes), the 7 that come nearest to the limit have a line
    each; the others are one grey band. The shaded zone is one binade below the limit. A cross at
    the top is a step at which a tensor held infinities or NaNs; its line shows the largest finite
    magnitude.
    """
    if not isinstance(source, AmaxByStep):
        source = compute.amax_by_step(source, to=to, scale=scale, **selection)
    ax = axes_for(ax, 8.0, 3.6 + 0.3 * min(len(source.labels), len(MARKS)))
    at = f" at scale {power(exponent_of(source.scale))}" if source.scale != 1.0 else ""
    set_title(ax, title or f"Largest magnitude by step, and the limit of {source.to}{at}")
    if not (source.amax > 0).any():
        return nothing(ax, "no non-zero values recorded")
    low, high = _set_y(ax, source)
    order = np.argsort(source.headroom, kind="stable")
    most = _room(ax)
    named = order if len(order) <= most else order[: most - 1]
    others = [int(row) for row in order if row not in named]
    handles = [_draw_line(ax, source, int(row), MARKS[k], high) for k, row in enumerate(named)]
    words, _ = shorten_all([source.labels[row] for row in named], legend_room(ax))
    if others:
        handles.append(_draw_others(ax, source, others))
        words.append(f"the {len(others)} others")
    more = _draw_limit(ax, source, low, high)
    step_axis(ax, source.steps)
    crosses = "×: infinities or NaNs at this step" if source.nonfinite.any() else ""
    set_xlabel(ax, "step", crosses, UNSCALED if source.unscaled else "")
    ax.set_ylabel("largest finite |x|", **TEXT)
    legend_below(ax, [*handles, *more[0]], [*words, *more[1]])
    return ax


def _room(ax: Axes) -> int:
    """How many tensors a legend has room for, beside the limit and the others."""
    tall = inches(ax)[1] / 0.77  # of the figure's part
    return int(np.clip((tall - 1.6) / 0.2 - 3, 2, len(MARKS)))


def _log2(values: Any) -> Any:
    return np.log2(np.where(values > 0, values, np.nan))


def _set_y(ax: Axes, data: AmaxByStep) -> tuple[int, int]:
    exponents, limit = _log2(data.amax), math.log2(data.limit)
    low, high = float(np.nanmin(exponents)), float(np.nanmax(exponents))
    if limit - high <= _FAR:
        low, high = min(low, limit - 2), max(high, limit)
    bottom, top = math.floor(low) - 1, math.ceil(high) + 2
    ax.set_ylim(bottom, top)
    ticks, labels = power_ticks(ax, bottom, top, upright=True)
    ax.set_yticks(ticks, labels, **TEXT)
    return bottom, top


def _draw_line(ax: Axes, data: AmaxByStep, row: int, mark: Any, high: int) -> Any:
    few = len(data.steps) <= _FEW
    look: dict[str, Any] = {"color": mark.colour, "linestyle": mark.dash, "linewidth": 1.7}
    there = ~np.isnan(data.amax[row])  # a step without a record does not break the line
    (line,) = ax.plot(
        np.array(data.steps)[there],
        _log2(data.amax[row, there]),
        marker=mark.marker if few else "",
        markersize=4,
        **look,
    )
    bad = np.array(data.steps)[data.nonfinite[row]]
    ax.plot(bad, np.full(len(bad), high - 0.5), "x", color=mark.colour, markersize=7, mew=2)
    return line


def _draw_others(ax: Axes, data: AmaxByStep, rows: Sequence[int]) -> Any:
    exponents = _log2(data.amax[rows])
    filled = np.where(np.isnan(exponents), np.inf, exponents).min(0)
    top = np.where(np.isnan(exponents), -np.inf, exponents).max(0)
    there = np.isfinite(filled)
    steps = np.array(data.steps)[there]
    return ax.fill_between(steps, filled[there], top[there], color=GREY, alpha=0.35, zorder=0.5)


def _draw_limit(ax: Axes, data: AmaxByStep, low: int, high: int) -> tuple[list[Any], list[str]]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    limit = math.log2(data.limit)
    name = f"largest of {data.to}: {data.limit:g}"
    if limit > high:
        return [Line2D([], [], linestyle="none")], [f"{name}, above this plot"]
    line = ax.axhline(limit, color=ink(), linewidth=1.8)
    look: dict[str, Any] = {"facecolor": MARKS[4].colour, "alpha": 0.3, "linewidth": 0}
    ax.axhspan(limit - 1, limit, zorder=0.3, **look)
    zone = Patch(**look)
    return [line, zone], [name, "latent: within a binade of it"]
