"""Lines: what a layer's statistics may be before its format changes, with room in between."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from fpemu.analysis.scales import TOLERANCE
from fpemu.analysis.what_if import percent
from fpemu.errors import InputError, did_you_mean
from fpemu.tallies import Outcome

__all__ = ["LINES", "STATISTICS", "Line"]


def _share(part: Callable[[Outcome], int]) -> Callable[[Outcome], float]:
    """A count of finite non-zero values, in percent of them."""
    return lambda outcome: percent(part(outcome), outcome.nonzero)


def _unfinite(outcome: Outcome) -> float:
    return percent(outcome.nan + outcome.inf, outcome.total)


#: Name -> what it is of an Outcome in the narrow format, in percent; larger is worse.
STATISTICS: Mapping[str, Callable[[Outcome], float]] = MappingProxyType({
    "lost_percent": _share(lambda outcome: outcome.lost),
    "underflow_percent": _share(lambda outcome: outcome.underflow),
    "subnormal_percent": _share(lambda outcome: outcome.subnormal),
    "saturated_percent": _share(lambda outcome: outcome.saturated),
    "overflow_percent": _share(lambda outcome: outcome.overflow),
    "nonfinite_percent": _unfinite,
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Line:
    """A statistic, and the two values between which nothing changes (hysteresis).

    >>> from fpemu.analysis.schedule import Line
    >>> line = Line("underflow_percent", down=0.1, up=1.0)
    >>> [line.side(value) for value in (0.0, 0.1, 0.5, 1.0, 1.5)]
    [-1, -1, 0, 0, 1]

    Fields
        statistic: one of STATISTICS: shares of the finite non-zero values that the narrow format
            would lose, underflow, saturate, overflow or keep as subnormals, and "nonfinite_percent"
            of all values.
        down: at or below it a layer may go to the narrow format.
        up: above it the layer goes back to the wide one; NaN counts as above.
    """

    statistic: str
    down: float
    up: float

    def __post_init__(self) -> None:
        if self.statistic not in STATISTICS:
            hint = did_you_mean(str(self.statistic)[:64], STATISTICS)
            raise InputError(
                f"statistic {self.statistic!r:.80}: {hint}choose one of {', '.join(STATISTICS)}"
            )
        for name in ("down", "up"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
                raise InputError(f"line {self.statistic}: {name}={value!r:.40} must be a number")
        if not 0 <= self.down <= self.up:
            raise InputError(
                f"line {self.statistic}: down={self.down:g} and up={self.up:g} must be percentages "
                "with down at most up; what lies between them changes nothing"
            )

    def side(self, value: float) -> int:
        """Return -1 at or below `down`, 1 above `up`, 0 in between."""
        if value <= self.down:
            return -1
        return 0 if value <= self.up else 1

    def to_json(self) -> dict[str, Any]:
        """Return the line as a JSON-ready dict."""
        return {"statistic": self.statistic, "down": self.down, "up": self.up}


#: The lines that hold unless others are given: one overflow is enough to go back.
LINES = (
    Line("lost_percent", down=100 * TOLERANCE, up=1000 * TOLERANCE),
    Line("overflow_percent", down=0.0, up=0.0),
)
