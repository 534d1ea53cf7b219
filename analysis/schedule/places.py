"""Places: where in a policy the tensors of a trace are: module, operation and kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from fpemu.analysis.tensor_names import PARAMETERS, module_of, operation_of, without_input

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
    if kind in PARAMETERS:
        return Place(module_of(name, kind), None, POLICY_KINDS[kind])
    bare = without_input(name) if products else name
    return Place(module_of(bare, kind), operation_of(bare), POLICY_KINDS[kind])


def is_of_products(trace: Trace) -> bool:
    """Whether a trace was recorded by watch(..., tensors="matmul")."""
    watched = trace.metadata.get("watched")
    return isinstance(watched, dict) and watched.get("tensors") == "matmul"
