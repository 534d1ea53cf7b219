"""One pass over a trace: each tensor's steps added up, and what happened at which step.

Gradients are counted without the loss scale that they were recorded times. NaN and infinite ones
at a step that a loss scaler skipped are the scaler at work: they are counted, and apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fpemu.analysis.answers import answers
from fpemu.analysis.by_recipe import ByRecipe
from fpemu.analysis.carried import Carried, carried
from fpemu.analysis.plots.compute import AmaxByStep, UnderflowHeatmap
from fpemu.analysis.report.by_step import ByStep
from fpemu.analysis.report.sections.events import FROM_ONE, OF_ALL, SKIPPED, Incident
from fpemu.analysis.skipped import is_caught, skipped_steps
from fpemu.analysis.totals import Total, add_to
from fpemu.analysis.what_if import percent

if TYPE_CHECKING:
    from fpemu.analysis.records import Record
    from fpemu.analysis.report.progress import Progress
    from fpemu.analysis.report.question import Question
    from fpemu.analysis.trace import Trace
    from fpemu.tallies import Outcome

__all__ = ["Gathered", "gather"]


@dataclass(frozen=True, slots=True)
class Gathered:
    """What one pass over a trace finds; the trace may grow afterwards."""

    totals: tuple[Total, ...]  #: in the order of recording
    incidents: tuple[Incident, ...]  #: in the order of time
    underflow: UnderflowHeatmap  #: tensor by tensor and step by step
    amax: AmaxByStep  #: likewise
    carried: Carried
    skipped: frozenset[int]  #: steps that a loss scaler skipped


def gather(trace: Trace, question: Question, progress: Progress) -> Gathered:
    """Sum the records by tensor, and collect what happened at which step."""
    scales, skips = carried(trace), skipped_steps(trace)
    answered = answers(trace, question.casts)
    totals: dict[tuple[str, str], Total] = {}
    incidents: dict[tuple[str, str, str], Incident] = {}
    by_step = ByStep()
    most = len(trace.steps()) * len(trace.tensors())
    for order, record in enumerate(progress.records(trace.records(), most)):
        key, factor = (record.name, record.kind), scales.factor(record)
        skipped = is_caught(record, skips)
        parts = answered.parts(record, factor)
        [outcome] = parts.outcomes(question.to, [1.0])
        add_to(totals, key, Total.of(record, factor, skipped=skipped, parts=parts))
        for one in _happened(record, outcome, factor, question, order, skipped):
            add_to(incidents, (one.what, *key), one)
        by_step.add(key, record.step, outcome, record.moments, factor)
    return Gathered(
        tuple(totals.values()),
        tuple(sorted(incidents.values(), key=lambda found: (found.step, found.order))),
        by_step.underflow(question.to),
        by_step.amax(question.to, not scales.none),
        scales,
        skips,
    )


def _happened(
    record: Record, outcome: Outcome, factor: float, question: Question, order: int, skipped: bool
) -> Iterator[Incident]:
    """What one record shows."""
    if outcome.normal + outcome.subnormal + outcome.zero == outcome.total:
        return
    ranged = not isinstance(question.to, ByRecipe)  # whose small losses are rounding, in the noise
    for what, count in _counts(outcome, skipped).items():
        whole = outcome.total if what in OF_ALL else outcome.nonzero
        if count and (what in FROM_ONE or (ranged and count > question.tolerance * whole)):
            yield Incident(
                what=what,
                name=record.name,
                kind=record.kind,
                step=record.step,
                count=count,
                percent=percent(count, whole),
                amax=record.moments.amax * factor if record.moments.count else None,
                steps=1,
                worst_step=record.step,
                worst_percent=percent(count, whole),
                order=order,
            )


def _counts(outcome: Outcome, skipped: bool) -> dict[str, int]:
    """How many values each thing happened to."""
    broken = outcome.nan + outcome.inf
    return {
        **({SKIPPED: broken} if skipped else {"nan": outcome.nan, "inf": outcome.inf}),
        "overflow": outcome.overflow,
        "saturated": outcome.saturated,
        "underflow": outcome.underflow,
        "invalid": outcome.invalid,
    }
