"""advice: which format, which scale, which layers to keep, and why; from a recorded run.

    advise    a Trace -> an Advice: sentences, rows, a Pareto front, a policy to emulate
    Advice    what it found
"""

from __future__ import annotations

from fpemu.analysis.advice.advisor import advise
from fpemu.analysis.advice.rows import (
    STATUSES,
    Advice,
    Choice,
    Keep,
    LayerAdvice,
    Line,
    MemoryRow,
    TensorAdvice,
    UpdateAdvice,
)

__all__ = [
    "STATUSES",
    "Advice",
    "Choice",
    "Keep",
    "LayerAdvice",
    "Line",
    "MemoryRow",
    "TensorAdvice",
    "UpdateAdvice",
    "advise",
]
