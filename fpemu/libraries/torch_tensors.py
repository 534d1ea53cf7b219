"""PyTorch's tensors, on the host and on CUDA devices."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from fpemu.errors import InputError
from fpemu.libraries.library import Place

__all__ = ["TORCH", "Torch"]

Array = np.ndarray[Any, Any]


class Torch:
    """PyTorch, as `fpemu.libraries.library.Library`."""

    waits = False

    def place(self, x: Any) -> Place:
        """Where a tensor lies; what cannot be taken is refused."""
        torch = sys.modules["torch"]
        kind = x.device.type
        if x.layout is not torch.strided or x.is_quantized:
            what = "quantized" if x.is_quantized else str(x.layout).removeprefix("torch.")
            raise InputError(
                f"{what} tensor: fpemu works on dense tensors; give x.dequantize(), x.to_dense() "
                "or x.values()"
            )
        if kind not in ("cpu", "cuda"):
            raise InputError(
                f"tensor on device {str(x.device)!r}: fpemu works on the CPU and on CUDA; copy it "
                "with x.cpu()"
            )
        if x.requires_grad and torch.is_grad_enabled():
            raise InputError(
                "tensor that requires grad: fpemu's functions do not differentiate; use "
                "fpemu.torch.round, x.detach(), or torch.no_grad()"
            )
        return Place.HOST if kind == "cpu" else Place.CUDA

    def to_numpy(self, x: Any) -> Array:
        """A tensor's memory as an array."""
        dtype = self.dtype(x)
        plain = x.detach().resolve_conj().resolve_neg()
        if dtype.kind in "fiubc" and dtype.isbuiltin == 1:
            return plain.numpy()  # type: ignore[no-any-return]
        return plain.view(_integer(dtype)).numpy().view(dtype)  # type: ignore[no-any-return]

    def from_numpy(self, array: Array, like: Any) -> Any:
        """An array's memory as a tensor."""
        torch = sys.modules["torch"]
        if array.dtype.kind in "fiubc" and array.dtype.isbuiltin == 1:
            return torch.from_numpy(array)
        integers = torch.from_numpy(array.view(f"i{array.itemsize}"))
        return integers.view(getattr(torch, array.dtype.name))

    def dtype(self, x: Any) -> np.dtype[Any]:
        """numpy's dtype of a tensor, or ml_dtypes'."""
        name = str(x.dtype).removeprefix("torch.")
        try:
            return np.dtype(name)
        except TypeError:
            pass
        import ml_dtypes

        try:
            found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
            return found
        except AttributeError:
            raise InputError(
                f"dtype {name}: fpemu works on float32 or float64 tensors and on narrower floats; "
                "convert with x.float()"
            ) from None

    def dense(self, x: Any, c_order: bool) -> Any:
        """A tensor in one piece; channels_last and other orders of axes stay."""
        plain = x.detach()
        if plain.is_contiguous():
            return plain
        if c_order:
            return plain.contiguous()
        torch = sys.modules["torch"]
        same = torch.empty_like(plain).stride() == plain.stride()  # keeps a dense order of axes
        return plain if same else plain.clone(memory_format=torch.preserve_format)

    def strides(self, x: Any) -> tuple[int, ...]:
        """A tensor's strides."""
        return tuple(x.stride())

    def empty(self, like: Any, dtype: np.dtype[Any]) -> Any:
        """A new tensor of a dense one's shape, strides and device."""
        torch = sys.modules["torch"]
        return torch.empty_like(like, dtype=getattr(torch, dtype.name))

    def memory(self, x: Any) -> tuple[int, int, int | None]:
        """Pointer, PyTorch's current stream and device."""
        index = x.device.index if x.is_cuda else None
        stream = sys.modules["torch"].cuda.current_stream(x.device) if x.is_cuda else None
        return x.data_ptr(), stream.cuda_stream if stream else 0, index

    def copy(self, source: Any, out: Any) -> None:
        """Copy into a tensor of any layout."""
        out.copy_(source)


def _integer(dtype: np.dtype[Any]) -> Any:
    torch = sys.modules["torch"]
    return {1: torch.uint8, 2: torch.int16}[dtype.itemsize]


TORCH = Torch()
