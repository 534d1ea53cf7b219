"""Places: where in a policy the tensors of a trace are: module, operation and kind."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from fpemu.analysis.trace import Trace

__all__ = ["POLICY_KINDS", "Place", "is_of_products", "place"]

#: Kind of a trace -> kind of tensors in policies; the others have no format of their own there.
POLICY_KINDS = {
    "activation": "activation",
    "weight": "weight",
    "activation_gradient": "gradient",
    "optimizer_state": "state",
}

#: Kind of a trace -> how many words its names have after the module's.
_AFTER = {"weight": 1, "weight_gradient": 1, "update": 1, "optimizer_state": 2}

_INPUT = re.compile(r"\.input\d*$")


class Place(NamedTuple):
    """Where a policy decides on a tensor."""

    module: str  #: qualified name; "" for tensors outside of modules
    operation: str | None  #: None: whatever the module itself is
    kind: str  #: of `fpemu.policies.KINDS`


def place(name: str, kind: str, *, products: bool = False) -> Place | None:
    """Return where in a policy a recorded tensor is; None: policies have no format for its kind.

    >>> from fpemu.analysis.schedule.places import place
    >>> place("blocks.0.fc.weight", "weight")
    Place(module='blocks.0.fc', operation=None, kind='weight')
    >>> place("blocks.0.matmul@gpt.py:41", "activation_gradient")
    Place(module='blocks.0', operation='matmul', kind='gradient')
    >>> place("blocks.0.fc.input", "activation", products=True)
    Place(module='blocks.0.fc', operation=None, kind='activation')

    Names are those that `watch` gives; products: whether it watched what matrix products are
    given, tensors="matmul", where 'input' is no module's name. What runs outside of modules has
    the module "". None for weight_gradient and update.
    """
    if kind not in POLICY_KINDS:
        return None
    if kind in _AFTER:
        return Place(name.rsplit(".", _AFTER[kind])[0] if "." in name else "", None,
                     POLICY_KINDS[kind])  # fmt: skip
    bare = _INPUT.sub("", name) if products else name
    head, functional, _ = bare.partition("@")
    module, _, operation = head.rpartition(".") if functional else (head, "", None)
    return Place(module, operation, POLICY_KINDS[kind])


def is_of_products(trace: Trace) -> bool:
    """Whether a trace was recorded by watch(..., tensors="matmul")."""
    watched = trace.metadata.get("watched")
    return isinstance(watched, dict) and watched.get("tensors") == "matmul"
