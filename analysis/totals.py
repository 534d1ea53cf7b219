"""Totals: what records of a trace come to, added up by a key."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from fpemu.analysis.records import Record
    from fpemu.moments import Moments
    from fpemu.tallies import Tally

__all__ = ["Total", "add_to"]


class _Adds(Protocol):
    def __add__(self, other: Any, /) -> Any: ...


_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value", bound=_Adds)


def add_to(totals: dict[_Key, _Value], key: _Key, value: _Value) -> None:
    """Add a value to its key's total; keys stay in the order first seen.

    >>> from fpemu.analysis.totals import add_to
    >>> totals = {}
    >>> for name, count in (("b", 1), ("a", 2), ("b", 3)):
    ...     add_to(totals, name, count)
    >>> totals
    {'b': 4, 'a': 2}
    """
    totals[key] = totals[key] + value if key in totals else value


@dataclass(frozen=True, slots=True)
class Total:
    """What is known of one tensor over several steps; `a + b` joins two of the same tensor."""

    name: str
    kind: str
    shape: tuple[int, ...]  #: the first step's
    steps: int  #: how many
    tally: Tally
    moments: Moments

    @classmethod
    def of(cls, record: Record) -> Total:
        """Return the total of one step."""
        return cls(record.name, record.kind, record.shape, 1, record.tally, record.moments)

    def __add__(self, other: Total) -> Total:
        return Total(
            self.name,
            self.kind,
            self.shape,
            self.steps + other.steps,
            self.tally + other.tally,
            self.moments + other.moments,
        )
