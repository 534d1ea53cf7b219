"""Operations: what a PyTorch function is called in a trace, and what it does with its input."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from fpemu.analysis.collect.framework import torch

__all__ = ["MATMULS", "Operation", "labelled", "operation_of", "tensors_in"]

#: What a matrix unit computes: the operations whose inputs a small format rounds first of all.
MATMULS = frozenset((
    "linear", "bilinear", "matmul", "mm", "bmm", "mv", "dot", "vdot", "addmm", "addmv",
    "addbmm", "baddbmm", "einsum", "tensordot", "chain_matmul", "multi_dot", "conv1d",
    "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
    "conv_tbc", "scaled_dot_product_attention", "multi_head_attention_forward", "lstm",
    "gru", "rnn_tanh", "rnn_relu", "lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell",
))  # fmt: skip

#: These hand their input on, as a view or a copy: no new values.
_MOVES = frozenset((
    "alias", "as_strided", "broadcast_to", "chunk", "clone", "contiguous", "cpu", "cuda",
    "detach", "diagonal", "double", "expand", "expand_as", "flatten", "flip", "float",
    "getitem", "half", "bfloat16", "index_select", "mT", "movedim", "moveaxis", "narrow",
    "numpy", "permute", "pin_memory", "ravel", "requires_grad_", "reshape", "reshape_as",
    "retain_grad", "select", "split", "split_with_sizes", "squeeze", "swapaxes", "swapdims",
    "t", "T", "H", "real", "tensor_split", "to", "transpose", "type", "type_as", "unbind",
    "unchunk", "unflatten", "unfold", "unsqueeze", "unsafe_chunk", "unsafe_split", "view",
    "view_as", "view_as_real",
))  # fmt: skip

#: These return tensors that the step has not computed: gradients, or what a generator drew.
_SILENT = frozenset((
    "backward", "grad", "register_hook", "numpy", "item", "tolist", "__get__", "__set__", "set_",
    "data", "is_floating_point", "storage", "untyped_storage",
))  # fmt: skip

#: Python's operators, by what they compute.
_OPERATORS = {"truediv": "div", "getitem": "getitem", "rdiv": "div", "rsub": "sub", "rpow": "pow"}


@dataclass(frozen=True, slots=True)
class Operation:
    """One function of PyTorch, as a trace names it."""

    name: str  #: add, linear, softmax, ...
    moves: bool  #: its output holds its input's values
    matmul: bool  #: a matrix unit computes it


@lru_cache(maxsize=4096)
def operation_of(function: Callable[..., Any]) -> Operation | None:
    """Return what a function is; None for one that computes no new values in a step.

    >>> from fpemu.analysis.collect.operations import operation_of
    >>> import torch
    >>> operation_of(torch.Tensor.__rsub__).name, operation_of(torch.Tensor.view).moves
    ('sub', True)
    """
    name = str(getattr(function, "__name__", type(function).__name__))
    if name == "__get__":  # of a property: x.T, x.real; x.grad and x.shape hand nothing on
        owner = getattr(function, "__self__", None)
        name = str(getattr(owner, "__name__", ""))
        return Operation(name, True, False) if name in _MOVES else None
    if name in _SILENT:
        return None
    if name.startswith("__") and name.endswith("__"):
        name = _plain(name[2:-2])
    base = name.rstrip("_") if not name.startswith("_") else name
    return Operation(name, name in _MOVES, base in MATMULS)


def _plain(name: str) -> str:
    """The operation of an operator's method: rsub -> sub, iadd -> add_."""
    if name in _OPERATORS:
        return _OPERATORS[name]
    if name[0] == "i" and hasattr(torch.Tensor, f"{name[1:]}_"):
        return f"{name[1:]}_"
    if name[0] == "r" and hasattr(torch.Tensor, name[1:]):
        return name[1:]
    return name


def tensors_in(value: Any, depth: int = 4) -> list[torch.Tensor]:
    """Return the tensors of an argument or result: in lists, tuples, dicts and dataclasses.

    It runs for every operation of a recorded step, so what is common goes first.
    """
    found: list[torch.Tensor] = []
    for item in value if isinstance(value, tuple | list) else (value,):
        if isinstance(item, torch.Tensor):
            found.append(item)
        elif item is not None and not isinstance(item, int | float | str) and depth:
            found.extend(tensor for _, tensor in labelled(item, "", depth))
    return found


def labelled(value: Any, label: str, depth: int = 4) -> Iterator[tuple[str, torch.Tensor]]:
    """Iterate the tensors of a nested value with where they lie: '[0]', '[hidden]'."""
    if isinstance(value, torch.Tensor):
        yield label, value
    elif depth == 0 or isinstance(value, str | bytes | int | float) or value is None:
        return
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from labelled(item, f"{label}[{key}]", depth - 1)
    elif isinstance(value, tuple | list):
        for place, item in enumerate(value):
            yield from labelled(item, f"{label}[{place}]", depth - 1)
    elif hasattr(value, "__dataclass_fields__"):
        for key in value.__dataclass_fields__:
            yield from labelled(getattr(value, key, None), f"{label}[{key}]", depth - 1)
