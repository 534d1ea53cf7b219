"""Rows: tensors one under another, their names beside them, and a format's limits across them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fpemu.analysis.plots.names import power, shorten, shorten_all
from fpemu.analysis.plots.style import TEXT, edged, inches, legend_below, thin

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from fpemu.analysis.plots.compute import Band

__all__ = ["UNSCALED", "draw_limits", "label_rows", "limits_of", "row_height"]

#: Said where the numbers drawn are not the recorded ones.
UNSCALED = "gradients without the loss scale they were recorded times"


def row_height(rows: int) -> float:
    """Figure height in inches: room for each label, up to a page."""
    return float(np.clip(2.0 + 0.22 * rows, 2.8, 9.0))


def label_rows(ax: Axes, labels: Sequence[str], middle: float = 0.5) -> None:
    """Name the rows that there is room for; row i has its middle at i + middle.

    What all names share is written beside the axis.
    """
    shown = thin(len(labels), int(inches(ax)[1] / 0.135))
    names, common = shorten_all(labels, int(np.clip(6.5 * inches(ax)[0], 12, 40)))
    shown_names = [names[row] for row in shown]
    ax.set_yticks([row + middle for row in shown], shown_names, fontsize="x-small", **TEXT)
    if common:
        ax.set_ylabel(shorten(common, int(inches(ax)[1] / 0.08)), fontsize="x-small", **TEXT)


def draw_limits(ax: Axes, band: Band, shift: int, columns: tuple[float, float]) -> None:
    """Mark a format's range with vertical lines and say in a legend what they are."""
    legend_below(ax, *limits_of(ax, band, shift, columns))


def limits_of(
    ax: Axes,
    band: Band,
    shift: int,
    columns: tuple[float, float],
    colour: Any = "#D55E00",
    edge: Any = "white",
) -> tuple[list[Any], list[str]]:
    """Draw a format's range as vertical lines; return a legend's handles and words for them."""
    from matplotlib.lines import Line2D

    limits = {
        f"largest, {2.0**band.high:g}": (band.high, "solid"),
        f"smallest normal, {power(round(band.normal))}": (band.normal, "dashed"),
    }
    if band.low < band.normal:
        limits[f"smallest, {power(round(band.low))}"] = (band.low, "dotted")
    handles = []
    for at, dash in limits.values():
        look: dict[str, Any] = {"color": colour, "linestyle": dash, "linewidth": 1.8}
        handles.append(Line2D([], [], **look))
        if columns[0] <= at - shift <= columns[1]:
            ax.axvline(at - shift, path_effects=edged(3.2, edge), **look)
    return handles, list(limits)
