"""Arrays that can only be exchanged by DLPack; results come back by the array API's from_dlpack.

https://dmlc.github.io/dlpack and https://data-apis.org/array-api
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from fpemu.errors import InputError
from fpemu.libraries.device_arrays import INTERFACE, Interface
from fpemu.libraries.library import Place

__all__ = ["DLPACK", "DLPack"]

Array = np.ndarray[Any, Any]

_CPU, _CUDA, _CUDA_HOST, _CUDA_MANAGED = 1, 2, 3, 13  # DLDeviceType
_DEFAULT_STREAM = 1  # the array's library waits until its work can be seen from there


class _View:
    """A DLPack array's memory with the CUDA array interface; keeps the array alive."""

    def __init__(self, x: Any) -> None:
        views = importlib.import_module("cuda.core.utils").StridedMemoryView  # with numba-cuda
        view = views.from_dlpack(x, stream_ptr=_DEFAULT_STREAM)
        self.owner = view
        self._facts = {
            "shape": tuple(view.shape),
            "strides": view.strides
            and tuple(stride * view.dtype.itemsize for stride in view.strides),
            "typestr": np.dtype(view.dtype).str,
            "data": (view.ptr, False),
            "version": 3,
        }

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return self._facts


class DLPack(Interface):
    """DLPack, as `fpemu.libraries.library.Library`."""

    waits = True  # nobody says in which stream the result will be used

    def place(self, x: Any) -> Place:
        """Where the array says that it lies."""
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
        return np.from_dlpack(x)

    def from_numpy(self, array: Array, like: Any) -> Any:
        """An array of the other's namespace, or numpy's if it names none."""
        space = getattr(like, "__array_namespace__", None)
        return array if space is None else space().from_dlpack(array)

    def dtype(self, x: Any) -> np.dtype[Any]:
        """The dtype of a CUDA array."""
        return INTERFACE.dtype(x if isinstance(x, _View) else _View(x))

    def dense(self, x: Any, c_order: bool) -> Any:
        """A view of x, if it lies in C order."""
        return INTERFACE.dense(x if isinstance(x, _View) else _View(x), c_order)

    def memory(self, x: Any) -> tuple[int, int, int | None]:
        """Pointer, the default stream and the device."""
        pointer, stream, _ = INTERFACE.memory(x)
        owner = getattr(x, "owner", None)
        return pointer, stream, getattr(owner, "device_id", None)


DLPACK = DLPack()
