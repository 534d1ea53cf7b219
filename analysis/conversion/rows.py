"""Rows: what a conversion did to each tensor, as frozen records; text and JSON are their views."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from fpemu.analysis.conversion.measure import Measured
from fpemu.analysis.report.rows import json_value, record_json

__all__ = ["KeptRow", "TensorRow", "total"]


@dataclass(frozen=True, slots=True)
class TensorRow:
    """A tensor that was converted, and what is left of its numbers."""

    name: str
    file: str  #: that was written
    dtype: str  #: before, as safetensors calls it
    to_dtype: str  #: as written: of the values, or of the codes
    shape: tuple[int, ...]
    values: int
    octets: int  #: before
    to_octets: int  #: after, scales included
    measured: Measured
    widened: bool = False  #: float32 because its own dtype does not hold every result exactly
    rounded_again: bool = False  #: results were rounded to its own dtype

    @property
    def rank(self) -> tuple[bool, float]:
        """Sorts the worst first: what broke, then the lowest signal-to-noise ratio."""
        sqnr = self.measured.sqnr
        return not self.measured.broken, -math.inf if math.isnan(sqnr) else sqnr

    def to_json(self) -> dict[str, Any]:
        measured = record_json(self.measured) | {
            "sqnr_db": None if not math.isfinite(self.measured.sqnr) else self.measured.sqnr,
            "exact": self.measured.sqnr == math.inf,
            "lost_percent": self.measured.lost_percent,
            "clipped_percent": json_value(self.measured.clipped_percent),
        }
        facts = record_json(self)
        del facts["measured"]
        return facts | measured


@dataclass(frozen=True, slots=True)
class KeptRow:
    """A tensor that was copied as it is, and why."""

    name: str
    file: str
    dtype: str
    shape: tuple[int, ...]
    octets: int
    reason: str

    def to_json(self) -> dict[str, Any]:
        return record_json(self)


def total(rows: Iterable[TensorRow]) -> Measured:
    """Return what was measured of all tensors together."""
    return sum((row.measured for row in rows), Measured())
