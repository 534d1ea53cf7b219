"""Parts: a tensor's tallies, each with the power of two that makes its numbers the true ones.

A loss scale may change from step to step. Counts of steps that had the same one add up; those of
others are kept apart, so that nothing is rounded.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fpemu.tallies import Outcome, Tally, exponent_of

if TYPE_CHECKING:
    from fpemu.cast import Cast

__all__ = ["Parts"]


@dataclass(frozen=True)
class Parts:
    """Tallies by the exponent of the power of two that their numbers are to be multiplied by.

    >>> import numpy as np, fpemu
    >>> from fpemu.analysis.parts import Parts
    >>> early = Parts.of(fpemu.tally(np.float32([2.0**-8])), 2.0**-16)
    >>> late = Parts.of(fpemu.tally(np.float32([2.0**-8])), 1.0)
    >>> (early + late).outcomes(fpemu.Cast("float16"), [1.0, 4.0])[0].subnormal
    1
    """

    by_exponent: Mapping[int, Tally]

    @classmethod
    def of(cls, tally: Tally, factor: float = 1.0) -> Parts:
        """Return one tally and the power of two that makes its numbers true."""
        return cls({exponent_of(factor): tally})

    def __add__(self, other: Parts) -> Parts:
        joined = dict(self.by_exponent)
        for exponent, tally in other.by_exponent.items():
            joined[exponent] = joined[exponent] + tally if exponent in joined else tally
        return Parts(joined)

    def outcomes(self, to: Cast, scales: Sequence[float]) -> list[Outcome]:
        """Return what a cast makes of the true numbers times each scale, a power of two."""
        found = [
            tally.outcomes(to, [math.ldexp(scale, exponent) for scale in scales])
            for exponent, tally in self.by_exponent.items()
        ]
        if len(found) == 1:
            return found[0]
        return [sum(each, Outcome()) for each in zip(*found, strict=True)]

    @property
    def apart(self) -> list[int]:
        """How many zeros, infinities and NaNs: no scale changes them."""
        whole = self.by_exponent.values()
        return [sum(getattr(t, kind) for t in whole) for kind in ("zero", "inf", "nan")]

    @property
    def nonzero(self) -> int:
        """How many finite numbers other than zero."""
        return sum(int(tally.exponents().sum()) for tally in self.by_exponent.values())

    @property
    def scaled(self) -> bool:
        """Whether any number was recorded times a scale other than 1."""
        return any(self.by_exponent)
