"""Gathering: one pass over a trace, each tensor's steps added up, gradients without loss scale."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fpemu.analysis.carried import carried
from fpemu.analysis.skipped import is_caught, skipped_steps
from fpemu.analysis.totals import Total, add_to

if TYPE_CHECKING:
    from fpemu.analysis.trace import Trace

__all__ = ["gather"]


def gather(trace: Trace) -> dict[tuple[str, str], Total]:
    """Return each tensor over all steps, by name and kind, in the order of recording.

    NaN and infinite gradients of a step that a loss scaler skipped are counted in `skipped`.
    """
    scales, skips = carried(trace), skipped_steps(trace)
    totals: dict[tuple[str, str], Total] = {}
    for record in trace.records():
        total = Total.of(record, scales.factor(record), skipped=is_caught(record, skips))
        add_to(totals, (record.name, record.kind), total)
    return totals
