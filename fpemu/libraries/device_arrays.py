"""numba's device arrays, and any object with the CUDA array interface.

https://numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html (version 3)
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fpemu.errors import InputError
from fpemu.libraries.library import Place

__all__ = ["INTERFACE", "NUMBA", "Interface", "Numba"]

Array = np.ndarray[Any, Any]


def _is_dense(shape: tuple[int, ...], strides: tuple[int, ...] | None, size: int) -> bool:
    """Whether strides, in bytes, are those of C order; of an array without elements all are."""
    if strides is None or 0 in shape:
        return True
    wanted = size
    for length, stride in zip(reversed(shape), reversed(strides), strict=True):
        if length > 1 and stride != wanted:
            return False
        wanted *= length
    return True


class Interface:
    """Objects with `__cuda_array_interface__`; results are numba's device arrays."""

    waits = False

    def place(self, x: Any) -> Place:
        """Such objects lie on CUDA devices."""
        return Place.CUDA

    def to_numpy(self, x: Any) -> Array:
        """A copy on the host."""
        from fpemu.kernels.cuda_target import cuda

        return cuda.as_cuda_array(x).copy_to_host()  # type: ignore[no-any-return]

    def from_numpy(self, array: Array, like: Any) -> Any:
        """A copy on the device."""
        from fpemu.kernels.cuda_target import cuda

        return cuda.to_device(array)

    def dtype(self, x: Any) -> np.dtype[Any]:
        """The dtype that the interface names."""
        found: np.dtype[Any] = np.dtype(x.__cuda_array_interface__["typestr"])
        return found

    def dense(self, x: Any, c_order: bool) -> Any:
        """x, if it lies in C order: there is no library to copy it with."""
        facts = x.__cuda_array_interface__
        if facts.get("mask") is not None:
            raise InputError(f"{type(x).__name__} with a mask: the mask would be lost; fill it")
        size = np.dtype(facts["typestr"]).itemsize
        if not _is_dense(facts["shape"], facts.get("strides"), size):
            raise InputError(
                f"{type(x).__name__} of strides {facts['strides']}: must lie in C order; give a "
                "contiguous copy"
            )
        return x

    def strides(self, x: Any) -> tuple[int, ...]:
        """The interface's strides, in elements; those of C order if it names none."""
        facts = x.__cuda_array_interface__
        shape, size = facts["shape"], np.dtype(facts["typestr"]).itemsize
        if facts.get("strides") is None:
            return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))
        return tuple(step // size for step in facts["strides"])

    def empty(self, like: Any, dtype: np.dtype[Any]) -> Any:
        """A new device array of numba's."""
        from fpemu.kernels.cuda_target import cuda

        return cuda.device_array(like.__cuda_array_interface__["shape"], dtype)

    def memory(self, x: Any) -> tuple[int, int, int | None]:
        """Pointer and stream, on the current device."""
        facts = x.__cuda_array_interface__
        return facts["data"][0] or 0, facts.get("stream") or 0, None

    def copy(self, source: Any, out: Any) -> None:
        """Copy into an array in C order."""
        from fpemu.kernels.cuda_target import cuda

        cuda.as_cuda_array(self.dense(out, c_order=True)).copy_to_device(source)


class Numba(Interface):
    """numba's device arrays, the simulator's too."""

    def dtype(self, x: Any) -> np.dtype[Any]:
        """An array's dtype."""
        found: np.dtype[Any] = np.dtype(x.dtype)
        return found

    def dense(self, x: Any, c_order: bool) -> Any:
        """x, if it lies in C order or, if allowed, in Fortran order."""
        turned = not c_order and _is_dense(x.shape[::-1], x.strides[::-1], x.dtype.itemsize)
        if not turned and not _is_dense(x.shape, x.strides, x.dtype.itemsize):
            raise InputError(
                f"device array of strides {x.strides}: must lie in C order; give a contiguous copy"
            )
        return x

    def strides(self, x: Any) -> tuple[int, ...]:
        """An array's strides, in elements."""
        return tuple(step // x.dtype.itemsize for step in x.strides)

    def empty(self, like: Any, dtype: np.dtype[Any]) -> Any:
        """A new array of a dense one's shape and order."""
        from fpemu.kernels.cuda_target import cuda

        in_c = _is_dense(like.shape, like.strides, like.dtype.itemsize)
        return cuda.device_array(like.shape, dtype, order="C" if in_c else "F", stream=like.stream)

    def memory(self, x: Any) -> tuple[int, int, int | None]:
        """Pointer and the array's stream, on the current device."""
        from fpemu.kernels.cuda_target import SIMULATED

        if SIMULATED:
            return (x._ary.ctypes.data if math.prod(x.shape) else 0), 0, None
        stream = getattr(x.stream, "handle", x.stream)  # numba's Stream, or 0
        return x.device_ctypes_pointer.value or 0, int(stream or 0), None

    def to_numpy(self, x: Any) -> Array:
        """A copy on the host."""
        return x.copy_to_host()  # type: ignore[no-any-return]

    def copy(self, source: Any, out: Any) -> None:
        """Copy into an array in C or Fortran order."""
        out.copy_to_device(source)


INTERFACE = Interface()
NUMBA = Numba()
