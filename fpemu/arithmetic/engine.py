"""The engine of sum, matmul and conv2d: loops over rows, the random bits they need, threads."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fpemu.arithmetic.accumulation import Accumulation, Order
from fpemu.arithmetic.operands import read_only
from fpemu.elementwise import draws_of
from fpemu.errors import InputError
from fpemu.kernels.cpu_arithmetic_rounders import plain_sums, rounder_of
from fpemu.kernels.cpu_arithmetic_sums import (
    SLOTS,
    compensated_loop,
    sequential_loop,
    tree_loop,
)
from fpemu.kernels.pool import run_chunks
from fpemu.kernels.random import keys_of

__all__ = ["Drawn", "draws_for", "multiply_batches", "multiply_matrices"]

Array = np.ndarray[Any, Any]

_F32, _F64 = np.dtype(np.float32), np.dtype(np.float64)

#: Fewer output columns than this are not worth a vector loop, if there are more rows.
_NARROW = 16


class Drawn:
    """Where the random bits of a sum come from: of term k, from the seed's block k."""

    def __init__(self, seed: int, bits: int) -> None:
        self.seed, self.bits = seed, bits

    def keys(self, terms: int) -> Array:
        """Return a row of keys for each term."""
        rows = [keys_of(self.seed, k) for k in range(max(terms, 2))]  # one row means none drawn
        return np.array(rows, np.uint64)


def draws_for(how: Accumulation, seed: Any, random_bits: Any) -> Drawn | None:
    """Return where the random bits of a sum come from; None if no cast of it needs any."""
    for cast in (how.cast, how.product, how.outer):
        draws = draws_of(cast, _F32, seed, 0, random_bits) if cast else None
        if draws:
            return Drawn(draws.seed, draws.bits)
    return None


def multiply_batches(
    a: Array, b: Array, how: Accumulation, drawn: Drawn | None, threads: int | None
) -> Array:
    """Multiply matrices one after the other; vectors are matrices of one row or column."""
    a = a[None] if a.ndim == 1 else a
    b = b[:, None] if b.ndim == 1 else b
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    count = math.prod(batch)
    left = np.broadcast_to(a, (*batch, *a.shape[-2:])).reshape(count, *a.shape[-2:])
    right = np.broadcast_to(b, (*batch, *b.shape[-2:])).reshape(count, *b.shape[-2:])
    out = np.empty((count, a.shape[-2], b.shape[-1]), _F32)
    for i in range(count):
        begin = i * a.shape[-2]
        out[i] = multiply_matrices(left[i], right[i], how, drawn, threads, begin, out.size)
    return out


_NO_KEYS = np.zeros((1, 6), np.uint64)


def multiply_matrices(
    a: Array, b: Array, how: Accumulation, drawn: Drawn | None, threads: int | None,
    begin: int = 0, outputs: int = 0,
) -> Array:  # fmt: skip
    """Multiply two matrices; begin: rows of the batch before these, of so many outputs in all."""
    rows, terms = a.shape
    columns = b.shape[1]
    if drawn is None and columns < _NARROW and rows > columns:
        return multiply_matrices(b.T, a.T, how, drawn, threads).T
    if drawn is not None and max(outputs, rows * columns) > (1 << 32) // SLOTS:
        raise InputError(
            f"{max(outputs, rows * columns)} stochastic sums in one call: at most "
            f"{(1 << 32) // SLOTS}; give parts, each with a seed of its own"
        )
    a, b = read_only(np.ascontiguousarray(a)), read_only(np.ascontiguousarray(b))
    keys = drawn.keys(terms) if drawn else _NO_KEYS
    loop = _loop(a, b, how, drawn.bits if drawn else 32)
    out = np.empty((rows, columns), _F64 if b.dtype == _F64 else _F32)
    cost = max(1, terms * columns)

    def chunk(start: int, stop: int) -> None:  # the rows that begin within
        first, last = -(-start // cost), min(rows, -(-stop // cost))
        loop(a[first:last], b, out[first:last], begin + first, keys)

    run_chunks(chunk, rows * cost, threads)
    return out


def _loop(a: Array, b: Array, how: Accumulation, bits: int) -> Any:
    """Return loop(a, b, out, begin, keys) with everything else bound."""
    cast = rounder_of(how.cast, bits)
    product = rounder_of(how.product, bits) if how.product else None
    kind = product.kind if product else None
    constants = (cast.constants, product.constants if product else cast.constants)
    if how.order is not Order.SEQUENTIAL:
        make = tree_loop if how.order is Order.PAIRWISE else compensated_loop
        found = make(cast.kind, kind)
        return lambda a, b, out, begin, keys: found(a, b, out, begin, keys, *constants)
    outer, block = rounder_of(how.total, bits), how.length(a.shape[1])
    product_bits = how.product.format.precision if how.product else _bits(a) + _bits(b)
    plain = plain_sums(how.cast, product_bits)
    found = sequential_loop(cast.kind, plain, kind, outer.kind if block else None)
    return lambda a, b, out, begin, keys: found(
        a, b, out, begin, block, keys, *constants, outer.constants
    )


def _bits(array: Array) -> int:
    """Significand bits that the numbers of an array use at most."""
    mantissa = 52 if array.dtype == _F64 else 23
    words = array.view(f"u{array.itemsize}")
    used = int(np.bitwise_or.reduce(words, axis=None)) & ((1 << mantissa) - 1)
    return mantissa + 1 - ((used & -used).bit_length() - 1) if used else 1
