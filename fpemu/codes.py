"""encode and decode: values to a format's codes and back, packed where codes are narrow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fpemu.arrays import (
    check_out,
    float_array,
    holds,
    like_input,
    narrow_format,
    read_array,
    read_dtype,
)
from fpemu.cast import Cast, Negative, Overflow, Rounding, Subnormals, Zero, cast_of
from fpemu.catalog import find_format
from fpemu.elementwise import Draws, draws_of, run
from fpemu.errors import InputError
from fpemu.format import Format
from fpemu.kernels.cpu_packing import group_of, pack_loop, unpack_loop
from fpemu.kernels.plan import decode_plan, plan
from fpemu.libraries.library import Library, Place, host_out, library_of

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, DTypeLike

__all__ = ["code_dtype", "decode", "dtype_of_bits", "encode", "values"]

Array = np.ndarray[Any, Any]

_F32, _F64 = np.dtype(np.float32), np.dtype(np.float64)


def encode(
    x: ArrayLike,
    to: Cast | Format | str,
    *,
    rounding: Rounding | str | None = None,
    overflow: Overflow | str | None = None,
    subnormals: Subnormals | str | None = None,
    negative: Negative | str | None = None,
    zero: Zero | str | None = None,
    seed: int | None = None,
    offset: int = 0,
    random_bits: int | None = None,
    packed: bool = False,
    out: Array | None = None,
    threads: int | None = None,
) -> Any:
    """Round every element and return the format's codes as unsigned integers.

    >>> import numpy as np, fpemu
    >>> fpemu.encode(np.array([1.0, -448.0, np.nan], np.float32), "e4m3fn")
    array([ 56, 254, 127], dtype=uint8)

    Takes the same arguments as `fpemu.round`, and packed: codes of 2 to 7 bits lie side by side
    in bytes, the first in the lowest bits (two FP4 in a byte, four FP6 in three); the last axis
    must fill whole bytes, and `decode(..., packed=True)` reads them back. Otherwise codes are
    uint8 up to 8 bits, uint16 up to 16, else uint32, right-aligned (tf32 has 19 bits).
    NaN gives the canonical quiet NaN with the input's sign where the format's NaNs have one;
    formats without -0 give code 0 for it.
    """
    cast = cast_of(to, (rounding, overflow, subnormals, negative, zero))
    library = None if type(x) is np.ndarray else library_of(x)
    if library is not None and library.place(x) is Place.CUDA:
        draws = draws_of(cast, library.dtype(x), seed, offset, random_bits)
        return _encode_on_device(library, x, cast, draws, packed, out)
    if library is not None:
        found = encode(library.to_numpy(x), cast, seed=seed, offset=offset, packed=packed,
                       random_bits=random_bits, out=host_out(out, library), threads=threads)
        return library.from_numpy(found, x) if out is None else out
    array = float_array(x)
    dtype = code_dtype(cast.format)
    draws = draws_of(cast, array.dtype, seed, offset, random_bits)
    loop = plan("encode", cast, array.itemsize * 8, draws.bits if draws else 32)
    if packed:
        codes = pack(run(loop, array, dtype, dtype, None, draws, threads), cast.format)
        return codes if out is None else _copy_packed(out, codes)
    if out is not None:
        check_out(out, array, dtype)
    result = run(loop, array, dtype, dtype, out, draws, threads)
    return result if out is not None else like_input(x, result)


def decode(
    codes: ArrayLike,
    format: Format | str,
    dtype: DTypeLike = np.float32,
    *,
    packed: bool = False,
    out: Array | None = None,
    threads: int | None = None,
) -> Any:
    """Return the values of a format's codes.

    >>> import numpy as np, fpemu
    >>> fpemu.decode(np.array([0x38, 0x7E, 0x7F], np.uint8), "e4m3fn")
    array([  1., 448.,  nan], dtype=float32)

    codes: unsigned integers of any shape, each below 2**bits (or an InputError names the first
    that is not); with packed=True, bytes as `encode(..., packed=True)` gives. dtype: float32,
    float64, or a narrower float that holds every value of the format.
    Every NaN code gives a quiet NaN of its sign; zeros keep their sign.
    """
    form = find_format(format)
    wanted = read_dtype(dtype)
    floats = _F64 if wanted == _F64 else _F32
    if wanted != floats:
        _check_holds(wanted, form)
    library = None if type(codes) is np.ndarray else library_of(codes)
    if library is not None and library.place(codes) is Place.CUDA:
        return _decode_on_device(library, codes, form, wanted, packed, out)
    if library is not None:
        found = decode(library.to_numpy(codes), form, wanted, packed=packed, threads=threads,
                       out=host_out(out, library))
        return library.from_numpy(found, codes) if out is None else out
    array = unpack(codes, form) if packed else _code_array(codes, form)
    if out is not None:
        check_out(out, array, wanted)
    loop = decode_plan(form, floats.itemsize * 8)
    result = run(loop, array, floats, wanted, out, None, threads)
    return result if out is not None else like_input(codes, result)


def _encode_on_device(
    library: Library, x: Any, cast: Cast, draws: Draws | None, packed: bool, out: Any
) -> Any:
    from fpemu.on_device import encode_array

    _check_unpacked(packed)
    return encode_array(library, x, cast, draws, out, code_dtype(cast.format))


def _decode_on_device(
    library: Library, codes: Any, form: Format, wanted: np.dtype[Any], packed: bool, out: Any
) -> Any:
    from fpemu.on_device import decode_array

    _check_unpacked(packed)
    narrowest, given = code_dtype(form), library.dtype(codes)
    if given != narrowest:
        raise InputError(
            f"codes of dtype {given.name} on a CUDA device: {form.name} has codes of "
            f"{narrowest.name}, as fpemu.encode gives"
        )
    return decode_array(library, codes, form, wanted, out)


def _check_unpacked(packed: bool) -> None:
    if packed:
        raise InputError("packed=True on a CUDA device: codes are packed on the host only")


def _check_holds(wanted: np.dtype[Any], form: Format) -> None:
    own = narrow_format(wanted)
    if own is None or not holds(own, form):
        raise InputError(
            f"dtype {wanted.name}: cannot hold every value of {form.name}; use float32 or float64"
        )


def values(format: Format | str) -> Array:
    """Return the value of every code of a format, as a float32 array indexed by the code.

    >>> import fpemu
    >>> fpemu.values("fp4")[:8]
    array([0. , 0.5, 1. , 1.5, 2. , 3. , 4. , 6. ], dtype=float32)

    NaN, infinity and both zeros are among them. Formats of more than 24 bits are an InputError.
    """
    form = find_format(format)
    if form.bits > 24:
        raise InputError(f"{form.name} has 2**{form.bits} codes: too many to list; use decode")
    return decode(np.arange(1 << form.bits, dtype=np.uint32), form)  # type: ignore[no-any-return]


def code_dtype(form: Format) -> np.dtype[Any]:
    """Return the narrowest unsigned dtype that holds a format's codes."""
    return dtype_of_bits(form.bits)


def dtype_of_bits(bits: int) -> np.dtype[Any]:
    """Return the narrowest unsigned dtype that holds codes of so many bits."""
    return np.dtype(np.uint8 if bits <= 8 else np.uint16 if bits <= 16 else np.uint32)


def _code_array(codes: Any, form: Format) -> Array:
    """Return codes as a native unsigned array, each one checked against the format's width."""
    array = read_array(codes)
    if array.dtype.kind not in "iu" and not (array.size == 0 and isinstance(codes, list)):
        raise InputError(
            f"codes of dtype {array.dtype.name}: must be unsigned integers, as fpemu.encode gives"
        )
    narrowest = code_dtype(form)
    if array.dtype != narrowest or form.bits != 8 * narrowest.itemsize:
        low = array.min(initial=0) if array.dtype.kind == "i" else 0
        if low < 0 or int(array.max(initial=0)) >> form.bits:
            wrong = (array < 0) | (array >> form.bits != 0)
            bad = int(array[wrong].flat[0])
            raise InputError(f"code {bad}: {form.name} has codes 0 to {(1 << form.bits) - 1}")
    return array.astype(narrowest, copy=False)


# --- codes narrower than a byte, side by side ---------------------------------------------------


def pack(codes: Array, form: Format) -> Array:
    """Return uint8 codes side by side in bytes, the first in the lowest bits, along the last axis.

    >>> import numpy as np, fpemu
    >>> from fpemu.codes import pack
    >>> [hex(b) for b in pack(np.array([1, 2, 3, 4], np.uint8), fpemu.finfo("fp4"))]
    ['0x21', '0x43']
    """
    _check_narrow(form)
    return pack_bits(codes, form.bits)


def unpack(octets: Any, form: Format) -> Array:
    """Return the uint8 codes that `pack` put side by side."""
    _check_narrow(form)
    return unpack_bits(octets, form.bits, form.name)


def _check_narrow(form: Format) -> None:
    if not 2 <= form.bits <= 7:
        raise InputError(f"{form.name} has {form.bits} bits: only codes of 2 to 7 bits are packed")


def pack_bits(codes: Array, bits: int) -> Array:
    """Return uint8 codes of so many bits side by side, along the last axis."""
    count, size = group_of(bits)
    if codes.ndim == 0 or codes.shape[-1] % count:
        length = codes.shape[-1] if codes.ndim else "no"
        raise InputError(
            f"{length} codes of {bits} bits along the last axis: must be a multiple of "
            f"{count} to fill whole bytes; pad with zeros"
        )
    *outer, length = codes.shape
    octets = np.empty((*outer, length // count * size), np.uint8)
    pack_loop(bits)(np.ravel(codes), octets.reshape(-1))
    return octets


def unpack_bits(octets: Any, bits: int, name: str) -> Array:
    """Return the uint8 codes that `pack_bits` put side by side; name: whose, for errors."""
    count, size = group_of(bits)
    array = read_array(octets)
    if array.dtype != np.uint8 or array.ndim == 0 or array.shape[-1] % size:
        raise InputError(
            f"packed {name} of dtype {array.dtype.name} and shape {array.shape}: must be "
            f"uint8 with a last axis of a multiple of {size} bytes"
        )
    *outer, length = array.shape
    codes = np.empty((*outer, length // size * count), np.uint8)
    unpack_loop(bits)(np.ravel(array), codes.reshape(-1))
    return codes


def _copy_packed(out: Any, codes: Array) -> Array:
    if not isinstance(out, np.ndarray) or out.dtype != np.uint8 or out.shape != codes.shape:
        shape = getattr(out, "shape", None)
        raise InputError(f"out of shape {shape}: packed codes are uint8 of shape {codes.shape}")
    if not out.flags.writeable:
        raise InputError("out is read-only: give a writeable array")
    np.copyto(out, codes)
    return out
