"""diff: two runs compared, tensor by tensor and by their verdicts: what got better, what worse.

    found = diff(Trace.load("before.fpemu"), Trace.load("after.fpemu"), to="float16")
    found.change                         # "worse", "better" or "same"
    diff.render(found, console)          # also: fpemu diff before.fpemu after.fpemu
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fpemu.analysis.diff.compare import compare, diff
    from fpemu.analysis.diff.rows import Diff, DiffRow, ScalarDiff, Side, Thresholds
    from fpemu.analysis.diff.text import render

__all__ = ["Diff", "DiffRow", "ScalarDiff", "Side", "Thresholds", "compare", "diff", "render"]

# Loaded on first use: `fpemu --help` imports the command beside this file and nothing more.
_HOME = {"compare": "compare", "diff": "compare", "render": "text"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_HOME.get(name, 'rows')}")
    value = getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
