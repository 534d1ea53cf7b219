"""Files: where a demo leaves what it found, each file whole or not at all."""

from __future__ import annotations

import base64
import os
import re
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
_IMAGES = ("histogram.png", "exponents.png", "underflow.png", "scales.png")  # as the page has them


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

    page = html.render(report)
    write_text(folder / _REPORT, page)
    experiment.trace.save(folder / _TRACE)
    for name, image in zip(_IMAGES, _images(page), strict=True):
        write_bytes(folder / name, image)
    return [folder / name for name in (_REPORT, _TRACE, *_IMAGES)]


def _images(page: str) -> list[bytes]:
    """The plots that the page carries: drawing them again would take as long as the training."""
    return [base64.b64decode(data) for data in re.findall(r'"data:image/png;base64,([^"]+)"', page)]
