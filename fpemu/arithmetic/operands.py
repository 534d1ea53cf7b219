"""Operands: what arrays an operation takes, broadcast together, and the dtype of its result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from fpemu.arrays import read_floats
from fpemu.errors import InputError, short
from fpemu.libraries.library import Library, host_out, library_of

__all__ = ["Operands", "check_options", "check_range", "read_only", "read_operand", "read_operands"]

Array = np.ndarray[Any, Any]

_F32, _F64 = np.dtype(np.float32), np.dtype(np.float64)

#: Magnitudes of float64 operands whose error terms neither overflow nor underflow.
LOWEST, HIGHEST = 2.0**-240, 2.0**240


class Operands(NamedTuple):
    """The operands of a call as flat arrays of one length, and what its result is."""

    flat: list[Array]  #: float32 or float64, in C order
    shape: tuple[int, ...]  #: of the result
    given: np.dtype[Any]  #: dtype that the operands share; float64 if any has it, else float32
    scalar: bool  #: no operand is an array
    library: Library | None  #: of the first operand that has one
    like: Any  #: that operand

    def shaped(self) -> list[Array]:
        """Return the operands in the result's shape."""
        return [x.reshape(self.shape) for x in self.flat]

    def result(self, found: Array, out: Any) -> Any:
        """Return what was found as the caller gets it: out, or an array of his library."""
        if out is not None:
            return out
        if self.library is not None:
            return self.library.from_numpy(found, self.like)
        return found[()] if self.scalar else found

    def host_out(self, out: Any) -> Any:
        """Return `out` as numpy's."""
        return out if self.library is None else host_out(out, self.library)


def read_operand(x: Any, what: str = "operand") -> tuple[Array, np.dtype[Any] | None]:
    """Return a float32 or float64 array and the dtype that counts; None for Python's numbers.

    A Python number is taken exactly, and does not decide the dtype of the result.
    """
    if type(x) in (int, float):
        try:
            value = float(x)
        except OverflowError:
            value = np.inf
        if value != x and x == x:
            raise InputError(f"{what} {short(x)}: is no float64; give a float")
        return np.array(value), None
    return read_floats(x)


def read_operands(values: tuple[Any, ...], limited: bool) -> Operands:
    """Read and broadcast the operands of an elementwise operation.

    limited: float64 numbers must lie where the operation's error term is exact.
    """
    pairs = [read_operand(x) for x in values]
    arrays = [array for array, _ in pairs]
    try:
        shape = np.broadcast_shapes(*(array.shape for array in arrays))
    except ValueError:
        shapes = " and ".join(str(array.shape) for array in arrays)
        raise InputError(
            f"operands of shapes {shapes}: must broadcast together, as numpy's do"
        ) from None
    if limited:
        for array in arrays:
            check_range(array)
    flat = [np.ravel(np.broadcast_to(array, shape)) for array in arrays]
    foreign = [x for x in values if library_of(x) is not None]
    scalar = not any(isinstance(x, np.ndarray) for x in values) and shape == ()
    library = library_of(foreign[0]) if foreign else None
    given = _common([dtype for _, dtype in pairs if dtype is not None])
    return Operands(flat, shape, given, scalar, library, foreign[0] if foreign else None)


def read_only(array: Array) -> Array:
    """Return a view that loops cannot write to; numba compiles a loop for each of the two kinds."""
    found = array.view()
    found.flags.writeable = False
    return found


def check_options(given: Mapping[str, Any], known: type[Any]) -> None:
    """Refuse an option that a TypedDict does not have."""
    unknown = sorted(set(given) - set(known.__annotations__))
    if unknown:
        raise InputError(
            f"option {unknown[0]!r}: unknown; options are {list(known.__annotations__)}"
        )


def _common(dtypes: list[np.dtype[Any]]) -> np.dtype[Any]:
    if not dtypes or _F64 in dtypes:
        return _F64
    return dtypes[0] if len(set(dtypes)) == 1 else _F32


def check_range(array: Array) -> None:
    """Refuse float64 numbers whose products or quotients have no exact error term."""
    if array.dtype != _F64:
        return
    magnitude = np.abs(array)
    wrong = (magnitude < LOWEST) & (magnitude > 0) | (magnitude > HIGHEST) & np.isfinite(array)
    if wrong.any():
        raise InputError(
            f"float64 operand {float(array[wrong].flat[0])!r}: must be 0, infinite, NaN or of "
            "magnitude 2**-240 to 2**240, where the result's error is exact; scale it by a power "
            "of two"
        )
