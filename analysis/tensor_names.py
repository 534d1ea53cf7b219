"""Tensor names: what the names that `watch` gives say: module, layer, operation, input."""

from __future__ import annotations

import re

__all__ = [
    "PARAMETERS",
    "is_input",
    "layer_of",
    "module_of",
    "operation_of",
    "without_input",
]

#: Kind of what is named after a parameter -> how many words its name has after the module's.
PARAMETERS = {"weight": 1, "weight_gradient": 1, "update": 1, "optimizer_state": 2}

_INPUT = re.compile(r"\.input\d*$")


def module_of(name: str, kind: str) -> str:
    """Return the module that a tensor belongs to; "" outside of modules.

    >>> from fpemu.analysis.tensor_names import module_of
    >>> module_of("block.0.fc1", "activation"), module_of("block.0.fc1.weight", "update")
    ('block.0.fc1', 'block.0.fc1')
    >>> module_of("block.0.add@model.py:12", "activation"), module_of("scale", "weight")
    ('block.0', '')
    >>> module_of("block.0.fc1.weight.exp_avg", "optimizer_state")
    'block.0.fc1'

    Parameters are named after their module and themselves, the optimizer's state after them,
    operations after their module and where they are called, results of modules as the module.
    """
    if kind in PARAMETERS:
        return name.rsplit(".", PARAMETERS[kind])[0] if "." in name else ""
    head, called, _ = name.partition("@")
    return head.rpartition(".")[0] if called else name


def layer_of(name: str, kind: str) -> str:
    """Return the layer that a tensor belongs to: its module; outside of modules it is one itself.

    >>> from fpemu.analysis.tensor_names import layer_of
    >>> layer_of("fc1.weight", "weight_gradient"), layer_of("scale", "weight")
    ('fc1', 'scale')
    """
    return module_of(name, kind) or name


def operation_of(name: str) -> str | None:
    """Return the operation whose result or result's gradient a tensor is; None: a module's.

    >>> from fpemu.analysis.tensor_names import operation_of
    >>> operation_of("block.0.add@model.py:12"), operation_of("block.0.fc1")
    ('add', None)
    """
    head, called, _ = name.partition("@")
    return head.rpartition(".")[2] if called else None


def is_input(name: str) -> bool:
    """Say whether a tensor is what a matrix product is given, as a watch of those names it."""
    return _INPUT.search(name) is not None


def without_input(name: str) -> str:
    """Return the name of the product that a tensor is an input of, and any other as it is.

    >>> from fpemu.analysis.tensor_names import without_input
    >>> without_input("block.0.matmul@gpt.py:41.input2"), without_input("fc1")
    ('block.0.matmul@gpt.py:41', 'fc1')
    """
    return _INPUT.sub("", name)
