"""Maps with a row for every tensor: by binade, and by step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fpemu.analysis.plots import compute
from fpemu.analysis.plots.compute import ExponentHeatmap, UnderflowHeatmap
from fpemu.analysis.plots.figures import axes_for
from fpemu.analysis.plots.names import power
from fpemu.analysis.plots.rows import UNSCALED, draw_limits, label_rows, row_height
from fpemu.analysis.plots.style import (
    TEXT,
    inches,
    nothing,
    power_ticks,
    set_title,
    set_xlabel,
    thin,
)
from fpemu.tallies import exponent_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fpemu.analysis.asked import Asked
    from fpemu.analysis.plots.compute.counts import Shares
    from fpemu.analysis.plots.source import Source
    from fpemu.cast import Cast
    from fpemu.format import Format

__all__ = ["exponent_heatmap", "underflow_heatmap"]

_BLANK = 1e-9  #: % that stands for none on a logarithmic colour scale

#: More rows or columns are drawn as the largest of a group: they would fall between pixels, and
#: a file of this many cells of pure noise stays below 300 KB.
_MOST_ROWS, _MOST_COLUMNS = 512, 256

_COLOURS = 48  #: few enough that even noise compresses


def exponent_heatmap(
    source: Source | ExponentHeatmap,
    *,
    to: Cast | Format | str | None = "float16",
    scale: float = 1.0,
    ax: Axes | None = None,
    title: str | None = None,
    **selection: Any,
) -> Axes:
    """Draw which powers of two occur in each tensor, with the limits of a format.

    >>> import numpy as np
    >>> from fpemu.analysis import plots
    >>> layers = {f"layer{i}": np.float32([2.0**-i, 1, 0]) for i in range(3)}
    >>> ax = plots.exponent_heatmap(layers, to="fp16")
    >>> [text.get_text() for text in ax.get_yticklabels()]
    ['layer0', 'layer1', 'layer2']

    source: a mapping of arrays or Tallies by name, or a Trace (a row for each name and kind, all
    steps together); selection: name=, kind=, step=, unscaled= of a Trace.
    to: lines mark this format's smallest value, smallest normal and largest value, moved by
    scale, a power of two that the values would be multiplied by before the cast; None for no lines.
    Colour is the share of a tensor's finite non-zero values, on a logarithmic scale; blank is
    none. Zeros, infinities and NaNs are not counted.
    """
    if not isinstance(source, ExponentHeatmap):
        source = compute.exponent_heatmap(source, to=to, scale=scale, **selection)
    ax = axes_for(ax, 8.0, row_height(len(source.labels)))
    set_title(ax, title or _exponent_title(source))
    low, high = _binades(source)
    first = source.binades[0]
    shares = 100.0 * source.share[:, low - first : high - first]
    if not source.counts.sum():
        return nothing(ax, "no non-zero values recorded")
    _draw_map(ax, np.maximum(shares, _BLANK), (low, high), _share_norm())
    label_rows(ax, source.labels)
    ticks, labels = power_ticks(ax, low, high)
    ax.set_xticks(ticks, labels, **TEXT)
    set_xlabel(ax, "|x|, one column for each power of two", UNSCALED if source.unscaled else "")
    if source.band:
        draw_limits(ax, source.band, exponent_of(source.scale), (low, high))
    return ax


def underflow_heatmap(
    source: Source | UnderflowHeatmap,
    *,
    to: Asked = "float16",
    scale: float = 1.0,
    ax: Axes | None = None,
    title: str | None = None,
    **selection: Any,
) -> Axes:
    """Draw what share of each tensor would become zero, step by step.

    >>> import numpy as np
    >>> from fpemu.analysis import plots
    >>> run = {"layer": {step: np.float32([1, 2.0**-20 / (step + 1)]) for step in range(50)}}
    >>> ax = plots.underflow_heatmap(run, to="fp16")
    >>> ax.get_title(loc="left")
    'Underflow in float16'

    source: a Trace, or a mapping of name to {step: array or Tally}; selection: name=, kind=,
    step= of a Trace, and unscaled=False for gradients with the loss scale that they were recorded
    times, which is else taken out.
    to: a Cast or a format's name, or a recipe that a Trace has counted; scale: the power of two
    that the values are multiplied by before the cast.
    Colour is the share of the finite non-zero values that became zero, in %; the scale is linear
    up to 0.1 % and logarithmic above, so that little is told from nothing. Grey: not recorded, or
    no non-zero value. Columns are the recorded steps, evenly spaced.
    """
    if not isinstance(source, UnderflowHeatmap):
        source = compute.underflow_heatmap(source, to=to, scale=scale, **selection)
    ax = axes_for(ax, 8.0, row_height(len(source.labels)))
    set_title(ax, title or _underflow_title(source))
    if not (source.nonzero > 0).any():
        return nothing(ax, "no non-zero values recorded")
    columns = (0, len(source.steps))
    _draw_map(ax, 100.0 * source.share, columns, _loss_norm())
    label_rows(ax, source.labels)
    shown = thin(len(source.steps), int(inches(ax)[0] / 0.6))
    ax.set_xticks([i + 0.5 for i in shown], [str(source.steps[i]) for i in shown], **TEXT)
    grey = " (grey: nothing recorded)" if (source.nonzero <= 0).any() else ""
    set_xlabel(ax, f"step{grey}")
    return ax


def _scaled(scale: float) -> str:
    return f" at scale {power(exponent_of(scale))}" if scale != 1.0 else ""


def _exponent_title(data: ExponentHeatmap) -> str:
    limits = f"; lines: {data.band.name}{_scaled(data.scale)}" if data.band else ""
    return f"Powers of two by tensor{limits}"


def _underflow_title(data: UnderflowHeatmap) -> str:
    return f"Underflow in {data.to}{_scaled(data.scale)}"


def _binades(data: ExponentHeatmap) -> tuple[int, int]:
    """From the lowest to above the highest binade of the data and of the format's range."""
    used = np.flatnonzero(data.counts.sum(0)) + data.binades[0]
    ends = [int(used[0]), int(used[-1]) + 1] if used.size else [-1, 1]
    band = data.band
    if band and not band.wide:
        shift = exponent_of(data.scale)
        ends += [int(np.floor(band.low)) - shift - 1, int(np.ceil(band.high)) - shift + 1]
    return max(min(ends), data.binades[0]), min(max(ends), data.binades[-1] + 1)


def _share_norm() -> Any:
    from matplotlib.colors import LogNorm

    return LogNorm(0.001, 100)


def _loss_norm() -> Any:
    from matplotlib.colors import SymLogNorm

    return SymLogNorm(0.1, linscale=0.5, vmin=0, vmax=100)


def _draw_map(ax: Axes, percents: Shares, columns: tuple[int, int], norm: Any) -> None:
    """Draw rows from the top down as one image, with a colour bar."""
    import matplotlib

    pooled, tall, wide = _pool(percents)
    colours = matplotlib.colormaps["viridis"].resampled(_COLOURS)
    image = ax.imshow(
        np.ma.masked_invalid(pooled),
        cmap=colours.with_extremes(bad="#B0B0B0", under=ax.get_facecolor()),
        norm=norm,
        aspect="auto",
        interpolation="none",
        extent=(columns[0], columns[0] + pooled.shape[1] * wide, pooled.shape[0] * tall, 0),
    )
    ax.set_xlim(columns)
    ax.set_ylim(len(percents), 0)
    note = f"\n(largest of {tall * wide} cells)" if tall * wide > 1 else ""
    _draw_colour_bar(ax, image, f"% of non-zero values{note}")


def _draw_colour_bar(ax: Axes, image: Any, label: str) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    figure: Any = ax.figure
    bar = figure.colorbar(image, ax=ax, pad=0.02, fraction=0.05, aspect=inches(ax)[1] / 0.16)
    lowest = image.norm.vmin
    ticks = [0.001, 0.01, 0.1, 1, 10, 100] if lowest else [0, 0.1, 1, 10, 100]
    bar.ax.yaxis.set_major_locator(FixedLocator(ticks))
    bar.ax.yaxis.set_minor_locator(NullLocator())
    bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    bar.set_label(label, **TEXT)


def _pool(values: Shares) -> tuple[Shares, int, int]:
    """Take the largest of each group of cells, so that no row or spike falls between pixels."""
    most = (_MOST_ROWS, _MOST_COLUMNS)
    tall, wide = (-(-n // k) for n, k in zip(values.shape, most, strict=True))
    if tall == wide == 1:
        return values, 1, 1
    rows, columns = (-(-n // k) for n, k in zip(values.shape, (tall, wide), strict=True))
    padded = np.full((rows * tall, columns * wide), -np.inf)
    padded[: values.shape[0], : values.shape[1]] = np.where(np.isnan(values), -np.inf, values)
    largest = padded.reshape(rows, tall, columns, wide).max((1, 3))
    return np.where(largest == -np.inf, np.nan, largest), tall, wide
