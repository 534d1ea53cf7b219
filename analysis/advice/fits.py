"""Fits: what one format does to one tensor at a scale, and how much damage that is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from fpemu.analysis.advice.noise import Noise, noise_of
from fpemu.analysis.by_recipe import ByRecipe, Target
from fpemu.analysis.records import GRADIENTS
from fpemu.analysis.scales import SCALES, SafeScales, is_safe, safe_of
from fpemu.analysis.what_if import percent
from fpemu.cast import Cast

if TYPE_CHECKING:
    from fpemu.analysis.parts import Parts
    from fpemu.tallies import Outcome

__all__ = ["FLOAT32", "Fit", "Fits", "bits_of", "rides_loss_scale", "scales_itself"]

FLOAT32 = Cast("float32")

_NEAR = 10 ** (0.5 / 10)  # errors within half a decibel are as good as each other


def scales_itself(to: Target) -> bool:
    """Say whether tensors come with scales of their own: in recipes, and in 8 bits and fewer."""
    return isinstance(to, ByRecipe) or to.format.bits <= 8


def bits_of(parts: Parts, to: Target) -> float:
    """Return the bits that a value of a tensor takes; in a recipe with its share of the scales."""
    return parts.scored(to).bits_per_value if isinstance(to, ByRecipe) else to.format.bits


def rides_loss_scale(kind: str, to: Target) -> bool:
    """Say whether the loss scale is the scale of tensors of a kind in a format."""
    return kind in GRADIENTS and to != FLOAT32 and not scales_itself(to)


@dataclass(frozen=True)
class Fit:
    """One tensor in one format at one scale."""

    fits: Fits
    scale: float
    outcome: Outcome
    noise: Noise

    @property
    def to(self) -> Target:
        """The format or recipe."""
        return self.fits.to

    @property
    def safe(self) -> SafeScales:
        """The scales at which the tensor keeps its values."""
        return self.fits.safe

    @property
    def is_safe(self) -> bool:
        """Whether nothing overflows and no more than the tolerance is lost; of a recipe, its rule.

        Recipes are judged by what was measured (`fpemu.analysis.parts.Scored.is_safe`).
        """
        if isinstance(self.to, ByRecipe):
            return self.fits.parts.scored(self.to).is_safe
        return is_safe(self.outcome, self.fits.tolerance)

    @property
    def damage(self) -> float:
        """The larger of the share of values lost and the error's share of the signal, up to 1.

        One value that becomes infinity or NaN is 1: it spoils the step. Of a recipe, what is
        clipped is in the error, and lost is what comes out 0.
        """
        if self.outcome.overflow:
            return 1.0
        recipe = isinstance(self.to, ByRecipe)
        lost = self.underflow_percent / 100 if recipe else self.outcome.lost_fraction
        return min(1.0, max(lost, self.noise.ratio))

    @property
    def underflow_percent(self) -> float:
        """Non-zero values that become zero, in percent of the finite non-zero ones."""
        return percent(self.outcome.underflow, self.outcome.nonzero)

    @property
    def saturated_percent(self) -> float:
        """Values beyond the largest one, likewise."""
        return percent(self.outcome.saturated + self.outcome.overflow, self.outcome.nonzero)

    @property
    def margin_bits(self) -> float | None:
        """Binades from the scale to the nearer end of the safe ones; None outside, and of a recipe.

        A recipe's scales go with the numbers: they have no end to come near to.
        """
        low, high = self.safe.low, self.safe.high
        if isinstance(self.to, ByRecipe) or low is None or high is None:
            return None
        if not low <= self.scale <= high:
            return None
        return min(math.log2(high / self.scale), math.log2(self.scale / low))


class Fits:
    """One tensor in one format, at every scale tried."""

    def __init__(self, parts: Parts, to: Target, tolerance: float) -> None:
        self.parts, self.to, self.tolerance = parts, to, tolerance

    @cached_property
    def outcomes(self) -> dict[float, Outcome]:
        """The exact counts at each scale."""
        return dict(zip(SCALES, self.parts.outcomes(self.to, SCALES), strict=True))

    @cached_property
    def safe(self) -> SafeScales:
        """The scales at which the tensor keeps its values; of float32 all, as it was recorded."""
        if self.to == FLOAT32:
            return SafeScales(str(FLOAT32), SCALES[0], SCALES[-1], 1.0, 0.0, True, True)
        if isinstance(self.to, ByRecipe):  # 1 stands for scales of its own
            return self.parts.scored(self.to).safe_scales(self.to)
        return safe_of([list(self.outcomes.values())], str(self.to), SCALES, self.tolerance)

    @property
    def safe_scales(self) -> int:
        """How many of the scales tried are safe."""
        low, high = self.safe.low, self.safe.high
        return 0 if low is None or high is None else SCALES.index(high) - SCALES.index(low) + 1

    def at(self, scale: float) -> Fit:
        """Return the fit at a scale."""
        known = self.__dict__.get("outcomes", {})  # 64 scales are counted where all are needed
        outcome = known.get(scale) or self.parts.outcomes(self.to, [scale])[0]
        [noise] = (
            [Noise(0.0, 0.0)] if self.to == FLOAT32 else noise_of(self.parts, self.to, [scale])
        )
        return Fit(self, scale, outcome, noise)

    @cached_property
    def own(self) -> Fit:
        """The fit at the scale that suits the tensor best, if it may have one of its own."""
        own = scales_itself(self.to) and not isinstance(self.to, ByRecipe)
        return self.at(self._best() if own else 1.0)

    def _best(self) -> float:
        """The safe scale of least error, a binade from either end if there are so many.

        It is 1 if that is as good.
        """
        safe = self.safe
        if safe.low is None or safe.high is None:
            return safe.best
        room = 2.0 if safe.high >= 4 * safe.low else 1.0
        roomy = [s for s in SCALES if room * safe.low <= s <= safe.high / room]
        errors = [noise.ratio for noise in noise_of(self.parts, self.to, roomy)]
        return _pick(roomy, errors)


def _pick(scales: Sequence[float], errors: Sequence[float]) -> float:
    """Of the scales whose error is near the least, the one nearest to 1, then the middle one."""
    least = min(errors)
    good = [s for s, e in zip(scales, errors, strict=True) if e <= least * _NEAR]
    return 1.0 if 1.0 in good else good[len(good) // 2]
