"""Files: where a demo leaves what it found, each file whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from fpemu.analysis.trace import Trace
from fpemu.errors import InputError

if TYPE_CHECKING:
    from fpemu.analysis.demo.experiment import Experiment
    from fpemu.analysis.report import Report

__all__ = ["prepare", "write"]

_TRACE, _REPORT = "run.fpemu", "report.html"


def prepare(folder: Path) -> None:
    """Make the folder, and find out before any work whether files can be put there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InputError(
            f"cannot write to folder {str(folder)!r}: {error.strerror or error}; "
            "give another with --out"
        ) from None
    if os.path.lexists(folder / _TRACE):
        Trace.load(folder / _TRACE)  # anything but a trace is refused, not replaced


def write(experiment: Experiment, report: Report, folder: Path, *, plots: bool) -> list[Path]:
    """Write trace, report and, if asked for, the plots as images; return their paths."""
    from fpemu.analysis.report import html, write_text

    experiment.trace.save(folder / _TRACE)
    write_text(folder / _REPORT, html.render(report))
    images = _draw(experiment, report, folder) if plots else []
    return [folder / _REPORT, folder / _TRACE, *images]


def _draw(experiment: Experiment, report: Report, folder: Path) -> list[Path]:
    from fpemu.analysis import plots

    trace, to = experiment.trace, experiment.setup.to
    formats = list(report.formats)[:5]
    gradients = "activation_gradient"
    drawn = {
        "histogram.png": plots.exponent_histogram(trace, formats=formats),
        "exponents.png": plots.exponent_heatmap(trace, to=to),
        "underflow.png": plots.underflow_heatmap(trace, to=to, kind=gradients),
        "scales.png": plots.lost_by_scale(trace, formats=formats, kind=gradients),
    }
    return [plots.save(axes, folder / name) for name, axes in drawn.items()]
