"""The CPU loops of sums of products: each partial sum rounded, vectorised over output columns."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from fpemu.kernels.compile import inner, jit, source_stamp
from fpemu.kernels.cpu_arithmetic_rounders import Kind, adder, multiplier, rounding

__all__ = ["SLOTS", "compensated_loop", "sequential_loop", "tree_loop"]

_STAMP = source_stamp()

_inner: Callable[[Any], Any] = inner

H = np.uint32

#: Columns that are summed together: their partial sums stay in the first cache.
TILE = 512

#: Draws that one term of one output may take.
SLOTS = 64


@cache
def _edges() -> tuple[Callable[..., Any], ...]:
    """Return (keys_at, write): a term's keys, and what ends a row of outputs."""

    @_inner
    def keys_at(keys, k):  # type: ignore[no-untyped-def]
        row = k if keys.shape[0] > 1 else 0  # one row where nothing is drawn
        return (keys[row, 0], keys[row, 1], keys[row, 2], keys[row, 3], keys[row, 4], keys[row, 5])

    @_inner
    def write(out, i, first, values, width):  # type: ignore[no-untyped-def]
        for j in range(width):
            v = values[j]
            out[i, first + j] = v if v == v else np.nan  # positive

    return keys_at, write


@cache
def sequential_loop(cast: Kind, plain: bool, product: Kind | None, outer: Kind | None) -> Any:
    """Return loop(a, b, out, begin, block, keys, c, p, o): blocks of k one after the other.

    Each block's sum starts at +0 and takes its products in order; the outer sum starts at +0 and
    takes the blocks' sums; outer=None: one block, and no outer sum (it would double the time to
    compile). begin: index of a's first row among all.
    """
    stamp = _STAMP
    opened, step = adder(cast, plain)
    opened_product, times = multiplier(product)
    opened_outer, join = adder(outer or cast, False)
    joins = outer is not None
    keys_at, write = _edges()

    def loop(a, b, out, begin, block, keys, c, p, o):  # type: ignore[no-untyped-def]
        stamp  # noqa: B018
        state, made, joined = opened(c), opened_product(p), opened_outer(o)
        rows, length = a.shape
        columns = b.shape[1]
        step_of_blocks = block if joins else max(length, 1)
        partial, total = np.zeros(TILE), np.empty(TILE)
        for first in range(0, columns, TILE):
            width = min(TILE, columns - first)
            for i in range(rows):
                base = H(((begin + i) * columns + first) * SLOTS)
                for j in range(width):
                    total[j] = 0.0
                for start in range(0, length, step_of_blocks):
                    for j in range(width):
                        partial[j] = 0.0
                    stop = min(start + step_of_blocks, length)
                    for k in range(start, stop):
                        x, row = np.float64(a[i, k]), b[k, first : first + width]
                        key = keys_at(keys, k)
                        for j in range(width):
                            index = H(base + H(j * SLOTS))
                            y = times(x, np.float64(row[j]), made, index, key)
                            partial[j] = step(partial[j], y, state, H(index + H(1)), key)
                    if joins:
                        key = keys_at(keys, stop - 1)
                        for j in range(width):
                            index = H(base + H(j * SLOTS + 2))
                            total[j] = join(total[j], partial[j], joined, index, key)
                write(out, i, first, total if joins or length == 0 else partial, width)

    return jit(loop, error_model="numpy")


@cache
def tree_loop(cast: Kind, product: Kind | None) -> Any:
    """Return loop(a, b, out, begin, keys, c, p): neighbours are added, then their sums, and so on.

    A last one without a neighbour goes up as it is. The stack holds a sum for each bit of k that
    is set, as a binary counter does.
    """
    stamp = _STAMP
    opened, step = adder(cast, False)
    apply = rounding(cast)[1]
    opened_product, times = multiplier(product)
    keys_at, write = _edges()

    def loop(a, b, out, begin, keys, c, p):  # type: ignore[no-untyped-def]
        stamp  # noqa: B018
        state, made = opened(c), opened_product(p)
        rows, length = a.shape
        columns = b.shape[1]
        stack = np.empty((64, TILE))
        for first in range(0, columns, TILE):
            width = min(TILE, columns - first)
            for i in range(rows):
                base = H(((begin + i) * columns + first) * SLOTS)
                sums = stack[63]
                for k in range(length):
                    x, row = np.float64(a[i, k]), b[k, first : first + width]
                    key = keys_at(keys, k)
                    for j in range(width):
                        index = H(base + H(j * SLOTS))
                        sums[j] = times(x, np.float64(row[j]), made, index, key)
                    level, count = 0, k
                    while count & 1:
                        left = stack[level]
                        for j in range(width):
                            index = H(base + H(j * SLOTS + level + 1))
                            sums[j] = step(left[j], sums[j], state, index, key)
                        level, count = level + 1, count >> 1
                    kept = stack[level]
                    for j in range(width):
                        kept[j] = sums[j]
                level, count = 0, length
                while count and not count & 1:
                    level, count = level + 1, count >> 1
                for j in range(width):
                    sums[j] = stack[level, j] if length else 0.0
                key = keys_at(keys, max(length - 1, 0))
                level, count = level + 1, count >> 1
                while count:
                    if count & 1:
                        left = stack[level]
                        for j in range(width):
                            index = H(base + H(j * SLOTS + level + 1))
                            sums[j] = step(left[j], sums[j], state, index, key)
                    level, count = level + 1, count >> 1
                for j in range(width):  # of one term, no sum has been rounded
                    sums[j] = apply(sums[j], state, H(base + H(j * SLOTS + SLOTS - 1)), key)
                write(out, i, first, sums, width)

    return jit(loop, error_model="numpy")


@cache
def compensated_loop(cast: Kind, product: Kind | None) -> Any:
    """Return loop(a, b, out, begin, keys, c, p): Kahan's sum, each of its four steps rounded."""
    stamp = _STAMP
    opened, step = adder(cast, False)
    opened_product, times = multiplier(product)
    keys_at, write = _edges()

    def loop(a, b, out, begin, keys, c, p):  # type: ignore[no-untyped-def]
        stamp  # noqa: B018
        state, made = opened(c), opened_product(p)
        rows, length = a.shape
        columns = b.shape[1]
        total, lost = np.empty(TILE), np.empty(TILE)
        for first in range(0, columns, TILE):
            width = min(TILE, columns - first)
            for i in range(rows):
                base = H(((begin + i) * columns + first) * SLOTS)
                for j in range(width):
                    total[j] = lost[j] = 0.0
                for k in range(length):
                    x, row = np.float64(a[i, k]), b[k, first : first + width]
                    key = keys_at(keys, k)
                    for j in range(width):
                        at = H(base + H(j * SLOTS))
                        product = times(x, np.float64(row[j]), made, at, key)
                        y = step(product, -lost[j], state, H(at + H(1)), key)
                        t = step(total[j], y, state, H(at + H(2)), key)
                        gained = step(t, -total[j], state, H(at + H(3)), key)
                        lost[j] = step(gained, -y, state, H(at + H(4)), key)
                        total[j] = t
                write(out, i, first, total, width)

    return jit(loop, error_model="numpy")
