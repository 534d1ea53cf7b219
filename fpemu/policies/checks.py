"""Checks: what the fields of policies and overrides may be; errors in one line, made once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from fpemu.cast import Cast, make_cast
from fpemu.errors import FpemuError, InputError, did_you_mean
from fpemu.format import Format

__all__ = ["KINDS", "check_facts", "check_kind", "check_list", "check_name", "check_policy_name",
           "check_scale", "check_steps", "read_cast"]  # fmt: skip

#: The kinds of tensors that formats are chosen for.
KINDS = ("activation", "weight", "gradient", "state")

#: What a framework pairs with a policy instead of a number.
SCALES = ("dynamic", "static")


def read_cast(value: Cast | Format | str | Mapping[str, Any], where: str) -> Cast:
    """Return the Cast of a record, a text or JSON facts; errors begin with `where`."""
    try:
        return Cast.from_json(value) if isinstance(value, Mapping) else make_cast(value)
    except FpemuError as wrong:
        raise InputError(f"{where}: {wrong}") from None


def check_name(name: str) -> str:
    """Return the name of an operation, or a pattern of names; refuse what text cannot hold."""
    if not isinstance(name, str) or not name or any(c.isspace() or c in ";#" for c in name):
        raise InputError(
            f"operation {repr(name)[:80]}: a name is text without white space, ';' and '#'"
        )
    return name


def check_policy_name(name: str) -> str:
    """Return the name of a policy; refuse what a line of text cannot hold."""
    bad = not isinstance(name, str) or not name or name != name.strip()
    if bad or any(c in ";#" or not c.isprintable() for c in name):
        raise InputError(
            f"policy name {repr(name)[:80]}: a name is one line of text without ';' and '#'"
        )
    return name


def check_kind(kind: str) -> str:
    """Return a kind of tensors; refuse any other."""
    if kind not in KINDS:
        hint = did_you_mean(str(kind)[:64], KINDS)
        raise InputError(f"kind {repr(kind)[:80]}: {hint}choose one of {', '.join(KINDS)}")
    return kind


def check_steps(first: int, last: int | None) -> None:
    """Refuse what are no steps, and a last one before the first."""
    for step in (first,) if last is None else (first, last):
        if isinstance(step, bool) or not isinstance(step, int) or step < 0:
            raise InputError(f"override step {repr(step)[:80]}: steps are ints from 0")
    if last is not None and last < first:
        raise InputError(f"override steps {first} to {last}: the last comes before the first")


def check_facts(facts: Any, what: str, known: Iterable[str], required: Iterable[str]) -> None:
    """Refuse facts of a JSON dict that are no dict, lack a field or have an unknown one."""
    if not isinstance(facts, Mapping):
        raise InputError(f"{what} facts {repr(facts)[:80]}: must be the dict that to_json gives")
    names = tuple(known)
    for name in required:
        if facts.get(name) is None:
            raise InputError(f"{what} facts: {name!r} is missing; fields: {', '.join(names)}")
    for name in facts:
        if name not in names:
            hint = did_you_mean(str(name)[:64], names)
            raise InputError(
                f"{what} facts: unknown field {repr(name)[:80]}; {hint}fields: {', '.join(names)}"
            )


def check_list(value: Any, what: str) -> list[Any]:
    """Return a list of facts; refuse anything else."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InputError(f"{what} {repr(value)[:80]}: must be a list")
    return list(value)


def check_scale(scale: Any, where: str) -> float | str | None:
    """Return a loss scale, a number as a float; errors begin with `where`."""
    if scale is None or (isinstance(scale, str) and scale in SCALES):
        return scale
    number = isinstance(scale, int | float) and not isinstance(scale, bool)
    if not number or not 0 < scale < math.inf:
        raise InputError(
            f"{where} loss_scale={repr(scale)[:80]}: a positive number, {' or '.join(SCALES)}"
        )
    return float(scale)
