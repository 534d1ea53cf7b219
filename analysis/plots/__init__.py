"""Plots of what a run's numbers were and what formats would do to them.

    exponent_histogram   how often each power of two occurs, with the formats' ranges
    exponent_heatmap     the same for every layer, as a map
    underflow_heatmap    layer x step: what becomes zero in a format
    lost_by_scale        what a format loses at each scale; the safe scales

Each takes a Trace, a Tally, arrays or the record that `compute` made of them, draws on the
matplotlib Axes given (or makes one) and returns it. pyplot is never touched.
"""

from __future__ import annotations

from fpemu.analysis.plots import compute
from fpemu.analysis.plots.figures import figure_pdf, figure_png, figure_svg, new_axes, save
from fpemu.analysis.plots.heatmap import exponent_heatmap, underflow_heatmap
from fpemu.analysis.plots.histogram import exponent_histogram
from fpemu.analysis.plots.scales import lost_by_scale

__all__ = [
    "compute",
    "exponent_heatmap",
    "exponent_histogram",
    "figure_pdf",
    "figure_png",
    "figure_svg",
    "lost_by_scale",
    "new_axes",
    "save",
    "underflow_heatmap",
]
