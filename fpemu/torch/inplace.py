"""In place: an emulated tensor's own memory through a Cast, where it becomes an array."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from fpemu.cast import Cast, Rounding
from fpemu.emulate import round
from fpemu.errors import InputError
from fpemu.scaling import FloatElement
from fpemu.scaling.elements import Element

__all__ = ["SMALL", "Draws", "array_of", "round_into", "rounded"]

#: A cast that PyTorch has as well, with the processor's instructions for it: a third of the time.
#: Numbers are the same, and a NaN's sign; other bits of a NaN are not.
_OWN = {Cast("float16"): torch.float16}

#: Smaller arrays are rounded by the calling thread in any case.
SMALL = 1 << 16


class Draws:
    """Where stochastic casts take their random bits: a seed, and how many were drawn so far."""

    def __init__(self, seed: int | None) -> None:
        if seed is not None and (type(seed) is not int or not 0 <= seed < 2**64):
            raise InputError(f"seed={repr(seed)[:80]}: must be an int from 0 to {2**64 - 1}")
        self.seed = seed
        self.offset = 0

    def options(self, cast: Cast, count: int) -> dict[str, Any]:
        """What `fpemu.round` is to be told for the next numbers."""
        if cast.rounding is not Rounding.STOCHASTIC:
            return {}
        if self.seed is None:
            raise InputError(f"cast {cast}: stochastic rounding needs emulate(..., seed=)")
        self.offset += count
        return {"seed": self.seed, "offset": self.offset - count}

    def recipe_options(self, element: Element, count: int) -> dict[str, Any]:
        """What a recipe is to be told; without a seed, bits come from PyTorch's own.

        The systems that round so take their bits from the framework's generator, too.
        """
        if not isinstance(element, FloatElement):
            return {}
        if self.seed is None and element.cast.rounding is Rounding.STOCHASTIC:
            self.seed = torch.initial_seed()
        return self.options(element.cast, count)


def round_into(source: torch.Tensor, cast: Cast, out: torch.Tensor, draws: Draws) -> None:
    """Write a float32 (or float64) tensor's rounded numbers to another of its shape, or itself."""
    count = source.numel()
    if not count:
        return
    dtype = _OWN.get(cast) if source.dtype is torch.float32 else None
    if dtype is not None and not source.is_meta:
        out.detach().copy_(source.detach().to(dtype))
        return
    if source.is_cuda:
        there: Any = out.detach()
        round(source.detach(), cast, out=there, **draws.options(cast, count))
        return
    x = array_of(source)
    y = x if out is source else array_of(out)
    if not x.flags.c_contiguous:  # as channels_last: dense, in another order
        order = sorted(range(x.ndim), key=lambda i: -abs(x.strides[i]))
        same = y is x
        x = x.transpose(order)
        y = x if same else y.transpose(order)
    options = draws.options(cast, count)
    round(x, cast, out=y, threads=None if count < SMALL else torch.get_num_threads(), **options)


def rounded(source: torch.Tensor, cast: Cast, draws: Draws) -> torch.Tensor:
    """Return a tensor's rounded numbers in a new one."""
    out = torch.empty_like(source, requires_grad=False)
    round_into(source, cast, out, draws)
    return out


def array_of(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """Return a CPU tensor's numbers as an array of the same memory."""
    try:
        return tensor.detach().numpy()
    except (TypeError, RuntimeError, NotImplementedError):
        raise InputError(
            f"a {tensor.device.type} tensor ({tensor.layout}) under emulate: its numbers cannot "
            "be rounded here; give a strided CPU tensor that has memory"
        ) from None
