"""The CPU loops of the moments: sums over blocks, two passes each, then merged as a tree.

The sums may be reassociated, so that they vectorise (2.0 ns an element otherwise, 0.8 so); their
last bits may differ between processors. Nothing else here is fast math.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from fpemu.kernels.compile import inner, jit, source_stamp

__all__ = ["BLOCK", "COLUMNS", "block_loop", "combine", "error_loop", "merge_loop", "merge_rows"]

_STAMP = source_stamp()

Loop = Callable[..., Any]


_ANY_ORDER = {"reassoc"}  # of additions

#: Elements of a block: both passes find it in the first cache.
BLOCK = 2048

#: What a block's row holds.
COLUMNS = ("count", "mean", "m2", "m3", "m4")


def combine(
    na: float, a1: float, a2: float, a3: float, a4: float,
    nb: float, b1: float, b2: float, b3: float, b4: float,
) -> tuple[float, float, float, float, float]:  # fmt: skip
    """Merge count, mean and central sums of powers 2 to 4 of two sets.

    Chan, Golub and LeVeque (1979); the third and fourth powers from Pebay (SAND2008-6212).
    """
    if nb == 0:
        return na, a1, a2, a3, a4
    if na == 0:
        return nb, b1, b2, b3, b4
    n = na + nb
    fa, fb = na / n, nb / n
    d = b1 - a1
    dd = d * d
    share = na * fb
    m2 = a2 + b2 + dd * share
    m3 = a3 + b3 + d * dd * share * (fa - fb) + 3.0 * d * (fa * b2 - fb * a2)
    m4 = (
        a4 + b4 + dd * dd * share * (fa * fa - fa * fb + fb * fb)
        + 6.0 * dd * (fa * fa * b2 + fb * fb * a2) + 4.0 * d * (fa * b3 - fb * a3)
    )  # fmt: skip
    return n, a1 + d * fb, m2, m3, m4


@cache
def _sums() -> Loop:
    """Return sums(v) -> mean and central sums of powers 2 to 4 of float64 numbers."""

    def sums(v):  # type: ignore[no-untyped-def]
        total = 0.0
        for i in range(v.size):
            total += v[i]
        mean = total / v.size
        s2 = s3 = s4 = 0.0
        for i in range(v.size):
            d = v[i] - mean
            square = d * d
            s2 += square
            s3 += square * d
            s4 += square * square
        return mean, s2, s3, s4

    return inner(sums, fastmath=_ANY_ORDER)


@cache
def _gather() -> Loop:
    """Return gather(x, words, v) -> how many finite numbers it wrote to v as float64."""

    def gather(x, words, v):  # type: ignore[no-untyped-def]
        count = 0
        for i in range(x.size):
            a = words[i] & np.int32(0x7FFFFFFF)
            if a >= np.int32(0x7F800000):
                continue
            if a >= np.int32(0x00800000):
                v[count] = np.float64(x[i])
            else:  # not from the float: the FPU may be set to take subnormals for zero
                tiny = np.float64(a) * 2.0**-149
                v[count] = -tiny if words[i] < 0 else tiny
            count += 1
        return count

    return inner(gather)


@cache
def block_loop() -> Loop:
    """Return loop(x, words, first, rows, extremes) over the blocks of x.

    x: float32; words: the same memory as int32. Block b fills rows[first + b], float64 zeros, as
    COLUMNS says, and extremes[first + b], int32: the bits of the largest finite magnitude and of
    the smallest finite non-zero one, 0 if there is none. NaN and infinity are left out.
    """
    block, sums, gather, stamp = BLOCK, _sums(), _gather(), _STAMP

    def loop(x, words, first, rows, extremes):  # type: ignore[no-untyped-def]
        stamp  # noqa: B018
        wide = np.empty(block, np.float64)
        for start in range(0, x.size, block):
            part, bits = x[start : start + block], words[start : start + block]
            largest, smallest, top = np.int32(0), np.int32(0x7FFFFFFF), np.int32(0)
            for i in range(bits.size):
                a = bits[i] & np.int32(0x7FFFFFFF)
                top = max(top, a)
                a = a if a < np.int32(0x7F800000) else np.int32(0)
                largest = max(largest, a)
                smallest = min(smallest, a if a != np.int32(0) else np.int32(0x7FFFFFFF))
            count = part.size
            if top < np.int32(0x7F800000) and smallest >= np.int32(0x00800000):
                for i in range(part.size):
                    wide[i] = np.float64(part[i])
            else:
                count = gather(part, bits, wide)
            row = first + start // block
            extremes[row, 0] = largest
            extremes[row, 1] = smallest if largest != np.int32(0) else np.int32(0)
            if count != 0:  # rows are zeros
                rows[row, 0] = count
                rows[row, 1], rows[row, 2], rows[row, 3], rows[row, 4] = sums(wide[:count])

    return jit(loop)


@cache
def merge_rows() -> Loop:
    """Return merge(rows), for loops: merge all into rows[0], as a balanced tree."""
    join: Loop = inner(combine)
    columns = len(COLUMNS)

    def merge(rows):  # type: ignore[no-untyped-def]
        n = len(rows)
        while n > 1:
            for i in range(n // 2):
                a, b = 2 * i, 2 * i + 1
                rows[i, 0], rows[i, 1], rows[i, 2], rows[i, 3], rows[i, 4] = join(
                    rows[a, 0], rows[a, 1], rows[a, 2], rows[a, 3], rows[a, 4],
                    rows[b, 0], rows[b, 1], rows[b, 2], rows[b, 3], rows[b, 4],
                )  # fmt: skip
            if n % 2:
                for column in range(columns):
                    rows[n // 2, column] = rows[n - 1, column]
            n = (n + 1) // 2

    return inner(merge)


@cache
def merge_loop() -> Loop:
    """Return loop(rows): merge all into rows[0], as a balanced tree."""
    merge, stamp = merge_rows(), _STAMP

    def loop(rows):  # type: ignore[no-untyped-def]
        stamp  # noqa: B018
        merge(rows)

    return jit(loop)


@cache
def error_loop() -> Loop:
    """Return loop(x, q, first, sums): sums of (x - q)**2 of each block where both are finite."""
    block, stamp = BLOCK, _STAMP

    def error(x, q):  # type: ignore[no-untyped-def]
        total = 0.0
        for i in range(x.size):
            d = np.float64(x[i]) - np.float64(q[i])
            total += d * d
        return total

    sum_of: Loop = inner(error, fastmath=_ANY_ORDER)

    def loop(x, q, first, sums):  # type: ignore[no-untyped-def]
        stamp  # noqa: B018
        for start in range(0, x.size, block):
            total = sum_of(x[start : start + block], q[start : start + block])
            if not np.isfinite(total):  # squares of float32 numbers fit: one was not finite
                total = 0.0
                for i in range(start, min(start + block, x.size)):
                    d = np.float64(x[i]) - np.float64(q[i])
                    total += d * d if np.isfinite(d) else 0.0
            sums[first + start // block] = total

    return jit(loop)
