"""Parts: a tensor's tallies, each with the power of two that makes its numbers the true ones.

A loss scale may change from step to step. Counts of steps that had the same one add up; those of
others are kept apart, so that nothing is rounded. What recipes make of the tensor goes with them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fpemu.analysis.by_recipe import ByRecipe
from fpemu.analysis.scales import SafeScales
from fpemu.errors import InputError
from fpemu.tallies import Outcome, Tally, exponent_of

if TYPE_CHECKING:
    from fpemu.analysis.by_recipe import Target
    from fpemu.scaling.tally import RecipeTally

__all__ = ["LEAST_SQNR", "MOST_LOST", "Parts", "Scored", "rule_of_recipes"]

#: The least SQNR, in decibels, of a tensor that is safe in a recipe: noise of 3 % of the signal.
#: On normally distributed numbers the worst published recipe, MXINT4, keeps 16.8 dB.
LEAST_SQNR = 15.0

#: The largest share of its non-zero numbers that may come out 0 then: beside a few large numbers
#: SQNR does not see them. NVFP4 rounds 6 % of normally distributed numbers to 0, E4M3 none.
MOST_LOST = 0.5


def rule_of_recipes() -> str:
    """Return how recipes are judged, in words."""
    return (
        f"an SQNR of at least {LEAST_SQNR:g} dB and no more than {100 * MOST_LOST:g} % of its "
        "non-zero values rounded to 0"
    )


@dataclass(frozen=True, slots=True)
class Scored:
    """What a recipe made of numbers: counts, sums of squares, and the bits that they take."""

    outcome: Outcome  #: clipped is saturated, lost is underflow
    signal: float
    noise: float
    bits: float  #: of all of them, scales included
    measured: bool = True  #: on the values; else `noise` is predicted from the histogram

    @classmethod
    def of(cls, tally: RecipeTally) -> Scored:
        """Return what a tally of a recipe comes to."""
        bits = tally.bits_per_value * tally.total
        return cls(tally.outcome, tally.signal, tally.noise, bits)

    @property
    def bits_per_value(self) -> float:
        """Bits that a number takes, its share of the scales included."""
        return self.bits / self.outcome.total if self.outcome.total else 0.0

    @property
    def sqnr_db(self) -> float | None:
        """Signal to quantization noise in decibels; None without noise or signal."""
        if not (self.noise and self.signal):
            return None
        return 10.0 * math.log10(self.signal / self.noise)

    @property
    def zeroed(self) -> float:
        """The share of the finite non-zero numbers that came out 0."""
        nonzero = self.outcome.nonzero
        return self.outcome.underflow / nonzero if nonzero else 0.0

    @property
    def is_safe(self) -> bool:
        """Whether a recipe keeps the numbers: see `rule_of_recipes`, and nothing overflows.

        A number clipped within its block is off by less than a factor of two: that is in the noise.
        """
        quiet = self.noise * 10.0 ** (LEAST_SQNR / 10) <= self.signal
        return not self.outcome.overflow and quiet and self.zeroed <= MOST_LOST

    def safe_scales(self, to: ByRecipe | str) -> SafeScales:
        """Return the verdict as scales: 1, which stands for the recipe's own, or none."""
        one = 1.0 if self.is_safe else None
        lost = 100.0 * self.outcome.lost_fraction
        return SafeScales(str(to), one, one, 1.0, lost, low_open=False, high_open=False)

    def __add__(self, other: Scored) -> Scored:
        return Scored(
            self.outcome + other.outcome, self.signal + other.signal, self.noise + other.noise,
            self.bits + other.bits, self.measured and other.measured,
        )  # fmt: skip


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
    recipes: Mapping[str, Scored] = field(default_factory=dict)  #: by `ByRecipe.key`

    @classmethod
    def of(
        cls, tally: Tally, factor: float = 1.0, recipes: Mapping[str, Scored] | None = None
    ) -> Parts:
        """Return one tally, the power of two that makes its numbers true, and what recipes do."""
        return cls({exponent_of(factor): tally}, recipes or {})

    def __add__(self, other: Parts) -> Parts:
        joined = dict(self.by_exponent)
        for exponent, tally in other.by_exponent.items():
            joined[exponent] = joined[exponent] + tally if exponent in joined else tally
        both = [key for key in self.recipes if key in other.recipes]
        scored = {key: self.recipes[key] + other.recipes[key] for key in both}
        return Parts(joined, scored)

    def scored(self, to: ByRecipe) -> Scored:
        """Return what a recipe makes of the true numbers."""
        if to.key not in self.recipes:
            raise InputError(f"recipe {str(to)!r:.60} was not counted here: it needs a Trace")
        return self.recipes[to.key]

    def outcomes(self, to: Target, scales: Sequence[float]) -> list[Outcome]:
        """Return what a cast makes of the true numbers times each scale, a power of two.

        A recipe has scales of its own, which go with the numbers: to it every scale is alike.
        """
        if isinstance(to, ByRecipe):
            return [self.scored(to).outcome] * len(scales)
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
