"""The CPU loop of staged sums: a group's products first, then the accumulator, cut downward.

As `cpu_aligned` in all else: integers in floats, columns innermost.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from fpemu.kernels.compile import inner, jit, source_stamp
from fpemu.kernels.cpu_aligned import ABSENT, WIDTH, columns

__all__ = ["staged_loop"]

_STAMP = source_stamp()

Loop = Callable[..., Any]


@cache
def staged_loop(halves: int) -> Loop:
    """Return add(a, ae, b, be, sums, tile, facts) for float64 operands, as `aligned_loop` does.

    halves: in how many parts a group's products are added first: one, or those with an even and
    those with an odd number. facts: (group, fraction bits of products and accumulator, fraction
    bits of the whole, how many bits below the whole's highest an accumulator is left out, or
    0 for never).
    """
    stamp = _STAMP
    power, binade, exponent, tops, sums_of = columns(wide=True, bounded=True)
    NONE, LEAST, FLOOR = np.int16(ABSENT), np.int64(-126), np.int64(-500)
    SMALLEST, LIMIT, STEP = 2.0**-126, 2.0**128, 2.0**23

    @inner
    def moved(number: Any, shift: Any) -> Any:
        """Number * 2**shift without its fraction, cut downward."""
        return np.floor(number * power(max(shift, np.int64(-900))))

    @inner
    def nearest(value: Any, kept: Any) -> Any:
        """Cut downward to `kept` fraction bits, then rounded to float32, to nearest even."""
        top = binade(value)
        top = top if top > SMALLEST else SMALLEST
        fine = np.floor(value / top * power(kept)) * power(-kept)
        result = np.rint(fine * STEP) / STEP * top
        return result if abs(result) < LIMIT else value * np.inf

    def add(a, ae, b, be, sums, tile, facts):  # type: ignore[no-untyped-def]
        stamp  # noqa: B018
        top_row, bottom_row, first_column, last_column, start, stop = tile
        group, bits, whole, apart = facts
        all_tops = np.empty((halves, WIDTH), np.int16)
        all_parts = np.empty((halves, WIDTH))
        all_factors = np.empty(WIDTH)
        for left in range(first_column, last_column, WIDTH):
            width = min(WIDTH, last_column - left)
            factors = all_factors[:width]
            for first in range(start, stop, group):
                last = min(first + group, stop)
                for row in range(top_row, bottom_row):
                    for half in range(halves):
                        highest, parts = all_tops[half, :width], all_parts[half, :width]
                        for j in range(width):
                            highest[j] = NONE
                            parts[j] = 0.0
                        tops(ae[row], be, first + half, last, halves, left, highest)
                        for j in range(width):
                            factors[j] = power(bits - max(np.int64(highest[j]), FLOOR))
                        sums_of(a[row], b, first + half, last, halves, left, factors, parts)
                    held = sums[row, left : left + width]
                    for j in range(width):
                        e = np.int64(all_tops[0, j])
                        products = all_parts[0, j]
                        if halves == 2:
                            f = np.int64(all_tops[1, j])
                            both = max(e, f)
                            products = moved(products, e - both) + moved(all_parts[1, j], f - both)
                            e = both
                        c = max(exponent(held[j], LEAST), LEAST)
                        top = max(e, c)
                        # in units of 2**(top - whole - 1)
                        products = moved(products, e - bits - top + whole + 1)
                        joined = moved(held[j], bits - top) * power(whole + 1 - bits)
                        joined = 0.0 if (apart > 0) & (c < top - apart) else joined
                        value = (products + joined) * power(top - whole - 1)
                        held[j] = nearest(value, whole)

    return jit(add, error_model="numpy")
