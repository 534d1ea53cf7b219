"""The rows of the what-if section: a format at scale 1, at its safe scales, at every scale."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from fpemu.analysis.report.rows import record_json
from fpemu.analysis.scales import SafeScales, safe_of
from fpemu.analysis.what_if import Row, percent
from fpemu.tallies import Outcome

__all__ = ["Curve", "ScaleRow", "curve", "scale_rows"]


@dataclass(frozen=True, slots=True)
class ScaleRow:
    """What one format does to a tensor, or to a whole kind, unscaled and at its safe scales."""

    name: str | None  #: None: all tensors of the kind
    kind: str
    to: str
    unscaled: Outcome  #: at scale 1, exact counts
    safe: SafeScales  #: for a kind: the scales at which every tensor of it is safe
    step: int | None = None  #: None: all recorded steps together

    @property
    def lost_percent(self) -> float:
        """Values lost at scale 1, in percent of the finite non-zero ones."""
        return percent(self.unscaled.lost, self.unscaled.nonzero)

    def to_json(self) -> dict[str, Any]:
        return record_json(self) | {"lost_percent": self.lost_percent}


def scale_rows(rows: Iterable[Row], tolerance: float) -> list[ScaleRow]:
    """Return the safe scales of `whatif` rows, which hold scale 1 and stand in its order."""
    found = []
    for key, run in itertools.groupby(rows, key=lambda r: (r.name, r.kind, r.step, r.to)):
        name, kind, step, to = key
        counted = sorted(run, key=lambda row: row.scale)
        [unscaled] = [row.outcome for row in counted if row.scale == 1.0]
        outcomes, factors = [r.outcome for r in counted], [r.scale for r in counted]
        safe = safe_of([outcomes], to, factors, tolerance)
        found.append(ScaleRow(name, kind, to, unscaled, safe, step))
    return found


@dataclass(frozen=True, slots=True)
class Curve:
    """Values of one kind lost in one format, at every scale tried."""

    kind: str
    to: str
    scales: tuple[float, ...]
    lost_percent: tuple[float, ...]
    underflow_percent: tuple[float, ...]
    beyond_percent: tuple[float, ...]  #: overflow and saturated

    def to_json(self) -> dict[str, Any]:
        return record_json(self)


def curve(kind: str, to: str, scales: list[float], outcomes: list[Outcome]) -> Curve:
    """Return the curve of outcomes counted at `scales`."""
    return Curve(
        kind,
        to,
        tuple(scales),
        tuple(percent(o.lost, o.nonzero) for o in outcomes),
        tuple(percent(o.underflow, o.nonzero) for o in outcomes),
        tuple(percent(o.overflow + o.saturated, o.nonzero) for o in outcomes),
    )
