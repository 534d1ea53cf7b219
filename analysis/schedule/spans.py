"""Spans: the unbroken runs of steps at which something holds, and what several share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fpemu.analysis.scales import runs_of_true
from fpemu.errors import InputError

__all__ = ["Span", "check_patience", "shared", "spans"]


@dataclass(frozen=True, slots=True)
class Span:
    """Steps from a first to a last one, both included; a last one of None is open: to the end."""

    first_step: int
    last_step: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the span as a JSON-ready dict."""
        return {"first_step": self.first_step, "last_step": self.last_step}


def spans(steps: Sequence[int], safe: Sequence[bool], patience: int = 1) -> tuple[Span, ...]:
    """Return the runs of at least `patience` recorded steps at which something is safe.

    >>> from fpemu.analysis.schedule.spans import spans
    >>> spans([0, 10, 20, 30, 40], [True, True, False, True, True], patience=2)
    (Span(first_step=0, last_step=10), Span(first_step=30, last_step=None))

    steps: the recorded ones, rising; safe: one for each. A run ends at its last safe recorded
    step, as nobody knows what comes between that and the next; the run that holds the last
    recorded step is open.
    """
    found = []
    for first, last in runs_of_true(safe):
        if last - first + 1 >= patience:
            found.append(Span(steps[first], None if last == len(steps) - 1 else steps[last]))
    return tuple(found)


def shared(several: Iterable[Sequence[Span]]) -> tuple[Span, ...]:
    """Return the steps that are in a span of every sequence, as spans.

    >>> from fpemu.analysis.schedule.spans import Span, shared
    >>> shared([[Span(0, 9), Span(20)], [Span(5)]])
    (Span(first_step=5, last_step=9), Span(first_step=20, last_step=None))

    Of no sequence at all there are none.
    """
    each = iter(several)
    common = list(next(each, ()))
    for others in each:
        common = [both for one in common for other in others for both in _meeting(one, other)]
    return tuple(common)


def check_patience(patience: object) -> int:
    """Return a number of recorded steps from 1 on."""
    if isinstance(patience, bool) or not isinstance(patience, int) or patience < 1:
        raise InputError(
            f"patience {patience!r:.40}: must be an integer from 1 on; count recorded steps"
        )
    return patience


def _meeting(a: Span, b: Span) -> Iterator[Span]:
    first = max(a.first_step, b.first_step)
    last = min((end for end in (a.last_step, b.last_step) if end is not None), default=None)
    if last is None or first <= last:
        yield Span(first, last)
