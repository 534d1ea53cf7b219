"""QSNR of blocks against their crest factor."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from fpemu.analysis.plots import compute
from fpemu.analysis.plots.compute import QsnrByCrest
from fpemu.analysis.plots.figures import axes_for
from fpemu.analysis.plots.style import (
    GREY,
    TEXT,
    Mark,
    inches,
    legend_below,
    marks_of,
    nothing,
    set_title,
    set_xlabel,
)
from fpemu.analysis.shown import shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fpemu.cast import Cast
    from fpemu.format import Format
    from fpemu.scaling import Recipe

__all__ = ["qsnr_by_crest"]

_STRIP = 0.16  #: of the height, for how many blocks there are


def qsnr_by_crest(
    x: Any,
    recipes: str | Recipe | Iterable[str | Recipe] | None = None,
    *,
    to: Cast | Format | str | None = None,
    block: int | None = None,
    ax: Axes | None = None,
    title: str | None = None,
) -> Axes:
    """Draw how well blocks survive recipes, by their crest factor.

    >>> import numpy as np
    >>> from fpemu.analysis import plots
    >>> x = np.random.default_rng(0).normal(size=(1000, 32)).astype(np.float32)
    >>> ax = plots.qsnr_by_crest(x, ["mxfp4", "nvfp4"])
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['mxfp4: 18.8 dB of all blocks', 'nvfp4: 20.5 dB of all blocks', 'how many blocks']

    x: an array of floats or a dict of them. recipes: names or texts, as
    `fpemu.scaling.find_recipe` takes them; without, three of the format `to`: scales that are
    powers of two and clip nothing ("fit"), OCP's ("floor"), and amax / max ("amax"). block: how
    many numbers are looked at together; unless given, as many as share a scale.
    A line is the median of the blocks in each eighth of an octave, the shade holds eight tenths of
    them; crest factor: amax / root mean square. Grey at the foot: how many blocks there are.
    """
    if not isinstance(x, QsnrByCrest):
        x = compute.qsnr_by_crest(x, recipes, to=to, block=block)
    marks = marks_of(len(x.labels), "recipes")
    ax = axes_for(ax)
    set_title(ax, title or f"QSNR of blocks of {x.block}" + (f" in {x.to}" if x.to else ""))
    if not x.blocks.sum() or not x.labels:
        return nothing(ax, "no block with finite non-zero values")
    handles = [_draw_recipe(ax, x, row, mark) for row, mark in enumerate(marks)]
    _set_axes(ax, x)
    handles.append(_draw_blocks(ax, x))
    apart = [
        f"{n} blocks {what}" for n, what in ((x.zero, "of zeros"), (x.nonfinite, "not finite")) if n
    ]
    set_xlabel(ax, "crest factor of the block, amax / rms", ", ".join(apart))
    ax.set_ylabel("QSNR, dB", **TEXT)
    said = [
        f"{shorten(name)}: {level:.1f} dB of all blocks"
        for name, level in zip(x.labels, x.overall, strict=True)
    ]
    legend_below(ax, handles, [*said, "how many blocks"])
    return ax


def _draw_recipe(ax: Axes, data: QsnrByCrest, row: int, mark: Mark) -> Any:
    middle = (data.edges[:-1] + data.edges[1:]) / 2
    low, median, high = (
        np.where(np.isfinite(level), level, np.nan)
        for level in (data.low[row], data.median[row], data.high[row])
    )
    look: dict[str, Any] = {"color": mark.colour}
    ax.fill_between(middle, low, high, alpha=0.18, linewidth=0, **look)
    (line,) = ax.plot(middle, median, linestyle=mark.dash, marker=mark.marker, markersize=4, **look)
    return line


def _set_axes(ax: Axes, data: QsnrByCrest) -> None:
    levels = np.concatenate([data.low.ravel(), data.high.ravel()])
    levels = levels[np.isfinite(levels)]
    low, high = (float(levels.min()), float(levels.max())) if levels.size else (0.0, 10.0)
    tall = max(high - low, 1.0)
    ax.set_ylim(low - (0.05 + _STRIP) * tall / (0.9 - _STRIP), high + 0.05 * tall)
    first, last = float(data.edges[0]), float(data.edges[-1])
    ax.set_xlim(first - 1 / 16, last + 1 / 16)
    steps = (0.125, 0.25, 0.5, 1.0)
    room = max(2, int(inches(ax)[0] / 0.6))
    step = next((s for s in steps if (last - first) / s <= room), 1.0)
    ticks = np.arange(math.ceil(first / step), math.floor(last / step) + 1) * step
    ax.set_xticks(ticks, [f"{2.0**tick:.3g}" for tick in ticks], **TEXT)


def _draw_blocks(ax: Axes, data: QsnrByCrest) -> Any:
    heights = _STRIP * data.blocks / data.blocks.max()
    return ax.stairs(
        heights, data.edges, fill=True, color=GREY, alpha=0.5, zorder=0.5,
        transform=ax.get_xaxis_transform(),
    )  # fmt: skip
