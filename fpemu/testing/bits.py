"""assert_same_bits: equality of float arrays on bits, with every NaN equal to every NaN."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fpemu.arrays import read_array
from fpemu.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = ["assert_same_bits", "bits_of", "hex_of", "unlike"]

Array = np.ndarray[Any, Any]

_UINT = {2: np.uint16, 4: np.uint32, 8: np.uint64}


def bits_of(x: Array) -> Array:
    """Return a float array's bits as unsigned integers."""
    return np.ascontiguousarray(x).view(_UINT[x.dtype.itemsize])


def hex_of(x: Any) -> str:
    """Return '0x3f800000 (1)' for a float scalar."""
    value = np.asarray(x)
    width = 2 * value.dtype.itemsize + 2
    return f"{int(bits_of(value.reshape(1))[0]):#0{width}x} ({float(value):.9g})"


def unlike(got: Array, want: Array) -> Array:
    """Return where two float arrays of one dtype differ in bits, NaNs all equal."""
    with np.errstate(invalid="ignore"):
        both_nan = np.isnan(got) & np.isnan(want)
    different: Array = (bits_of(got) != bits_of(want)).reshape(got.shape) & ~both_nan
    return different


def assert_same_bits(got: ArrayLike, want: ArrayLike, x: ArrayLike | None = None) -> None:
    """Raise AssertionError unless two float arrays agree bit for bit, NaNs all equal.

    >>> import numpy as np
    >>> from fpemu.testing import assert_same_bits
    >>> assert_same_bits(np.float32([1, np.nan]), np.float32([1, -np.nan]))
    >>> assert_same_bits(np.float32([0.0]), np.float32([-0.0]))
    Traceback (most recent call last):
    AssertionError: 1 of 1 values differ; first at index (0,): got 0x00000000 (0), want \
0x80000000 (-0)

    x: the inputs that made them, to show beside the first difference. Shapes and dtypes must
    agree. Zeros of different sign differ.
    """
    a, b = read_array(got), read_array(want)
    if a.dtype != b.dtype or a.dtype.kind != "f" or a.dtype.itemsize not in _UINT:
        raise InputError(
            f"got {a.dtype.name} and want {b.dtype.name}: give equal dtypes, float16, 32 or 64"
        )
    if a.shape != b.shape:
        raise AssertionError(f"shapes differ: got {a.shape}, want {b.shape}")
    wrong = unlike(a, b)
    if not wrong.any():
        return
    first = tuple(int(i[0]) for i in np.nonzero(np.atleast_1d(wrong)))
    at = first if a.ndim else ()
    inputs = None if x is None else read_array(x)
    shown = inputs is not None and inputs.shape == a.shape and inputs.dtype.kind == "f"
    source = f"x {hex_of(inputs[at])}, " if inputs is not None and shown else ""
    raise AssertionError(
        f"{int(wrong.sum())} of {wrong.size} values differ; first at index {at}: {source}"
        f"got {hex_of(a[at])}, want {hex_of(b[at])}"
    )
