"""Totals: what records of a trace add up to by a key, gradients without their loss scale."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from fpemu.analysis.parts import Parts
from fpemu.moments import Moments

if TYPE_CHECKING:
    from fpemu.analysis.by_recipe import Target
    from fpemu.analysis.records import Record
    from fpemu.tallies import Outcome

__all__ = ["Total", "add_to", "times"]


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


def times(moments: Moments, factor: float) -> Moments:
    """Return the moments of values that were all multiplied by a positive power of two.

    >>> import numpy as np
    >>> from fpemu.analysis.totals import times
    >>> from fpemu.moments import moments
    >>> times(moments(np.float32([1, 2, 4])), 0.5) == moments(np.float32([0.5, 1, 2]))
    True

    Exact, unless a product leaves the range of float64.
    """
    if factor == 1.0:
        return moments
    square = factor * factor
    return replace(
        moments,
        mean=moments.mean * factor,
        m2=moments.m2 * square,
        m3=moments.m3 * square * factor,
        m4=moments.m4 * square * square,
        amax=moments.amax * factor,
        smallest_nonzero=moments.smallest_nonzero * factor,
    )


@dataclass(frozen=True, slots=True)
class Total:
    """What is known of one tensor over several steps; `a + b` joins two of the same tensor.

    Gradients that carried a loss scale are counted and measured without it.
    """

    name: str
    kind: str
    shape: tuple[int, ...]  #: the first step's
    steps: int  #: how many
    parts: Parts
    moments: Moments
    skipped: int = 0  #: NaN and infinite values at steps that a loss scaler skipped

    @property
    def stays_wide(self) -> bool:
        """Whether it is a scalar that layers pass on, as the loss and its gradient, the loss scale.

        These stay float32 in mixed-precision training, so no scale need be safe for them.
        """
        return not self.shape and self.kind in ("activation", "activation_gradient")

    @classmethod
    def of(
        cls, record: Record, factor: float = 1.0, *, skipped: bool = False,
        parts: Parts | None = None,
    ) -> Total:  # fmt: skip
        """Return the total of one step, whose values are `factor` times the recorded ones.

        parts: the record's counts times that, with what recipes make of them.
        """
        tally = record.tally
        return cls(
            record.name,
            record.kind,
            record.shape,
            1,
            Parts.of(tally, factor) if parts is None else parts,
            times(record.moments, factor),
            tally.nan + tally.inf if skipped else 0,
        )

    def outcomes(self, to: Target, scales: Sequence[float]) -> list[Outcome]:
        """Return what a cast would do to the values times each scale."""
        return self.parts.outcomes(to, scales)

    def __add__(self, other: Total) -> Total:
        return Total(
            self.name,
            self.kind,
            self.shape,
            self.steps + other.steps,
            self.parts + other.parts,
            self.moments + other.moments,
            self.skipped + other.skipped,
        )
