"""What formats lose at each power-of-two scale."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fpemu.analysis.asked import several
from fpemu.analysis.by_recipe import ByRecipe, check_cast
from fpemu.analysis.plots.compute.counts import FORMATS, Counts, Shares, freeze
from fpemu.analysis.plots.source import tensors
from fpemu.analysis.scales import (
    SCALES,
    TOLERANCE,
    SafeScales,
    check_tolerance,
    powers_of_two,
    safe_of,
)
from fpemu.cast import Cast
from fpemu.errors import InputError
from fpemu.format import Format
from fpemu.scaling.recipe import Recipe

if TYPE_CHECKING:
    from fpemu.analysis.plots.source import Source

__all__ = ["LostByScale", "lost_by_scale"]


@dataclass(frozen=True, eq=False)
class LostByScale:
    """What each cast would lose of all tensors together at each power-of-two scale."""

    labels: tuple[str, ...]  #: the casts
    scales: tuple[float, ...]
    lost: Counts = field(repr=False)  #: [cast, scale]
    nonzero: int
    safe: tuple[SafeScales, ...]  #: by cast, no tensor losing more than the tolerance
    tensors: int
    tolerance: float
    unscaled: bool = False  #: whether a loss scale was taken out of any

    @property
    def share(self) -> Shares:
        """Lost fraction of the finite non-zero values; 0 if there is none."""
        return self.lost / max(self.nonzero, 1)


def lost_by_scale(
    source: Source,
    *,
    formats: Iterable[Cast | Format | str] = FORMATS,
    scales: Iterable[float] = SCALES,
    tolerance: float = TOLERANCE,
    **selection: Any,
) -> LostByScale:
    """Count what each format would lose of everything selected, at each scale.

    >>> import numpy as np
    >>> from fpemu.analysis.plots import compute
    >>> x = np.float32([2.0**-30, 1.0])
    >>> lost = compute.lost_by_scale(x, formats=["fp16"], scales=[1.0, 2.0**10, 2.0**20])
    >>> lost.share.tolist(), lost.safe[0].best
    ([[0.5, 0.0, 0.5]], 1024.0)

    Lost: became zero, was clamped, became infinite or NaN, or has a sign that the format lacks.
    scales: powers of two. tolerance: the lost fraction up to which a scale is safe; what else
    "safe" asks, and which scale is best, is `fpemu.analysis.scales.safe_scales`' to say.
    selection: name=, kind=, step= of a Trace, whose gradients are counted without the loss scale
    that they were recorded times unless unscaled=False.
    """
    why = "it brings scales of its own: there is no curve over scales; give formats, or ask what-if"
    asked = several("formats", formats, str, Format, Cast, Recipe, ByRecipe)
    casts = [check_cast("lost_by_scale", to, why) for to in asked]
    check_tolerance(tolerance)
    factors = sorted(set(powers_of_two(scales)))
    if not factors:
        raise InputError("scales: at least one power of two is needed")
    counted = tensors(source, **selection)
    outcomes = [[parts.outcomes(cast, factors) for parts in counted.values()] for cast in casts]
    lost = [
        [sum(outcome.lost for outcome in at_scale) for at_scale in zip(*rows, strict=True)]
        or [0] * len(factors)
        for rows in outcomes
    ]
    names = tuple(map(str, casts))
    return LostByScale(
        names,
        tuple(factors),
        freeze(lost, len(factors)),
        sum(parts.nonzero for parts in counted.values()),
        tuple(safe_of(outcomes[row], name, factors, tolerance) for row, name in enumerate(names)),
        len(counted),
        tolerance,
        any(parts.scaled for parts in counted.values()),
    )
