"""Layers: which of a trace's tensors belong to one module, as a policy can name it.

A policy's overrides name modules, and operations by kind; so a layer is a module with all that it
computes itself, or, where an operation runs outside of modules that are known, the operation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fpemu.analysis.advice.operations import is_in_float32, is_product
from fpemu.analysis.records import KINDS
from fpemu.analysis.tensor_names import without_input

if TYPE_CHECKING:
    from fpemu.analysis.totals import Total

__all__ = ["Layer", "layers_of"]

_ACTIVATIONS = ("activation", "activation_gradient")
_WEIGHTS = ("weight", "weight_gradient", "update")


@dataclass(frozen=True)
class Layer:
    """What gets one format."""

    name: str
    module: str | None  #: the module's qualified name; None: not known to be a module's
    operation: str | None  #: of what is no module: the operation by itself
    tensors: tuple[Total, ...]

    @property
    def matmul(self) -> bool:
        """Whether it multiplies matrices: its weights are ones, or an operation of it does."""
        return any(
            (t.kind in _WEIGHTS and len(t.shape) > 1) or is_product(t.name) for t in self.tensors
        )

    @property
    def in_float32(self) -> bool:
        """Whether PyTorch's autocast computes it in float32 anyway: a loss, a softmax."""
        return self.operation is not None and is_in_float32(self.operation)


def layers_of(totals: Mapping[tuple[str, str], Total]) -> tuple[Layer, ...]:
    """Return the layers of a trace's tensors, in the order in which their tensors were first seen.

    >>> import numpy as np
    >>> from fpemu.analysis.advice.layers import layers_of
    >>> from fpemu.analysis.totals import Total
    >>> from fpemu.analysis.trace import Trace
    >>> trace = Trace()
    >>> for name, kind in (("block.fc.weight", "weight"), ("block.fc", "activation"),
    ...                    ("block.add@net.py:7", "activation"), ("mean@net.py:9", "activation")):
    ...     trace.record(name, kind, np.float32([[1.0]]), step=0)
    >>> totals = {(r.name, r.kind): Total.of(r) for r in trace.records()}
    >>> [(layer.name, layer.operation, layer.matmul) for layer in layers_of(totals)]
    [('block.fc', None, True), ('block', None, False), ('mean', 'mean', False)]
    """
    modules = _modules(totals)
    found: dict[str, tuple[str | None, str | None, list[Total]]] = {}
    for (name, kind), total in totals.items():
        layer, module, operation = _place(name, kind, modules)
        found.setdefault(layer, (module, operation, []))[2].append(total)
    order = {kind: place for place, kind in enumerate(KINDS)}
    return tuple(
        Layer(name, module, operation, tuple(sorted(tensors, key=lambda t: order[t.kind])))
        for name, (module, operation, tensors) in found.items()
    )


def _modules(keys: Iterable[tuple[str, str]]) -> set[str]:
    """The modules that are sure to be ones: they have weights, results, or parts that do."""
    keys = list(keys)
    plain = {_bare(name) for name, kind in keys if kind in _ACTIVATIONS and "@" not in name}
    owners = {_owner(name, plain) for name, kind in keys if kind in _WEIGHTS}
    known = plain | owners
    for name in list(known):
        while name := name.rpartition(".")[0]:
            known.add(name)
    return known - {""}


def _place(name: str, kind: str, modules: set[str]) -> tuple[str, str | None, str | None]:
    """A tensor's layer, and the module or operation that it is."""
    if kind in _ACTIVATIONS:
        base = name.partition("@")[0]
        if "@" not in name:
            base = base if base in modules else _bare(base)
            return base, base, None
        module, _, operation = base.rpartition(".")
        if module in modules:
            return module, module, None
        return base, None, operation
    if kind == "optimizer_state":
        name = name.rpartition(".")[0] or name
    owner = _owner(name, modules)
    return owner, owner, None


def _owner(weight: str, modules: set[str]) -> str:
    """The module of a weight: 'fc.weight' is fc's; it may also be called as its layer is."""
    return weight if weight in modules else weight.rpartition(".")[0] or weight


def _bare(name: str) -> str:
    """The module of a result's name: without the place in a tuple, or '.input' of a product."""
    return without_input(re.sub(r"\[.*\]$", "", name))
