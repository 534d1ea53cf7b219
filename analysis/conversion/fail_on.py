"""Fail on: conditions on converted tensors, for scripts that go on only if none holds."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable
from dataclasses import dataclass

from fpemu.analysis.conversion.rows import TensorRow
from fpemu.errors import InputError, did_you_mean

__all__ = ["MEASURES", "Condition", "read_condition"]

#: What a condition may be about -> its value for a tensor: decibels, percent, a count.
MEASURES: dict[str, Callable[[TensorRow], float]] = {
    "sqnr": lambda row: row.measured.sqnr,
    "lost": lambda row: row.measured.lost_percent,
    "clipped": lambda row: row.measured.clipped_percent,
    "relative": lambda row: 100 * row.measured.relative,
    "broken": lambda row: row.measured.broken,
}

_TEXT = re.compile(r"\s*([a-z]+)\s*(<=|>=|<|>)\s*([0-9.eE+-]+)\s*")


@dataclass(frozen=True, slots=True)
class Condition:
    """A measure that must not be below or above a limit."""

    measure: str
    sign: str
    limit: float

    def holds(self, row: TensorRow) -> bool:
        """Whether a tensor is as bad as the condition says; one without a value is."""
        value = MEASURES[self.measure](row)
        if math.isnan(value) or (len(self.sign) == 2 and value == self.limit):
            return True
        return value < self.limit if self.sign[0] == "<" else value > self.limit

    def __str__(self) -> str:
        return f"{self.measure}{self.sign}{self.limit:g}"


def read_condition(text: str) -> Condition:
    """Return the condition that a text such as 'sqnr<20' says.

    >>> from fpemu.analysis.conversion.fail_on import read_condition
    >>> str(read_condition("sqnr < 20")), str(read_condition("lost>0.1"))
    ('sqnr<20', 'lost>0.1')

    sqnr in decibels; lost and clipped in percent of the non-zero values, relative in percent;
    broken, how many finite values became infinite or NaN. Anything else is an InputError.
    """
    found = _TEXT.fullmatch(text)
    limit = math.nan
    if found:
        with contextlib.suppress(ValueError):
            limit = float(found[3])
    if not found or not math.isfinite(limit):
        raise InputError(f"condition {text!r:.60}: give a measure, a sign and a limit: 'sqnr<20'")
    if found[1] not in MEASURES:
        hint = did_you_mean(found[1], MEASURES)
        raise InputError(f"condition {text!r:.60}: {hint}measures: {', '.join(MEASURES)}")
    return Condition(found[1], found[2], limit)
