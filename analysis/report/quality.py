"""Quality: how near rounded values are to the values, as far as counts let expect it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fpemu.analysis.plots.compute.noise import decibels, predicted
from fpemu.analysis.report.rows import record_json
from fpemu.errors import InputError

if TYPE_CHECKING:
    from fpemu.analysis.by_recipe import Target
    from fpemu.analysis.parts import Parts
    from fpemu.tallies import Outcome

__all__ = ["UNKNOWN", "Quality", "expected"]


@dataclass(frozen=True, slots=True)
class Quality:
    """How near the rounded values are to the values, as the counts let expect."""

    sqnr_db: float | None = None  #: -inf where a value overflows
    cosine: float | None = None  #: None where values are clamped or overflow

    def to_json(self) -> dict[str, Any]:
        return record_json(self)


#: What counts say nothing of.
UNKNOWN = Quality()


def expected(parts: Parts, cast: Target, outcomes: Mapping[float, Outcome]) -> list[Quality]:
    """Return what can be expected at each scale, whose outcome is given; nothing of some casts."""
    try:
        signal, noise = predicted(parts, cast, list(outcomes))
    except InputError:  # directed roundings and casts almost as fine as float32
        return [UNKNOWN] * len(outcomes)
    if not signal:
        return [UNKNOWN] * len(outcomes)
    return [
        _quality(signal, float(error), outcome)
        for error, outcome in zip(noise, outcomes.values(), strict=True)
    ]


def _quality(signal: float, noise: float, outcome: Outcome) -> Quality:
    # Rounded to nearest, values spread evenly have their results as centroids, at which the
    # error is orthogonal: |q|^2 = |x|^2 - |x - q|^2. Clamped values do not.
    beyond = outcome.saturated + outcome.overflow + outcome.invalid
    cosine = None if beyond else math.sqrt(max(0.0, 1.0 - noise / signal))
    return Quality(float(decibels(signal, noise)), cosine)
