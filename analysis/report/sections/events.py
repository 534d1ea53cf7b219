"""Section "Events": when something first happened to a tensor, alerts, and the run's own notes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rich.text import Text

from fpemu.analysis.first_cause import EVENT
from fpemu.analysis.report.numbers import cell, count, number, plain, share
from fpemu.analysis.report.rows import label, record_json
from fpemu.analysis.report.section import Section
from fpemu.analysis.report.terminal import Column, item, left_out, note, print_rows, tensor

if TYPE_CHECKING:
    from rich.console import Console

    from fpemu.analysis.report.summary import Report
    from fpemu.analysis.trace import Trace

__all__ = ["FROM_ONE", "HARD", "OF_ALL", "SECTION", "SKIPPED", "Incident", "LogRow", "log_rows"]

#: NaN and infinite gradients at a step that a loss scaler skipped: the scaler at work.
SKIPPED = "skipped"

#: Events that spoil a run from the first value on.
HARD = ("nan", "inf", "overflow")

#: Events that are noted from the first value on; the others only above the tolerance.
FROM_ONE = (*HARD, SKIPPED)

#: Events whose share is of all values; the others' is of the finite non-zero ones.
OF_ALL = ("nan", "inf", SKIPPED)

_ROWS = 2000  # of a table that the page holds


@dataclass(frozen=True, slots=True)
class Incident:
    """The first time that something happened to one tensor, and the worst.

    `a + b` joins those of two steps: the first one, with the worst step's share.
    """

    what: str  #: nan, inf, skipped, overflow, saturated, underflow or invalid
    name: str
    kind: str
    step: int  #: the first step
    count: int  #: values, at that step
    percent: float  #: of all values for nan, inf and skipped, else of the finite non-zero ones
    amax: float | None  #: largest finite magnitude of the tensor at that step
    steps: int  #: recorded steps at which it happened
    worst_step: int
    worst_percent: float
    order: int  #: place among all records: the first within a step is the cause to look at

    def __add__(self, other: Incident) -> Incident:
        first = min(self, other, key=lambda incident: (incident.step, incident.order))
        worst = other if other.worst_percent > self.worst_percent else self
        return replace(
            first,
            steps=self.steps + other.steps,
            worst_step=worst.worst_step,
            worst_percent=worst.worst_percent,
        )

    @property
    def hard(self) -> bool:
        """Whether one value is enough."""
        return self.what in HARD

    @property
    def label(self) -> str:
        """Name and kind, as sentences name the tensor."""
        return label(self.name, self.kind)

    def to_json(self) -> dict[str, Any]:
        return record_json(self)


@dataclass(frozen=True, slots=True)
class LogRow:
    """An event that the run itself recorded: a step skipped, a loss scale changed."""

    step: int
    name: str
    kind: str
    message: str
    facts: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        return record_json(self)


def log_rows(trace: Trace) -> tuple[LogRow, ...]:
    """Return what the run itself noted, first causes left to their own section."""
    return tuple(
        LogRow(e.step, e.name, e.kind, e.message, e.facts)
        for e in trace.events()
        if e.kind != EVENT
    )


# --- text --------------------------------------------------------------------------------------


_COLUMNS = (
    Column("step>", lambda e: str(e.step)),
    Column("event", lambda e: Text(e.what, "bold red" if e.hard else "yellow")),
    Column("tensor", lambda e: tensor(e.name, e.kind)),
    Column("values>", lambda e: count(e.count)),
    Column("share>", lambda e: share(e.percent)),
    Column("amax>", lambda e: number(e.amax), 90),
    Column("steps>", lambda e: str(e.steps)),
    Column("worst>", lambda e: share(e.worst_percent)),
)


def _show(report: Report, console: Console, limit: int) -> None:
    events = sorted(report.events, key=lambda event: not event.hard)
    if events:
        print_rows(console, events, _COLUMNS, limit)
        said = "First step of each; NaN, infinity and overflow first."
        note(console, said + left_out(len(events), limit))
    for row in report.log[:limit]:
        facts = cell(row.facts) if row.facts else ""
        parts = filter(None, (plain(row.message), plain(row.name), facts))
        console.print(item(" ".join(f"step {row.step}: {'; '.join(parts)}".split())))
    note(console, left_out(len(report.log), limit))


def _page(report: Report) -> dict[str, Any]:
    return {
        "events": report.events[:_ROWS],
        "log": report.log[:_ROWS],
        "events_left": max(0, len(report.events) - _ROWS),
        "log_left": max(0, len(report.log) - _ROWS),
    }


def _json(report: Report) -> dict[str, Any]:
    return {
        "events": [event.to_json() for event in report.events],
        "log": [row.to_json() for row in report.log],
    }


SECTION = Section(
    "events",
    lambda report: "Events",
    lambda report: bool(report.events or report.log),
    _show,
    _json,
    _page,
)
