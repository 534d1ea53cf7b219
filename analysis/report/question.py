"""Question: what a report is asked about, checked once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fpemu.analysis.asked import Asked, known, own_cast, several, targets
from fpemu.analysis.by_recipe import ByRecipe, Target, target
from fpemu.analysis.records import JUDGED
from fpemu.analysis.scales import SCALES, TOLERANCE, check_tolerance, powers_of_two
from fpemu.analysis.what_if import FORMATS
from fpemu.cast import Cast
from fpemu.format import Format
from fpemu.scaling.recipe import Recipe

if TYPE_CHECKING:
    from fpemu.analysis.trace import Trace

__all__ = ["Question", "ask"]


@dataclass(frozen=True, slots=True)
class Question:
    """Which cast or recipe is judged, beside which others, at which scales, how strictly."""

    to: Target  #: the one that is judged
    casts: tuple[Target, ...]  #: those of the what-if section, the judged one first
    scales: tuple[float, ...]  #: rising; 1 and 2 are always among them
    tolerance: float
    kinds: frozenset[str]  #: those that the verdict is about

    @property
    def one(self) -> int:
        """Where scale 1 stands."""
        return self.scales.index(1.0)

    @property
    def two(self) -> int:
        """Where scale 2 stands."""
        return self.scales.index(2.0)


def ask(
    trace: Trace,
    *,
    to: Asked | None = None,
    formats: Asked | Iterable[Asked] = FORMATS,
    scales: float | Iterable[float] = SCALES,
    tolerance: float = TOLERANCE,
    kinds: str | Iterable[str] | None = None,
) -> Question:
    """Return what `build` was asked, completed by the trace; bad options are refused."""
    judged = own_cast(trace) if to is None else target(to)
    others = several("formats", formats, str, Format, Cast, Recipe, ByRecipe)
    casts = targets([judged, *others])
    factors = sorted({1.0, 2.0, *powers_of_two(scales)})
    check_tolerance(tolerance)
    about = frozenset(_judged(trace, kinds))
    return Question(judged, tuple(casts), tuple(factors), tolerance, about)


def _judged(trace: Trace, kinds: str | Iterable[str] | None) -> set[str]:
    """The kinds that the verdict is about."""
    there = trace.kinds()
    if kinds is not None:
        return known("kind", kinds, there, trace.path)
    return {kind for kind in there if kind in JUDGED} or set(there)
