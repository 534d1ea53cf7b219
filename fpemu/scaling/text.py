"""Text: recipes as one line that people write and read, and as JSON, both ways.

    1x32 exponent(mode=fit) float8_e4m3fn:overflow=saturate
    128x128 amax(power_of_two=true) float8_e4m3fn:overflow=saturate
    tensor fixed(scale=16.0) int8.4
    1x16 two_level float4_e2m1fn:overflow=saturate hadamard(size=16, signs=54248)
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from enum import Enum
from typing import Any

from fpemu.errors import InputError, did_you_mean
from fpemu.scaling.elements import Codebook, Element, FloatElement, IntegerElement
from fpemu.scaling.hadamard import Hadamard
from fpemu.scaling.layout import Block
from fpemu.scaling.rules import AmaxRule, ExponentRule, FixedRule, ScaleRule, TwoLevel

__all__ = [
    "RULES",
    "check_facts",
    "parse_element",
    "parse_rotation",
    "parse_rule",
    "rotation_text",
    "rule_text",
    "split_text",
]

#: The names of rules in text.
RULES: dict[str, type[ScaleRule]] = {
    "exponent": ExponentRule,
    "amax": AmaxRule,
    "fixed": FixedRule,
    "two_level": TwoLevel,
}

_RULE = re.compile(r"(\w+)(?:\(([^()]*)\))?")
_INTEGER = re.compile(r"int(\d{1,2})(?:\.(\d{1,2}))?(:symmetric)?", re.ASCII)
_BOOK = re.compile(r"(\w+)\[([^\[\]]*)\]")
_HADAMARD = "hadamard"
_RECIPE = re.compile(
    rf"\s*(\S+)\s+(\w+(?:\([^()]*\))?)\s+(\S.*?)(?:\s+({_HADAMARD}(?:\([^()]*\))?))?\s*"
)
_WORDS = {"true": True, "false": False}


def rule_text(rule: ScaleRule) -> str:
    """Return a rule as text: its name, and what differs from its defaults.

    >>> from fpemu.scaling.rules import AmaxRule
    >>> from fpemu.scaling.text import rule_text
    >>> rule_text(AmaxRule(margin=1, zero=None))
    'amax(margin=1, zero=none)'
    """
    return _record_text(next(name for name, kind in RULES.items() if isinstance(rule, kind)), rule)


def _record_text(name: str, record: Any) -> str:
    changed = [
        f"{fact.name}={_shown(getattr(record, fact.name))}"
        for fact in fields(record)
        if getattr(record, fact.name) != fact.default
    ]
    return f"{name}({', '.join(changed)})" if changed else name


def parse_rule(text: str) -> ScaleRule:
    """Read `rule_text` back.

    >>> from fpemu.scaling.text import parse_rule
    >>> parse_rule("exponent(mode=ceil)").mode.value
    'ceil'

    Errors: InputError for a rule, a fact or a value that is none.
    """
    found = _RULE.fullmatch(text.strip())
    kind = RULES.get(found[1]) if found else None
    if found is None or kind is None:
        hint = did_you_mean(found[1] if found else text, tuple(RULES))
        raise InputError(f"unknown scale rule {text!r:.60}; {hint}rules: {', '.join(RULES)}")
    return kind(**_facts(found[1], found[2] or "", kind))


def rotation_text(rotation: Hadamard) -> str:
    """Return a rotation as text, which `parse_rotation` reads back."""
    return _record_text(_HADAMARD, rotation)


def parse_rotation(text: str) -> Hadamard:
    """Read a rotation's text.

    >>> from fpemu.scaling.text import parse_rotation
    >>> parse_rotation("hadamard(size=4, signs=2)")
    Hadamard(size=4, signs=2)
    """
    found = _RULE.fullmatch(text.strip())
    if found is None or found[1] != _HADAMARD:
        raise InputError(f"rotation {text!r:.60}: give {_HADAMARD} or {_HADAMARD}(size=, signs=)")
    return Hadamard(**_facts(found[1], found[2] or "", Hadamard))


def _facts(name: str, text: str, kind: Any) -> dict[str, Any]:
    """Read the facts of a record, as `_record_text` writes them."""
    defaults = {fact.name: fact.default for fact in fields(kind)}
    optional = {fact.name for fact in fields(kind) if "None" in str(fact.type)}
    given: dict[str, Any] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        key, _, value = part.partition("=")
        if key in given:
            raise InputError(f"{name}: {key} is given twice; give it once")
        if key not in defaults:
            hint = did_you_mean(key, tuple(defaults))
            known = ", ".join(defaults)
            raise InputError(f"{name}: unknown fact {key!r}; {hint}facts: {known}")
        given[key] = _read(f"{name}: {key}", value.strip(), defaults[key], key in optional)
    return given


def parse_element(text: str) -> Element:
    """Read an element's text: a cast, 'int8.6:symmetric', or 'book[-1, 0, 1]'.

    >>> from fpemu.scaling.text import parse_element
    >>> parse_element("int8.6").max
    1.984375
    """
    if found := _INTEGER.fullmatch(text):
        return IntegerElement(int(found[1]), int(found[2] or 0), found[3] is not None)
    if found := _BOOK.fullmatch(text):
        return Codebook(found[1], tuple(_number(text, one) for one in found[2].split(",")))
    return FloatElement.of(text)


def split_text(text: str) -> tuple[Block, ScaleRule, str, str]:
    """Split a recipe's text into its block, its rule, its element's and its rotation's text."""
    found = _RECIPE.fullmatch(text)
    if not found:
        raise InputError(
            f"recipe {text!r:.80}: give block, rule and element, as "
            "'1x32 exponent(mode=fit) e4m3fn'"
        )
    return Block.of(found[1]), parse_rule(found[2]), found[3], found[4] or ""


def _shown(value: Any) -> str:
    if isinstance(value, Enum):
        return str(value.value)
    return str(value).lower() if value is None or isinstance(value, bool) else repr(value)


def _read(what: str, text: str, default: Any, optional: bool) -> Any:
    """A value of its default's type, or none where a fact may be that."""
    if isinstance(default, Enum):
        known = [one.value for one in type(default)]
        if text not in known:
            hint = did_you_mean(text, known)
            raise InputError(f"{what}={text!r}: {hint}give one of {', '.join(known)}")
        return type(default)(text)
    if optional and text == "none":
        return None
    if isinstance(default, bool):
        if text not in _WORDS:
            raise InputError(f"{what}={text!r:.40}: must be true or false")
        return _WORDS[text]
    if isinstance(default, int):
        return _whole(what, text)
    return _number(what, text)


def _whole(what: str, text: str) -> int:
    try:
        return int(text, 0)  # wide masks have no float
    except ValueError:
        raise InputError(f"{what}={text!r:.60}: must be a whole number") from None


def _number(what: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{what}: {text.strip()!r:.40} is no number") from None


def check_facts(
    facts: Mapping[str, Any], known: tuple[str, ...], more: tuple[str, ...] = ()
) -> None:
    """Refuse facts of a JSON object that are missing or unknown; more: those that may lack."""
    if not isinstance(facts, Mapping) or set(facts) - set(more) != set(known):
        raise InputError(f"{facts!r:.80}: is no recipe; its facts are {', '.join(known)}")
    for name, fact in facts.items():
        if not isinstance(fact, str):
            raise InputError(f"{name}={fact!r:.40}: must be text, as every fact of a recipe is")
