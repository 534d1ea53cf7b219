"""Conversions: what a program asks for by dtype, such as x.half(), as emulated formats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from fpemu.cast import Cast, make_cast
from fpemu.errors import InputError
from fpemu.presets import CASTS as PRESETS
from fpemu.torch.edges import changed
from fpemu.torch.state import State

__all__ = ["CASTS", "CONVERSIONS"]

Tensor = torch.Tensor

#: PyTorch's narrow dtypes, and what its own casts to them are.
CASTS: dict[Any, Cast] = {
    getattr(torch, name.removeprefix("torch.")): make_cast(name)
    for name in PRESETS
    if name.startswith("torch.") and hasattr(torch, name.removeprefix("torch."))
}


def _convert(state: State, func: Any, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """`x.to(...)`: the device by PyTorch, the dtype as a format."""
    given = [a for a in (*args, kwargs.get("dtype"), kwargs.get("other")) if a is not None]
    other = next((a for a in given if isinstance(a, Tensor)), None)
    dtype = next((a for a in given if isinstance(a, torch.dtype)), None)
    if other is not None and other.dtype is torch.float32:
        return changed(state, func(x, *args, **kwargs), state.tags.of(other))
    if dtype in CASTS:
        return _narrow(state, func, x, CASTS[dtype], dtype, args, kwargs)
    out: Tensor = func(x, *args, **kwargs)
    return changed(state, out, None) if dtype is torch.float32 else out


def _narrow(
    state: State, func: Any, x: Tensor, cast: Cast, dtype: Any, args: Any, kwargs: Any
) -> Tensor:
    if x.dtype is torch.float64:  # rounded once, not through float32
        x = changed(state, x, cast).float()
    args = tuple(torch.float32 if a is dtype else a for a in args)
    kwargs = {k: torch.float32 if v is dtype else v for k, v in kwargs.items()}
    return changed(state, func(x, *args, **kwargs), cast)


def _float(state: State, func: Any, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    return changed(state, func(x, *args, **kwargs), None)


def _to(dtype: torch.dtype) -> Callable[..., Tensor]:
    def convert(state: State, func: Any, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return _convert(state, Tensor.to, x, dtype)

    return convert


def _type(state: State, func: Any, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    if args and isinstance(args[0], torch.dtype):
        return _convert(state, Tensor.to, x, args[0])
    if args and str(args[0]).endswith(("HalfTensor", "BFloat16Tensor")):
        raise InputError(f"x.type({args[0]!r}) under emulate: give the dtype, x.to(torch.half)")
    return func(x, *args, **kwargs)


def _type_as(state: State, func: Any, x: Tensor, other: Tensor) -> Tensor:
    return _convert(state, Tensor.to, x, other)


#: Name of a method -> what is called instead, with the state and the method itself.
CONVERSIONS: dict[str, Callable[..., Any]] = {
    "to": _convert,
    "float": _float,
    "half": _to(torch.float16),
    "bfloat16": _to(torch.bfloat16),
    "type": _type,
    "type_as": _type_as,
}
