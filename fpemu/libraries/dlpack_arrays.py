"""Arrays that can only be exchanged by DLPack; results come back by the array API's from_dlpack.

https://dmlc.github.io/dlpack and https://data-apis.org/array-api
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fpemu.errors import InputError
from fpemu.libraries.device_arrays import Facts, Interface, checked
from fpemu.libraries.library import Place, one_line

__all__ = ["DLPACK", "DLPack"]

Array = np.ndarray[Any, Any]

_CPU, _CUDA, _CUDA_HOST, _CUDA_MANAGED = 1, 2, 3, 13  # DLDeviceType


class _View:
    """A DLPack array's memory on a CUDA device; keeps the array alive."""

    def __init__(self, x: Any) -> None:
        from fpemu.kernels.cuda_target import dlpack_view

        with one_line(x, "give an array that numba or torch can read"):
            view = dlpack_view(x)
            dtype: np.dtype[Any] = np.dtype(view.dtype)
            strides = view.strides and tuple(stride * dtype.itemsize for stride in view.strides)
            found = Facts(tuple(view.shape), strides or None, dtype, view.ptr)
        self.owner = x, view
        self.facts = checked(found, type(x).__name__)

    def __dlpack_device__(self) -> Any:
        return self.owner[0].__dlpack_device__()

    def __dlpack__(self, **options: Any) -> Any:
        return self.owner[0].__dlpack__(**options)


class DLPack(Interface):
    """DLPack, as `fpemu.libraries.library.Library`."""

    waits = True  # nobody says in which stream the result will be used

    def place(self, x: Any) -> Place:
        """Where the array says that it lies."""
        with one_line(x, "give an array whose __dlpack_device__ tells (type, number)"):
            kind = int(x.__dlpack_device__()[0])
        if kind in (_CPU, _CUDA_HOST):
            return Place.HOST
        if kind in (_CUDA, _CUDA_MANAGED):
            return Place.CUDA
        raise InputError(
            f"{type(x).__name__} on a device of DLPack's type {kind}: fpemu works on the CPU and "
            "on CUDA; copy it to the host"
        )

    def to_numpy(self, x: Any) -> Array:
        """The array's memory."""
        with one_line(x, "give np.asarray(x), if it can be"):
            return np.from_dlpack(x)

    def from_numpy(self, array: Array, like: Any) -> Any:
        """An array of the other's namespace, or numpy's if it names none."""
        space = getattr(like, "__array_namespace__", None)
        if space is None:
            return array
        with one_line(like, "its namespace must have from_dlpack; give np.from_dlpack(x)"):
            return space().from_dlpack(array)

    def facts(self, x: Any) -> Facts:
        """The facts of a view of a CUDA array."""
        return (x if isinstance(x, _View) else _View(x)).facts

    def open_out(self, out: Any) -> None:
        """On the host numpy knows what can be written to; on a device nothing says so."""
        if self.place(out) is Place.CUDA:
            raise InputError("out: an array with DLPack alone is only read there; leave it out")

    def dense(self, x: Any, c_order: bool) -> Any:
        """A view of x, if it lies in C order."""
        return super().dense(x if isinstance(x, _View) else _View(x), c_order)


DLPACK = DLPack()
