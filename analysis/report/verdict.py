"""The verdict: is the format ready for these numbers, what stands in the way, what would help.

It follows the rows and nothing else: what was recorded broken comes first, and a loss scale is
advised only for what it multiplies, the gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fpemu.analysis.report.numbers import count, share
from fpemu.analysis.report.rows import GRADIENTS, Incident, TensorRow
from fpemu.analysis.report.scale_rows import ScaleRow
from fpemu.analysis.report.sentences import headline, reasons
from fpemu.analysis.report.status import Status
from fpemu.analysis.scales import SafeScales
from fpemu.cast import Cast

__all__ = ["Status", "Verdict", "judge"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer, its reasons, and the rows they rest on."""

    status: Status
    headline: str  #: one sentence
    reasons: tuple[str, ...] = ()  #: sentences: what fails and why, what would help
    worst: TensorRow | None = None  #: the judged tensor that loses most, of the unsafe if any
    first_event: Incident | None = None  #: the first NaN, infinity or overflow, else the first loss
    loss_scale: SafeScales | None = None  #: to train with, for all gradients; None: no gradients

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
    events: Sequence[Incident],
    loss_scale: SafeScales | None,
    scale_rows: Sequence[ScaleRow],
    cast: Cast,
    tolerance: float,
    *,
    loss_scale_recorded: float = 1.0,
) -> Verdict:
    """Return the verdict on a cast.

    tensors: one row each, of this cast unscaled. events: in the order of time. loss_scale: the
    safe scales of all gradients together, as recorded. scale_rows: each tensor in each format
    tried. loss_scale_recorded: what the recorded gradients were multiplied by.
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
        nothing = f"No verdict on {cast}: all {count(values)} recorded values are zero."
        return Verdict(Status.NO_DATA, nothing)
    first = next(iter(hard or about), None)
    worst = max(judged, key=lambda row: (not row.safe, row.lost_percent))
    failing = [row for row in judged if not row.safe]
    if loss_scale is not None:
        loss_scale = loss_scale.times(loss_scale_recorded)
    status = _status(failing, loss_scale)
    relevant = [row for row in scale_rows if (row.name, row.kind) in keys]
    others = [row for row in tensors if not row.judged]
    return Verdict(
        status,
        headline(status, worst, first, loss_scale, cast, limit),
        tuple(
            reasons(
                failing, hard, loss_scale, relevant, others, cast, limit, loss_scale_recorded
            )
        ),
        worst,
        first,
        loss_scale,
    )


def _status(failing: Sequence[TensorRow], loss_scale: SafeScales | None) -> Status:
    if not failing:
        unscaled = loss_scale is None or loss_scale.unscaled
        return Status.SAFE if unscaled else Status.SAFE_WITH_LOSS_SCALE
    if any(row.nan or row.inf for row in failing):
        return Status.BROKEN
    if loss_scale and loss_scale.safe and all(row.kind in GRADIENTS for row in failing):
        return Status.SAFE_WITH_LOSS_SCALE
    return Status.NOT_SAFE
