"""Fail on: conditions on the tensors of a scan, for scripts that go on only if none holds."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from fpemu.analysis.checkpoints.rows import Loss, TensorRow
from fpemu.analysis.what_if import percent
from fpemu.errors import InputError, did_you_mean

__all__ = ["MEASURES", "Condition", "Failure", "failures", "read_condition"]


def _share(part: Callable[[Loss], int]) -> Callable[[Loss], float]:
    return lambda row: percent(part(row), row.unscaled.nonzero)


#: What a condition may be about -> its value for a tensor in a format: percent of its values.
MEASURES: dict[str, Callable[[Loss], float]] = {
    "lost": lambda row: row.lost_percent,
    "lost_scaled": lambda row: row.safe.lost_percent,
    "underflow": _share(lambda row: row.unscaled.underflow),
    "overflow": _share(lambda row: row.unscaled.overflow + row.unscaled.saturated),
    "subnormal": _share(lambda row: row.unscaled.subnormal),
    "nan": lambda row: percent(row.unscaled.nan, row.unscaled.total),
    "inf": lambda row: percent(row.unscaled.inf, row.unscaled.total),
}

_TEXT = re.compile(r"\s*([a-z_]+)\s*(>=|>)\s*([0-9.eE+-]+)\s*")


@dataclass(frozen=True, slots=True)
class Condition:
    """A measure that must not go above, or reach, a limit in percent."""

    measure: str
    reaching: bool  #: whether the limit itself fails too: >=
    limit: float

    def holds(self, row: Loss) -> bool:
        """Whether a tensor in a format is as bad as the condition says."""
        value = MEASURES[self.measure](row)
        return value > self.limit or (self.reaching and value == self.limit)

    def __str__(self) -> str:
        return f"{self.measure}{'>=' if self.reaching else '>'}{self.limit:g}"


class Failure(NamedTuple):
    """A tensor in a format for which a condition holds."""

    condition: Condition
    tensor: TensorRow
    row: Loss

    @property
    def percent(self) -> float:
        """What the condition is about, in percent."""
        return MEASURES[self.condition.measure](self.row)


def read_condition(text: str) -> Condition:
    """Return the condition that a text such as 'lost>0.1' says, its limit in percent.

    >>> from fpemu.analysis.checkpoints.fail_on import read_condition
    >>> str(read_condition("lost > 0.1"))
    'lost>0.1'

    Errors: InputError for another measure than those of MEASURES, another sign than > and >=,
    or a limit that is no percentage.
    """
    found = _TEXT.fullmatch(text)
    limit = math.nan
    if found:
        with contextlib.suppress(ValueError):
            limit = float(found[3])
    if not found or not 0.0 <= limit <= 100.0:
        raise InputError(f"condition {text!r}: give a measure, > or >=, and percent: 'lost>0.1'")
    if found[1] not in MEASURES:
        hint = did_you_mean(found[1], MEASURES)
        raise InputError(f"condition {text!r}: {hint}measures: {', '.join(MEASURES)}")
    return Condition(found[1], found[2] == ">=", limit)


def failures(tensors: Iterable[TensorRow], conditions: Iterable[Condition]) -> Iterator[Failure]:
    """Yield each tensor and format for which a condition holds."""
    asked = list(conditions)
    for tensor in tensors:
        for row in tensor.formats:
            yield from (Failure(one, tensor, row) for one in asked if one.holds(row))
