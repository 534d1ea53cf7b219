"""numba's device arrays, and any object with the CUDA array interface.

https://numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html (version 3)
"""

from __future__ import annotations

import math
from operator import index
from typing import Any, NamedTuple

import numpy as np

from fpemu.errors import InputError
from fpemu.libraries.library import Place, one_line

__all__ = ["INTERFACE", "NUMBA", "Facts", "Interface", "Numba", "checked"]

_DEFAULT_STREAM = 1  # the interface's name for it


class Facts(NamedTuple):
    """What an array says of its memory."""

    shape: tuple[int, ...]
    strides: tuple[int, ...] | None  #: in bytes; None: C order
    dtype: np.dtype[Any]
    pointer: int
    stream: Any = 0  #: address of a cudaStream_t or a stream of numba's; 0: the default stream
    read_only: bool = False


def checked(facts: Facts, name: str) -> Facts:
    """Return facts that hold together; others, which no kernel may be given, are an InputError."""
    shape, strides = facts.shape, facts.strides
    if min(shape, default=0) < 0 or (strides is not None and len(strides) != len(shape)):
        raise InputError(
            f"{name} of shape {shape} and strides {strides}: contradict each other; give a "
            "contiguous copy"
        )
    if not facts.dtype.isnative:
        raise InputError(
            f"{name} of dtype {facts.dtype.str}: bytes are swapped, which no device reads; "
            "convert it on the host"
        )
    if facts.pointer < 0 or (facts.pointer == 0 and 0 not in shape):
        raise InputError(f"{name} with the pointer {facts.pointer}: has no memory; give its own")
    return facts


def _strides(facts: Facts, order: str) -> tuple[int, ...]:
    """Strides, in bytes, of an array of a shape and dtype that lies in C or Fortran order."""
    lengths = facts.shape if order == "C" else facts.shape[::-1]
    found = tuple(facts.dtype.itemsize * math.prod(lengths[i + 1 :]) for i in range(len(lengths)))
    return found if order == "C" else found[::-1]


def _order(facts: Facts) -> str | None:
    """Return "C" or "F" for an array that lies in that order, C if in both; None for another.

    Strides along axes of length 1 do not count, nor do any of an array without elements.
    """
    if facts.strides is None or 0 in facts.shape:
        return "C"
    for order in "CF":
        steps = zip(facts.shape, facts.strides, _strides(facts, order), strict=True)
        if all(length == 1 or own == dense for length, own, dense in steps):
            return order
    return None


class Interface:
    """Objects with `__cuda_array_interface__`; results are numba's device arrays."""

    waits = False
    orders = "C"  #: orders of axes that are taken

    def facts(self, x: Any) -> Facts:
        """What an object says of itself."""
        with one_line(x, "its __cuda_array_interface__ must be of version 3"):
            given = x.__cuda_array_interface__
            if given.get("mask") is not None:
                raise InputError(f"{type(x).__name__} with a mask: the mask would be lost; fill it")
            strides, (pointer, read_only) = given.get("strides"), given["data"]
            found = Facts(
                tuple(map(index, given["shape"])),
                None if strides is None else tuple(map(index, strides)),
                np.dtype(str(given["typestr"])),
                index(pointer or 0),
                index(given.get("stream") or 0),
                bool(read_only),
            )
        return checked(found, type(x).__name__)

    def place(self, x: Any) -> Place:
        """Such objects lie on CUDA devices."""
        return Place.CUDA

    def open_out(self, out: Any) -> None:
        """Read-only memory and gaps are refused."""
        if self.facts(out).read_only:
            raise InputError("out is read-only: give a writeable array")
        self.dense(out, c_order=False)

    def dtype(self, x: Any) -> np.dtype[Any]:
        """The dtype of an array's facts."""
        return self.facts(x).dtype

    def dense(self, x: Any, c_order: bool) -> Any:
        """x, if it lies in an order that is taken: there is no library to copy it with."""
        facts = self.facts(x)
        order = _order(facts)
        if order is None or order not in ("C" if c_order else self.orders):
            raise InputError(
                f"{type(x).__name__} of strides {facts.strides}: must lie in C order; give a "
                "contiguous copy"
            )
        return x

    def shape(self, x: Any) -> tuple[int, ...]:
        """The shape of an array's facts."""
        return self.facts(x).shape

    def strides(self, x: Any) -> tuple[int, ...]:
        """A dense array's strides, in elements; along axes of length 1 those of its order."""
        facts = self.facts(x)
        return tuple(step // facts.dtype.itemsize for step in _strides(facts, _order(facts) or "C"))

    def empty(self, like: Any, dtype: np.dtype[Any]) -> Any:
        """A new device array of numba's: of a dense one's shape, order, device and stream."""
        facts = self.facts(like)
        return self._made(like, facts.shape, dtype, _order(facts) or "C")

    def new(self, like: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """A new device array of numba's, of another shape."""
        return self._made(like, shape, dtype, "C")

    def _made(
        self, like: Any, shape: tuple[int, ...], dtype: np.dtype[Any], order: str
    ) -> Any:
        from fpemu.kernels.cuda_target import device_array, device_of

        facts = self.facts(like)
        device = device_of(facts.pointer, type(like).__name__)
        return device_array(shape, dtype, order, facts.stream, device)

    def memory(self, x: Any) -> tuple[int, int, int | None]:
        """Pointer, stream, and the device that the driver finds the pointer on."""
        from fpemu.kernels.cuda_target import device_of

        facts = self.facts(x)
        stream = int(getattr(facts.stream, "handle", facts.stream) or 0)
        stream = 0 if stream == _DEFAULT_STREAM else stream
        return facts.pointer, stream, device_of(facts.pointer, type(x).__name__)

    def copy(self, source: Any, out: Any) -> None:
        """There is no library that would copy from one order to another."""
        raise InputError("out lies in another order of axes than x: give an array of x's order")


class Numba(Interface):
    """numba's device arrays, the simulator's too."""

    orders = "CF"

    def facts(self, x: Any) -> Facts:
        """An array's attributes: its dtype may be one that the interface cannot name."""
        from fpemu.kernels.cuda_target import pointer_of

        dtype: np.dtype[Any] = np.dtype(x.dtype)
        found = Facts(tuple(x.shape), tuple(x.strides), dtype, pointer_of(x), x.stream)
        return checked(found, "device array")


INTERFACE = Interface()
NUMBA = Numba()
