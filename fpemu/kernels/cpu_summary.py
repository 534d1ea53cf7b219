"""The CPU loops beside the tally's own, for those who want a tally and moments of one array.

Watching a training run counts every tensor of a step, small ones too. Moments take 0.45 ns an
element here (1.1 in `cpu_moments`, whose search for the extremes does not vectorise); the tally's
counters are kept between calls, and only the rows in use are read and cleared.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from fpemu.kernels.bucket import FINE, SLOT_OF_FINE
from fpemu.kernels.compile import inner, jit, source_stamp
from fpemu.kernels.cpu_moments import BLOCK, merge_rows

__all__ = ["LANES", "collect_loop", "extent_loop", "finish_loop"]

_STAMP = source_stamp()

Loop = Callable[..., Any]

LANES = 2  # counters a place, as `cpu_tally.block_loop` counts


@cache
def _powers() -> Loop:
    """Return powers(x, shift) -> sums of (x - shift)**k, k = 1 to 4, in float64."""

    def powers(x, shift):  # type: ignore[no-untyped-def]
        s1 = s2 = s3 = s4 = 0.0
        for i in range(x.size):
            d = np.float64(x[i]) - shift
            square = d * d
            s1 += d
            s2 += square
            s3 += square * d
            s4 += square * square
        return s1, s2, s3, s4

    return inner(powers, fastmath={"reassoc", "contract"})


@cache
def _mean() -> Loop:
    """Return mean(x) of finite numbers, in float64."""

    def mean(x):  # type: ignore[no-untyped-def]
        total = 0.0
        for i in range(x.size):
            total += np.float64(x[i])
        return total / x.size

    return inner(mean, fastmath={"reassoc"})


@cache
def _gather() -> Loop:
    """Return gather(x, words, kept) -> how many finite numbers it copied to `kept`."""

    def gather(x, words, kept):  # type: ignore[no-untyped-def]
        count = 0
        for i in range(x.size):
            if words[i] & np.uint32(0x7FFFFFFF) < np.uint32(0x7F800000):
                kept[count] = x[i]
                count += 1
        return count

    return inner(gather)


@cache
def _central() -> Loop:
    """Return central(x) -> mean and central sums of powers 2 to 4.

    The sums are taken about a mean that is right but for rounding, and moved to where it is: one
    walk for the mean and one for the rest, both in the first cache.
    """
    powers, mean_of = _powers(), _mean()

    def central(x):  # type: ignore[no-untyped-def]
        mean = mean_of(x)
        n = x.size
        s1, s2, s3, s4 = powers(x, mean)
        e = s1 / n  # what rounding left between the mean and the shift
        return mean + e, s2 - e * s1, s3 - 3.0 * e * s2, s4 - 4.0 * e * s3

    return inner(central)


@cache
def extent_loop() -> Loop:
    """Return loop(x, words, first, rows, extremes) over the blocks of x.

    x and words are the same memory as float32 and uint32. Block b of BLOCK numbers fills
    rows[first + b], float64 zeros, with count, mean and central sums of powers 2 to 4 of its
    finite numbers, and extremes[first + b], uint32, with the bits of its largest magnitude
    (infinite ones and NaN too), of the largest finite one, and of the smallest non-zero one less
    one.
    """
    central, gather, block, stamp = _central(), _gather(), BLOCK, _STAMP

    def loop(x, words, first, rows, extremes):  # type: ignore[no-untyped-def]
        stamp  # noqa: B018
        one, sign, infinity = np.uint32(1), np.uint32(0x7FFFFFFF), np.uint32(0x7F800000)
        kept = np.empty(block, np.float32)
        for start in range(0, x.size, block):
            part, codes = x[start : start + block], words[start : start + block]
            top, low = np.uint32(0), np.uint32(0xFFFFFFFF)
            for i in range(codes.size):
                a = np.uint32(codes[i] & sign)
                top = max(top, a)
                low = min(low, np.uint32(a - one))  # zero wraps to the largest word
            at = first + start // block
            extremes[at, 0] = extremes[at, 1] = top
            extremes[at, 2] = low
            count = part.size
            if top >= infinity:
                extremes[at, 1] = 0
                for i in range(codes.size):
                    a = np.uint32(codes[i] & sign)
                    extremes[at, 1] = max(extremes[at, 1], a if a < infinity else np.uint32(0))
                count = gather(part, codes, kept)
                part = kept
            if count != 0:  # rows are zeros
                rows[at, 0] = count
                rows[at, 1], rows[at, 2], rows[at, 3], rows[at, 4] = central(part[:count])

    return jit(loop)


@cache
def finish_loop() -> Loop:
    """Return loop(rows, extremes) -> count, mean, powers 2 to 4, largest and smallest magnitude.

    Merges all rows into rows[0], as a balanced tree. Magnitudes are bits: of the largest finite
    one, and of the smallest non-zero one; 0 and 0 if all are zero.
    """
    merge, stamp = merge_rows(), _STAMP

    def loop(rows, extremes):  # type: ignore[no-untyped-def]
        stamp  # noqa: B018
        merge(rows)
        largest, low = np.uint32(0), np.uint32(0xFFFFFFFF)
        for i in range(len(extremes)):
            largest = max(largest, extremes[i, 1])
            low = min(low, extremes[i, 2])
        smallest = np.int64(low) + 1 if largest != np.uint32(0) else np.int64(0)
        row = rows[0]
        return row[0], row[1], row[2], row[3], row[4], np.int64(largest), smallest

    return jit(loop)


@cache
def collect_loop() -> Loop:
    """Return loop(counters, low, cells, specials): move the counts on, and set them to 0.

    cells: int64 (2, binades, SLOTS), the first of them that of exponent field `low`; specials as
    in `cpu_tally`. Fields 0 and 255 are looked at too; subnormals are not expected.
    """
    slot_of, stamp = SLOT_OF_FINE, _STAMP
    fines, lanes = FINE, LANES
    one = FINE // 2  # the fine slot of significands that are exactly 1

    def loop(counters, low, cells, specials):  # type: ignore[no-untyped-def]
        stamp  # noqa: B018
        for sign in range(2):
            for binade in range(cells.shape[1]):
                for fine in range(fines):
                    at = ((sign * 256 + low + binade) * fines + fine) * lanes
                    count = np.int64(counters[at]) + np.int64(counters[at + 1])
                    counters[at] = counters[at + 1] = 0
                    cells[sign, binade, slot_of[fine]] += count
            for field in (0, 255):
                for fine in range(fines):
                    at = ((sign * 256 + field) * fines + fine) * lanes
                    count = np.int64(counters[at]) + np.int64(counters[at + 1])
                    counters[at] = counters[at + 1] = 0
                    if field == 0:
                        specials[sign] += count
                    else:
                        specials[2 + sign if fine == one else 4] += count

    return jit(loop)
