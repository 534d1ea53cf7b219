"""Scalers: what scales and rounds one operand of a product: a recipe, or delayed scaling.

    mxfp8                                               a recipe's name
    1x32 exponent(mode=fit) float8_e4m3fn               a recipe
    delayed(length=16, margin=1) float8_e5m2            the state of delayed scaling, at its start
    none                                                the operand as it is
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from fpemu.cast import Cast
from fpemu.errors import FpemuError, InputError, did_you_mean
from fpemu.scaling import Block, Delayed, FixedRule, FloatElement, Recipe, find_recipe, recipes
from fpemu.scaling.delayed import Variant
from fpemu.scaling.elements import make_element
from fpemu.scaling.text import parse_element

__all__ = ["Scaler", "cast_scaler", "make_scaler", "scaler_json", "scaler_text"]

Scaler = Recipe | Delayed | None

_DELAYED = re.compile(r"delayed(?:\(([^()]*)\))?\s+(\S.*)")
_START: dict[str, Any] = {
    fact.name: fact.default for fact in fields(Delayed) if fact.name not in ("element", "window")
}
_FACTS = tuple(name for name in _START if name != "scale")


def make_scaler(value: Any, where: str) -> Scaler:
    """Return what scales an operand, of a record, a text or JSON facts; errors begin with `where`.

    >>> from fpemu.policies.scalers import make_scaler
    >>> make_scaler("delayed(length=16) e5m2", "mine").length
    16
    """
    try:
        return _make(value)
    except FpemuError as wrong:
        raise InputError(f"{where}: {wrong}") from None


def _make(value: Any) -> Scaler:
    if value is None:
        return None
    if isinstance(value, Recipe):
        return _by_text(value)
    if isinstance(value, Delayed):
        if value.scale != _START["scale"] or value.window:
            raise InputError(
                "a Delayed that has seen steps: a policy holds none of a run's state; give one at "
                "its start, and the state to load_state_dict of the emulation"
            )
        return value
    if isinstance(value, Mapping):
        if "delayed" in value:
            return _delayed(str(value["delayed"]))
        return _by_text(Recipe.from_json(value))
    text = value.strip() if isinstance(value, str) else value
    if text == "none":
        return None
    if isinstance(text, str) and text.startswith("delayed"):
        return _delayed(text)
    return _by_text(find_recipe(text))


def _by_text(recipe: Recipe) -> Recipe:
    """The recipe, called what its text is unless it is a known one: so text reads it back."""
    known = recipes.get(recipe.name)
    return known if known == recipe else recipe.replace(name=str(recipe))


def scaler_text(scaler: Scaler) -> str:
    """Return a scaler as text that `make_scaler` reads back.

    >>> from fpemu.policies.scalers import scaler_text
    >>> from fpemu.scaling import Delayed
    >>> scaler_text(Delayed("e4m3fn", length=16))
    'delayed(length=16) float8_e4m3fn:overflow=saturate'

    A known recipe is its name, another its text.
    """
    if scaler is None:
        return "none"
    if isinstance(scaler, Recipe):
        return scaler.name
    facts = {name: getattr(scaler, name) for name in _FACTS}
    changed = [f"{k}={_shown(v)}" for k, v in facts.items() if v != _START[k]]
    inside = f"({', '.join(changed)})" if changed else ""
    return f"delayed{inside} {scaler.element}"


def scaler_json(scaler: Scaler) -> dict[str, Any] | None:
    """Return a scaler as JSON facts that `make_scaler` reads back."""
    if isinstance(scaler, Recipe):
        return dict(scaler.to_json())
    return None if scaler is None else {"delayed": scaler_text(scaler)}


def cast_scaler(cast: Cast) -> Scaler:
    """Return the scaler that rounds by a cast and scales by 1; None for float32.

    >>> from fpemu.cast import Cast
    >>> from fpemu.policies.scalers import cast_scaler
    >>> str(cast_scaler(Cast("bf16")))
    'tensor fixed bfloat16:overflow=ieee'
    """
    if cast == Cast("float32"):
        return None
    return _by_text(Recipe("", Block.of("tensor"), FixedRule(), FloatElement(cast)))


def _shown(value: Any) -> str:
    value = value.value if isinstance(value, Variant) else value
    return str(value).lower()


def _delayed(text: str) -> Delayed:
    found = _DELAYED.fullmatch(text)
    if found is None:
        raise InputError(f"{text!r:.80}: write 'delayed e4m3fn' or 'delayed(length=16) e4m3fn'")
    given: dict[str, Any] = {}
    for part in filter(None, map(str.strip, (found[1] or "").split(","))):
        key, _, value = (word.strip() for word in part.partition("="))
        if key not in _FACTS or key in given:
            hint = did_you_mean(key, _FACTS)
            raise InputError(f"delayed: {key[:40]!r} is not one new fact; {hint}facts: {_FACTS}")
        given[key] = _read(key, value)
    return Delayed(make_element(parse_element(found[2])), **given)


def _read(key: str, text: str) -> Any:
    if key == "variant":
        known = [one.value for one in Variant]
        if text not in known:
            raise InputError(f"delayed: variant={text[:40]!r}: give one of {', '.join(known)}")
        return Variant(text)
    if key == "newest":
        if text not in ("true", "false"):
            raise InputError(f"delayed: newest={text[:40]!r}: must be true or false")
        return text == "true"
    if not re.fullmatch(r"-?\d{1,9}", text):
        raise InputError(f"delayed: {key}={text[:40]!r}: must be a whole number")
    return int(text)
