"""round: arrays through a Cast."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fpemu.arrays import check_out, like_input, read_dtype, read_floats, result_dtype
from fpemu.cast import Cast, Negative, Overflow, Rounding, Subnormals, Zero, cast_of, make_cast
from fpemu.codes import code_dtype
from fpemu.elementwise import Draws, draws_of, run
from fpemu.errors import InputError
from fpemu.format import Format
from fpemu.kernels.plan import decode_plan, plan
from fpemu.libraries.library import Library, Place, host_out, library_of

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, DTypeLike

    from fpemu.outcomes import Outcome

__all__ = ["round", "warmup"]

Array = np.ndarray[Any, Any]


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
    count: bool = False,
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
    count: return (rounded, Outcome), what became of the numbers, counted exactly for any cast.
    out: where to write; x itself is allowed, partial overlap is not.
    threads: at most so many; the environment variable FPEMU_THREADS, or all processors.

    Returns an array of x's shape: float64 for float64 (rounded once), float32 for float32; a
    narrower float keeps its dtype if that holds every result, else float32; a scalar for a
    scalar. NaN stays NaN (quiet, of its sign) where the format has one, and becomes the largest
    value in FP6 and FP4. Zero keeps its sign where the format has -0. Infinity and overflow
    follow the overflow rule. Integers, complex numbers and objects are an InputError.
    """
    cast = cast_of(to, (rounding, overflow, subnormals, negative, zero))
    library = None if type(x) is np.ndarray else library_of(x)
    if library is not None:
        drawn = (seed, offset, random_bits)
        return _round_foreign(library, x, cast, drawn, count, out, threads)
    array, given = read_floats(x)
    dtype = result_dtype(given, cast.format)
    if out is not None:
        check_out(out, array, dtype)
    draws = draws_of(cast, array.dtype, seed, offset, random_bits)
    outcome = _count(array, cast, draws, threads) if count else None  # before out=x is written
    loop = plan("round", cast, array.itemsize * 8, draws.bits if draws else 32)
    result = run(loop, array, array.dtype, dtype, out, draws, threads)
    rounded = result if out is not None else like_input(x, result)
    return (rounded, outcome) if count else rounded


def _round_foreign(
    library: Library, x: Any, cast: Cast, drawn: tuple[Any, ...], count: bool, out: Any,
    threads: int | None,
) -> Any:  # fmt: skip
    """round for an array of another library, on the host or on a CUDA device."""
    if library.place(x) is Place.CUDA:
        from fpemu import on_device

        draws = draws_of(cast, library.dtype(x), *drawn)
        work = on_device.round_counted if count else on_device.round_array
        return work(library, x, cast, draws, out)
    array = library.to_numpy(x)
    target = array if out is x else host_out(out, library)  # one array is rounded faster in place
    seed, offset, random_bits = drawn
    found = round(array, cast, seed=seed, offset=offset, random_bits=random_bits, count=count,
                  out=target, threads=threads)  # fmt: skip
    rounded = found[0] if count else found
    result = library.from_numpy(rounded, x) if out is None else out
    return (result, found[1]) if count else result


def _count(array: Array, cast: Cast, draws: Draws | None, threads: int | None) -> Outcome:
    """Count by rounding once more, so that a saturated result can be told from one in range."""
    from fpemu.outcomes import outcome_of, visible

    loop = plan("round", visible(cast), array.itemsize * 8, draws.bits if draws else 32)
    rounded = run(loop, array, array.dtype, array.dtype, None, draws, threads)
    return outcome_of(array, rounded, cast)


def warmup(*to: Cast | Format | str, dtype: DTypeLike = np.float32) -> None:
    """Compile the loops of these casts now, each with its constants built in.

    >>> import fpemu
    >>> fpemu.warmup("bf16", "e4m3fn:overflow=saturate")

    For round, encode and decode of float32 arrays, or dtype=np.float64. Otherwise a cast gets
    loops of its own once it has rounded some hundred million elements. Other dtypes and unknown
    names are refused.
    """
    word = read_dtype(dtype)
    if word not in (np.float32, np.float64):
        raise InputError(f"dtype {word.name}: casts are compiled for float32 or float64")
    bits = 8 * word.itemsize
    for name in to:
        cast = make_cast(name)
        x, codes = np.zeros(1, word), np.zeros(1, code_dtype(cast.format))
        draws = draws_of(cast, word, 0, 0, None)
        for verb, out in (("round", x), ("encode", codes)):
            loop = plan(verb, cast, bits, draws.bits if draws else 32)
            loop.specialise()
            run(loop, x, out.dtype, out.dtype, None, draws, 1)
        loop = decode_plan(cast.format, bits)
        loop.specialise()
        run(loop, codes, word, word, None, None, 1)
