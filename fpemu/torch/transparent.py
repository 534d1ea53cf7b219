"""Transparent: PyTorch's functions written in Python, run so that the calls inside are seen."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

__all__ = ["transparent"]

_CHECKS = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")

_copies: dict[types.FunctionType, types.FunctionType] = {}
_globals: dict[int, dict[str, Any]] = {}


def _no(*_: Any) -> bool:
    return False


def transparent(function: types.FunctionType) -> Callable[..., Any]:
    """Return a function without its own question whether a mode wants to see it.

    A function such as `torch.nn.functional.softmax` begins by asking that, and would be handed
    to the mode for ever if it ran with the mode on. The copy shares everything else.
    """
    found = _copies.get(function)
    if found is not None:
        return found
    cells = function.__closure__ or ()
    own = tuple(types.CellType() for _ in cells)
    copy = types.FunctionType(
        function.__code__, _unasking(function.__globals__), function.__name__,
        function.__defaults__, own or None,
    )  # fmt: skip
    copy.__kwdefaults__ = function.__kwdefaults__
    _copies[function] = copy
    for cell, new in zip(cells, own, strict=True):
        new.cell_contents = _inner(cell.cell_contents)
    return copy


def _inner(value: Any) -> Any:
    """What a function wraps asks too: pooling comes in two variants."""
    ours = isinstance(value, types.FunctionType) and value.__module__.startswith("torch")
    return transparent(value) if ours else value


def _unasking(names: dict[str, Any]) -> dict[str, Any]:
    key = id(names)  # of a module, which stays
    if key not in _globals:
        _globals[key] = {**names, **{check: _no for check in _CHECKS if check in names}}
    return _globals[key]
