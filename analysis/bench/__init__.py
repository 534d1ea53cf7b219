"""bench: how fast fpemu is on this machine, as ratios to np.copyto, beside other libraries.

`fpemu bench` prints it; `run(Setup())` and `startup()` return it as records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fpemu.analysis.bench.command import bench

if TYPE_CHECKING:
    from fpemu.analysis.bench.imports import startup
    from fpemu.analysis.bench.result import Result, run
    from fpemu.analysis.bench.setup import Setup

__all__ = ["Result", "Setup", "bench", "run", "startup"]

# Loaded on first use: `fpemu --help` imports the command and must stay light.
_LAZY = {"Result": "result", "Setup": "setup", "run": "result", "startup": "imports"}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'fpemu.analysis.bench' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"fpemu.analysis.bench.{_LAZY[name]}"), name)
