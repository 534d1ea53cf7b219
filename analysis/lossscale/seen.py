"""Seen: what a trace says of whether a step's gradients overflow at a loss scale."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from fpemu.analysis.asked import several
from fpemu.analysis.carried import Carried, carried
from fpemu.analysis.lossscale.room import room
from fpemu.analysis.records import GRADIENTS, check_kind
from fpemu.analysis.tensor_names import layer_of
from fpemu.cast import Cast
from fpemu.errors import InputError
from fpemu.rounding import round_exact
from fpemu.tallies import SCALE_LIMIT

if TYPE_CHECKING:
    from fpemu.analysis.records import Record
    from fpemu.analysis.trace import Trace

__all__ = ["Gathered", "Seen", "gather", "gradient_kinds", "seen_of", "times"]


@dataclass(frozen=True, slots=True)
class Seen:
    """The gradients of one step, of one layer or of all, as far as overflow goes."""

    recorded: float  #: the loss scale that they were recorded times
    room: int  #: the largest k at which no finite one overflows times 2^k
    amax: float  #: the largest finite magnitude, as recorded
    finite: bool  #: whether none was NaN or infinite as recorded

    def __add__(self, other: Seen) -> Seen:
        """Return what is seen of both, at one step."""
        return Seen(
            self.recorded,
            min(self.room, other.room),
            max(self.amax, other.amax),
            self.finite and other.finite,
        )

    def overflows(self, scale: float, cast: Cast) -> bool:
        """Say whether a finite one overflows in `cast` at a loss scale.

        Powers of two times the recorded scale are decided by the histogram; between two of them
        the largest magnitude times the ratio is rounded exactly.
        """
        if math.isinf(scale):
            return True  # the loss itself is infinite
        k, exact = times(scale, self.recorded)
        if exact or k > self.room or k < self.room:
            return k > self.room and self.room < SCALE_LIMIT
        return self._rounded(Fraction(scale) / Fraction(self.recorded), cast)

    def _rounded(self, ratio: Fraction, cast: Cast) -> bool:
        largest = Fraction(self.amax) * ratio
        found = {round_exact(cast, x).outcome == "overflow" for x in (largest, -largest)}
        if len(found) > 1:
            raise InputError(
                f"ratio {float(ratio):g} of the replayed to the recorded loss scale is no power "
                f"of two, and {cast} rounds the two signs differently: replay powers of two, or "
                "a cast to nearest"
            )
        return found.pop()


def times(scale: float, recorded: float) -> tuple[int, bool]:
    """Return floor(log2(scale / recorded)) within the tallies' limits, and whether it is exact.

    >>> from fpemu.analysis.lossscale.seen import times
    >>> times(1536.0, 3.0), times(1000.0, 1.0), times(0.0, 1.0)
    ((9, True), (9, False), (-300, True))

    Beyond 2^-300 and 2^300 every float32 underflows or overflows in every format: those stand
    for all scales beyond them, 0 and infinity among them.
    """
    if not 0.0 < scale < math.inf:
        return (SCALE_LIMIT if scale else -SCALE_LIMIT), True
    (a, up), (b, down) = math.frexp(scale), math.frexp(recorded)
    k = up - down - (a < b)
    return max(-SCALE_LIMIT, min(k, SCALE_LIMIT)), a == b or abs(k) >= SCALE_LIMIT


@dataclass(frozen=True)
class Gathered:
    """What a trace's gradients are, by layer and step; without layers, all are in ""."""

    kinds: tuple[str, ...]
    steps: tuple[int, ...]
    by_layer: bool
    layers: Mapping[str, Mapping[int, Seen]]
    carried: Carried


def gather(
    trace: Trace, cast: Cast, kinds: str | Iterable[str] | None, per_layer: bool
) -> Gathered:
    """Read a trace's gradients once."""
    chosen, scales = gradient_kinds(trace, kinds), carried(trace)
    layers: dict[str, dict[int, Seen]] = {}
    steps: set[int] = set()
    for kind in chosen:
        for record in trace.records(kind=kind):
            seen = seen_of(record, cast, scales.of(record))
            steps.add(record.step)
            layer = layer_of(record.name, record.kind) if per_layer else ""
            by_step = layers.setdefault(layer, {})
            before = by_step.get(record.step)
            by_step[record.step] = seen if before is None else before + seen
    return Gathered(chosen, tuple(sorted(steps)), per_layer, layers, scales)


def gradient_kinds(trace: Trace, kinds: str | Iterable[str] | None) -> tuple[str, ...]:
    """Return the kinds that decide: those asked for, else weight gradients, else the others'."""
    there = [kind for kind in GRADIENTS if kind in trace.kinds()]
    asked = several("kinds", kinds or there[:1], str)
    for kind in asked:
        if check_kind(kind) not in there:
            raise InputError(
                f"kind {kind!r}: a loss scale is replayed on gradients that the trace holds; "
                f"recorded: {', '.join(there) or 'none'}"
            )
    if not asked:
        raise InputError(
            "no gradients in the trace: a loss scale is replayed on gradients; record kinds "
            "'weight_gradient' or 'activation_gradient'"
        )
    return tuple(kind for kind in GRADIENTS if kind in asked)


def seen_of(record: Record, cast: Cast, recorded: float) -> Seen:
    """Return what is seen of one record."""
    tally = record.tally
    k = room(tally, cast)
    return Seen(
        recorded,
        SCALE_LIMIT if k is None else k,
        record.moments.amax,
        tally.nan == tally.inf == 0,
    )
