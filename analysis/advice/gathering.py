"""Gathering: one pass over a trace, each tensor's steps added up, gradients without loss scale."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fpemu.analysis.answers import answers
from fpemu.analysis.carried import carried
from fpemu.analysis.records import JUDGED
from fpemu.analysis.skipped import is_caught, skipped_steps
from fpemu.analysis.totals import Total, add_to

if TYPE_CHECKING:
    from fpemu.analysis.by_recipe import Target
    from fpemu.analysis.trace import Trace

__all__ = ["gather"]


def gather(trace: Trace, formats: Iterable[Target] = ()) -> dict[tuple[str, str], Total]:
    """Return each tensor over all steps, by name and kind, in the order of recording.

    formats: those that are recipes are answered for what training rounds. NaN and infinite
    gradients of a step that a loss scaler skipped are counted in `skipped`.
    """
    scales, skips = carried(trace), skipped_steps(trace)
    answered = answers(trace, formats)
    totals: dict[tuple[str, str], Total] = {}
    for record in trace.records():
        factor, caught = scales.factor(record), is_caught(record, skips)
        parts = answered.parts(record, factor) if record.kind in JUDGED else None
        total = Total.of(record, factor, skipped=caught, parts=parts)
        add_to(totals, (record.name, record.kind), total)
    return totals
