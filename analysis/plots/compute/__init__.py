"""Compute: the numbers of each plot, as frozen records of arrays; nothing here draws."""

from __future__ import annotations

from fpemu.analysis.plots.compute.amax import AmaxByStep, amax_by_step
from fpemu.analysis.plots.compute.bands import Band
from fpemu.analysis.plots.compute.crest import QsnrByCrest, qsnr_by_crest
from fpemu.analysis.plots.compute.errors import ErrorDistribution, error_distribution
from fpemu.analysis.plots.compute.exponents import (
    ExponentHeatmap,
    ExponentHistogram,
    exponent_heatmap,
    exponent_histogram,
)
from fpemu.analysis.plots.compute.loss_scales import (
    LossScaleTrajectory,
    Trajectory,
    loss_scale_trajectory,
)
from fpemu.analysis.plots.compute.lost import LostByScale, lost_by_scale
from fpemu.analysis.plots.compute.ranges import ScalePlot, scale_plot
from fpemu.analysis.plots.compute.sqnr import (
    SqnrByLayer,
    SqnrByScale,
    sqnr_by_layer,
    sqnr_by_scale,
)
from fpemu.analysis.plots.compute.steps import Staircase, staircase
from fpemu.analysis.plots.compute.underflow import (
    UnderflowHeatmap,
    underflow_heatmap,
    underflow_of,
)
from fpemu.analysis.plots.compute.updates import UpdateRatio, update_ratio

__all__ = [
    "AmaxByStep",
    "Band",
    "ErrorDistribution",
    "ExponentHeatmap",
    "ExponentHistogram",
    "LossScaleTrajectory",
    "LostByScale",
    "QsnrByCrest",
    "ScalePlot",
    "SqnrByLayer",
    "SqnrByScale",
    "Staircase",
    "Trajectory",
    "UnderflowHeatmap",
    "UpdateRatio",
    "amax_by_step",
    "error_distribution",
    "exponent_heatmap",
    "exponent_histogram",
    "loss_scale_trajectory",
    "lost_by_scale",
    "qsnr_by_crest",
    "scale_plot",
    "sqnr_by_layer",
    "sqnr_by_scale",
    "staircase",
    "underflow_heatmap",
    "underflow_of",
    "update_ratio",
]
