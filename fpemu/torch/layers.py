"""Layers: what the operands of products are called, from step to step and from run to run."""

from __future__ import annotations

import weakref
from collections import Counter

import torch

__all__ = ["Layers"]

Tensor = torch.Tensor


class Layers:
    """Names of weights, by the modules that hold them, and of products that have no weight."""

    def __init__(self) -> None:
        self._names: dict[int, tuple[weakref.ref[Tensor], str]] = {}
        self._taken: Counter[str] = Counter()
        self._made: dict[str | None, Counter[str]] = {}  #: products of none, by module

    def add(self, root: torch.nn.Module) -> None:
        """Name the parameters of a model: a second model's like the first one's are numbered."""
        for name, parameter in root.named_parameters():
            if self._known(parameter) is None:
                self._name(parameter, name.removesuffix(".weight"))

    def begin(self, module: str | None) -> None:
        """A module runs: what it multiplies has the same names as when it ran before."""
        self._made.pop(module, None)

    def of(self, weight: Tensor, module: str | None, operation: str) -> str:
        """Return the name of a product.

        That of its weight: what the model calls it, or "weight" with a number for a parameter of
        no module. Otherwise it goes by the module, the operation and how often it made one before.
        """
        known = self._known(weight)
        if known is not None:
            return known
        leaf = operation == "linear" and weight.is_leaf and weight.requires_grad
        if leaf or isinstance(weight, torch.nn.Parameter):
            return self._name(weight, "weight")
        made = self._made.setdefault(module, Counter())
        made[operation] += 1
        name = f"{module}.{operation}" if module else operation
        return _numbered(name, made[operation])

    def _known(self, weight: Tensor) -> str | None:
        found = self._names.get(id(weight))
        return found[1] if found is not None and found[0]() is weight else None

    def _name(self, weight: Tensor, plain: str) -> str:
        self._taken[plain] += 1
        name = _numbered(plain, self._taken[plain])
        self._names[id(weight)] = weakref.ref(weight), name
        return name


def _numbered(name: str, count: int) -> str:
    return name if count == 1 else f"{name}#{count}"
