"""Override: an exception that a user makes from a policy, for some tensors and some steps."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from typing import Any

from fpemu.cast import Cast
from fpemu.errors import InputError
from fpemu.policies.checks import check_facts, check_kind, check_name, check_steps, read_cast
from fpemu.policies.products import PRODUCTS, Products
from fpemu.policies.rule import Rule, make_rule
from fpemu.scaling import Delayed, Recipe, recipes

__all__ = ["Override", "exactly"]

_RULE_NAMES = {rule.value for rule in Rule}


@dataclass(frozen=True)
class Override:
    """What some operations do, or what some tensors are rounded to, instead of the policy's own.

    >>> from fpemu.policies import Override
    >>> Override("float32", operation="softmax", module="decoder.*", last_step=999)
    Override(to=<Rule.FLOAT32: 'float32'>, operation='softmax', module='decoder.*', kind=None, \
first_step=0, last_step=999)

    Fields
        to: a Rule, a Cast, Products, a Recipe, or the name or text of one. A Cast without `kind`
            makes an operation lower its inputs, result and gradients to it, as `Rule.LOWER` does
            to the policy's formats. A Cast with `kind` changes the format of these tensors only,
            in operations that lower, and of these operands in operations that are scaled.
            Products, or a Recipe for all operands, scale the matrix products of `linear`, of what
            the policy scales, and of what `operation` names; with `kind`, these operands only.
        operation: pattern (fnmatch, case counts) of the operation's name; None: any.
        module: pattern of the qualified name of the module that runs it; None: any, or none.
        kind: "activation" (other inputs than weights, and the result unless the policy has a
            format for results), "weight", "gradient" (of the result) or "state" (of the
            optimizer); None: any. A Rule is about all of an operation's tensors: no kind.
        first_step, last_step: the steps at which it holds, both included; None: to the end.

    "float32" without a kind is the Rule, and so is Cast("float32"): they are one function.
    """

    to: Cast | Rule | Products
    operation: str | None = None
    module: str | None = None
    kind: str | None = None
    first_step: int = 0
    last_step: int | None = None

    def __init__(
        self,
        to: Cast | Rule | Products | Recipe | Delayed | str,
        *,
        operation: str | None = None,
        module: str | None = None,
        kind: str | None = None,
        first_step: int = 0,
        last_step: int | None = None,
    ) -> None:
        for pattern in (operation, module):
            if pattern is not None:
                check_name(pattern)
        if kind is not None:
            check_kind(kind)
        check_steps(first_step, last_step)
        values = (_target(to, kind), operation, module, kind, first_step, last_step)
        for field, value in zip(fields(self), values, strict=True):
            object.__setattr__(self, field.name, value)

    def holds(self, step: int) -> bool:
        """Whether it holds at a step."""
        return self.first_step <= step and (self.last_step is None or step <= self.last_step)

    def matches(self, kind: str | None, operation: str | None, module: str | None) -> bool:
        """Whether it is about tensors of a kind (None: the operation as a whole)."""
        return (
            self.kind in (None, kind)
            and _fits(self.operation, operation)
            and _fits(self.module, module)
        )

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-ready dict that `from_json` reads back; fields that are None left out."""
        facts = {field.name: getattr(self, field.name) for field in fields(self)}
        facts["to"] = self.to.value if isinstance(self.to, Rule) else self.to.to_json()
        return {name: value for name, value in facts.items() if value is not None}

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> Override:
        """Make an Override from `to_json`'s dict.

        >>> from fpemu.policies import Override
        >>> o = Override("e4m3fn", kind="weight", first_step=100)
        >>> Override.from_json(o.to_json()) == o
        True
        """
        check_facts(facts, "override", [field.name for field in fields(cls)], required=("to",))
        to = facts["to"]
        return cls(**{**facts, "to": _from_json(to) if isinstance(to, Mapping) else to})


def exactly(name: str) -> str:
    """Return the pattern that matches one name and nothing else.

    >>> from fpemu.policies.override import exactly
    >>> exactly("blocks.0.fc"), exactly("heads[0]")
    ('blocks.0.fc', 'heads[[]0]')
    """
    return re.sub(r"([*?[])", r"[\1]", name)


def _from_json(facts: Mapping[str, Any]) -> Cast | Products:
    return Products.from_json(facts) if "x" in facts else Cast.from_json(facts)


def _target(to: Any, kind: str | None) -> Cast | Rule | Products:
    """A name without a kind that is a rule's is the rule: 'float32' is both."""
    if isinstance(to, Rule) or (kind is None and isinstance(to, str) and to in _RULE_NAMES):
        if kind is not None:
            raise InputError(
                f"override to={make_rule(to).value} with kind={kind!r}: a rule is about all of an "
                "operation's tensors; leave kind out, or give a format"
            )
        return make_rule(to)
    if isinstance(to, Products | Recipe | Delayed) or _says_products(to):
        if kind == "state":
            raise InputError(
                f"override to={str(to)[:80]} with kind='state': recipes are for the operands of "
                "products; give a format"
            )
        products = Products.of(to)
        if kind is not None and products.accumulate is not None:
            raise InputError(
                f"override to={str(to)[:80]} with kind={kind!r}: sums are of both operands; leave "
                "kind or accumulate= out"
            )
        return products
    cast = read_cast(to, f"override to={str(to)[:80]}")
    return Rule.FLOAT32 if kind is None and cast == Cast("float32") else cast


def _says_products(to: Any) -> bool:
    """Whether a text speaks of recipes: by a name, or by a text, which has spaces in it."""
    if not isinstance(to, str):
        return False
    return to == "none" or to in PRODUCTS or to in recipes or len(to.split()) > 1


def _fits(pattern: str | None, name: str | None) -> bool:
    return pattern is None or (name is not None and fnmatchcase(name, pattern))
