"""PyTorch's tensors, on the host and on CUDA devices."""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import Any

import numpy as np

from fpemu.errors import InputError
from fpemu.libraries.library import Place, one_line

__all__ = ["TORCH", "Torch"]

Array = np.ndarray[Any, Any]


class Torch:
    """PyTorch, as `fpemu.libraries.library.Library`."""

    waits = False

    def place(self, x: Any) -> Place:
        """Where a tensor lies; what cannot be taken is refused."""
        with one_line(x, _PLAIN):
            for check in (_check_kind, _check_device, _check_grad, _check_memory):
                check(sys.modules["torch"], x)
            return Place.CUDA if x.is_cuda else Place.HOST

    def open_out(self, out: Any) -> None:
        """Views that stand for other numbers than they store are refused; autograd is told."""
        if out.is_neg() or out.is_conj():
            raise InputError(
                "out is a view that stands for the negation of its memory: give a tensor of its "
                "own, or out.resolve_neg()"
            )
        sys.modules["torch"].autograd.graph.increment_version(out)

    def to_numpy(self, x: Any) -> Array:
        """A tensor's memory as an array."""
        dtype = self.dtype(x)
        with one_line(x, _PLAIN):
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
        return _dtype(x.dtype)

    def dense(self, x: Any, c_order: bool) -> Any:
        """A tensor in one piece; channels_last and other orders of axes stay."""
        torch = sys.modules["torch"]
        with one_line(x, _PLAIN):
            plain = x.detach().as_subclass(torch.Tensor).resolve_neg()
        if plain.is_contiguous():
            return plain
        if c_order:
            return plain.contiguous()
        # of a tensor without memory: such a one keeps a dense order of axes, and no other
        same = torch.empty_like(plain, device="meta").stride() == plain.stride()
        return plain if same else plain.clone(memory_format=torch.preserve_format)

    def shape(self, x: Any) -> tuple[int, ...]:
        """A tensor's shape."""
        return tuple(x.shape)

    def strides(self, x: Any) -> tuple[int, ...]:
        """A tensor's strides."""
        return tuple(x.stride())

    def empty(self, like: Any, dtype: np.dtype[Any]) -> Any:
        """A new tensor of a dense one's shape, strides and device."""
        torch = sys.modules["torch"]
        return torch.empty_like(like, dtype=getattr(torch, dtype.name))

    def new(self, like: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """A new tensor of another shape on a dense one's device."""
        torch = sys.modules["torch"]
        return torch.empty(shape, dtype=getattr(torch, dtype.name), device=like.device)

    def memory(self, x: Any) -> tuple[int, int, int | None]:
        """Pointer, PyTorch's current stream and device."""
        index = x.device.index if x.is_cuda else None
        stream = sys.modules["torch"].cuda.current_stream(x.device) if x.is_cuda else None
        return x.data_ptr(), stream.cuda_stream if stream else 0, index

    def copy(self, source: Any, out: Any) -> None:
        """Copy into a tensor of any layout."""
        out.copy_(source)


_PLAIN = (
    "give a plain tensor, outside of vmap, torch.func.grad, torch.export and the like (there: "
    "fpemu.torch.round)"
)


def _check_kind(torch: Any, x: Any) -> None:
    if x.layout is not torch.strided or x.is_quantized or x.is_nested:
        what = "quantized" if x.is_quantized else str(x.layout).removeprefix("torch.")
        raise InputError(
            f"{'nested' if x.is_nested else what} tensor: fpemu works on dense tensors; give "
            "x.dequantize(), x.to_dense() or x.values()"
        )


def _check_device(torch: Any, x: Any) -> None:
    if x.device.type not in ("cpu", "cuda") or (x.is_cuda and torch.version.hip):
        where = "'cuda' of ROCm" if x.is_cuda else repr(str(x.device))
        raise InputError(
            f"tensor on device {where}: fpemu works on the CPU and on CUDA; copy it with x.cpu()"
        )


def _check_grad(torch: Any, x: Any) -> None:
    if x.requires_grad and torch.is_grad_enabled():
        raise InputError(
            "tensor that requires grad: fpemu's functions do not differentiate; use "
            "fpemu.torch.round, x.detach(), or torch.no_grad()"
        )


def _check_memory(torch: Any, x: Any) -> None:
    """Refuse tensors that are recorded, stand for others, or whose memory was given back."""
    own = type(x).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__  # FakeTensor, DTensor
    if own or torch.jit.is_tracing() or torch._is_functional_tensor(x):
        raise InputError(
            f"{type(x).__name__} that is traced or stands for others: its numbers are not at hand; "
            f"{_PLAIN}"
        )
    if not x.numel():
        return
    if x.is_contiguous():
        end = x.storage_offset() + x.numel()
    else:
        steps = zip(x.shape, x.stride(), strict=True)
        end = x.storage_offset() + sum((length - 1) * step for length, step in steps) + 1
    if not x.data_ptr() or end * x.element_size() > x.untyped_storage().nbytes():
        raise InputError(f"{type(x).__name__} without memory for its elements: {_PLAIN}")


@lru_cache(maxsize=64)
def _dtype(dtype: Any) -> np.dtype[Any]:
    name = str(dtype).removeprefix("torch.")
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


def _integer(dtype: np.dtype[Any]) -> Any:
    torch = sys.modules["torch"]
    return {1: torch.uint8, 2: torch.int16}[dtype.itemsize]


TORCH = Torch()
