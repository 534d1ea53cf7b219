"""Tags: the emulated format of each tensor, kept with its storage by weak keys."""

from __future__ import annotations

import weakref
from typing import Any

import torch

from fpemu.cast import Cast
from fpemu.errors import InputError

__all__ = ["REFUSED", "Tags", "is_emulated_kind", "storage_of"]

#: Real tensors of these dtypes have no place among emulated ones: the wider one would win.
REFUSED = frozenset(
    dtype
    for name in dir(torch)
    if isinstance(dtype := getattr(torch, name), torch.dtype)
    and (name in ("float16", "bfloat16") or name.startswith(("float8", "float4", "q")))
)


def is_emulated_kind(tensor: torch.Tensor) -> bool:
    """Whether emulation is about a tensor: only float32 is; narrower real floats are refused."""
    dtype = tensor.dtype
    if dtype is torch.float32:
        return True
    if dtype in REFUSED:
        raise InputError(
            f"a real {dtype} tensor under emulate: tensors stay float32 there and carry an "
            "emulated format; give tensor.float() from outside"
        )
    return False


class Tags:
    """Which Cast the numbers of a storage have been rounded by; float32 if none.

    A storage is what views, detached tensors and those saved for the backward pass share, and a
    view cannot change the dtype: so the tag is the storage's, and goes when it goes.
    """

    def __init__(self) -> None:
        self._casts: dict[int, tuple[weakref.ref[Any], Cast]] = {}

    def __len__(self) -> int:
        return len(self._casts)

    def of(self, tensor: torch.Tensor) -> Cast | None:
        """The format of a float32 tensor; None is float32 itself."""
        found = self._casts.get(id(storage_of(tensor)))
        return found[1] if found is not None else None

    def put(self, tensor: torch.Tensor, cast: Cast | None) -> None:
        """Say what a tensor's numbers have been rounded by."""
        storage = storage_of(tensor)
        key = id(storage)
        casts = self._casts
        if cast is None:
            casts.pop(key, None)
            return
        found = casts.get(key)
        if found is not None:
            casts[key] = (found[0], cast)
            return
        casts[key] = (weakref.ref(storage, lambda _: casts.pop(key, None)), cast)

    def clear(self) -> None:
        self._casts.clear()


def storage_of(tensor: torch.Tensor) -> Any:
    """Return Python's object of a tensor's storage; it lives as long as the storage does."""
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):
        where = "inside of torch.func" if tensor.layout is torch.strided else str(tensor.layout)
        raise InputError(
            f"a tensor {where} under emulate: only dense tensors of a storage of their own are "
            "emulated; give tensor.to_dense(), or leave the context for it"
        ) from None
