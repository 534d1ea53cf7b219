"""What tensors can be rounded: floats, dense, with numbers in them; the others are refused."""

from __future__ import annotations

import torch

from fpemu.arrays import holds
from fpemu.catalog import FORMATS
from fpemu.errors import InputError
from fpemu.format import Format

__all__ = ["check_tensor", "result_dtype"]

_NARROW = {
    dtype: FORMATS[name]
    for name in FORMATS
    if isinstance(dtype := getattr(torch, name, None), torch.dtype) and name != "float32"
}
_WORDS = (torch.float32, torch.float64)


def check_tensor(x: torch.Tensor) -> None:
    """Refuse what cannot be rounded, in one line with the way out."""
    if not isinstance(x, torch.Tensor):
        raise InputError(f"{type(x).__name__}: give a torch.Tensor, or call fpemu.round")
    if x.is_quantized:
        raise InputError(f"{x.dtype} tensor: it holds integers and scales; give x.dequantize()")
    if x.is_nested or x.layout is not torch.strided:
        raise InputError(f"{_kind(x)} tensor: only dense ones are rounded; {_way(x)}")
    if x.is_complex():
        raise InputError(f"{x.dtype} tensor: round its parts, with torch.view_as_real(x)")
    if x.dtype not in _WORDS and x.dtype not in _NARROW:
        raise InputError(f"{x.dtype} tensor: only floats are rounded; give x.to(torch.float32)")
    if x.is_meta:
        raise InputError("meta tensor: it has no numbers to round; give one on a device")


def _kind(x: torch.Tensor) -> str:
    return "nested" if x.is_nested else str(x.layout).removeprefix("torch.")


def _way(x: torch.Tensor) -> str:
    if x.is_nested:
        return "round its parts, x.unbind()"
    return "give x.to_dense(), or round its values"


def result_dtype(given: torch.dtype, form: Format) -> torch.dtype:
    """Return the dtype of rounded numbers: the given one if it holds every result, else float32.

    >>> import fpemu, torch
    >>> from fpemu.torch.checks import result_dtype
    >>> result_dtype(torch.float16, fpemu.finfo("e4m3fn"))
    torch.float16
    >>> result_dtype(torch.float16, fpemu.finfo("bf16"))
    torch.float32
    """
    own = _NARROW.get(given)
    return given if own is None or holds(own, form) else torch.float32
