"""What arrays come in and go out: dtypes, layouts, scalars, out=. Checked once, here."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from fpemu.catalog import FORMATS
from fpemu.errors import InputError
from fpemu.format import Format
from fpemu.libraries.library import host_array, one_line

__all__ = [
    "check_out",
    "float32_words",
    "float_array",
    "holds",
    "like_input",
    "narrow_format",
    "read_array",
    "read_dtype",
    "read_floats",
    "result_dtype",
]

Array = np.ndarray[Any, Any]

_F32, _F64 = np.dtype(np.float32), np.dtype(np.float64)


def narrow_format(dtype: np.dtype[Any]) -> Format | None:
    """Return the Format of a float dtype narrower than float32 (numpy's or ml_dtypes'), or None."""
    if dtype.kind == "f" and dtype.itemsize == 2 and dtype.type is np.float16:
        return FORMATS["float16"]
    if getattr(dtype.type, "__module__", "").partition(".")[0] == "ml_dtypes":
        return FORMATS.get(dtype.name)
    return None


def float_array(x: Any) -> Array:
    """Return x as a native float32 or float64 array of any layout; narrower floats widen.

    Everything that cannot be taken exactly is refused with the way out.
    """
    return read_floats(x)[0]


def float32_words(x: Any) -> Array:
    """Return an array's float32 bit patterns, flat; what is not exactly float32 is refused."""
    array = float_array(x)
    if array.dtype != _F32:
        raise InputError(
            f"dtype {array.dtype.name}: tallies and moments take float32 numbers; give "
            "x.astype(np.float32) if you accept that rounding"
        )
    return np.ravel(array).view(np.uint32)


def read_floats(x: Any) -> tuple[Array, np.dtype[Any]]:
    """Return `float_array(x)` and the dtype that x had (float64 for Python's own floats)."""
    if type(x) is np.ndarray and x.dtype is _F32:
        return x, _F32  # the common case, first: a small call lasts a few microseconds
    array = read_array(x)
    if array.dtype.kind == "f" and array.itemsize in (4, 8):
        native = array.dtype.newbyteorder("=")
        return array.astype(native, copy=False), native
    dtype = array.dtype
    if narrow_format(dtype) is not None:
        return array.astype(np.float32), dtype.newbyteorder("=")
    raise InputError(_refusal(dtype))


def read_array(x: Any) -> Array:
    """Return x as a plain numpy array of whatever dtype, without a copy where that can be.

    Masks, ragged lists and arrays on a device are refused.
    """
    if isinstance(x, np.ma.MaskedArray):
        raise InputError("masked array: the mask would be lost; pass x.data or x.filled(value)")
    x = host_array(x)
    with one_line(x, "give a rectangular array"):  # whatever an object's own __array__ raises
        return np.asarray(x)


def read_dtype(dtype: Any) -> np.dtype[Any]:
    """Return numpy's dtype of what a caller names, or refuse it."""
    try:
        found: np.dtype[Any] = np.dtype(dtype if dtype is not None else "none")
        return found.newbyteorder("=")
    except TypeError:
        raise InputError(f"dtype {dtype!r}: unknown; give np.float32 or np.float64") from None


def _refusal(dtype: np.dtype[Any]) -> str:
    rule = "fpemu works on float32 or float64 arrays and on narrower floats"
    match dtype.kind:
        case "b" | "i" | "u":
            way = "convert with x.astype(np.float32) (exact up to 2**24) or np.float64"
        case "c":
            way = "pass x.real and x.imag"
        case "f":  # longdouble
            way = "convert with x.astype(np.float64) if you accept that rounding"
        case "O":
            way = "convert with np.array(x, dtype=np.float64)"
        case _:
            way = "convert to a float array first"
    return f"dtype {dtype.name}: {rule}; {way}"


@lru_cache(maxsize=1024)
def holds(wide: Format, narrow: Format) -> bool:
    """Whether every value of one format is a value of another (NaN and infinity included)."""
    return (
        wide.mantissa_bits >= narrow.mantissa_bits
        and wide.max >= narrow.max
        and wide.emin - wide.mantissa_bits <= narrow.emin - narrow.mantissa_bits
        and wide.smallest_subnormal <= narrow.smallest_subnormal
        and (wide.signed or not narrow.signed)
        and (wide.zero or not narrow.zero)
        and (wide.minus_zero or not narrow.minus_zero)
        and (wide.inf or not narrow.inf)
        and (wide.has_nan or not narrow.has_nan)
    )


def result_dtype(given: np.dtype[Any], form: Format) -> np.dtype[Any]:
    """Return the dtype of rounded x: x's own if it holds every result, else float32.

    float64 stays float64, float32 stays float32.
    """
    if given is _F32:  # the common case, first
        return given
    own = narrow_format(given)
    return given if own is None or holds(own, form) else _F32


def check_out(out: Any, x: Array, dtype: np.dtype[Any]) -> Array:
    """Return `out` if results of x can be written to it; overlap other than out=x is refused."""
    if not isinstance(out, np.ndarray):
        raise InputError(f"out={type(out).__name__}: must be a numpy array")
    kind, flags = out.dtype, out.flags
    if kind is not dtype and (kind != dtype or not kind.isnative):
        raise InputError(f"out has dtype {out.dtype!s}: the result is {dtype.name}; give that")
    if out.shape != x.shape:
        raise InputError(f"out has shape {out.shape}: the result has {x.shape}; give that")
    if not flags.writeable:
        raise InputError("out is read-only: give a writeable array")
    if out is x or (flags.owndata and x.flags.owndata and flags.c_contiguous):
        return out  # two allocations lie apart; the checks below take microseconds
    if 0 in out.strides and out.size and _repeats(out):
        raise InputError("out repeats its own memory (a stride of 0): give an array of its own")
    if np.may_share_memory(out, x) and not _same(out, x) and _overlap(out, x):
        raise InputError("out overlaps x in part: give out=x itself or an array apart from it")
    return out


def _repeats(a: Array) -> bool:
    return any(n > 1 and step == 0 for n, step in zip(a.shape, a.strides, strict=True))


def _same(a: Array, b: Array) -> bool:
    """Whether two arrays of a shape are the same elements; strides of single ones do not count."""
    strides = zip(a.strides, b.strides, a.shape, strict=True)
    return a.ctypes.data == b.ctypes.data and all(
        one == other or length == 1 for one, other, length in strides
    )


def _overlap(a: Array, b: Array) -> bool:
    try:
        return bool(np.shares_memory(a, b, max_work=10_000))  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True  # cannot be shown to be apart


def like_input(x: Any, result: Array) -> Any:
    """Return a scalar for a scalar; an array (0-d too) for an array."""
    return result if isinstance(x, np.ndarray) or result.ndim else result[()]
