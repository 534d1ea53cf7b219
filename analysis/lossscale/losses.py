"""Losses: what the steps of courses lose of a trace's gradients, counted in one reading."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fpemu.analysis.lossscale.course import Course
from fpemu.analysis.lossscale.seen import Gathered, seen_of, times
from fpemu.analysis.tensor_names import layer_of
from fpemu.cast import Cast
from fpemu.tallies import Outcome

if TYPE_CHECKING:
    from fpemu.analysis.records import Record
    from fpemu.analysis.trace import Trace

__all__ = ["Losses", "count_losses"]


@dataclass(slots=True)
class Losses:
    """Counts of one step's gradients; filled while reading, then left alone."""

    nonzero: int = 0
    underflow: int = 0
    lost: int = 0
    overflowed: list[str] = field(default_factory=list)  #: the tensors that overflow

    def __add__(self, other: Losses) -> Losses:
        return Losses(
            self.nonzero + other.nonzero,
            self.underflow + other.underflow,
            self.lost + other.lost,
            self.overflowed + other.overflowed,
        )


_Place = tuple[int, int]  # a course, a moment of it

#: By moment of each course.
Counted = list[list[Losses]]


def count_losses(
    trace: Trace, cast: Cast, gathered: Gathered, courses: Sequence[tuple[str, Course]]
) -> Counted:
    """Return the counts of every moment of (layer, course)s; layer "" is all of them.

    At a scale between two powers of two times the recorded one, the lower is counted.
    """
    counted = [[Losses() for _ in course.moments] for _, course in courses]
    wanted = _by_source(courses)
    for kind in gathered.kinds:
        for record in trace.records(kind=kind):
            layer = layer_of(record.name, record.kind) if gathered.by_layer else ""
            places = wanted.get((layer, record.step))
            if places:
                _count(record, places, courses, counted, gathered.carried.of(record), cast)
    return counted


def _by_source(courses: Sequence[tuple[str, Course]]) -> dict[tuple[str, int], list[_Place]]:
    found: dict[tuple[str, int], list[_Place]] = defaultdict(list)
    for c, (layer, course) in enumerate(courses):
        for m, moment in enumerate(course.moments):
            if moment.source is not None:
                found[layer, moment.source].append((c, m))
    return found


def _count(
    record: Record,
    places: Sequence[_Place],
    courses: Sequence[tuple[str, Course]],
    counted: Counted,
    recorded: float,
    cast: Cast,
) -> None:
    tally, outcomes = record.tally, dict[int, Outcome]()
    broken = tally.nan + tally.inf > 0
    for c, m in places:
        moment, losses = courses[c][1].moments[m], counted[c][m]
        k, exact = times(moment.scale, recorded)
        if k not in outcomes:
            outcomes[k] = tally.outcome(cast, math.ldexp(1.0, k))
        losses.nonzero += outcomes[k].nonzero
        losses.underflow += outcomes[k].underflow
        losses.lost += outcomes[k].lost
        if moment.overflow:
            over = broken or outcomes[k].overflow > 0
            if not (over or exact):
                over = seen_of(record, cast, recorded).overflows(moment.scale, cast)
            if over:
                losses.overflowed.append(record.name)
