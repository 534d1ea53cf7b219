"""How large updates are beside their weights, and where a format begins to lose them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fpemu.analysis.plots import compute
from fpemu.analysis.plots.compute.updates import UpdateRatio
from fpemu.analysis.plots.figures import axes_for
from fpemu.analysis.plots.names import power
from fpemu.analysis.plots.style import (
    MARKS,
    TEXT,
    edged,
    legend_below,
    nothing,
    power_ticks,
    set_title,
    set_xlabel,
)
from fpemu.analysis.shown import share

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fpemu.analysis.plots.compute.updates import Updates

__all__ = ["update_ratio"]

#: Below 2^-8 an update may be less than half a gap of bfloat16, below 2^-11 of float16 and tf32.
_GUIDES = ((-8, "bfloat16", MARKS[1]), (-11, "float16", MARKS[2]))


def update_ratio(
    source: Updates | UpdateRatio,
    *,
    ax: Axes | None = None,
    title: str = "Updates beside their weights",
    **selection: Any,
) -> Axes:
    """Draw how large updates are beside their weights, and what share of them formats lose.

    >>> import numpy as np
    >>> from fpemu.analysis import plots
    >>> weight = np.full(4, 0.5, np.float32)
    >>> ax = plots.update_ratio({"fc1": (weight, weight * np.float32(2.0**-10))})
    >>> [text.get_text() for text in ax.get_legend().get_texts()][1]
    '2⁻⁸, bfloat16: loses 100 %, 87.5 % if stochastic'

    source: a Trace whose updates were counted (`watch` does where it records updates), an
    UpdateTally, or a dict of name -> UpdateTally or (weight, update); all taken together;
    selection: name=, step= of a Trace.
    A bin holds 2^k <= |update| / |weight| < 2^(k + 1), in % of the updates that are not 0. Right of
    a line the format keeps every update, half its gap being |w| / 512 to |w| / 256 in bfloat16 and
    |w| / 4096 to |w| / 2048 in float16; left of it, it depends on the weight, so the shares that
    are really lost are counted, not read off the ratio. Updates of weights that are 0 are in no
    bin.
    """
    if not isinstance(source, UpdateRatio):
        source = compute.update_ratio(source, **selection)
    from matplotlib.lines import Line2D

    ax = axes_for(ax)
    set_title(ax, title)
    if not source.changed:
        return nothing(ax, "no updates recorded")
    low = min([*source.binades[:1], *(k - 2 for k, _, _ in _GUIDES)])
    high = max([*(k + 1 for k in source.binades[-1:]), *(k + 2 for k, _, _ in _GUIDES)])
    percents = 100.0 * source.share
    edges = range(source.binades.start, source.binades.stop + 1)
    bars = ax.stairs(percents, edges, fill=True, color=MARKS[0].colour)
    ax.set_xlim(low, high)
    ax.set_ylim(0, 1.05 * max(percents.max(initial=0.0), 1e-9))
    handles: list[Any] = [bars]
    words = [f"{source.changed} updates that are not 0"]
    for at, form, mark in _GUIDES:
        look: dict[str, Any] = {"color": mark.colour, "linestyle": mark.dash, "linewidth": 2}
        handles.append(Line2D([], [], **look))
        ax.axvline(at, path_effects=edged(4), **look)
        words.append(f"{power(at)}, {form}{_lost(source, form)}")
    ticks, labels = power_ticks(ax, low, high)
    ax.set_xticks(ticks, labels, **TEXT)
    words_below = "|update| / |weight|; right of its line a format keeps every update"
    set_xlabel(ax, words_below, _apart(source))
    ax.set_ylabel("% of the updates that are not 0", **TEXT)
    legend_below(ax, handles, words)
    return ax


def _lost(data: UpdateRatio, form: str) -> str:
    if form not in data.formats:
        return ""
    at = data.formats.index(form)
    stochastic = share(data.lost_stochastic[at])
    return f": loses {share(data.lost[at])}, {stochastic} if stochastic"


def _apart(data: UpdateRatio) -> str:
    none = data.changed - int(data.counts.sum())
    counts = (
        ("that are 0", data.zero), ("of weights that are 0", none), ("not finite", data.nonfinite)
    )  # fmt: skip
    said = [f"{count:,} {what}" for what, count in counts if count]
    return f"Not drawn: updates {', '.join(said)}" if said else ""
