"""Files: where a demo leaves what it found, each file whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from fpemu.analysis.digits import ATTRIBUTION
from fpemu.analysis.files import make_folder, write_bytes, write_text
from fpemu.analysis.trace import Trace
from fpemu.errors import InputError

if TYPE_CHECKING:
    from fpemu.analysis.demo.experiment import Experiment
    from fpemu.analysis.report import Report

__all__ = ["prepare", "write"]

_TRACE, _REPORT = "run.fpemu", "report.html"

#: The plots that are kept beside the page, by name.
_IMAGES = {
    "exponent_histogram": "histogram.png",
    "exponent_heatmap": "exponents.png",
    "underflow_heatmap": "underflow.png",
    "lost_by_scale": "scales.png",
}


def prepare(folder: Path) -> None:
    """Make the folder, and find out before any work whether files can be put there."""
    make_folder(folder)
    trace = folder / _TRACE
    # only an earlier demo's is replaced
    if os.path.lexists(trace) and Trace.load(trace).metadata.get("data") != ATTRIBUTION:
        raise InputError(
            f"{str(trace)!r} is a run that no demo recorded and would be replaced; "
            "give another folder with --out"
        )


def write(experiment: Experiment, report: Report, folder: Path) -> list[Path]:
    """Write report, trace and the report's plots as images; return their paths."""
    from fpemu.analysis.report import html
    from fpemu.analysis.report.figures import figures

    drawn = tuple(figures(report))  # once: drawing takes as long as the training
    write_text(folder / _REPORT, html.render(report, plots=drawn))
    experiment.trace.save(folder / _TRACE)
    images = {_IMAGES[one.name]: one.png for one in drawn if one.name in _IMAGES}
    for name, image in images.items():
        write_bytes(folder / name, image)
    return [folder / name for name in (_REPORT, _TRACE, *images)]
