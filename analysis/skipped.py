"""Skipped: the steps that a loss scaler left out, whose NaN and infinite gradients it caught."""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING

from fpemu.analysis.records import GRADIENTS

if TYPE_CHECKING:
    from fpemu.analysis.records import Record
    from fpemu.analysis.trace import Trace

__all__ = ["SKIP", "is_caught", "skipped_steps"]

#: The kind of the event that says that a loss scaler skipped a step.
SKIP = "skip"


def skipped_steps(trace: Trace) -> frozenset[int]:
    """Return the steps at which a loss scaler skipped the optimizer's step.

    >>> from fpemu.analysis.skipped import SKIP, skipped_steps
    >>> from fpemu.analysis.trace import Trace
    >>> trace = Trace()
    >>> trace.event(3, "", SKIP, "gradients not finite: the scaler skipped the step")
    >>> sorted(skipped_steps(trace))
    [3]
    """
    return frozenset(event.step for event in trace.events() if event.kind == SKIP)


def is_caught(record: Record, skipped: Container[int]) -> bool:
    """Say whether NaN and infinities of a record are a loss scaler at work, and no fault."""
    return record.step in skipped and record.kind in GRADIENTS
