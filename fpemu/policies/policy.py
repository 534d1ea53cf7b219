"""Policy: which operation computes in which format, as a framework decides it or as you do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

from fpemu.cast import Cast
from fpemu.errors import FpemuError, InputError, did_you_mean
from fpemu.format import Format
from fpemu.policies.accumulators import Accumulator, split_accumulator
from fpemu.policies.checks import (
    check_facts,
    check_kind,
    check_list,
    check_name,
    check_policy_name,
    check_scale,
    read_cast,
)
from fpemu.policies.override import Override
from fpemu.policies.products import MULTIPLIES, Products
from fpemu.policies.rule import Rule, Rules, make_rule, rules
from fpemu.policies.scalers import cast_scaler
from fpemu.policies.text import from_text, to_text
from fpemu.scaling import Delayed, Recipe
from fpemu.tensorcore import Chip

__all__ = ["Policy"]

_NONE = Rules({})
_FLOAT32 = Cast("float32")

_CASTS = ("compute", "result", "gradient", "parameters", "master", "state", "inputs", "outputs")


@dataclass(frozen=True, repr=False)
class Policy:
    """Which operation of a model computes in which format.

    >>> from fpemu.policies import Override, Policy
    >>> p = Policy("mine", "fp16", operations={"linear": "lower", "softmax": "float32"},
    ...            overrides=[Override("bf16", module="head", first_step=100)])
    >>> p.rule("linear"), p.rule("relu"), str(p.cast("activation", "linear", "head", step=100))
    (<Rule.LOWER: 'lower'>, <Rule.KEEP: 'keep'>, 'bfloat16')

    Fields (a Cast, or what `fpemu.Cast.from_str` reads; None as said)
        name: what reports call it; text without line breaks, ';' and '#'.
        compute: what operations that lower cast their inputs to, in the forward pass.
        result: of their results; None: as `compute`. FP8 and TF32 products come out wider.
        gradient: what the gradients of their results are cast to before the backward pass;
            None: as `compute`. The gradients that come out have `result`'s format if that is
            given, `gradient`'s otherwise.
        products: how operations that are scaled round the operands of their matrix products:
            Products, or what `Products.of` reads, a recipe's name among them. What accumulates
            there does so for matrix products that lower or keep their narrow inputs, too.
        operations: the framework's own name of an operation -> Rule.
        otherwise: Rule of operations that are not listed.
        parameters: the format in which the model holds its weights; None: float32.
        master: the format of a separate copy of the weights that the optimizer updates and the
            parameters are cast from; None: it updates the parameters themselves.
        state: of the optimizer's state; None: float32.
        inputs, outputs: what the model's floating-point inputs are cast to on entry, and its
            outputs on exit; None: nothing.
        keep_modules: patterns of class names of modules that stay float32 where parameters and
            inputs are cast (normalization in Apex O2).
        loss_scale: what the framework pairs with the policy: a number, "dynamic", "static" (a
            number that the user must choose), or None.
        overrides: exceptions; the last one that matches wins.

    Policies are frozen and hashable. Unknown operations cannot be told from here, as any
    framework may have them: `check_operations` does, given the known names.
    """

    name: str
    compute: Cast
    result: Cast | None = None
    gradient: Cast | None = None
    products: Products | None = None
    operations: Rules = _NONE
    otherwise: Rule = Rule.KEEP
    parameters: Cast | None = None
    master: Cast | None = None
    state: Cast | None = None
    inputs: Cast | None = None
    outputs: Cast | None = None
    keep_modules: tuple[str, ...] = ()
    loss_scale: float | str | None = None
    overrides: tuple[Override, ...] = ()

    def __init__(
        self,
        name: str,
        compute: Cast | Format | str,
        *,
        result: Cast | Format | str | None = None,
        gradient: Cast | Format | str | None = None,
        products: Products | Recipe | Delayed | str | Mapping[str, Any] | None = None,
        operations: Mapping[str, Rule | str] = _NONE,
        otherwise: Rule | str = Rule.KEEP,
        parameters: Cast | Format | str | None = None,
        master: Cast | Format | str | None = None,
        state: Cast | Format | str | None = None,
        inputs: Cast | Format | str | None = None,
        outputs: Cast | Format | str | None = None,
        keep_modules: Iterable[str] = (),
        loss_scale: float | str | None = None,
        overrides: Iterable[Override] = (),
    ) -> None:
        given = locals()
        where = f"policy {check_policy_name(name)!r}"
        values = {"name": name, "otherwise": make_rule(otherwise)}
        values |= {field: _cast(given[field], f"{where} {field}") for field in _CASTS}
        for field in ("parameters", "state"):  # None says the same
            values[field] = None if values[field] == _FLOAT32 else values[field]
        values["operations"] = operations if isinstance(operations, Rules) else Rules(operations)
        patterns = (keep_modules,) if isinstance(keep_modules, str) else keep_modules
        patterns = check_list(patterns, f"{where} keep_modules")
        values["keep_modules"] = tuple(check_name(pattern) for pattern in patterns)
        values["products"] = None if products is None else _products(products, where)
        values["loss_scale"] = check_scale(loss_scale, where)
        values["overrides"] = _check_overrides(overrides, where)
        if values["compute"] is None:
            raise InputError(f"{where}: compute is missing; say the format to lower to")
        _check_scaled(values, where)
        for field, value in values.items():
            object.__setattr__(self, field, value)

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(tuple(getattr(self, field.name) for field in fields(self)))

    def __getstate__(self) -> dict[str, Any]:  # a hash of text is another in another process
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def __repr__(self) -> str:
        own = f", {len(self.overrides)} overrides" if self.overrides else ""
        return f"<Policy {self.name!r}: {self.compute}, {self.operations!r}{own}>"

    # --- what it says ------------------------------------------------------------------------

    def rule(self, operation: str, module: str | None = None, step: int = 0) -> Rule:
        """Return what an operation does, in a module (its qualified name) at a step.

        >>> from fpemu.policies import find_policy
        >>> find_policy("torch.autocast.cuda.float16").rule("softmax")
        <Rule.FLOAT32_RESULT: 'float32_result'>
        """
        override = self._override(None, operation, module, step)
        if override is None:
            return self.operations.get(operation, self.otherwise)
        if isinstance(override.to, Products):
            return Rule.SCALED
        return override.to if isinstance(override.to, Rule) else Rule.LOWER

    def cast(
        self, kind: str, operation: str | None = None, module: str | None = None, step: int = 0
    ) -> Cast | None:
        """Return what tensors of a kind are cast to in operations that lower; None: not at all.

        >>> from fpemu.policies import find_policy
        >>> str(find_policy("fp8_hybrid").cast("gradient", "linear"))
        'float8_e5m2:overflow=saturate'

        kind: "activation" or "weight" (inputs of the operation), "gradient" (of its result), or
        "state" (of the optimizer; operation and module are those of the weight, or None).
        """
        override = self._override(check_kind(kind), operation, module, step)
        if override is not None and isinstance(override.to, Cast):
            return override.to
        if kind == "state":
            return self.state
        return self.gradient or self.compute if kind == "gradient" else self.compute

    def result_cast(self, operation: str, module: str | None = None, step: int = 0) -> Cast:
        """Return the Cast of the result of an operation that lowers.

        >>> from fpemu.policies import find_policy
        >>> str(find_policy("fp8_hybrid").result_cast("linear"))
        'float32'
        """
        if self.rule(operation, module, step) is Rule.SCALED:  # casts of kinds are of operands
            return self.result or self.compute
        if self.result is None:
            return self.cast("activation", operation, module, step) or self.compute
        override = self._override(None, operation, module, step)
        return override.to if override and isinstance(override.to, Cast) else self.result

    def scaling(
        self, operation: str, module: str | None = None, step: int = 0
    ) -> Products | None:
        """Return what rounds the operands of an operation that is scaled; None for any other.

        >>> from fpemu.policies import find_policy
        >>> p = find_policy("te.mxfp8; override: to=mxfp4 module=0; override: to=bf16 module=1")
        >>> print(p.scaling("linear", "2"), p.scaling("linear", "0"), p.scaling("linear", "1"))
        te.mxfp8 mxfp4 None
        """
        if self.rule(operation, module, step) is not Rule.SCALED:
            return None
        found = self.products
        own = None if found is None else found.accumulate
        for override in self.overrides:
            kind, to = override.kind, override.to
            if not (override.holds(step) and override.matches(kind, operation, module)):
                continue
            if isinstance(to, Products) and self._reaches(override, operation):
                found = to if kind is None or found is None else found.of_kind(kind, to)
            elif isinstance(to, Cast) and kind not in (None, "state") and found is not None:
                found = found.with_kind(kind, cast_scaler(to))
        if found is None or found.accumulate is not None or own is None:
            return found
        return found.replace(accumulate=own)  # an override that says nothing of it

    def accumulating(self, accumulate: Accumulator | Chip | Cast | str | None) -> Policy:
        """Return the policy with its matrix products added up by a chip, or in a format.

        >>> from fpemu.policies import find_policy
        >>> find_policy("te.delayed").accumulating("H100").name
        'te.delayed accumulate=hopper'

        accumulate: what `Products` takes. `find_policy` reads the new name back.
        """
        products = (self.products or Products(None)).replace(accumulate=accumulate)
        if products.accumulate is None:
            return self.replace(products=products if self.products else None)
        plain, _ = split_accumulator(self.name)
        added = str(Products(None, accumulate=products.accumulate)).removeprefix("none ")
        return self.replace(name=f"{plain} {added}", products=products)

    def keeps(self, module_class: str) -> bool:
        """Whether modules of a class (its name, without the package) stay float32."""
        return any(fnmatchcase(module_class, pattern) for pattern in self.keep_modules)

    def at(self, step: int) -> Policy:
        """Return the policy of one step, without a schedule: its answers hold at every step.

        >>> from fpemu.policies import Override, Policy
        >>> p = Policy("late", "fp16", overrides=[Override("lower", operation="*", first_step=5)])
        >>> p.at(4) == Policy("late", "fp16"), p.at(5).rule("add"), p.at(5) == p.at(6)
        (True, <Rule.LOWER: 'lower'>, True)
        """
        if all(o.holds(step) and not o.first_step and o.last_step is None for o in self.overrides):
            return self
        held = [o for o in self.overrides if o.holds(step)]
        always = tuple(replace(o, first_step=0, last_step=None) for o in held)
        return replace(self, overrides=always)

    def _override(
        self, kind: str | None, operation: str | None, module: str | None, step: int
    ) -> Override | None:
        """The last override that matches: of an operation as a whole for kind None."""
        for override in reversed(self.overrides):
            held = override.holds(step) and override.matches(kind, operation, module)
            if held and self._reaches(override, operation):
                return override
        return None

    def _reaches(self, override: Override, operation: str | None) -> bool:
        """Whether an override is about an operation: only products have operands for recipes."""
        if not isinstance(override.to, Products) or operation == "linear":
            return True
        if self.operations.get(operation or "") is Rule.SCALED:
            return True
        return override.operation is not None and operation in MULTIPLIES

    def replace(self, **changes: Any) -> Policy:
        """Return this policy with some fields changed.

        >>> from fpemu.policies import find_policy
        >>> find_policy("torch.half").replace(name="mine", loss_scale=1024).loss_scale
        1024.0
        """
        known = [field.name for field in fields(self)]
        if unknown := sorted(set(changes) - set(known)):
            hint = did_you_mean(unknown[0], known)
            raise InputError(f"a Policy has no field {unknown[0]!r}; {hint}its fields: {known}")
        return replace(self, **changes)

    # --- text and JSON, both ways ------------------------------------------------------------

    def __str__(self) -> str:
        """Return the policy as lines that `from_str` reads back.

        >>> from fpemu.policies import Override, Policy
        >>> print(Policy("mine", "e4m3fn", gradient="e5m2", operations={"linear": "lower"},
        ...              overrides=[Override("bf16", module="head*")]))
        policy: mine
        compute: float8_e4m3fn
        gradient: float8_e5m2
        otherwise: keep
        lower: linear
        override: to=bfloat16 module=head*

        A format of your own has no text that reads it back: use JSON for such a policy.
        """
        facts = self._facts()
        named = (*_CASTS, "products")
        facts |= {key: str(facts[key]) for key in named if facts[key] is not None}
        overrides = ((o, o.to.value if isinstance(o.to, Rule) else o.to) for o in self.overrides)
        facts["overrides"] = [{**o.to_json(), "to": str(to)} for o, to in overrides]
        return to_text(facts)

    @classmethod
    def from_str(cls, text: str) -> Policy:
        """Read `str(policy)` back; also clauses on one line, separated by ';'.

        >>> from fpemu.policies import Policy
        >>> Policy.from_str("policy: mine; compute: bf16; lower: linear matmul")
        <Policy 'mine': bfloat16, <Rules: 2 lower>>
        """
        if not isinstance(text, str):
            raise InputError(f"policy {repr(text)[:80]}: must be text such as str(policy) gives")
        return cls.from_json(from_text(text))

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-ready dict that `from_json` reads back, for users' own formats too."""
        facts = self._facts()
        made = (*_CASTS, "products")
        facts |= {key: facts[key].to_json() for key in made if facts[key] is not None}
        return {**facts, "overrides": [override.to_json() for override in self.overrides]}

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> Policy:
        """Make a Policy from `to_json`'s dict; what it leaves out is the default.

        >>> import json
        >>> from fpemu.policies import Policy, find_policy
        >>> p = find_policy("apex.O2")
        >>> Policy.from_json(json.loads(json.dumps(p.to_json()))) == p
        True
        """
        names = [field.name for field in fields(cls)]
        check_facts(facts, "policy", names, required=("name", "compute"))
        values = {key: value for key, value in facts.items() if value is not None}
        lists = values.get("operations", {})
        if not isinstance(lists, Mapping):
            raise InputError(f"policy operations {repr(lists)[:80]}: must be a dict of lists")
        values["operations"] = rules(**{
            str(rule): check_list(found, f"operations {rule!r}") for rule, found in lists.items()
        })  # fmt: skip
        overrides = check_list(values.get("overrides", []), "policy overrides")
        values["overrides"] = [Override.from_json(override) for override in overrides]
        values["keep_modules"] = check_list(values.get("keep_modules", []), "policy keep_modules")
        return cls(**values)

    def _facts(self) -> dict[str, Any]:
        """The fields; rules as their names, operations as a list for each rule."""
        facts = self.__getstate__()
        lists = {rule.value: names for rule, names in self.operations.lists().items()}
        return {
            **facts,
            "operations": lists,
            "otherwise": self.otherwise.value,
            "keep_modules": list(self.keep_modules),
        }


def _cast(value: Any, where: str) -> Cast | None:
    return None if value is None else read_cast(value, where)


def _products(value: Any, where: str) -> Products:
    try:
        return Products.of(value)
    except FpemuError as wrong:
        raise InputError(f"{where} products: {wrong}") from None


def _check_scaled(values: Mapping[str, Any], where: str) -> None:
    """Refuse operations that are scaled by nothing, and recipes for what is no product."""
    operations, overrides = values["operations"], values["overrides"]
    said = {*operations.values(), values["otherwise"], *(o.to for o in overrides if not o.kind)}
    if values["otherwise"] is Rule.SCALED:
        raise InputError(f"{where} otherwise=scaled: only products are scaled; list them")
    if Rule.SCALED in said and values["products"] is None:
        raise InputError(
            f"{where}: operations are scaled, and nothing says how: give products, "
            "as products=\"te.mxfp8\""
        )
    for override in overrides:
        pattern = override.operation
        if not isinstance(override.to, Products) or pattern is None:
            continue
        known = (*MULTIPLIES, *(name for name, rule in operations.items() if rule is Rule.SCALED))
        if not any(fnmatchcase(name, pattern) for name in known):
            raise InputError(
                f"{where}: a recipe for operation {pattern!r:.60}: only matrix products have "
                f"operands to scale: {', '.join(known)}"
            )


def _check_overrides(overrides: Iterable[Override], where: str) -> tuple[Override, ...]:
    given = (overrides,) if isinstance(overrides, Override) else overrides
    found = tuple(check_list(given, f"{where} overrides"))
    for override in found:
        if not isinstance(override, Override):
            raise InputError(
                f"{where} overrides: {repr(override)[:80]} is no Override; make each one with "
                "fpemu.policies.Override(to, ...)"
            )
    return found
