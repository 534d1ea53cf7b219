"""fpemu.analysis: what the numbers of a run did in small formats, and what would help.

    Trace     (step, name, kind) -> tally and moments, in one file
    watch     a PyTorch training run, recorded in a Trace
    schedule  when a lower precision is safe, and a policy that changes as a run does
    lossscale every framework's loss scaler, run on any overflows or a recorded run
    advise    which format, which scale, which layers to keep, and why
    whatif    tensor x format x scale -> what would be lost
    scan      checkpoints on disk, tensor by tensor, in bounded memory
    convert   a checkpoint rounded to a recipe or a format, written as safetensors
    report    verdict, tables, what-if and plots as text, HTML or JSON
    diff      two runs compared: what got better, what worse
    export    reports and traces as data frames, Parquet and TensorBoard
    plots     the pictures of the report, one by one
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fpemu.analysis import diff, export, lossscale, plots, report, schedule
    from fpemu.analysis.advice import advise
    from fpemu.analysis.checkpoints import scan
    from fpemu.analysis.collect.torch import watch
    from fpemu.analysis.conversion import convert
    from fpemu.analysis.trace import Trace
    from fpemu.analysis.what_if import whatif

__all__ = [
    "Trace",
    "advise",
    "convert",
    "diff",
    "export",
    "lossscale",
    "plots",
    "report",
    "scan",
    "schedule",
    "watch",
    "whatif",
]

# Loaded on first use: plots bring matplotlib, traces bring numba, watch brings torch.
_LAZY = {
    "Trace": "fpemu.analysis.trace",
    "advise": "fpemu.analysis.advice",
    "convert": "fpemu.analysis.conversion",
    "scan": "fpemu.analysis.checkpoints",
    "watch": "fpemu.analysis.collect.torch",
    "whatif": "fpemu.analysis.what_if",
}
_MODULES = {"diff", "export", "lossscale", "plots", "report", "schedule"}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        value = getattr(importlib.import_module(_LAZY[name]), name)
    elif name in _MODULES:
        value = importlib.import_module(f"fpemu.analysis.{name}")
    else:
        raise AttributeError(f"module 'fpemu.analysis' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
