"""The CPU loops of aligned sums: groups of products cut at one place and added as integers.

A product of two small floats is exact; times a power of two that puts the place of the cut at the
point, one instruction makes integers of eight of them, where integer arithmetic would need a shift
of another width for each. Narrow operands (float32, finite) give int32; wide ones (float64) leave
the integers in float64, where they are exact below 2**53 and NaN and infinity go through as IEEE
754 has it. Either way sums are exact, so nothing depends on their order.

A loop takes a tile: some rows, some columns, and a span of products. Columns are innermost; of a
block of `WIDTH` the products of a group stay in the first cache for all rows of the tile.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from fpemu.kernels.compile import inner, jit, source_stamp

__all__ = ["ABOVE", "ABSENT", "WIDTH", "Columns", "aligned_loop", "columns", "exponent_loop"]

_STAMP = source_stamp()

Loop = Callable[..., Any]

#: The exponent of a zero: a product with one is below any other, and below any least exponent.
ABSENT = -1000

#: Columns of a block.
WIDTH = 256

#: The exponent of infinity and NaN: above all others, and small enough to add.
ABOVE = 200


class Columns(NamedTuple):
    """Functions over a block of columns, to be called from compiled loops."""

    power: Loop  #: (exponent) -> 2**exponent as float64, from 2**-1022 to 2**1023
    binade: Loop  #: (float64) -> the power of two at or below its magnitude
    exponent: Loop  #: (float64, least) -> its exponent, at least `least`; of a zero ABSENT
    tops: Loop  #: (ae, be, first, last, step, left, tops): raises tops to the products' exponents
    sums: Loop  #: (a, b, first, last, step, left, factors, sums): adds the products, cut


@cache
def columns(wide: bool, bounded: bool = False) -> Columns:
    """Return the functions for narrow or wide operands; bounded: infinite from 2**128 on."""
    U = np.uint64
    MANTISSA, FIELD = U(52), U(0x7FF)
    EXPONENT = U(0x7FF0000000000000)
    BIAS = np.int64(1023)
    LIMIT = 2.0**128
    PART = np.float64 if wide else np.int32
    ABSENT_, ABOVE_ = np.int64(ABSENT), np.int64(ABOVE)

    @inner
    def power(exponent):  # type: ignore[no-untyped-def]
        return np.uint64(U(np.int64(exponent) + BIAS) << MANTISSA).view(np.float64)

    @inner
    def binade(x):  # type: ignore[no-untyped-def]
        return np.uint64(U(np.float64(x).view(np.uint64) & EXPONENT)).view(np.float64)

    @inner
    def exponent(x, least):  # type: ignore[no-untyped-def]
        word = np.float64(x).view(np.uint64)
        found = np.int64(U(U(word >> MANTISSA) & FIELD)) - BIAS
        found = min(max(found, least), ABOVE_)
        return found if x != 0.0 else ABSENT_

    @inner
    def tops(ae, be, first, last, step, left, tops):  # type: ignore[no-untyped-def]
        width = tops.shape[0]
        right = left + width
        k = first
        while k + 3 * step < last:  # four rows at a time: one load and store of tops for them
            e0, e1, e2, e3 = ae[k], ae[k + step], ae[k + 2 * step], ae[k + 3 * step]
            r0, r1 = be[k, left:right], be[k + step, left:right]
            r2, r3 = be[k + 2 * step, left:right], be[k + 3 * step, left:right]
            for j in range(width):
                x0, x1 = np.int16(e0 + r0[j]), np.int16(e1 + r1[j])
                x2, x3 = np.int16(e2 + r2[j]), np.int16(e3 + r3[j])
                tops[j] = max(tops[j], max(max(x0, x1), max(x2, x3)))
            k += 4 * step
        while k < last:
            e0, r0 = ae[k], be[k, left:right]
            for j in range(width):
                tops[j] = max(tops[j], np.int16(e0 + r0[j]))
            k += step

    @inner
    def cut(product: Any, factor: Any) -> Any:
        if not wide:
            return np.int32(product * factor)
        if bounded:
            product = product if abs(product) < LIMIT else product * np.inf
        return np.trunc(product * factor)

    @inner
    def sums(a, b, first, last, step, left, factors, sums):  # type: ignore[no-untyped-def]
        width = sums.shape[0]
        right = left + width
        k = first
        while k + 3 * step < last:
            a0, a1, a2, a3 = a[k], a[k + step], a[k + 2 * step], a[k + 3 * step]
            r0, r1 = b[k, left:right], b[k + step, left:right]
            r2, r3 = b[k + 2 * step, left:right], b[k + 3 * step, left:right]
            for j in range(width):
                f = factors[j]
                first_two = PART(cut(a0 * r0[j], f) + cut(a1 * r1[j], f))
                last_two = PART(cut(a2 * r2[j], f) + cut(a3 * r3[j], f))
                sums[j] = PART(sums[j] + PART(first_two + last_two))
            k += 4 * step
        while k < last:
            a0, r0 = a[k], b[k, left:right]
            for j in range(width):
                sums[j] = PART(sums[j] + cut(a0 * r0[j], factors[j]))
            k += step

    return Columns(power, binade, exponent, tops, sums)


@cache
def _rounded() -> Loop:
    """Return rounded(value, kept, low, limit, nearest) of float64 numbers.

    kept: how many fraction bits; numbers below low, a power of two, have fewer. From limit on they
    are infinite. nearest: to nearest even, otherwise cut.
    """
    binade = columns(True).binade
    U = np.uint64
    UNIT, DOUBLE = U(1 << 52), U(2046 << 52)

    @inner
    def rounded(value, kept, low, limit, nearest):  # type: ignore[no-untyped-def]
        top = binade(value)
        top = top if top > low else low
        word = np.float64(top).view(np.uint64)
        bits = U(kept) * UNIT
        down = np.uint64(U(word - bits)).view(np.float64)  # 2**(exponent - kept)
        up = np.uint64(U(U(DOUBLE + bits) - word)).view(np.float64)  # and what it is over 1
        scaled = value * up
        result = (np.rint(scaled) if nearest else np.trunc(scaled)) * down
        return result if abs(result) < limit else value * np.inf

    return rounded


@cache
def aligned_loop(wide: bool) -> Loop:
    """Return add(a, ae, b, be, sums, tile, facts).

    a, b: values, float64 if wide, else float32, finite, and of so few bits that sums fit int32;
    b's columns side by side. ae, be: their exponents, as `exponent_loop` gives.
    sums: float64, changed in place. tile: (row, row after, column, column after, product, product
    after). facts: (group, fraction bits, least exponent, the sums' fraction bits, their least
    exponent, the exponent from which on they are infinite, whether to nearest even).
    """
    stamp = _STAMP
    power, _, exponent, tops, sums_of = columns(wide)
    rounded = _rounded()
    FLOAT, PART = (np.float64, np.float64) if wide else (np.float32, np.int32)
    U32 = np.uint32
    BIAS, LOW, HIGH, MANTISSA = np.int32(127), np.int32(1), np.int32(254), U32(23)

    @inner
    def factor(shift: Any) -> Any:
        """2**shift; float32's ends where no product is finite and not zero, or all are cut to 0."""
        if wide:
            return power(shift)
        field = min(max(np.int32(shift) + BIAS, LOW), HIGH)
        return np.uint32(U32(field) << MANTISSA).view(np.float32)

    def add(a, ae, b, be, sums, tile, facts):  # type: ignore[no-untyped-def]
        stamp  # noqa: B018
        top_row, bottom_row, first_column, last_column, start, stop = tile
        group, bits, least, kept, low, high, nearest = facts
        smallest, limit = power(low), power(high)
        all_tops = np.empty(WIDTH, np.int16)
        all_factors = np.empty(WIDTH, FLOAT)
        all_parts = np.empty(WIDTH, PART)
        for left in range(first_column, last_column, WIDTH):
            width = min(WIDTH, last_column - left)
            highest, factors, parts = all_tops[:width], all_factors[:width], all_parts[:width]
            for first in range(start, stop, group):
                last = min(first + group, stop)
                for row in range(top_row, bottom_row):
                    held = sums[row, left : left + width]
                    for j in range(width):
                        highest[j] = np.int16(max(exponent(held[j], low), least))
                        parts[j] = PART(0)
                    tops(ae[row], be, first, last, 1, left, highest)
                    for j in range(width):
                        factors[j] = factor(bits - highest[j])
                    sums_of(a[row], b, first, last, 1, left, factors, parts)
                    for j in range(width):
                        place = np.int64(highest[j]) - np.int64(bits)
                        total = np.float64(parts[j]) + np.trunc(held[j] * power(-place))
                        held[j] = rounded(total * power(place), kept, smallest, limit, nearest)

    return jit(add, error_model="numpy")


@cache
def exponent_loop(wide: bool) -> Loop:
    """Return read(words, out, least): the exponents of the floats with these bits, as int16.

    Zeros have ABSENT, infinity and NaN one above all; nothing but zeros is below least.
    """
    stamp = _STAMP
    WORD = np.uint64 if wide else np.uint32
    MANTISSA, SIZE = WORD(52 if wide else 23), WORD((1 << (63 if wide else 31)) - 1)
    BIAS, TOP = (1023, 2047) if wide else (127, 255)
    ABSENT_, ABOVE_ = ABSENT, ABOVE

    def read(words, out, least):  # type: ignore[no-untyped-def]
        stamp  # noqa: B018
        for i in range(words.shape[0]):
            size = WORD(words[i] & SIZE)
            field = np.int64(WORD(size >> MANTISSA))
            found = max(field - BIAS, least)
            found = ABOVE_ if field == TOP else found
            out[i] = np.int16(ABSENT_ if size == 0 else found)

    return jit(read)
