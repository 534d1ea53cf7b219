"""The operator fpemu::round: a Cast as PyTorch's dispatcher knows it, for graphs and transforms.

It takes a Cast as text, since a graph holds no records, and knows dense float32 and float64
tensors; `fpemu.torch.round` is the edge that people use.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

import torch

from fpemu.cast import Cast, make_cast
from fpemu.emulate import round as round_array
from fpemu.errors import FpemuError, InputError

__all__ = ["cast_text", "read_cast", "round_op", "round_values"]


@lru_cache(maxsize=4096)
def cast_text(cast: Cast) -> str:
    """Return a cast as text that `read_cast` reads back, a user's own format included.

    >>> import fpemu
    >>> from fpemu.torch.operators import cast_text
    >>> cast_text(fpemu.Cast("fp16", "up"))
    'float16:up'
    """
    try:
        found = make_cast(str(cast))
    except FpemuError:  # a format that no name finds
        found = None
    return str(cast) if found == cast else json.dumps(cast.to_json())


@lru_cache(maxsize=4096)
def read_cast(text: str) -> Cast:
    """Return the cast that `cast_text` wrote."""
    return Cast.from_json(json.loads(text)) if text.startswith("{") else make_cast(text)


def round_values(
    x: torch.Tensor,
    cast: str,
    seed: int | None = None,
    offset: int = 0,
    random_bits: int | None = None,
) -> torch.Tensor:
    """Round a dense float32 or float64 tensor that nobody differentiates.

    seed: an unsigned one's bits as an int64. A plain tensor does not go through the dispatcher,
    which takes several times as long as rounding a thousand numbers.
    """
    if torch.compiler.is_compiling() or not _is_plain(x):
        result: torch.Tensor = round_op(x, cast, seed, offset, random_bits)
        return result
    return _rounded(x, cast, seed, offset, random_bits)


def _is_plain(x: torch.Tensor) -> bool:
    """Whether nothing but a kernel is interested: no transform, tracer, subclass or lazy sign."""
    return (
        type(x) is torch.Tensor
        and not torch._C._are_functorch_transforms_active()
        and torch._C._len_torch_dispatch_stack() == 0
        and not x.is_neg()
    )


def _rounded(x: torch.Tensor, text: str, seed: int | None, *rest: Any) -> torch.Tensor:
    out = torch.empty_like(x)
    unsigned = None if seed is None else seed % 2**64
    _compute(x, out, read_cast(text), seed=unsigned, offset=rest[0], random_bits=rest[1])
    return out


def _compute(x: torch.Tensor, out: torch.Tensor, cast: Cast, **draws: Any) -> None:
    """Round x into out, as arrays; `fpemu.torch.inplace` is what emulation has for this."""
    if x.device.type == "cpu":
        round_array(x.numpy(), cast, out=out.numpy(), **draws)
    elif x.device.type == "cuda":
        round_array(x, cast, out=out, **draws)  # type: ignore[arg-type]  # as any CUDA array
    else:
        raise InputError(f"{x.device} tensor: CPU and CUDA tensors are rounded; give x.cpu()")


@torch.library.custom_op("fpemu::round", mutates_args=())
def round_op(
    x: torch.Tensor,
    cast: str,
    seed: int | None = None,
    offset: int = 0,
    random_bits: int | None = None,
) -> torch.Tensor:
    """`round_values` as the dispatcher knows it."""
    return _rounded(x.detach(), cast, seed, offset, random_bits)


@round_op.register_fake
def _(x: torch.Tensor, *_: Any) -> torch.Tensor:
    return torch.empty_like(x)


@round_op.register_vmap
def _(
    info: Any, in_dims: Any, x: torch.Tensor, cast: str, seed: int | None = None, *rest: Any
) -> tuple[torch.Tensor, int]:
    """Each row by itself where draws count elements, so that vmap is what a loop would give."""
    along: int = in_dims[0]
    if seed is None:
        return round_op(x, cast, seed, *rest), along
    return torch.stack([round_op(row, cast, seed, *rest) for row in x.unbind(along)]), 0


def _pass_on(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    return gradient, None, None, None, None


# for those who call torch.ops.fpemu.round themselves: straight-through
round_op.register_autograd(_pass_on)
