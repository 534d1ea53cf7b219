"""Causes: looks at each tensor as it is counted and notes the first that left the range."""

from __future__ import annotations

import linecache
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fpemu.analysis.first_cause import EVENT, FirstCause, FirstCauseError, Glimpse
from fpemu.analysis.records import JUDGED

if TYPE_CHECKING:
    from fpemu.analysis.collect.places import Place
    from fpemu.analysis.collect.settings import Settings
    from fpemu.analysis.trace import Trace
    from fpemu.moments import Moments
    from fpemu.tallies import Tally

__all__ = ["Causes", "Origin"]

#: Kinds that lie there from step to step: in a lead-up they would hide what flows.
_STANDING = ("weight", "optimizer_state")


@dataclass(frozen=True, slots=True)
class Origin:
    """What made a tensor, asked for only when something is wrong with it."""

    module: str
    operation: str
    place: Place | None
    inputs: tuple[Glimpse, ...]


class Causes:
    """The first causes of a run, and the tensors that went before."""

    def __init__(self, trace: Trace, settings: Settings) -> None:
        self._trace, self._to, self._stop_on = trace, settings.to, settings.stop_on
        self._found: dict[tuple[str, bool], FirstCause] = {}
        self._lead_up: deque[Glimpse] = deque(maxlen=settings.lead_up)
        self.loss_scale: Callable[[], float | None] = lambda: None  #: None: no scaler at work

    @property
    def found(self) -> list[FirstCause]:
        """The first causes so far: of each kind one, in the order in which they were met."""
        return list(self._found.values())

    def look(
        self,
        step: int,
        seen: Glimpse,
        tally: Tally,
        moments: Moments,
        origin: Callable[[], Origin],
    ) -> None:
        """Look at one tensor; raise FirstCauseError if it is what `stop_on` waits for."""
        what, count = self._what(seen, tally, moments)
        if what:
            scale = self.loss_scale() if seen.phase == "backward" else None
            caught = scale is not None
            if (what, caught) not in self._found:
                cause = self._cause(what, count, step, seen, origin(), scale)
                self._note(cause)
        if seen.kind not in _STANDING:
            self._lead_up.append(seen)

    def _what(self, seen: Glimpse, tally: Tally, moments: Moments) -> tuple[str, int]:
        """What happened to a tensor's values, and to how many."""
        if seen.nan:
            return "nan", seen.nan
        if seen.inf:
            return "inf", seen.inf
        # what lies within the range cannot overflow: this spares most tensors the outcome
        if self._to is None or seen.kind not in JUDGED or moments.amax <= self._to.format.max:
            return "", 0
        outcome = tally.outcome(self._to)
        if outcome.overflow:
            return "overflow", outcome.overflow
        return ("saturated", outcome.saturated) if outcome.saturated else ("", 0)

    def _cause(
        self, what: str, count: int, step: int, seen: Glimpse, origin: Origin, scale: float | None
    ) -> FirstCause:
        place, inputs = origin.place, origin.inputs
        known = place is not None and bool(place.file)
        # a step finds its weights as the one before has left them
        handed_on = seen.kind == "weight" or self._any_odd(what, inputs)
        return FirstCause(
            what=what,
            to=str(self._to) if what in ("overflow", "saturated") else None,
            step=step,
            name=seen.name,
            kind=seen.kind,
            module=origin.module,
            operation=origin.operation,
            source=place.long if place is not None and known else "?",
            code=_code(place) if place is not None and known else "",
            phase=seen.phase,
            role="propagator" if handed_on else "producer",
            amax_in=max((one.amax for one in inputs), default=None),
            amax_out=seen.amax,
            nan=seen.nan,
            inf=seen.inf,
            count=count,
            total=seen.total,
            loss_scale=1.0 if scale is None else scale,
            caught=scale is not None,
            inputs=inputs,
            lead_up=tuple(self._lead_up),
        )

    def _any_odd(self, what: str, inputs: Iterable[Glimpse]) -> bool:
        """Whether what went in had left the range already."""
        if what in ("nan", "inf") or self._to is None:
            return any(not one.normal for one in inputs)
        return any(not one.normal or one.amax > self._to.format.max for one in inputs)

    def _note(self, cause: FirstCause) -> None:
        self._found[cause.what, cause.caught] = cause
        self._trace.event(cause.step, cause.name, EVENT, cause.headline, cause=cause.to_json())
        if cause.what in self._stop_on and not cause.caught:
            raise FirstCauseError(cause)


def _code(place: Place) -> str:
    """The text of a line of source."""
    return linecache.getline(place.file, place.line).strip()[:200]
