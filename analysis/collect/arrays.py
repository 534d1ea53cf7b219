"""Tensors as the arrays that are counted: no copy on the CPU, and what cannot be counted refused.

The one place where a tensor becomes an array.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fpemu.analysis.collect.framework import torch
from fpemu.errors import InputError
from fpemu.moments import Moments
from fpemu.summaries import summarize
from fpemu.tallies import Tally

__all__ = ["array_of", "check_tensor", "is_counted", "measure"]

Array = np.ndarray[Any, Any]

#: Float dtypes that numpy lacks -> the integers of their width, and ml_dtypes' name.
_NARROW = {
    torch.bfloat16: (torch.int16, "bfloat16"),
    torch.float8_e4m3fn: (torch.uint8, "float8_e4m3fn"),
    torch.float8_e5m2: (torch.uint8, "float8_e5m2"),
    torch.float8_e4m3fnuz: (torch.uint8, "float8_e4m3fnuz"),
    torch.float8_e5m2fnuz: (torch.uint8, "float8_e5m2fnuz"),
}

_PYTHON = torch._C.DispatchKeySet(torch._C.DispatchKey.Python)


def is_counted(tensor: torch.Tensor) -> bool:
    """Say whether a tensor has numbers: integers have none, nor have those inside torch.func."""
    dtype = tensor.dtype
    real = dtype.is_floating_point or dtype.is_complex or tensor.is_quantized
    return real and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)


def check_tensor(tensor: torch.Tensor, name: str) -> None:
    """Refuse, in one line, a tensor whose values cannot be counted as they are."""
    if (refusal := _refusal(tensor)) is not None:
        what, way_out = refusal
        raise InputError(
            f"{name} is {what}: only dense real tensors of float32 or narrower are counted; "
            f"{way_out}, or leave it out with skip=[{name!r}]"
        )


def _refusal(tensor: torch.Tensor) -> tuple[str, str] | None:
    """What a tensor is that cannot be counted, and the way out."""
    if tensor.is_quantized:
        return "quantized", "watch the model before it is quantized"
    if tensor.layout is not torch.strided:
        return f"sparse ({tensor.layout})", "make it dense (an embedding: sparse=False)"
    if tensor.is_meta:
        return "on the meta device, without values", "materialise it (model.to_empty, then load)"
    if tensor.dtype.is_complex:
        return f"complex ({tensor.dtype})", "use torch.view_as_real"
    if tensor.dtype is torch.float64:
        return "float64", "use float32 (model.float())"
    return None


def measure(tensor: torch.Tensor) -> tuple[Tally, Moments]:
    """Count a tensor's numbers, of any layout: neither result depends on their order.

    Errors: InputError for a tensor that has no memory of its own (some subclasses).
    """
    try:
        array = array_of(tensor)
    except (RuntimeError, TypeError) as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"{type(tensor).__name__} cannot be read as numbers ({reason})") from None
    return summarize(np.ravel(array, order="K"))  # dense ones in memory's order: no copy


def array_of(tensor: torch.Tensor) -> Array:
    """Return a tensor's memory as a numpy array; from another device, a copy.

    Whatever modes are active (an emulation of a format, say) must not see this.
    """
    guard = torch._C._ExcludeDispatchKeyGuard(_PYTHON)
    with torch._C.DisableTorchFunction(), guard:
        plain = tensor.detach()
        if plain.device.type != "cpu":
            plain = plain.cpu()
        if plain.is_conj() or plain.is_neg():
            plain = plain.resolve_conj().resolve_neg()
        narrow = _NARROW.get(plain.dtype)
        if narrow is None:
            array: Array = plain.numpy()
            return array
        import ml_dtypes

        codes: Array = plain.view(narrow[0]).numpy()
        return codes.view(getattr(ml_dtypes, narrow[1]))
