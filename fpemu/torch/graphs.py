"""What torch.compile needs to be told: what is constant, and what it would get wrong."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import torch

from fpemu.errors import InputError

__all__ = ["constant", "refuse_transforms", "unseen"]

_F = TypeVar("_F", bound=Callable[..., object])


def constant(function: _F) -> _F:
    """Mark a function of constants: torch.compile calls it while tracing, and keeps the result."""
    marked: _F = torch.compiler.assume_constant_result(function)  # type: ignore[no-untyped-call]
    return marked


def unseen() -> AbstractContextManager[Any]:
    """Return a context whose calls no TorchFunctionMode sees: they are not the model's own."""
    return nullcontext() if torch.compiler.is_compiling() else torch._C.DisableTorchFunction()


@constant
def refuse_transforms() -> None:
    """PyTorch 2.13 traces a Function under torch.func without its backward: zeros, silently."""
    if torch._C._are_functorch_transforms_active():
        raise InputError(
            "torch.func inside a graph loses the gradients of rounding: compile without it"
        )
