"""Answers: what recipes make of a trace's tensors, from what was counted of them.

A recipe's scales depend on the numbers, block by block, so the histogram of a tensor's values does
not tell what becomes of them: a run is asked to count recipes as it is recorded. Where one
power of two scales the whole tensor, the histogram is enough, and the counts are as exact.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fpemu.analysis.by_recipe import ByRecipe
from fpemu.analysis.noise import predicted
from fpemu.analysis.parts import Parts, Scored
from fpemu.cast import Cast
from fpemu.errors import InputError
from fpemu.scaling.elements import FloatElement
from fpemu.scaling.rules import AmaxRule, ExponentRule, FixedRule
from fpemu.scaling.tally import RecipeTally, recipe_tally, scale_bits
from fpemu.tallies import SCALE_LIMIT

if TYPE_CHECKING:
    from fpemu.analysis.by_recipe import Target
    from fpemu.analysis.records import Record
    from fpemu.analysis.trace import Trace
    from fpemu.scaling.recipe import Recipe
    from fpemu.tallies import Outcome

__all__ = ["Answers", "answers", "score_array"]


@dataclass(frozen=True, eq=False)
class Answers:
    """What some recipes make of each record of a trace; `answers` makes one."""

    recipes: tuple[ByRecipe, ...]
    counted: dict[tuple[str, str, int, str], RecipeTally]

    def parts(self, record: Record, factor: float = 1.0) -> Parts:
        """Return a record's counts, times a power of two, and what recipes make of those.

        Errors: InputError for a recipe that was not counted, and cannot be told.
        """
        found = {one.key: self._of(one, record, factor) for one in self.recipes}
        return Parts.of(record.tally, factor, found)

    def outcome(self, record: Record, to: Target, factor: float = 1.0) -> Outcome:
        """Return what a cast or recipe makes of a record's numbers times a power of two."""
        return self.parts(record, factor).outcomes(to, [1.0])[0]

    def _of(self, by: ByRecipe, record: Record, factor: float) -> Scored:
        recipe, tally = by.recipe, self.counted.get((*record.key, by.key))
        if tally is None:
            scored = _by_value(recipe, record, factor)
            if scored is not None:
                return scored
            raise InputError(_missing(recipe, record))
        if tally.total != record.tally.total:
            raise InputError(
                f"recipe {recipe.name!r:.60} was counted of {tally.total} of the "
                f"{record.tally.total} values of {_place(record)}: count it of each array that is "
                "recorded"
            )
        try:
            return Scored.of(tally.times(factor))
        except InputError:
            raise InputError(
                f"recipe {recipe.name!r:.60}: its scales do not go with the numbers, and "
                f"{_place(record)} was counted times a loss scale of {1 / factor:g}: leave "
                "gradients out (kinds=), or record a run without a loss scale"
            ) from None


def answers(trace: Trace, targets: Iterable[Target]) -> Answers:
    """Return what those of `targets` that are recipes make of a trace's records.

    >>> import numpy as np
    >>> from fpemu.analysis.answers import answers
    >>> from fpemu.analysis.by_recipe import target
    >>> from fpemu.analysis.trace import Trace
    >>> from fpemu.scaling.tally import recipe_tally
    >>> trace, x = Trace(), np.float32([[1, 0.001] * 16])
    >>> trace.record("fc1", "weight", x, step=0)
    >>> trace.count("fc1", "weight", 0, recipe_tally(x, "mxfp4"))
    >>> found = answers(trace, [target("mxfp4")])
    >>> [found.parts(record).outcomes(target("mxfp4"), [1.0])[0].underflow
    ...  for record in trace.records()]
    [16]

    Of a gradient that carried a loss scale, the answer is about the true numbers: exact if the
    recipe's scales go with the numbers (`fpemu.scaling.tally.is_scale_free`), else refused.
    """
    found = tuple(dict.fromkeys(one for one in targets if isinstance(one, ByRecipe)))
    counted = {
        (one.name, one.kind, one.step, by.key): one.value
        for by in found for one in trace.counted(f"{RecipeTally.topic}/{by.key}")
    }  # fmt: skip
    return Answers(found, counted)


def score_array(array: Any, targets: Iterable[Target]) -> dict[str, Scored]:
    """Return what recipes make of an array itself."""
    found = (one for one in targets if isinstance(one, ByRecipe))
    return {one.key: Scored.of(recipe_tally(array, one.recipe)) for one in found}


# --- from the histogram of values ----------------------------------------------------------------


def _by_value(recipe: Recipe, record: Record, factor: float) -> Scored | None:
    """What the histogram tells: of one scale, a power of two, for the whole tensor."""
    cast = _cast_of(recipe, record)
    if cast is None or not isinstance(recipe.element, FloatElement):
        return None
    scale = _scale(recipe, _amax(record, factor))
    if scale is None:
        return None
    outcome = record.tally.outcome(cast, scale * factor)
    signal, [noise] = predicted(Parts.of(record.tally, factor), cast, [scale])
    bits = recipe.element.bits * outcome.total + scale_bits(recipe) * record.recordings
    return Scored(outcome, signal, float(noise), bits, measured=False)


def _cast_of(recipe: Recipe, record: Record) -> Cast | None:
    """The cast of a recipe with one power-of-two scale for the tensor; None of another."""
    rule, element = recipe.rule, recipe.element
    by_two = isinstance(rule, ExponentRule | FixedRule) or (
        isinstance(rule, AmaxRule) and rule.power_of_two
    )
    # several arrays recorded as one had a largest magnitude each
    same = record.recordings == 1 or isinstance(rule, FixedRule)
    whole = recipe.block.rows is None and recipe.rotation is None
    return element.cast if isinstance(element, FloatElement) and by_two and same and whole else None


def _amax(record: Record, factor: float) -> float:
    tally, moments = record.tally, record.moments
    if tally.nan:
        return math.nan
    if tally.inf:
        return math.inf
    return moments.amax * factor if moments.count else 0.0


def _scale(recipe: Recipe, amax: float) -> float | None:
    """What values are multiplied by; None if it is no power of two."""
    rule = recipe.rule
    with np.errstate(all="ignore"):
        made = rule.scales(np.array([amax], np.float32), recipe.element, np.float32(1))
    scale = float(made.encode[0])
    if not (0 < scale < math.inf and math.frexp(scale)[0] == 0.5):
        return None
    scale = 1.0 / scale if rule.divides_first else scale
    return scale if abs(math.log2(scale)) <= SCALE_LIMIT // 2 else None


def _missing(recipe: Recipe, record: Record) -> str:
    return (
        f"recipe {recipe.name!r:.60} was not counted of {_place(record)}, and its scales cannot be "
        f"told afterwards: record the run with watch(..., recipes={recipe.name!r:.60}), or fpemu "
        f"run --recipes {recipe.name:.60}"
    )


def _place(record: Record) -> str:
    return f"{record.name!r} ({record.kind}, step {record.step})"
