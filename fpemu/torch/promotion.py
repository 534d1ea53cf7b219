"""Promotion: which results of an operation are narrow, as PyTorch itself answers for half."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from fpemu.arrays import holds
from fpemu.cast import Cast
from fpemu.torch.tags import Tags, is_emulated_kind
from fpemu.torch.words import words

__all__ = ["Scan", "narrow_results", "scan", "wider"]

Tensor = torch.Tensor
_F32 = torch.float32

#: Stands for the emulated format where PyTorch is asked; which one does not matter.
_STAND_IN = torch.bfloat16

#: Operations that are told the dtype of an earlier input, at this position: it is the gradient's.
_TOLD = {"_softmax_backward_data": 3, "_log_softmax_backward_data": 3}


class Scan:
    """The emulated formats of an operation's arguments."""

    __slots__ = ("any_wide", "blanks", "narrow", "scalars")

    def __init__(self, blanks: Tags | None = None) -> None:
        self.blanks = blanks  # tensors without numbers yet, which take any format
        self.narrow: list[Cast] = []  # of tensors with dimensions
        self.scalars: list[Cast] = []  # of those without
        self.any_wide = False  # whether some argument is float32

    def formats(self) -> list[Cast]:
        return self.narrow or self.scalars

    def add(self, cast: Cast | None, tensor: Tensor) -> None:
        if cast is None:
            blanks = self.blanks
            self.any_wide |= not blanks or blanks.of(tensor) is None
        elif tensor.dim():
            if cast not in self.narrow:
                self.narrow.append(cast)
        elif cast not in self.scalars:
            self.scalars.append(cast)


def scan(tags: Tags, values: Iterable[Any], found: Scan) -> Scan:
    """Find the formats of all float32 tensors among some arguments and lists of them."""
    for value in values:
        if isinstance(value, Tensor):
            if value.dtype is _F32 or is_emulated_kind(value):
                found.add(tags.of(value), value)
            elif value.dtype is torch.float64:  # a Python number, or a tensor that stays so
                found.any_wide = True
        elif isinstance(value, list | tuple):
            scan(tags, value, found)
    return found


def wider(formats: list[Cast]) -> Cast | None:
    """Return the format that holds all of the others; None, float32, if none does."""
    if len(formats) == 1:
        return formats[0]
    for one in formats:
        if all(holds(one.format, other.format) for other in formats):
            return one
    return None


#: Their statistics, and the gradients of their weights, are float32 if the weights are; the meta
#: kernels of PyTorch say otherwise than its CPU kernels.
_NORMS = words("""
    native_layer_norm native_layer_norm_backward native_group_norm native_group_norm_backward
    native_batch_norm native_batch_norm_backward _native_batch_norm_legit
    _native_batch_norm_legit_functional _batch_norm_with_update batch_norm_backward
    cudnn_batch_norm cudnn_batch_norm_backward
""")

_answers: dict[Any, tuple[bool, ...] | None] = {}


def narrow_results(
    tags: Tags, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[bool, ...] | None:
    """Return for each result of an ATen operation whether it has the narrow format.

    PyTorch is asked once for each combination of formats, kinds of scalars and dtypes, with
    tensors that have shapes but no numbers; None where it cannot tell.
    """
    key = (id(func), _key(tags, args), _key(tags, kwargs.values()) if kwargs else None)
    try:
        return _answers[key]
    except KeyError:
        answer = _answers[key] = _ask(tags, func, args, kwargs)
        return answer


def _key(tags: Tags, values: Iterable[Any]) -> tuple[Any, ...]:
    found: list[Any] = []
    for value in values:
        if isinstance(value, Tensor):
            narrow = value.dtype is _F32 and tags.of(value) is not None
            found.append((value.dtype, narrow, value.dim() == 0))
        elif isinstance(value, list | tuple):
            found.append(_key(tags, value))
        elif isinstance(value, torch.dtype):
            found.append(value)
        else:
            found.append(type(value))
    return tuple(found)


def _ask(
    tags: Tags, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[bool, ...] | None:
    name = func._schema.name.partition("::")[2]
    if name in _NORMS:
        wide = any(isinstance(v, Tensor) and v.dim() and tags.of(v) is None for v in args)
        return (True, *[not wide] * (len(func._schema.returns) - 1))
    asked = [_stand_in(tags, value) for value in args]
    told = _TOLD.get(name)
    if told is not None and told < len(asked):
        asked[told] = _STAND_IN
    named = {name: _stand_in(tags, value) for name, value in kwargs.items()}
    named |= {"device": "meta"} if "device" in named else {}
    try:
        results = func(*asked, **named)
    except (RuntimeError, NotImplementedError, TypeError, ValueError, IndexError):
        return None
    results = results if isinstance(results, list | tuple) else (results,)
    return tuple(isinstance(r, Tensor) and r.dtype is _STAND_IN for r in results)


def _stand_in(tags: Tags, value: Any) -> Any:
    if isinstance(value, Tensor):
        narrow = value.dtype is _F32 and tags.of(value) is not None
        dtype = _STAND_IN if narrow else value.dtype
        return torch.empty(value.shape, dtype=dtype, device="meta")
    if isinstance(value, list | tuple):
        return [_stand_in(tags, v) for v in value]
    return None if isinstance(value, torch.Generator) else value
