"""Replay: what a loss scaler would have done on a recorded run."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from fpemu.analysis.asked import own_cast, several
from fpemu.analysis.by_recipe import check_cast
from fpemu.analysis.carried import METADATA
from fpemu.analysis.lossscale.course import (
    UNKNOWN,
    Course,
    Judge,
    Moment,
    merged,
    run,
    together,
)
from fpemu.analysis.lossscale.losses import Losses, count_losses
from fpemu.analysis.lossscale.named import scaler as named
from fpemu.analysis.lossscale.notes import is_open, note
from fpemu.analysis.lossscale.replayed import Replay, ReplayedStep, Totals
from fpemu.analysis.lossscale.room import overflows_both_ways
from fpemu.analysis.lossscale.seen import Gathered, gather
from fpemu.analysis.lossscale.state import Scaler, given_text
from fpemu.analysis.tensor_names import layer_of
from fpemu.analysis.what_if import percent
from fpemu.cast import Cast
from fpemu.errors import InputError, did_you_mean
from fpemu.format import Format
from fpemu.tallies import SCALE_LIMIT

if TYPE_CHECKING:
    from fpemu.analysis.trace import Trace

__all__ = ["GAPS", "LIMIT", "replay", "replays"]

_T = TypeVar("_T")

#: What is done about steps between the recorded ones.
GAPS = ("hold", "skip")

#: Most steps that are replayed, those between the recorded ones among them.
LIMIT = 1_000_000


def replay(
    trace: Trace,
    scaler: str | Scaler,
    *,
    to: str | Format | Cast | None = None,
    accumulate: int = 1,
    per_layer: bool = False,
    kinds: str | Iterable[str] | None = None,
    unknown: str = "neighbours",
    gaps: str = "hold",
) -> Replay:
    """Return what a loss scaler would have done on the gradients of a recorded run.

    >>> import numpy as np
    >>> from fpemu.analysis import lossscale
    >>> from fpemu.analysis.trace import Trace
    >>> trace = Trace()
    >>> for step, size in enumerate([2.0, 2.0, 4.0, 1.0]):
    ...     trace.record("fc1.weight", "weight_gradient", np.float32([size, 1e-14]), step)
    >>> done = lossscale.replay(trace, "torch:init_scale=2^15,growth_interval=2", to="fp16")
    >>> [(step.scale, step.overflow, step.lost_percent) for step in done.steps]
    [(32768.0, True, 100.0), (16384.0, False, 50.0), (16384.0, True, 100.0), (8192.0, False, 50.0)]
    >>> done.skipped_steps, done.final_scale, done.lost_percent, done.open_loop
    (2, 8192.0, 75.0, True)

    scaler: its text form, or a `Scaler`, which goes on from the state it is in.
    A step overflows if one of its weight gradients does (without any in the trace: its activation
    gradients; `kinds` names others): in the cast `to` at the replayed scale, or as recorded at
    this scale or a smaller one. The cast is the trace's own (metadata "to") unless given, else
    float16. Gradients are taken as recorded, divided by the loss scale that they carry.
    accumulate: so many steps of the trace, its micro-batches, make one step of the optimizer: the
    scale is fixed within them, and one overflow costs them all. per_layer: one scaler for each
    layer, which sees only that layer's overflows; the optimizer's step is still one, and any
    overflow skips it.
    unknown: gradients that were infinite or NaN at a larger scale than the replayed one are of
    unknown size. "neighbours": they overflow if their finite values do, or those of the nearest
    step before or after that was finite; "overflow": always; "fits": only by their finite values.
    gaps: steps between the recorded ones have the gradients of the last recorded one ("hold"), or
    are left out, as if the run had only the recorded ones ("skip").
    Scales that are no power of two times the recorded one: overflow is exact, by the largest
    magnitude times the ratio; losses are those of the power of two below.
    The scaler that ran gives the trajectory that was recorded. With another one the gradients
    would have changed with the steps skipped: `open_loop` and `note` say so.
    Errors: InputError for a trace without gradients, a stochastic cast, options that are none.
    """
    [done] = replays(
        trace, [scaler], to=to, accumulate=accumulate, per_layer=per_layer, kinds=kinds,
        unknown=unknown, gaps=gaps,
    )  # fmt: skip
    return done


def replays(
    trace: Trace,
    scalers: str | Scaler | Iterable[str | Scaler],
    *,
    to: str | Format | Cast | None = None,
    accumulate: int = 1,
    per_layer: bool = False,
    kinds: str | Iterable[str] | None = None,
    unknown: str = "neighbours",
    gaps: str = "hold",
) -> tuple[Replay, ...]:
    """Return `replay` of each of several scalers; the trace is read twice for all of them.

    >>> import numpy as np
    >>> from fpemu.analysis import lossscale
    >>> from fpemu.analysis.trace import Trace
    >>> trace = Trace()
    >>> trace.record("fc1.weight", "weight_gradient", np.float32([1e-8, 1e-6]), step=0)
    >>> for done in lossscale.replays(trace, ["none", "static:scale=1024", "torch"]):
    ...     print(done.scaler, done.lost_percent)
    none 50.0
    static:scale=2^10 0.0
    torch 0.0
    """
    starts = [
        one if isinstance(one, Scaler) else named(one)
        for one in several("scalers", scalers, str, Scaler)
    ]
    _check("unknown", unknown, UNKNOWN)
    _check("gaps", gaps, GAPS)
    window = _window(accumulate)
    why = "a loss scale is for formats; a recipe brings scales of its own"
    cast = own_cast(trace) if to is None else check_cast("to", to, why)
    gathered = gather(trace, cast, kinds, per_layer)
    asked = _Asked(trace, cast, gathered, _steps(gathered.steps, gaps), window, unknown)
    return asked.replays(starts, per_layer)


@dataclass(frozen=True)
class _Asked:
    """One question: a trace as it was read, and the options."""

    trace: Trace
    cast: Cast
    gathered: Gathered
    steps: Sequence[int]
    accumulate: int
    unknown: str

    def replays(self, starts: Sequence[Scaler], per_layer: bool) -> tuple[Replay, ...]:
        layers = tuple(self.gathered.layers)
        courses = [together([self._course(one, layer) for layer in layers]) for one in starts]
        flat = [pair for one in courses for pair in zip(layers, one, strict=True)]
        counted = _batches(count_losses(self.trace, self.cast, self.gathered, flat), len(layers))
        return tuple(
            self._by_layer(start, layers, one, losses)
            if per_layer
            else self._replay(start, "", one[0], losses[0])
            for start, one, losses in zip(starts, courses, counted, strict=True)
        )

    def _by_layer(
        self,
        start: Scaler,
        layers: Sequence[str],
        courses: Sequence[Course],
        counted: Sequence[Sequence[Losses]],
    ) -> Replay:
        parts = tuple(map(self._replay, [start] * len(layers), layers, courses, counted))
        sums = [sum(of_step, Losses()) for of_step in zip(*counted, strict=True)]
        whole = self._replay(start, "", merged(courses), sums)
        return replace(
            whole,
            open_loop=any(part.open_loop for part in parts),
            note=f"{whole.note} One scaler for each of {len(layers):,} layers: the scale shown is "
            "the smallest of any.",
            layers=parts,
        )

    def _course(self, start: Scaler, layer: str) -> Course:
        judge = Judge(self.gathered.layers[layer], self.cast, self.unknown)
        return run(
            start, self.steps, judge, self.accumulate,
            lambda state, step: self._observed(state, layer, step),
        )  # fmt: skip

    def _observed(self, state: Scaler, layer: str, step: int) -> Scaler:
        seen = self.gathered.layers[layer][step]
        if seen.room < SCALE_LIMIT and overflows_both_ways(self.cast):
            known = state.observe_room(str(self.cast), seen.room, seen.recorded)
            if known is not None:
                return known
        tallies = (
            record.tally
            for kind in self.gathered.kinds
            for record in self.trace.records(kind=kind, step=step)
            if layer in ("", layer_of(record.name, record.kind))
        )
        return state.observe(tallies, self.gathered.carried.at(step))

    def _replay(
        self, start: Scaler, layer: str, course: Course, losses: Sequence[Losses]
    ) -> Replay:
        steps = tuple(map(self._step, course.moments, losses))
        totals = Totals(
            sum(count.nonzero for count in losses),
            sum(count.underflow for count in losses),
            sum(
                count.nonzero if step.skipped else count.lost
                for step, count in zip(steps, losses, strict=True)
            ),
        )
        scaled = bool(self.gathered.carried.known) or METADATA in self.trace.metadata
        return Replay(
            str(start), str(self.cast), self.gathered.kinds, self.accumulate, steps, totals,
            course.final_scale, course.stopped, is_open(steps, scaled=scaled),
            note(steps, unknown=self.unknown, stopped=course.stopped, scaled=scaled), layer,
        )  # fmt: skip

    def _step(self, moment: Moment, count: Losses) -> ReplayedStep:
        return ReplayedStep(
            moment.step, moment.scale, self.gathered.carried.at(moment.step), moment.overflow,
            moment.skipped, 100.0 if moment.skipped else percent(count.lost, count.nonzero),
            percent(count.underflow, count.nonzero), moment.basis, tuple(count.overflowed),
        )  # fmt: skip


def _batches(items: Sequence[_T], size: int) -> list[Sequence[_T]]:
    """Return the items in lists of one size."""
    return [items[start : start + size] for start in range(0, len(items), size)]


def _steps(recorded: Sequence[int], gaps: str) -> Sequence[int]:
    if gaps == "skip":
        return recorded
    first, last = recorded[0], recorded[-1]
    if last - first >= LIMIT:
        raise InputError(
            f"steps {first} to {last}: more than {LIMIT:,} are not replayed one by one; "
            'gaps="skip" takes the recorded ones alone'
        )
    return range(first, last + 1)


def _window(accumulate: Any) -> int:
    try:
        count = 0 if isinstance(accumulate, bool) else operator.index(accumulate)
    except TypeError:
        count = 0
    if count < 1:
        raise InputError(f"accumulate={given_text(accumulate)}: must be a whole number from 1 on")
    return count


def _check(what: str, value: object, known: Sequence[str]) -> None:
    if not isinstance(value, str) or value not in known:
        hint = did_you_mean(value, known) if isinstance(value, str) else ""
        raise InputError(f"{what}={given_text(value)}: {hint}must be one of {', '.join(known)}")
