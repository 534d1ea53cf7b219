"""Lost values against the scale they are multiplied by before the cast."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from fpemu.analysis.plots import compute
from fpemu.analysis.plots.compute import LostByScale
from fpemu.analysis.plots.compute.counts import FORMATS
from fpemu.analysis.plots.figures import axes_for
from fpemu.analysis.plots.names import power
from fpemu.analysis.plots.rows import UNSCALED
from fpemu.analysis.plots.style import (
    GREY,
    MARKS,
    TEXT,
    ink,
    legend_below,
    nothing,
    power_ticks,
    set_title,
    set_xlabel,
)
from fpemu.analysis.scales import SCALES, TOLERANCE
from fpemu.analysis.shown import share
from fpemu.errors import InputError
from fpemu.tallies import exponent_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fpemu.analysis.plots.source import Source
    from fpemu.analysis.scales import SafeScales
    from fpemu.cast import Cast
    from fpemu.format import Format

__all__ = ["lost_by_scale"]


def lost_by_scale(
    source: Source | LostByScale,
    *,
    formats: Iterable[Cast | Format | str] = FORMATS,
    scales: Iterable[float] = SCALES,
    tolerance: float = TOLERANCE,
    ax: Axes | None = None,
    title: str = "Values lost at each scale",
    **selection: Any,
) -> Axes:
    """Draw what each format would lose at each power-of-two scale, and which scales are safe.

    >>> import numpy as np
    >>> from fpemu.analysis import plots
    >>> x = np.random.default_rng(0).normal(0, 2.0**-18, 10_000).astype(np.float32)
    >>> ax = plots.lost_by_scale(x, formats=["fp16", "e5m2"])
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['float16: best 2¹⁷', 'float8_e5m2: best 2²¹']

    source: an array, a Tally, a mapping of them or a Trace, all taken together; selection: name=,
    kind=, step= of a Trace, and unscaled=False for gradients with the loss scale that they were
    recorded times, which is else taken out. formats: at most 8 names, Formats or Casts.
    scales: powers of two that the values are multiplied by before the cast.
    Lost: became zero, was clamped, became infinite or NaN, or has a sign that the format lacks;
    in % of the finite non-zero values, linear up to a tenth of the tolerance, logarithmic above.
    Bars under the axis shade the scales at which no tensor loses more than the tolerance (a
    fraction) and nothing overflows; a star marks the best scale; both are
    `fpemu.analysis.scales.safe_scales`' choice.
    """
    if not isinstance(source, LostByScale):
        source = compute.lost_by_scale(
            source, formats=formats, scales=scales, tolerance=tolerance, **selection
        )
    if len(source.labels) > len(MARKS):
        raise InputError(
            f"{len(source.labels)} formats in one plot: {len(MARKS)} can be told apart; give fewer"
        )
    ax = axes_for(ax, 8.0, 4.0 + 0.15 * len(source.labels))
    set_title(ax, title)
    if not source.nonzero or not source.labels:
        return nothing(ax, "no non-zero values recorded" if source.labels else "no format given")
    low, high = (exponent_of(source.scales[end]) for end in (0, -1))
    ax.set_xlim(low - 0.5, high + 0.5)
    _scale_y(ax, source.tolerance)
    handles = [_draw_line(ax, source, row) for row in range(len(source.labels))]
    _draw_tolerance(ax, source.tolerance)
    ticks, labels = power_ticks(ax, low, high)
    ax.set_xticks(ticks, labels, **TEXT)
    several = f"lines: all {source.tensors} tensors together; bars: safe for each of them"
    key = several if source.tensors > 1 else ""
    words = "scale that multiplies the values before the cast"
    set_xlabel(ax, words, key, UNSCALED if source.unscaled else "")
    ax.set_ylabel("lost, % of non-zero values", **TEXT)
    legend_below(ax, handles, list(map(_entry, source.labels, source.safe)))
    return ax


def _entry(label: str, safe: SafeScales) -> str:
    best = power(exponent_of(safe.best))
    return f"{label}: best {best}" if safe.safe else f"{label}: none is safe, best {best}"


def _scale_y(ax: Axes, tolerance: float) -> None:
    """Zero to 100 %: linear up to a tenth of the tolerance; the bars stand below zero."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    linear = _linear(tolerance)
    ax.set_yscale("symlog", linthresh=linear, linscale=1.0)
    ax.set_ylim(-linear, 150)
    decades = [10.0**k for k in range(-9, 3) if 10.0**k >= linear]
    ax.yaxis.set_major_locator(FixedLocator([-linear / 2, 0.0, *decades]))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(FuncFormatter(lambda y, _: "safe" if y < 0 else f"{y:g}"))


def _linear(tolerance: float) -> float:
    return max(10 * tolerance, 1e-6)  # % up to which the axis is linear


def _draw_line(ax: Axes, data: LostByScale, row: int) -> Any:
    mark, best = MARKS[row], data.safe[row].best
    exponents = [exponent_of(scale) for scale in data.scales]
    percents = 100.0 * data.share[row]
    (line,) = ax.plot(
        exponents,
        percents,
        color=mark.colour,
        linestyle=mark.dash,
        marker=mark.marker,
        markersize=4,
    )
    at = data.scales.index(best)
    look: dict[str, Any] = {"color": mark.colour, "markeredgecolor": ink(), "zorder": 5}
    ax.plot(exponents[at], percents[at], "*", markersize=15, **look)
    _draw_safe(ax, data, row)
    return line


def _draw_safe(ax: Axes, data: LostByScale, row: int) -> None:
    """Shade the safe scales as a bar in the space below zero."""
    safe, tall = data.safe[row], _linear(data.tolerance) / len(data.labels)
    if safe.low is None or safe.high is None:
        return
    left, right = exponent_of(safe.low) - 0.5, exponent_of(safe.high) + 0.5
    look: dict[str, Any] = {"color": MARKS[row].colour, "alpha": 0.6, "linewidth": 0}
    ax.barh(-(row + 0.5) * tall, right - left, 0.8 * tall, left, **look)


def _draw_tolerance(ax: Axes, tolerance: float) -> None:
    ax.axhline(0, color=GREY, linewidth=0.8)
    ax.axhline(100 * tolerance, color=GREY, linestyle="dashed", linewidth=1)
    ax.text(
        0.995,
        100 * tolerance,
        f"tolerance {share(100 * tolerance)}",
        ha="right",
        va="bottom",
        fontsize="x-small",
        color=GREY,
        transform=ax.get_yaxis_transform(),
        **TEXT,
    )
