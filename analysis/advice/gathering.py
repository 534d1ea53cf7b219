"""Gathering: one pass over a trace, each tensor's steps added up, gradients without loss scale."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fpemu.analysis.carried import carried
from fpemu.analysis.records import GRADIENTS
from fpemu.analysis.totals import Total, add_to

if TYPE_CHECKING:
    from fpemu.analysis.trace import Trace

__all__ = ["gather"]

_SKIP = "skip"  # the kind of event that says that a loss scaler skipped a step


def gather(trace: Trace) -> dict[tuple[str, str], Total]:
    """Return each tensor over all steps, by name and kind, in the order of recording.

    NaN and infinite gradients of a step that a loss scaler skipped are counted in `skipped`.
    """
    scales = carried(trace)
    skipped = {event.step for event in trace.events() if event.kind == _SKIP}
    totals: dict[tuple[str, str], Total] = {}
    for record in trace.records():
        caught = record.step in skipped and record.kind in GRADIENTS
        total = Total.of(record, scales.factor(record), skipped=caught)
        add_to(totals, (record.name, record.kind), total)
    return totals
