"""The loss scale by step: as it was, and as other scalers would have had it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from fpemu.analysis.plots import compute
from fpemu.analysis.plots.compute import LossScaleTrajectory, Trajectory
from fpemu.analysis.plots.figures import axes_for
from fpemu.analysis.plots.names import plain
from fpemu.analysis.plots.style import (
    MARKS,
    TEXT,
    Mark,
    legend_below,
    nothing,
    power_ticks,
    set_title,
    set_xlabel,
    step_axis,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fpemu.analysis.plots.compute.loss_scales import Replays
    from fpemu.analysis.trace import Trace

__all__ = ["loss_scale_trajectory"]


def loss_scale_trajectory(
    source: Trace | Replays | LossScaleTrajectory = (),
    *,
    replays: Replays = (),
    ax: Axes | None = None,
    title: str = "Loss scale by step",
) -> Axes:
    """Draw the loss scale by step, recorded and replayed, with the steps that were skipped.

    >>> from fpemu.analysis import plots
    >>> from fpemu.analysis.trace import Trace
    >>> trace = Trace()
    >>> for step, scale in enumerate((1024.0, 512.0, 512.0)):
    ...     trace.scalar(step, "loss_scale", scale)
    >>> trace.event(0, "", "skip", "gradients not finite")
    >>> ax = plots.loss_scale_trajectory(trace)
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['recorded, 1 skipped']

    source: a Trace, a replay of `fpemu.analysis.lossscale`, several, or a dict of label -> replay;
    replays: more of those beside a trace. Of more than 8 lines the axis names those left out.
    A line holds the scale in use at each step; a cross is a step that was skipped. "estimate": the
    replay knows the gradients as they were recorded, and another scaler would have changed them.
    A scale that fell to 0 is drawn at the foot, an infinite one at the top. Earlier lines
    are wider, so that those below others show; replays that go the same way are one line.
    """
    if not isinstance(source, LossScaleTrajectory):
        source = compute.loss_scale_trajectory(source, replays=replays)
    every = [line for line in source.lines if line.steps]
    lines, more = every[: len(MARKS)], every[len(MARKS) :]
    ax = axes_for(ax, 8.0, 4.0 + 0.2 * len(lines))
    set_title(ax, title)
    if not lines:
        return nothing(ax, "no loss scale recorded")
    ends = _set_y(ax, lines)
    widths = np.linspace(min(1.5 + 0.7 * (len(lines) - 1), 4.0), 1.5, len(lines))
    handles = [
        _draw_line(ax, line, mark, width, ends)
        for line, mark, width in zip(lines, MARKS, widths, strict=False)
    ]
    step_axis(ax, [step for line in lines for step in line.steps])
    skipped = any(any(line.skipped) for line in lines)
    crosses = "×: skipped, its gradients were not finite" if skipped else ""
    set_xlabel(ax, "step", crosses, _left_out(more))
    ax.set_ylabel("loss scale", **TEXT)
    legend_below(ax, handles, list(map(_entry, lines)))
    return ax


def _left_out(lines: list[Trajectory]) -> str:
    """Say which lines are not drawn: more of them could not be told apart."""
    return plain(f"not drawn: {', '.join(line.label for line in lines)}") if lines else ""


def _entry(line: Trajectory) -> str:
    skipped = f", {sum(line.skipped)} skipped" if any(line.skipped) else ""
    return f"{line.label}{' (estimate)' if line.open_loop else ''}{skipped}"


def _set_y(ax: Axes, lines: list[Trajectory]) -> tuple[float, float]:
    """Fit the y axis; return where scales of 0 and of infinity are drawn."""
    every = np.concatenate([line.exponents for line in lines])
    finite = every[np.isfinite(every)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    bottom, top = math.floor(low) - 1, math.ceil(high) + 1
    ends = bottom - 1.0, top + 1.0
    ticks, labels = power_ticks(ax, bottom, top, upright=True)
    if np.isneginf(every).any():
        ticks, labels, bottom = [ends[0], *ticks], ["0", *labels], bottom - 2
    if np.isposinf(every).any():
        ticks, labels, top = [*ticks, ends[1]], [*labels, "inf"], top + 2
    ax.set_ylim(bottom, top)
    ax.set_yticks(ticks, labels, **TEXT)
    return ends


def _draw_line(
    ax: Axes, line: Trajectory, mark: Mark, width: float, ends: tuple[float, float]
) -> Any:
    exponents = np.clip(line.exponents, *ends)
    steps, skipped = np.array(line.steps), np.array(line.skipped, np.bool)
    look: dict[str, Any] = {"color": mark.colour}
    dash = "solid" if line.recorded else mark.dash
    marker = mark.marker if len(steps) == 1 else ""
    (drawn,) = ax.step(
        steps, exponents, where="post", linestyle=dash, linewidth=width, marker=marker, **look
    )
    ax.plot(steps[skipped], exponents[skipped], "x", markersize=6 + width, mew=1.8, **look)
    return drawn
