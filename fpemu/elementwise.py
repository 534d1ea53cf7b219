"""Run a loop over an array of any layout, in chunks, with random bits where a Cast wants them."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from fpemu.cast import Cast, Rounding
from fpemu.errors import InputError
from fpemu.kernels.plan import Plan
from fpemu.kernels.pool import SMALL, run_chunks
from fpemu.kernels.random import BLOCK, keys_of

__all__ = ["Draws", "blocks_of", "draws_of", "run"]

Array = np.ndarray[Any, Any]


_STOCHASTIC = Rounding.STOCHASTIC  # an attribute of an enum takes longer


class Draws(NamedTuple):
    """Where random bits come from: of element i, from (seed, offset + i)."""

    seed: int
    offset: int
    bits: int


def draws_of(
    cast: Cast, dtype: np.dtype[Any], seed: Any, offset: Any, random_bits: Any
) -> Draws | None:
    """Return where a cast's random bits come from; None if it needs none."""
    if cast.rounding is not _STOCHASTIC:
        return None
    if seed is None:
        raise InputError("stochastic rounding needs a seed: give seed=0 (another for fresh draws)")
    widest = 64 if dtype == np.float64 else 32
    bits = widest if random_bits is None else _whole("random_bits", random_bits, 1, widest)
    return Draws(
        _whole("seed", seed, 0, 2**64 - 1), _whole("offset", offset, 0, 2**63 - 1), bits
    )


def blocks_of(draws: Draws, start: int, stop: int) -> Iterator[tuple[int, int, Any, Array]]:
    """Yield (start, stop, first, keys) of the parts of a span that share a set of keys."""
    while start < stop:
        block, first = divmod(draws.offset + start, BLOCK)
        end = min(stop, start + BLOCK - first)
        yield start, end, np.uint32(first), keys_of(draws.seed, block)
        start = end


def _whole(name: str, value: Any, low: int, high: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        number = -1
    if isinstance(value, bool) or not low <= number <= high:
        raise InputError(f"{name}={value!r}: must be an int from {low} to {high}")
    return number


def run(
    loop: Plan,
    array: Array,
    made: np.dtype[Any],
    wanted: np.dtype[Any],
    out: Array | None,
    draws: Draws | None,
    threads: int | None,
) -> Array:
    """Run a loop over an array of any layout; `made` is the dtype that the loop writes."""
    # draws count elements in C order; other loops take any order that lies in one piece
    flags = array.flags
    in_c = flags.c_contiguous
    if not in_c and (draws or not flags.f_contiguous):
        array = array.copy("C" if draws else "K")
        in_c = array.flags.c_contiguous
    plain = None if out is None else np.asarray(out)  # a matrix or the like, as its memory
    if plain is not None and made == wanted and _same_order(plain, array):
        result = plain
    elif in_c:
        result = np.empty(array.shape, made)
    else:
        result = np.empty_like(array, made, subok=False)
    target = None if result is array else _flat(result)
    _run_flat(loop, _flat(array), target, draws, threads)
    if out is not None and plain is not None:
        if result is not plain:
            np.copyto(plain, result, casting="unsafe")  # exact: `wanted` holds every result
        return out
    return result if made == wanted else result.astype(wanted)


def _same_order(a: Array, b: Array) -> bool:
    """Whether two arrays of a shape lie in one piece, in the same order."""
    return (a.flags.c_contiguous and b.flags.c_contiguous) or (
        a.flags.f_contiguous and b.flags.f_contiguous
    )


def _flat(array: Array) -> Array:
    """Return a contiguous array in one dimension, without a copy."""
    return array if array.ndim == 1 else array.ravel(order="K")


def _run_flat(
    loop: Plan, x: Array, out: Array | None, draws: Draws | None, threads: int | None
) -> None:
    """Run a loop over flat arrays, in chunks; out=None: in place."""
    if draws is None:
        if x.size < SMALL and threads is None:
            loop.run(x, out)
        elif out is None:
            run_chunks(lambda a, b: loop.run(x[a:b], None), x.size, threads)
        else:
            run_chunks(lambda a, b: loop.run(x[a:b], out[a:b]), x.size, threads)
        return

    def chunk(start: int, stop: int) -> None:
        for begin, end, first, keys in blocks_of(draws, start, stop):
            target = None if out is None else out[begin:end]
            loop.run(x[begin:end], target, first, keys)

    run_chunks(chunk, x.size, threads)
