"""Plots of what a run's numbers were and what formats would do to them.

    exponent_histogram      how often each power of two occurs, with the formats' ranges
    exponent_heatmap        the same for every layer, as a map
    underflow_heatmap       layer x step: what becomes zero in a format
    scale_plot              how far each layer's numbers reach, forward and backward
    amax_by_step            the largest magnitude by step, and a format's largest value
    loss_scale_trajectory   the loss scale by step, recorded and replayed
    lost_by_scale           what a format loses at each scale; the safe scales
    sqnr_by_scale           signal to quantization noise at each scale
    sqnr_by_layer           the same layer by layer, the worst first
    error_distribution      how often each error of a cast occurs, in ulp or relative
    update_ratio            how large updates are beside their weights; what formats lose of them
    qsnr_by_crest           signal to noise of blocks with a scale each, by their crest factor
    staircase               what each number becomes in a format, its subnormals from near

Each takes a Trace, a Tally, arrays or the record that `compute` made of them, draws on the
matplotlib Axes given (or makes one) and returns it. pyplot is never touched.
"""

from __future__ import annotations

from fpemu.analysis.plots import compute
from fpemu.analysis.plots.amax import amax_by_step
from fpemu.analysis.plots.crest import qsnr_by_crest
from fpemu.analysis.plots.errors import error_distribution
from fpemu.analysis.plots.figures import figure_pdf, figure_png, figure_svg, new_axes, save
from fpemu.analysis.plots.heatmap import exponent_heatmap, underflow_heatmap
from fpemu.analysis.plots.histogram import exponent_histogram
from fpemu.analysis.plots.loss_scales import loss_scale_trajectory
from fpemu.analysis.plots.ranges import scale_plot
from fpemu.analysis.plots.scales import lost_by_scale
from fpemu.analysis.plots.sqnr import sqnr_by_layer, sqnr_by_scale
from fpemu.analysis.plots.steps import staircase
from fpemu.analysis.plots.updates import update_ratio

__all__ = [
    "amax_by_step",
    "compute",
    "error_distribution",
    "exponent_heatmap",
    "exponent_histogram",
    "figure_pdf",
    "figure_png",
    "figure_svg",
    "loss_scale_trajectory",
    "lost_by_scale",
    "new_axes",
    "qsnr_by_crest",
    "save",
    "scale_plot",
    "sqnr_by_layer",
    "sqnr_by_scale",
    "staircase",
    "underflow_heatmap",
    "update_ratio",
]
