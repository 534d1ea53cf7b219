"""One pass over a trace: each tensor's steps added up, and what happened at which step."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fpemu.analysis.records import Record
from fpemu.analysis.report.rows import HARD, Event
from fpemu.analysis.what_if import percent
from fpemu.cast import Cast
from fpemu.moments import Moments
from fpemu.tallies import Tally

if TYPE_CHECKING:
    from fpemu.analysis.trace import Trace

__all__ = ["Gathered", "gather"]


@dataclass(slots=True)
class Gathered:
    """What is summed up of one tensor while the records pass."""

    name: str
    kind: str
    shape: tuple[int, ...]
    tally: Tally
    moments: Moments
    steps: int = 1

    def add(self, record: Record) -> None:
        self.tally = self.tally + record.tally
        self.moments = self.moments + record.moments
        self.steps += 1

    def record(self) -> Record:
        """All steps as one record."""
        return Record(self.name, self.kind, 0, self.shape, self.tally, self.moments, self.steps)


def gather(
    trace: Trace, cast: Cast, tolerance: float
) -> tuple[list[Gathered], tuple[Event, ...]]:
    """Sum the records by tensor, and collect what happened at which step."""
    tensors: dict[tuple[str, str], Gathered] = {}
    seen: dict[tuple[str, str, str], Event] = {}
    for order, record in enumerate(trace.records()):
        key = (record.name, record.kind)
        if key in tensors:
            tensors[key].add(record)
        else:
            tensors[key] = Gathered(*key, record.shape, record.tally, record.moments)
        for event in _happened(record, cast, tolerance, order):
            known = seen.get((event.what, *key))
            seen[(event.what, *key)] = _merged(known, event) if known else event
    return list(tensors.values()), tuple(sorted(seen.values(), key=lambda e: (e.step, e.order)))


def _happened(record: Record, cast: Cast, tolerance: float, order: int) -> Iterable[Event]:
    """The events of one record."""
    outcome = record.tally.outcome(cast)
    for what in ("nan", "inf", "overflow", "saturated", "underflow", "invalid"):
        n = getattr(outcome, what)
        whole = outcome.total if what in ("nan", "inf") else outcome.nonzero
        if n and (what in HARD or n > tolerance * whole):
            share = percent(n, whole)
            amax = record.moments.amax if record.moments.count else None
            yield Event(what, record.name, record.kind, record.step, n, share, amax,
                        1, record.step, share, order)  # fmt: skip


def _merged(known: Event, new: Event) -> Event:
    """Keep the first step, count the steps, keep the worst."""
    first = new if (new.step, new.order) < (known.step, known.order) else known
    worst = new if new.worst_percent > known.worst_percent else known
    return Event(first.what, first.name, first.kind, first.step, first.count, first.percent,
                 first.amax, known.steps + 1, worst.worst_step, worst.worst_percent,
                 first.order)  # fmt: skip
