"""Modes: a torch function mode that comes and goes without disturbing those of others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fpemu.analysis.collect.framework import torch

__all__ = ["Listener", "depth", "has", "insert", "remove", "sweep"]

_C: Any = torch._C


class Listener(torch.overrides.TorchFunctionMode):
    """Calls `heard(function, args, kwargs, result)` after each of PyTorch's functions."""

    def __init__(self, heard: Callable[[Any, Any, Any, Any], None]) -> None:
        super().__init__()
        self._heard: Callable[[Any, Any, Any, Any], None] | None = heard

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if self._heard is not None:
            self._heard(func, args, kwargs, result)
        return result

    def retire(self) -> None:
        """Listen no more, and leave the stack.

        Inside a function that the mode was called for (an optimizer that steps in the backward
        pass), PyTorch has taken it out and will put it back: then `sweep` takes it out later.
        """
        self._heard = None
        if not remove(self):
            _retired.append(self)


_retired: list[Listener] = []


def sweep() -> None:
    """Take out the modes that could not leave when they retired."""
    _retired[:] = [mode for mode in _retired if not remove(mode)]


def depth() -> int:
    """Return how many function modes are active."""
    return int(_C._len_torch_function_stack())


def insert(mode: Listener, at: int) -> None:
    """Put a mode at a depth of the stack, below those that were entered later.

    A mode that a script enters at one place and leaves at another would otherwise be on top when
    the script leaves one of its own, and be taken for it.
    """
    above = [_C._pop_torch_function_stack() for _ in range(max(depth() - at, 0))]
    _C._push_on_torch_function_stack(mode)
    for other in reversed(above):
        _C._push_on_torch_function_stack(other)


def remove(mode: Listener) -> bool:
    """Take a mode out, wherever it is in the stack; say whether it was there."""
    above: list[Any] = []
    found = False
    while depth() and not found:
        top = _C._pop_torch_function_stack()
        found = top is mode
        if not found:
            above.append(top)
    for other in reversed(above):
        _C._push_on_torch_function_stack(other)
    return found


def has(mode: Listener) -> bool:
    """Say whether a mode is active."""
    return any(_C._get_function_stack_at(k) is mode for k in range(depth()))
