"""CuPy's arrays."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from fpemu.libraries.library import Place

__all__ = ["CUPY", "CuPy"]


class CuPy:
    """CuPy, as `fpemu.libraries.library.Library`."""

    waits = False

    def place(self, x: Any) -> Place:
        """CuPy's arrays lie on CUDA devices."""
        return Place.CUDA

    def open_out(self, out: Any) -> None:
        """Every array can be written to."""

    def dtype(self, x: Any) -> np.dtype[Any]:
        """An array's dtype."""
        found: np.dtype[Any] = np.dtype(x.dtype)
        return found

    def dense(self, x: Any, c_order: bool) -> Any:
        """An array in one piece, in C or, if allowed, Fortran order."""
        if x.flags.c_contiguous or (x.flags.f_contiguous and not c_order):
            return x
        with x.device:
            return sys.modules["cupy"].ascontiguousarray(x)

    def shape(self, x: Any) -> tuple[int, ...]:
        """An array's shape."""
        return tuple(x.shape)

    def strides(self, x: Any) -> tuple[int, ...]:
        """An array's strides, in elements."""
        return tuple(step // x.itemsize for step in x.strides)

    def empty(self, like: Any, dtype: np.dtype[Any]) -> Any:
        """A new array on a dense one's device, in its order."""
        order = "C" if like.flags.c_contiguous else "F"
        with like.device:
            return sys.modules["cupy"].empty(like.shape, dtype, order=order)

    def new(self, like: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """A new array of another shape on a dense one's device."""
        with like.device:
            return sys.modules["cupy"].empty(shape, dtype)

    def memory(self, x: Any) -> tuple[int, int, int | None]:
        """Pointer, the device, and CuPy's current stream there."""
        with x.device:
            stream = sys.modules["cupy"].cuda.get_current_stream()
        return x.data.ptr, stream.ptr, x.device.id

    def copy(self, source: Any, out: Any) -> None:
        """Copy into an array of any layout."""
        with out.device:
            out[...] = source


CUPY = CuPy()
