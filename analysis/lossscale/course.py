"""Course: a scaler's states over a run's steps, window by window."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from fpemu.analysis.lossscale.seen import Seen
from fpemu.analysis.lossscale.state import Scaler
from fpemu.cast import Cast

__all__ = ["UNKNOWN", "Course", "Judge", "Moment", "merged", "run", "together"]

#: What is assumed of gradients that were infinite or NaN at a larger loss scale.
UNKNOWN = ("neighbours", "overflow", "fits")


@dataclass(frozen=True, slots=True)
class Moment:
    """A step of a course."""

    step: int
    source: int | None  #: the recorded step whose gradients it has; None before the first
    scale: float
    overflow: bool
    skipped: bool
    basis: str  #: how the overflow is known, see `Judge`


@dataclass(frozen=True)
class Course:
    """What became of a scaler."""

    moments: tuple[Moment, ...]
    final_scale: float  #: after the last step
    stopped: int | None  #: the step at which the framework ends the run


class Judge:
    """Says of each step whether its gradients overflow at a scale, and how that is known.

    "recorded": they were not finite as recorded, at this scale or a smaller one; or they were
    finite at this very scale. "counted": by the tally, for a scale that they were not recorded
    at. "assumed": not finite as recorded at a larger scale, so of unknown size. "held": the step
    was not recorded; it has the gradients of the last one that was.
    """

    def __init__(self, by_step: Mapping[int, Seen], cast: Cast, unknown: str) -> None:
        self._by_step, self._cast, self._unknown = by_step, cast, unknown
        self._steps = sorted(by_step)
        self._finite = [step for step in self._steps if by_step[step].finite]

    def source(self, step: int) -> int | None:
        """Return the recorded step whose gradients a step has."""
        place = bisect.bisect_right(self._steps, step)
        return self._steps[place - 1] if place else None

    def __call__(self, step: int, scale: float) -> tuple[bool, str]:
        """Return whether the step overflows at a scale, and how that is known."""
        source = self.source(step)
        if source is None:
            return False, "held"
        overflow, basis = self._recorded(source, scale)
        return overflow, basis if source == step else "held"

    def _recorded(self, step: int, scale: float) -> tuple[bool, str]:
        seen = self._by_step[step]
        if not seen.finite and scale >= seen.recorded:
            return True, "recorded"
        if not seen.finite:
            return seen.overflows(scale, self._cast) or self._assumed(step, scale), "assumed"
        overflow = seen.overflows(scale, self._cast)
        return overflow, "counted" if overflow or scale != seen.recorded else "recorded"

    def _assumed(self, step: int, scale: float) -> bool:
        if self._unknown != "neighbours":
            return self._unknown == "overflow"
        place = bisect.bisect_left(self._finite, step)
        near = self._finite[max(0, place - 1) : place + 1]
        if not near:
            return True  # nothing is known of their size at any step
        return any(self._by_step[other].overflows(scale, self._cast) for other in near)


def run(
    state: Scaler,
    steps: Sequence[int],
    judge: Judge,
    accumulate: int,
    observe: Callable[[Scaler, int], Scaler],
) -> Course:
    """Take a scaler through the steps; the scale is fixed within each window of `accumulate`.

    observe(state, step): shows a state the gradients of a recorded step.
    """
    moments: list[Moment] = []
    for start in range(0, len(steps), accumulate):
        window = steps[start : start + accumulate]
        judged = [judge(step, state.scale) for step in window]
        overflow = any(flag for flag, _ in judged)
        skipped = overflow and state.skips
        moments += _moments(window, state.scale, judged, skipped, judge)
        if len(window) < accumulate:  # the trace ends before the optimizer's step
            break
        if state.stops(overflow):
            return Course(tuple(moments), state.scale, window[-1])
        if state.OBSERVES:
            for step in window:
                state = observe(state, step) if judge.source(step) == step else state
        state = state.adjust(overflow)
    return Course(tuple(moments), state.scale, None)


def _moments(
    window: Sequence[int],
    scale: float,
    judged: Sequence[tuple[bool, str]],
    skipped: bool,
    judge: Judge,
) -> Iterator[Moment]:
    for step, (flag, basis) in zip(window, judged, strict=True):
        yield Moment(step, judge.source(step), scale, flag, skipped, basis)


def together(courses: Sequence[Course]) -> list[Course]:
    """Return the courses of scalers that share one optimizer: a step that one skips, all skip.

    All end where the first of them ends the run.
    """
    end = min(len(course.moments) for course in courses)
    stopped = min((c.stopped for c in courses if c.stopped is not None), default=None)
    skipped = [any(course.moments[i].skipped for course in courses) for i in range(end)]
    return [
        Course(
            tuple(replace(course.moments[i], skipped=skipped[i]) for i in range(end)),
            course.moments[end].scale if end < len(course.moments) else course.final_scale,
            stopped,
        )
        for course in courses
    ]


#: How the overflow of several is known: by the weakest of them, the first here.
_WEAKEST = ("assumed", "counted", "recorded", "held")


def merged(courses: Sequence[Course]) -> Course:
    """Return the course of all layers: their smallest scale, and overflow in any of them."""
    moments = tuple(
        replace(
            at[0],
            scale=min(m.scale for m in at),
            overflow=any(m.overflow for m in at),
            basis=min((m.basis for m in at), key=_WEAKEST.index),
        )
        for at in zip(*(course.moments for course in courses), strict=True)
    )
    return Course(moments, min(c.final_scale for c in courses), courses[0].stopped)
