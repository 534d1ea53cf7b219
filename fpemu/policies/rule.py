"""Rule: what an operation does with the formats of its floating-point inputs; Rules: a table."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from fpemu.errors import InputError, did_you_mean
from fpemu.policies.checks import check_name

__all__ = ["Rule", "Rules", "make_rule", "rules"]


class Rule(enum.Enum):
    """What an operation does with its floating-point inputs; float64 is never cast."""

    LOWER = "lower"  #: inputs cast to the policy's compute format, the result in its result format
    FLOAT32 = "float32"  #: inputs cast to float32, a float32 result
    FLOAT32_RESULT = "float32_result"  #: a float32 result unless the call says another dtype
    FLOAT32_INSIDE = "float32_inside"  #: computed in float32, the result cast to compute's format
    WIDEST = "widest"  #: promoted among its arguments and the compute format
    SCALED = "scaled"  #: operands of its matrix products rounded by the policy's `products`
    KEEP = "keep"  #: its inputs' own formats, the framework's own promotion
    BANNED = "banned"  #: raises, as the framework does


def make_rule(value: Rule | str) -> Rule:
    """Return the Rule of a name; a Rule is returned as it is.

    >>> from fpemu.policies.rule import make_rule
    >>> make_rule("lower")
    <Rule.LOWER: 'lower'>
    """
    try:
        return Rule(value)
    except ValueError:
        choices = [rule.value for rule in Rule]
        hint = did_you_mean(str(value)[:64], choices)
        raise InputError(
            f"unknown rule {repr(value)[:80]}; {hint}choose one of {', '.join(choices)}"
        ) from None


class Rules(Mapping[str, Rule]):
    """A frozen, hashable mapping from an operation's name to its Rule.

    >>> from fpemu.policies.rule import rules
    >>> table = rules(lower="linear matmul", float32="exp")
    >>> table["exp"], len(table), hash(table) == hash(rules(float32="exp", lower="matmul linear"))
    (<Rule.FLOAT32: 'float32'>, 3, True)

    Equal tables are equal in any order, and equal to a dict of the same items. A name is text
    without white space, ';' or '#', as a policy's text separates by them.
    """

    __slots__ = ("_hash", "_rules")

    _rules: dict[str, Rule]
    _hash: int

    def __init__(self, table: Mapping[str, Rule | str]) -> None:
        if not isinstance(table, Mapping):
            raise InputError(f"operations {repr(table)[:80]}: must be a mapping of name to rule")
        self._rules = {check_name(name): make_rule(rule) for name, rule in table.items()}
        self._hash = hash(frozenset(self._rules.items()))

    def __getitem__(self, name: str) -> Rule:
        return self._rules[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rules)

    def __len__(self) -> int:
        return len(self._rules)

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        counts = ", ".join(f"{len(names)} {rule.value}" for rule, names in self.lists().items())
        return f"<Rules: {counts or 'none'}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return Rules, (self._rules,)

    def lists(self) -> dict[Rule, list[str]]:
        """Return the names of each rule that has any, in the table's order."""
        found = {rule: [n for n, own in self._rules.items() if own is rule] for rule in Rule}
        return {rule: names for rule, names in found.items() if names}

    def __or__(self, changes: Mapping[str, Rule]) -> Rules:
        """Return this table with the rules of `changes` in place of its own."""
        return Rules({**self._rules, **changes})


def rules(**lists: str | Iterable[str]) -> Rules:
    """Return the table of some lists, each the names of a rule, text being split at white space.

    >>> from fpemu.policies.rule import rules
    >>> rules(lower="linear", banned="binary_cross_entropy")
    <Rules: 1 lower, 1 banned>

    A name in two lists is refused.
    """
    table: dict[str, Rule] = {}
    for rule, names in lists.items():
        make_rule(rule)
        for name in names.split() if isinstance(names, str) else names:
            if name in table:
                raise InputError(
                    f"operation {name!r} is in two lists, {table[name].value} and {rule}: keep one"
                )
            table[name] = make_rule(rule)
    return Rules(table)
