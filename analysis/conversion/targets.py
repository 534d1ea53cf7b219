"""Targets: what tensors are converted to, by its name: a recipe or a cast."""

from __future__ import annotations

from fpemu.analysis.conversion.plain import Plain
from fpemu.analysis.conversion.scaling import Scaling
from fpemu.cast import Cast, make_cast
from fpemu.errors import FpemuError, InputError, did_you_mean
from fpemu.format import Format
from fpemu.scaling import Recipe, find_recipe, recipes

__all__ = ["Target", "find_target"]

Target = Plain | Scaling


def find_target(to: str | Recipe | Cast | Format) -> Target:
    """Return what a recipe, a cast, a format, or a name or text of one stands for.

    >>> from fpemu.analysis.conversion.targets import find_target
    >>> str(find_target("bf16")), str(find_target("1x16 exponent fp4"))
    ('bfloat16', '1x16 exponent float4_e2m1fn')

    Errors: InputError for what is neither, with the recipes that there are.
    """
    if isinstance(to, Recipe) or (isinstance(to, str) and (to in recipes or " " in to.strip())):
        return Scaling(find_recipe(to))
    if not isinstance(to, str):
        return Plain(make_cast(to))
    try:
        return Plain(make_cast(to))
    except FpemuError as error:
        hint = did_you_mean(to, tuple(recipes))
        if ":" in to or (not hint and "unknown" not in str(error)):
            raise
        short = [name for name in recipes if "." not in name]
        known = f"recipes: {', '.join(short)} and {len(recipes) - len(short)} more"
        if hint:
            raise InputError(f"unknown recipe {to!r:.60}; {hint}{known}") from None
        raise InputError(f"{error}; {known}") from None
