"""By recipe: a recipe where a cast may stand: in what-if, advice, reports and comparisons."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

from fpemu.cast import Cast, make_cast
from fpemu.errors import InputError, UnknownFormatError, did_you_mean
from fpemu.format import Format
from fpemu.scaling.catalog import RECIPES, find_recipe
from fpemu.scaling.recipe import Recipe

__all__ = ["ByRecipe", "Target", "check_cast", "target"]


@dataclass(frozen=True)
class ByRecipe:
    """What a recipe does to tensors, its scales included.

    >>> from fpemu.analysis.by_recipe import target
    >>> str(target("mxfp8")), target("1x8 exponent fp4").bits
    ('mxfp8', 4)
    """

    recipe: Recipe

    @cached_property  # asked for of each record
    def key(self) -> str:
        """What tells it from others: the recipe's text."""
        return str(self.recipe)

    @property
    def bits(self) -> int:
        """Bits of an element, without its share of the scales."""
        return self.recipe.element.bits

    def __str__(self) -> str:
        return self.recipe.name

    def to_json(self) -> dict[str, Any]:
        """Return the recipe as a JSON-ready dict."""
        return dict(self.recipe.to_json())


#: What numbers may be judged in: a cast, or a recipe.
Target: TypeAlias = Cast | ByRecipe


def target(to: Any) -> Target:
    """Return the cast or recipe that a name, text or record stands for.

    >>> from fpemu.analysis.by_recipe import target
    >>> str(target("e4m3fn")), target("nvfp4").key
    ('float8_e4m3fn', '1x16 two_level float4_e2m1fn')

    No name is both a format's and a recipe's. Errors: InputError for what is neither.
    """
    if isinstance(to, ByRecipe):
        return to
    if isinstance(to, Recipe) or (isinstance(to, str) and _is_recipe(to)):
        return ByRecipe(find_recipe(to))
    try:
        return make_cast(to)
    except UnknownFormatError as error:
        if isinstance(to, str) and "did you mean" not in str(error) and (
            hint := did_you_mean(to, tuple(RECIPES))
        ):
            raise InputError(f"unknown format or recipe {to!r}; {hint.strip()}") from None
        raise


def check_cast(what: str, to: str | Format | Cast | Recipe | ByRecipe, why: str) -> Cast:
    """Return a cast; a recipe is refused, in one line that says why `what` takes none."""
    found = target(to)
    if isinstance(found, ByRecipe):
        raise InputError(f"{what}: {str(found)!r:.60} is a recipe: {why}")
    return found


def _is_recipe(text: str) -> bool:
    """Whether a text is a recipe's name, or begins as its text does, with a block."""
    first, _, rest = text.strip().partition(" ")
    sides = first.split("x")
    block = first in ("tensor", "row") or (len(sides) == 2 and all(s.isdecimal() for s in sides))
    return text in RECIPES or (block and bool(rest))
