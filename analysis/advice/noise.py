"""Noise: the rounding error of a tensor in a format, beside the tensor itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from fpemu.analysis.by_recipe import ByRecipe, Target
from fpemu.analysis.noise import predicted
from fpemu.cast import Overflow

if TYPE_CHECKING:
    from fpemu.analysis.parts import Parts

__all__ = ["Noise", "noise_of"]


class Noise(NamedTuple):
    """Sums of squares over the finite numbers of a tensor."""

    error: float  #: of what rounding changes
    signal: float  #: of the numbers

    @property
    def ratio(self) -> float:
        """The error's share of the signal: 0 for exact numbers, and at most about 1."""
        return self.error / self.signal if self.signal else 0.0

    @property
    def sqnr_db(self) -> float | None:
        """Signal to quantization noise in decibels; None if nothing is changed or nothing there."""
        return -10.0 * math.log10(self.ratio) if self.ratio > 0 else None


def noise_of(values: Parts, cast: Target, scales: Sequence[float]) -> list[Noise]:
    """Return the predicted noise of values times each scale, divided by it again after the cast.

    >>> import numpy as np, fpemu
    >>> from fpemu.analysis.advice.noise import noise_of
    >>> from fpemu.analysis.parts import Parts
    >>> x = np.float32(np.random.default_rng(0).standard_normal(20_000))
    >>> [noise] = noise_of(Parts.of(fpemu.tally(x)), fpemu.Cast("e4m3fn"), [1.0])
    >>> true = fpemu.error(x, fpemu.round(x, "e4m3fn")).sqnr
    >>> abs(noise.sqnr_db - true) < 0.1
    True

    scales: powers of two. NaN and infinite numbers are left out; what overflows counts as
    saturated, so look at overflow first. For data that fill their binades the prediction is
    within about 0.6 dB of the error of the real cast while little is lost at either end; where much
    saturates it may be 4 dB off, as a slot says little of how far beyond the end a number lies.
    Of a recipe, it is what was measured.
    """
    if isinstance(cast, ByRecipe):
        scored = values.scored(cast)
        return [Noise(scored.noise, scored.signal)] * len(scales)
    signal, errors = predicted(values, cast.replace(overflow=Overflow.SATURATE), scales)
    return [Noise(float(error), signal) for error in errors]
