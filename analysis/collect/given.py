"""Given: infinities that a script puts into a tensor itself, as masks of attention are."""

from __future__ import annotations

import math
from typing import Any

from fpemu.analysis.collect.framework import torch
from fpemu.analysis.collect.operations import Operation, tensors_in
from fpemu.analysis.collect.sample import Numbers, Sample

__all__ = ["is_given", "is_mask"]

#: Magnitudes from here on are meant as infinite: masks are filled with torch.finfo(dtype).min too.
_HUGE = 2.0**100

#: Operations whose numbers become values of the result.
_FILLS = frozenset((
    "masked_fill", "where", "index_fill", "fill", "full_like", "clamp", "nan_to_num", "pad",
    "setitem",
))  # fmt: skip


def is_mask(numbers: Numbers) -> bool:
    """Say whether a tensor holds what masks are filled with; NaN comes of something else."""
    tally, moments = numbers
    return not tally.nan and (bool(tally.inf) or moments.amax >= _HUGE)


def is_given(sample: Sample, operation: Operation, args: Any, kwargs: Any) -> bool:
    """Say whether an operation was handed an infinity: as a filling, or in a constant tensor.

    A tensor counts as constant if the step has not computed it and it takes no gradient. What is
    computed from a tensor that was masked before is masked too. A matrix product is no way to put
    a mask on: infinities in its input are bad data.
    """
    if operation.matmul:
        return False
    values = [*(args or ()), *(kwargs or {}).values()]
    least = _HUGE if operation.name.rstrip("_") in _FILLS else math.inf
    if any(isinstance(value, float | int) and abs(value) >= least for value in values):
        return True
    return any(_holds(sample, tensor) for tensor in tensors_in(values))


def _holds(sample: Sample, tensor: torch.Tensor) -> bool:
    if (entry := sample.entry(tensor)) is not None:
        return entry.site.masked
    if tensor.requires_grad or not tensor.dtype.is_floating_point or not tensor.numel():
        return False
    if tensor.is_meta or tensor.layout is not torch.strided:
        return False
    with torch._C.DisableTorchFunction():
        return bool((tensor.detach().abs() >= _HUGE).any())
