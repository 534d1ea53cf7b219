"""The verdict: is the format ready for these numbers, what stands in the way, what would help.

It follows the rows and nothing else: thresholds are named in its sentences, what was recorded
broken comes first, and a loss scale is advised only for what it multiplies, the gradients.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fpemu.analysis.report.numbers import (
    count,
    interval,
    kind_words,
    number,
    plain,
    power,
    share,
    shorten,
)
from fpemu.analysis.report.rows import GRADIENTS, JUDGED, Event, ScaleRow, TensorRow
from fpemu.analysis.scales import SafeScales
from fpemu.cast import Cast

__all__ = ["Status", "Verdict", "judge"]


class Status(enum.Enum):
    """The answer in one word."""

    SAFE = "safe"  #: every judged tensor is safe as recorded
    SAFE_WITH_LOSS_SCALE = "safe_with_loss_scale"  #: only gradients fail; one loss scale saves them
    NOT_SAFE = "not_safe"  #: some tensor fails that no loss scale saves
    BROKEN = "broken"  #: the recorded values themselves hold NaN or infinity
    NO_DATA = "no_data"  #: nothing was recorded, or only zeros


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer, its reasons, and the rows they rest on."""

    status: Status
    headline: str  #: one sentence
    reasons: tuple[str, ...] = ()  #: sentences: what fails and why, what would help
    worst: TensorRow | None = None  #: the judged tensor that loses most, of the unsafe if any
    first_event: Event | None = None  #: the first NaN, infinity or overflow, else the first loss
    loss_scale: SafeScales | None = None  #: for all gradient tensors together; None: no gradients

    def to_json(self) -> dict[str, Any]:
        parts = {name: getattr(self, name) for name in ("worst", "first_event", "loss_scale")}
        return {
            "status": self.status.value,
            "headline": self.headline,
            "reasons": list(self.reasons),
            **{name: part.to_json() if part else None for name, part in parts.items()},
        }


def judge(
    tensors: Sequence[TensorRow],
    events: Sequence[Event],
    loss_scale: SafeScales | None,
    scale_rows: Sequence[ScaleRow],
    cast: Cast,
    tolerance: float,
) -> Verdict:
    """Return the verdict on a cast.

    tensors: one row each, of this cast unscaled. events: in the order of time. loss_scale: the
    safe scales of all gradients together. scale_rows: each tensor in each format tried.
    """
    limit = share(100 * tolerance)
    judged = [row for row in tensors if row.judged]
    keys = {(row.name, row.kind) for row in judged}
    about = [event for event in events if (event.name, event.kind) in keys]
    hard = [event for event in about if event.hard]
    values = sum(row.count for row in judged)
    if not values:
        return Verdict(Status.NO_DATA, f"No verdict on {cast}: the trace holds no values.")
    if not hard and all(row.amax in (None, 0.0) for row in judged):
        headline = f"No verdict on {cast}: all {count(values)} recorded values are zero."
        return Verdict(Status.NO_DATA, headline)
    first = next(iter(hard or about), None)
    worst = max(judged, key=lambda row: (not row.safe, row.lost_percent))
    failing = [row for row in judged if not row.safe]
    status = _status(failing, loss_scale)
    relevant = [row for row in scale_rows if (row.name, row.kind) in keys]
    reasons = [
        *_first_cause(hard),
        *_losing(failing),
        *_gradients(failing, loss_scale, limit),
        *_others(failing, relevant, cast, limit),
        *_formats(failing, relevant, cast),
        *_not_judged([row for row in tensors if not row.judged], cast),
    ]
    headline = _headline(status, worst, first, loss_scale, cast, limit)
    return Verdict(status, headline, tuple(reasons), worst, first, loss_scale)


def _status(failing: Sequence[TensorRow], loss_scale: SafeScales | None) -> Status:
    if not failing:
        return Status.SAFE
    if any(row.nan or row.inf for row in failing):
        return Status.BROKEN
    if loss_scale and loss_scale.safe and all(row.kind in GRADIENTS for row in failing):
        return Status.SAFE_WITH_LOSS_SCALE
    return Status.NOT_SAFE


# --- sentences ---------------------------------------------------------------------------------


def _headline(
    status: Status,
    worst: TensorRow,
    first: Event | None,
    loss_scale: SafeScales | None,
    cast: Cast,
    limit: str,
) -> str:
    if status is Status.SAFE:
        return (
            f"{cast} is safe for these values: nothing overflows and no tensor loses more than "
            f"{limit} of its non-zero values."
        )
    if first is not None and first.hard:
        blame = f"at step {first.step}, {_what(first, cast)}"
    else:
        since = "" if first is None else f", first at step {first.step}"
        blame = f"{_said(worst)} loses {share(worst.lost_percent)} of its values{since}"
    if status is Status.BROKEN:
        return f"These values are broken as recorded: {blame}."
    if status is Status.SAFE_WITH_LOSS_SCALE and loss_scale is not None:
        return f"{cast} needs a loss scale, such as {_scale(loss_scale.best)}: unscaled, {blame}."
    return f"{cast} is not safe: {blame}."


def _what(event: Event, cast: Cast) -> str:
    """What a hard event is, in words, with its tensor."""
    name, n, s = _said(event), count(event.count), "" if event.count == 1 else "s"
    if event.what == "nan":
        return f"{name} holds {n} NaN{s}"
    if event.what == "inf":
        return f"{name} holds {n} infinite value{s}"
    verb = "overflows" if event.count == 1 else "overflow"
    return (
        f"{n} value{s} of {name} {verb} (largest {number(event.amax)}, "
        f"{cast.format.name} ends at {number(cast.format.max)})"
    )


def _first_cause(hard: Sequence[Event]) -> list[str]:
    """What follows the first NaN, infinity or overflow, which the headline names."""
    if not hard:
        return []
    later = len({(event.name, event.kind) for event in hard[1:]} - {(hard[0].name, hard[0].kind)})
    if not later:
        return ["No other tensor holds NaN, infinite or overflowing values."]
    return [
        f"That is the first cause to look at: NaN, infinite or overflowing values come later in "
        f"{count(later)} more tensor{'s' * (later > 1)}."
    ]


def _losing(failing: Sequence[TensorRow]) -> list[str]:
    """Name the three tensors that lose most, and how."""
    losing = sorted((row for row in failing if row.lost_percent), key=lambda r: -r.lost_percent)
    told = [f"{_said(row)}: {_how(row)}." for row in losing[:3]]
    more = len(losing) - 3
    if more > 0:
        told.append(f"{count(more)} more tensor{'s are' if more > 1 else ' is'} not safe.")
    return told


def _how(row: TensorRow) -> str:
    """How a tensor loses values: '3 % of its non-zero values underflow'."""
    ways = {
        "underflow": row.underflow_percent,
        "overflow": row.overflow_percent,
        "are saturated": row.saturated_percent,
    }
    named = [f"{share(value)} {way}" for way, value in ways.items() if value]
    if not named:
        return f"{share(row.lost_percent)} of its non-zero values have a sign that the format lacks"
    first = named[0].replace(" % ", " % of its non-zero values ", 1)
    return ", ".join([first, *named[1:]])


def _in_range_fails(row: TensorRow) -> bool:
    """Whether a tensor fails by its finite values, which a scale could move."""
    return row.lost_percent > 0 and not row.safe


def _gradients(
    failing: Sequence[TensorRow], loss_scale: SafeScales | None, limit: str
) -> list[str]:
    if loss_scale is None or not any(_in_range_fails(r) and r.kind in GRADIENTS for r in failing):
        return []
    if loss_scale.safe:
        return [
            f"A loss scale of {_scale(loss_scale.best)} keeps every gradient tensor within "
            f"{limit} lost, without overflow. Safe loss scales: {interval(loss_scale)}."
        ]
    return [
        f"No loss scale tried keeps every gradient tensor within {limit} lost without overflow: "
        f"at the best, {power(loss_scale.best)}, one still loses {share(loss_scale.lost_percent)}."
    ]


def _others(
    failing: Sequence[TensorRow], scale_rows: Sequence[ScaleRow], cast: Cast, limit: str
) -> list[str]:
    """What a loss scale cannot reach, and whether a scale of its own would help."""
    rows = [row for row in failing if row.kind not in GRADIENTS and _in_range_fails(row)]
    if not rows:
        return []
    safe = {(r.name, r.kind): r.safe for r in scale_rows if r.to == str(cast)}
    saved = [row for row in rows if safe[row.name, row.kind].safe]
    n = f"{count(len(rows))} unsafe tensor{'s' * (len(rows) > 1)}"
    kinds = ", ".join(dict.fromkeys(kind_words(row.kind) for row in rows))
    sentence = f"A loss scale reaches gradients only: it does nothing for {n} ({kinds})."
    if not saved:
        return [f"{sentence} No power-of-two scale of its own saves one of them either."]
    row = max(saved, key=lambda row: row.lost_percent)
    own = safe[row.name, row.kind]
    return [
        f"{sentence} A scale of its own, stored beside the tensor, would bring {len(saved)} of "
        f"{len(rows)} within {limit}: {power(own.best)} for {_said(row)} "
        f"(safe: {interval(own)})."
    ]


def _formats(
    failing: Sequence[TensorRow], scale_rows: Sequence[ScaleRow], cast: Cast
) -> list[str]:
    """Which of the formats tried hold every tensor as it is."""
    tried = dict.fromkeys(row.to for row in scale_rows if row.to != str(cast))
    if not tried or not any(_in_range_fails(row) for row in failing):
        return []
    bad = {row.to for row in scale_rows if not row.safe.unscaled}
    holding = [to for to in tried if to not in bad]
    if not holding:
        return [f"No format tried holds every tensor unscaled (tried: {', '.join(tried)})."]
    return [f"In range, every tensor fits unscaled in {', '.join(holding)}."]


def _not_judged(rows: Sequence[TensorRow], cast: Cast) -> list[str]:
    """What the verdict leaves out, and what the cast would do to it."""
    unsafe = [row for row in rows if not row.safe]
    if not unsafe:
        return []
    kinds = ", ".join(dict.fromkeys(kind_words(row.kind) for row in rows))
    worst = max(unsafe, key=lambda row: row.lost_percent)
    why = "not asked for" if any(row.kind in JUDGED for row in rows) else (
        "mixed-precision training keeps these in float32"
    )
    return [
        f"Not judged: {kinds} ({why}). In {cast}, {count(len(unsafe))} of "
        f"{count(len(rows))} tensors would not be safe; worst, {_said(worst)}: {_how(worst)}."
    ]


def _said(row: TensorRow | Event) -> str:
    """A tensor's name and kind, fit for a sentence."""
    return f"{shorten(plain(row.name), 64)} ({kind_words(row.kind)})"


def _scale(scale: float) -> str:
    """A power of two with its value, where that says more."""
    return power(scale) if scale == 1.0 else f"{power(scale)} ({number(scale)})"
