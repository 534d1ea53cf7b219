"""Style: colours, line marks, ticks, legends.

No text is parsed as mathematics or TeX: a layer may be called `$x_^`.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from fpemu.analysis.plots.names import plain, power, shorten_all
from fpemu.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "GREY",
    "MARKS",
    "TEXT",
    "Mark",
    "edged",
    "inches",
    "ink",
    "legend_below",
    "legend_room",
    "marks_of",
    "nothing",
    "power_ticks",
    "set_title",
    "set_xlabel",
    "step_axis",
    "thin",
]

#: Passed to every text that may hold a name.
TEXT: dict[str, Any] = {"parse_math": False, "usetex": False}

GREY = "#8c8c8c"  #: readable on white and on black


class Mark(NamedTuple):
    """How one of several formats or tensors looks: no two share a colour, marker or dash."""

    colour: str
    marker: str
    dash: Any


#: Okabe and Ito's colours (jfly.uni-koeln.de/color), told apart by the colour-blind; their yellow
#: is left out (too pale on white) and so is their black (lost on dark styles).
MARKS = (
    Mark("#0072B2", "o", "solid"),
    Mark("#D55E00", "s", (0, (5, 1.5))),
    Mark("#009E73", "^", (0, (4, 1, 1, 1))),
    Mark("#CC79A7", "D", (0, (1, 1))),
    Mark("#E69F00", "v", (0, (7, 1, 1, 1, 1, 1))),
    Mark("#56B4E9", "P", (0, (3, 1))),
    Mark("#7F3C00", "X", (0, (8, 2))),
    Mark("#999999", "*", (0, (1, 2))),
)


def ink() -> Any:
    """Return the text colour in force (black, unless the user's matplotlib style says else)."""
    import matplotlib

    return matplotlib.rcParams["text.color"]


def edged(width: float, colour: Any = "white") -> list[Any]:
    """Return the path effects of a line with an edge, which keeps it visible on any colour."""
    from matplotlib.patheffects import Normal, Stroke

    return [Stroke(linewidth=width, foreground=colour), Normal()]


def thin(count: int, room: int) -> Sequence[int]:
    """Return evenly spaced indices below `count`, at most `room` of them, always with 0.

    >>> from fpemu.analysis.plots.style import thin
    >>> list(thin(500, 30))[:4]
    [0, 20, 40, 60]
    """
    if count <= max(room, 1):
        return range(count)
    steps = (base * scale for scale in (10**i for i in range(12)) for base in (1, 2, 5))
    return range(0, count, next(step for step in steps if step * max(room, 1) >= count))


def inches(ax: Axes) -> tuple[float, float]:
    """Return the width and height of an Axes in inches."""
    figure = ax.figure
    assert figure is not None
    box = ax.get_window_extent()
    return box.width / figure.dpi, box.height / figure.dpi


def marks_of(count: int, what: str) -> tuple[Mark, ...]:
    """Return a mark for each of `count` lines; more than can be told apart are refused."""
    if count > len(MARKS):
        raise InputError(f"{count} {what} in one plot: {len(MARKS)} can be told apart; give fewer")
    return MARKS[:count]


def power_ticks(
    ax: Axes, low: int, high: int, *, upright: bool = False
) -> tuple[list[float], list[str]]:
    """Return ticks for the powers of two from `low` to `high`, as many as can be read.

    upright: for the y axis.
    """
    room = max(2, int(inches(ax)[upright] / (0.3 if upright else 0.55)))
    step = next(s for s in (1, 2, 4, 8, 16, 32, 64) if (high - low) / s <= room or s == 64)
    ticks = range(-(-low // step) * step, high + 1, step)
    return [float(k) for k in ticks], [power(k) for k in ticks]


def step_axis(ax: Axes, steps: Sequence[int]) -> None:
    """Fit the x axis to steps, with whole numbers as ticks."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    low, high = min(steps), max(steps)
    margin = 0.02 * (high - low) or 0.5
    ax.set_xlim(low - margin, high + margin)
    ax.xaxis.set_major_locator(MaxNLocator(max(2, int(inches(ax)[0] / 0.9)), integer=True))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:.0f}"))


def legend_room(ax: Axes) -> int:
    """Return how many letters an entry of a legend may have."""
    return min(64, max(24, int(14 * inches(ax)[0])))


def legend_below(ax: Axes, handles: Sequence[Any], labels: Sequence[str]) -> None:
    """Put a legend under the x axis' label, where it hides nothing, with any names.

    matplotlib drops labels that begin with _, so the names are set afterwards.
    """
    from matplotlib.transforms import ScaledTranslation

    figure: Any = ax.figure
    ticks = max((text.get_text().count("\n") for text in ax.get_xticklabels()), default=0)
    lines = ticks + ax.get_xlabel().count("\n")
    below = ScaledTranslation(0, -0.5 - 0.16 * lines, figure.dpi_scale_trans)
    names, _ = shorten_all(labels, legend_room(ax))
    columns = max(1, int(inches(ax)[0] / (0.5 + 0.063 * max(map(len, names)))))
    drawn = ax.legend(
        handles,
        [str(row) for row in range(len(handles))],
        loc="upper left",
        bbox_to_anchor=(0, 0),
        bbox_transform=ax.transAxes + below,
        ncols=min(columns, len(names)),
        fontsize="small",
        frameon=False,
        borderaxespad=0,
    )
    for text, name in zip(drawn.get_texts(), names, strict=True):
        text.set(text=name, **TEXT)


def set_title(ax: Axes, title: str) -> None:
    """Set the title at the left, wrapped to the axes' width."""
    lines = _wrap(plain(title), inches(ax)[0] * 10)[:3]
    ax.set_title("\n".join(lines), loc="left", fontsize="large", **TEXT)


def set_xlabel(ax: Axes, *parts: str) -> None:
    """Label the x axis, each part on lines of its own, wrapped to the axes' width.

    More than two lines are set smaller: they are there to be looked up.
    """
    lines = [line for part in parts for line in _wrap(part, inches(ax)[0] * 12)]
    size = "medium"
    if len(lines) > 2:
        lines = [line for part in parts for line in _wrap(part, inches(ax)[0] * 14.5)]
        size = "small"
    ax.set_xlabel("\n".join(lines), fontsize=size, **TEXT)


def _wrap(text: str, width: float) -> list[str]:
    return textwrap.wrap(text, max(20, int(width)))


def nothing(ax: Axes, message: str) -> Axes:
    """Say in place of a plot why there is none."""
    ax.set_xticks([])
    ax.set_yticks([])
    ax.text(0.5, 0.5, message, ha="center", va="center", transform=ax.transAxes, **TEXT)
    return ax
