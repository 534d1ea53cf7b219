"""The staircase of a format, with the error below."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from fpemu.analysis.plots import compute
from fpemu.analysis.plots.compute import Staircase
from fpemu.analysis.plots.figures import axes_for
from fpemu.analysis.plots.names import power
from fpemu.analysis.plots.style import (
    GREY,
    MARKS,
    TEXT,
    inches,
    legend_below,
    set_title,
    set_xlabel,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fpemu.cast import Cast
    from fpemu.format import Format

__all__ = ["staircase"]

_PART = 0.3  #: of the height, for the error


def staircase(
    to: Cast | Format | str | Staircase,
    *,
    low: float | None = None,
    high: float | None = None,
    ax: Axes | None = None,
    title: str | None = None,
) -> Axes:
    """Draw what each number becomes in a format, its subnormals seen from near, with the error.

    >>> from fpemu.analysis import plots
    >>> ax = plots.staircase("e4m3fn")
    >>> ax.get_title(loc="left"), len(ax.child_axes)
    ('Staircase of float8_e4m3fn', 1)

    to: a format's name, a Format or a Cast (other roundings and flushed subnormals show).
    low, high: the numbers between which; unless given, from 0 to four times the smallest normal
    value, or so far that 48 steps are seen.
    The subnormal range is shaded; the thin line is x itself. The error, in units of the smallest
    gap between values, stands in an Axes of its own at the foot (`ax.child_axes[0]`). Where the
    cast gives no finite value there is nothing.
    """
    if not isinstance(to, Staircase):
        to = compute.staircase(to, low=low, high=high)
    ax = axes_for(ax, 8.0, 5.5)
    set_title(ax, title or f"Staircase of {to.to}")
    finite = np.isfinite(to.rounded)
    rounded = np.where(finite, to.rounded, np.nan)
    (line,) = ax.plot(to.x, rounded, color=MARKS[0].colour, linewidth=1.8)
    ends = [to.low, to.high]
    (same,) = ax.plot(ends, ends, color=GREY, linewidth=1)
    span = to.high - to.low
    bottom, top = float(np.nanmin([*rounded, to.low])), float(np.nanmax([*rounded, to.high]))
    room = (top - bottom) * (_PART + 0.06) / (1 - _PART - 0.06)
    ax.set_xlim(to.low - 0.01 * span, to.high + 0.01 * span)
    ax.set_ylim(bottom - room, top + 0.04 * (top - bottom))
    ticks = _ticks(to, max(2, int(inches(ax)[0] / 0.8)))
    names = [_name(tick, to) for tick in ticks]
    ax.set_xticks(ticks, names, **TEXT)
    few = _ticks(to, max(2, int(inches(ax)[1] * (1 - _PART) / 0.3)))
    ax.set_yticks(few, [_name(tick, to) for tick in few], **TEXT)
    handles: list[Any] = [line, same]
    words = [to.to, "x itself"]
    if to.low < to.normal and to.ulp < to.normal:
        left, right = max(to.low, -to.normal), min(to.high, to.normal)
        handles.append(ax.axvspan(left, right, color=MARKS[1].colour, alpha=0.12, linewidth=0))
        words.append(f"subnormal: below {_name(to.normal, to)}")
    _draw_error(ax, to)
    set_xlabel(ax, "x")
    ax.set_ylabel("x in the format", loc="top", **TEXT)
    legend_below(ax, handles, words)
    return ax


def _draw_error(ax: Axes, data: Staircase) -> None:
    """Draw the error in the foot of the axes, on an axis of its own."""
    below = ax.inset_axes((0.0, 0.0, 1.0, _PART))
    below.set_facecolor("none")
    errors = np.where(np.isfinite(data.error), data.error, np.nan) / data.ulp
    below.plot(data.x, errors, color=MARKS[1].colour, linewidth=1.3)
    below.axhline(0, color=GREY, linewidth=0.8)
    below.set_xlim(ax.get_xlim())
    most = float(np.nanmax(np.abs(errors), initial=0.5))
    below.set_ylim(-1.15 * most, 1.15 * most)
    below.tick_params(labelbottom=False, bottom=False, labelright=True, right=True)
    below.tick_params(labelleft=False, left=False)
    half = most if most < 1 else math.floor(most)
    below.set_yticks([-half, 0, half], [f"{tick:+g}" if tick else "0" for tick in (-half, 0, half)])
    below.yaxis.set_label_position("right")
    below.set_ylabel(f"error / {_name(data.ulp, data)}", fontsize="small", **TEXT)


def _ticks(data: Staircase, room: int) -> list[float]:
    """Multiples of a power of two, as many as there is room for."""
    step = 2.0 ** math.ceil(math.log2((data.high - data.low) / room))
    count = range(math.ceil(data.low / step), math.floor(data.high / step) + 1)
    return [k * step for k in count]


def _name(value: float, data: Staircase) -> str:
    """A number as odd · 2^k, or plainly where that is short."""
    if 8 * value == int(8 * value) and abs(value) < 10_000:
        return f"{value:.6g}"
    significand, exponent = math.frexp(value)
    odd = int(math.ldexp(significand, 24))
    while odd % 2 == 0:
        odd //= 2
    exponent = round(math.log2(abs(value) / abs(odd)))
    return power(exponent) if odd == 1 else f"{odd}·{power(exponent)}"
