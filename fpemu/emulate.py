"""round, encode, decode, values: arrays through a Cast."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from fpemu.arrays import (
    check_out,
    float_array,
    holds,
    like_input,
    narrow_format,
    result_dtype,
)
from fpemu.cast import Cast, Negative, Overflow, Rounding, Subnormals, Zero, make_cast
from fpemu.errors import InputError
from fpemu.format import Format, find_format
from fpemu.kernels.plan import Plan, decode_plan, plan
from fpemu.kernels.pool import SMALL, run_chunks
from fpemu.kernels.random import BLOCK, keys_of

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, DTypeLike

__all__ = ["decode", "encode", "round", "values", "warmup"]

Array = np.ndarray[Any, Any]

_UINT = {np.dtype(np.float32): np.dtype(np.uint32), np.dtype(np.float64): np.dtype(np.uint64)}


def round(
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
    out: Array | None = None,
    threads: int | None = None,
) -> Any:
    """Round every element to the nearest value of a format, or as the given rules say.

    >>> import numpy as np, fpemu
    >>> fpemu.round(np.array([0.1, 1e-8, 70000], np.float32), "fp16")
    array([0.09997559, 0.        ,        inf], dtype=float32)
    >>> fpemu.round(np.float32([500, -500]), "e4m3fn", overflow="saturate")
    array([ 448., -448.], dtype=float32)

    x: floats of any shape, layout and byte order. to: a format's name, a `Format` or a `Cast`;
    the rules given beside it take the place of its own (see `Cast` for each).
    seed, offset, random_bits: for stochastic rounding; element i (in C order) takes its bits
    from (seed, offset + i), so that shards and resumed runs agree. A seed is required there; for
    fresh draws give another seed each call, or move the offset by x.size.
    out: where to write; x itself is allowed, partial overlap is not.
    threads: at most so many; the environment variable FPEMU_THREADS, or all processors.

    Returns an array of x's shape: float64 for float64 (rounded once), float32 for float32; a
    narrower float keeps its dtype if that holds every result, else float32; a scalar for a
    scalar. NaN stays NaN (quiet, of its sign) where the format has one, and becomes the largest
    value in FP6 and FP4. Zero keeps its sign where the format has -0. Infinity and overflow
    follow the overflow rule. Integers, complex numbers and objects are an InputError.
    """
    cast = make_cast(to, rounding=rounding, overflow=overflow, subnormals=subnormals,
                     negative=negative, zero=zero)  # fmt: skip
    array = float_array(x)
    dtype = array.dtype if array is x else result_dtype(x, cast.format)
    if out is not None:
        check_out(out, array, dtype)
    draws = _draws(cast, array, seed, offset, random_bits)
    loop = plan("round", cast, array.itemsize * 8, draws.bits if draws else 32)
    result = _run(loop, array, array.dtype, dtype, out, draws, threads)
    return result if out is not None else like_input(x, result)


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
    out: Array | None = None,
    threads: int | None = None,
) -> Any:
    """Round every element and return the format's codes as unsigned integers.

    >>> import numpy as np, fpemu
    >>> fpemu.encode(np.array([1.0, -448.0, np.nan], np.float32), "e4m3fn")
    array([ 56, 254, 127], dtype=uint8)

    Takes the same arguments as `fpemu.round`. Codes are uint8 up to 8 bits, uint16 up to 16,
    else uint32, right-aligned (tf32 has 19 bits). NaN gives the canonical quiet NaN with the
    input's sign where the format's NaNs have one; formats without -0 give code 0 for it.
    """
    cast = make_cast(to, rounding=rounding, overflow=overflow, subnormals=subnormals,
                     negative=negative, zero=zero)  # fmt: skip
    array = float_array(x)
    dtype = _code_dtype(cast.format)
    if out is not None:
        check_out(out, array, dtype)
    draws = _draws(cast, array, seed, offset, random_bits)
    loop = plan("encode", cast, array.itemsize * 8, draws.bits if draws else 32)
    result = _run(loop, array, dtype, dtype, out, draws, threads)
    return result if out is not None else like_input(x, result)


def decode(
    codes: ArrayLike,
    format: Format | str,
    dtype: DTypeLike = np.float32,
    *,
    out: Array | None = None,
    threads: int | None = None,
) -> Any:
    """Return the values of a format's codes.

    >>> import numpy as np, fpemu
    >>> fpemu.decode(np.array([0x38, 0x7E, 0x7F], np.uint8), "e4m3fn")
    array([  1., 448.,  nan], dtype=float32)

    codes: unsigned integers of any shape, each below 2**bits (or an InputError names the first
    that is not). dtype: float32, float64, or a narrower float that holds every value of the
    format. Every NaN code gives a quiet NaN of its sign; zeros keep their sign.
    """
    form = find_format(format)
    array = _code_array(codes, form)
    wanted = np.dtype(dtype)
    own = narrow_format(wanted)
    if wanted not in (np.float32, np.float64) and (own is None or not holds(own, form)):
        raise InputError(
            f"dtype {wanted.name}: cannot hold every value of {form.name}; use float32 or float64"
        )
    if out is not None:
        check_out(out, array, wanted)
    floats = np.dtype(np.float64 if wanted == np.float64 else np.float32)
    loop = decode_plan(form, floats.itemsize * 8)
    result = _run(loop, array, floats, wanted, out, None, threads)
    return result if out is not None else like_input(codes, result)


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


def warmup(*to: Cast | Format | str, dtype: DTypeLike = np.float32) -> None:
    """Compile the loops of these casts now, each with its constants built in.

    >>> import fpemu
    >>> fpemu.warmup("bf16")

    Otherwise a cast gets loops of its own once it has rounded some hundred million elements.
    """
    bits = np.dtype(dtype).itemsize * 8
    if bits not in (32, 64) or np.dtype(dtype).kind != "f":
        raise InputError(f"dtype {np.dtype(dtype).name}: casts are compiled for float32 or float64")
    for name in to:
        cast = make_cast(name)
        x = np.zeros(1, f"f{bits // 8}")
        draws = _draws(cast, x, 0, 0, None)
        for verb, results in (("round", x.dtype), ("encode", _code_dtype(cast.format))):
            loop = plan(verb, cast, bits, draws.bits if draws else 32)
            loop.specialise()
            _run(loop, x, results, results, None, draws, 1)


# --- how it runs -----------------------------------------------------------------------------


class _Draws(NamedTuple):
    seed: int
    offset: int
    bits: int


def _draws(
    cast: Cast, array: Array, seed: Any, offset: Any, random_bits: Any
) -> _Draws | None:
    if cast.rounding is not Rounding.STOCHASTIC:
        return None
    if seed is None:
        raise InputError("stochastic rounding needs a seed: give seed=0 (another for fresh draws)")
    widest = 32 if array.dtype == np.float32 else 64
    bits = widest if random_bits is None else _whole("random_bits", random_bits, 1, widest)
    return _Draws(
        _whole("seed", seed, 0, 2**64 - 1), _whole("offset", offset, 0, 2**63 - 1), bits
    )


def _whole(name: str, value: Any, low: int, high: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        number = -1
    if isinstance(value, bool) or not low <= number <= high:
        raise InputError(f"{name}={value!r}: must be an int from {low} to {high}")
    return number


def _code_dtype(form: Format) -> np.dtype[Any]:
    return np.dtype(np.uint8 if form.bits <= 8 else np.uint16 if form.bits <= 16 else np.uint32)


def _code_array(codes: Any, form: Format) -> Array:
    """Return codes as a native unsigned array, each one checked against the format's width."""
    array = np.asarray(codes)
    if array.dtype.kind not in "iu" and array.size:
        raise InputError(
            f"codes of dtype {array.dtype.name}: must be unsigned integers, as fpemu.encode gives"
        )
    narrowest = _code_dtype(form)
    if array.dtype != narrowest or form.bits != 8 * narrowest.itemsize:
        wrong = (array < 0) | (array >> form.bits != 0) if array.size else np.zeros(0, bool)
        if wrong.any():
            bad = int(array[wrong].flat[0])
            raise InputError(f"code {bad}: {form.name} has codes 0 to {(1 << form.bits) - 1}")
    return array.astype(narrowest, copy=False)


def _run(
    loop: Plan,
    array: Array,
    made: np.dtype[Any],
    wanted: np.dtype[Any],
    out: Array | None,
    draws: _Draws | None,
    threads: int | None,
) -> Array:
    """Run a loop over an array of any layout; `made` is the dtype that the loop writes."""
    order: Literal["C", "K"] = "C" if draws else "K"  # draws count elements in C order
    if not (array.flags.c_contiguous or (order == "K" and array.flags.f_contiguous)):
        array = array.copy(order)
    direct = out is not None and made == wanted and out.strides == array.strides
    if direct and made.itemsize == array.itemsize and out is not None:
        result = out
    else:
        result = np.empty_like(array, made, order=order, subok=False)
    _run_flat(loop, _words(array), _words(result), draws, threads)
    if out is not None and result is not out:
        np.copyto(out, result, casting="unsafe")  # exact: `wanted` holds every result
        return out
    return result if made == wanted else result.astype(wanted)


def _words(array: Array) -> Array:
    """Return a contiguous array's memory as flat words."""
    flat = array if array.ndim == 1 else array.ravel(order="K")
    return flat.view(_UINT[flat.dtype]) if flat.dtype.kind == "f" else flat


def _run_flat(
    loop: Plan, x: Array, out: Array, draws: _Draws | None, threads: int | None
) -> None:
    if draws is None:
        if x.size < SMALL and threads is None:
            loop.run(x, out)
        else:
            run_chunks(lambda a, b: loop.run(x[a:b], out[a:b]), x.size, threads)
        return

    def chunk(start: int, stop: int) -> None:
        while start < stop:  # keys change every 2**32 elements
            block, first = divmod(draws.offset + start, BLOCK)
            end = min(stop, start + BLOCK - first)
            keys = keys_of(draws.seed, block)
            loop.run(x[start:end], out[start:end], np.uint64(first), keys)
            start = end

    run_chunks(chunk, x.size, threads)
