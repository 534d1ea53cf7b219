"""export: reports and traces as data frames, Parquet files and TensorBoard logs.

    to_frame(found)                      # a pandas DataFrame, a row for each tensor of a report
    trace_frame(trace, to="float16")     # a row for each tensor at each recorded step
    write_parquet(trace, "run.parquet")  # either of them
    write_tensorboard(trace, "logs")     # scalars and histograms, step by step
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fpemu.analysis.export.frames import to_frame, trace_frame
    from fpemu.analysis.export.parquet import write_parquet
    from fpemu.analysis.export.tensorboard import write_tensorboard

__all__ = ["to_frame", "trace_frame", "write_parquet", "write_tensorboard"]

# Loaded on first use; the packages that they need are imported when they are called.
_HOME = {
    "to_frame": "frames",
    "trace_frame": "frames",
    "write_parquet": "parquet",
    "write_tensorboard": "tensorboard",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
