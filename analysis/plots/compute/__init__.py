"""Compute: the numbers of each plot, as frozen records of arrays; nothing here draws."""

from __future__ import annotations

from fpemu.analysis.plots.compute.exponents import (
    Band,
    ExponentHeatmap,
    ExponentHistogram,
    exponent_heatmap,
    exponent_histogram,
)
from fpemu.analysis.plots.compute.lost import LostByScale, lost_by_scale
from fpemu.analysis.plots.compute.underflow import (
    UnderflowHeatmap,
    underflow_heatmap,
    underflow_of,
)

__all__ = [
    "Band",
    "ExponentHeatmap",
    "ExponentHistogram",
    "LostByScale",
    "UnderflowHeatmap",
    "exponent_heatmap",
    "exponent_histogram",
    "lost_by_scale",
    "underflow_heatmap",
    "underflow_of",
]
