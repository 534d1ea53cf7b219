"""One pass over a trace: each tensor's steps added up, and what happened at which step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fpemu.analysis.plots.compute import UnderflowHeatmap, underflow_of
from fpemu.analysis.report.rows import HARD, Incident
from fpemu.analysis.totals import Total, add_to
from fpemu.analysis.what_if import percent

if TYPE_CHECKING:
    from fpemu.analysis.records import Record
    from fpemu.analysis.trace import Trace
    from fpemu.cast import Cast
    from fpemu.tallies import Outcome

__all__ = ["Gathered", "gather"]


@dataclass(frozen=True, slots=True)
class Gathered:
    """What one pass over a trace finds; the trace may grow afterwards."""

    totals: tuple[Total, ...]  #: in the order of recording
    incidents: tuple[Incident, ...]  #: in the order of time
    underflow: UnderflowHeatmap  #: tensor by tensor and step by step


def gather(trace: Trace, cast: Cast, tolerance: float) -> Gathered:
    """Sum the records by tensor, and collect what happened at which step."""
    totals: dict[tuple[str, str], Total] = {}
    incidents: dict[tuple[str, str, str], Incident] = {}
    counted: list[tuple[tuple[str, str], int, Outcome]] = []
    for order, record in enumerate(trace.records()):
        key, outcome = (record.name, record.kind), record.tally.outcome(cast)
        add_to(totals, key, Total.of(record))
        for incident in _happened(record, outcome, tolerance, order):
            add_to(incidents, (incident.what, *key), incident)
        counted.append((key, record.step, outcome))
    return Gathered(
        tuple(totals.values()),
        tuple(sorted(incidents.values(), key=lambda found: (found.step, found.order))),
        underflow_of(counted, cast),
    )


def _happened(
    record: Record, outcome: Outcome, tolerance: float, order: int
) -> Iterator[Incident]:
    """What one record shows."""
    for what in ("nan", "inf", "overflow", "saturated", "underflow", "invalid"):
        count = getattr(outcome, what)
        whole = outcome.total if what in ("nan", "inf") else outcome.nonzero
        if count and (what in HARD or count > tolerance * whole):
            yield Incident(
                what=what,
                name=record.name,
                kind=record.kind,
                step=record.step,
                count=count,
                percent=percent(count, whole),
                amax=record.moments.amax if record.moments.count else None,
                steps=1,
                worst_step=record.step,
                worst_percent=percent(count, whole),
                order=order,
            )
