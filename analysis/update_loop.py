"""The loop that counts which updates a format loses; plain Python, compiled on first use.

Integers only, but for one sum of whole numbers below 2^53: nothing is rounded, and the order of
adding does not matter. No branch depends on an element, so that LLVM vectorises the loops.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from fpemu.errors import InputError
from fpemu.format import Format
from fpemu.kernels.compile import inner, jit

__all__ = ["BINS", "RATIOS", "UNIT", "Facts", "facts_of", "update_loop"]

Loop = Callable[..., Any]

#: What one certain change counts as where draws decide: probabilities are multiples of 1 / UNIT.
UNIT = 1 << 20

#: floor(log2(|update| / |weight|)) of float32 numbers.
RATIOS = range(-277, 278)

#: Counters of the loop: all ratios, and last the elements that have none.
BINS = len(RATIOS) + 1

_BLOCK = 2048  # elements between two formats: they stay in the first cache
_LOW = 32  # gaps, as exponent fields of float32, may lie so far below its normal numbers


class Facts(NamedTuple):
    """A format as the loop needs it; uint32 each."""

    mantissa: int
    lowest: int  #: exponent field, in float32, of the smallest normal value
    max_bits: int  #: the largest value, as float32
    max_code: int


def facts_of(form: Format) -> Facts:
    """Return what the loop needs of a format; refuse one whose half gaps float32 does not hold."""
    lowest = form.emin + 127
    if not (form.signed and form.zero) or lowest < 1 or lowest - form.mantissa_bits < -21:
        raise InputError(
            f"format {form.name!r}: updates are counted for signed formats with a zero whose half "
            "gaps are float32 numbers, such as float16 and bfloat16, not for float32 itself"
        )
    max_bits = int(np.float32(form.max).view(np.uint32))
    return Facts(form.mantissa_bits, lowest, max_bits, form.max_code)


@cache
def _seen_in() -> Loop:
    """Return seen_in(w, d) -> finite updates that are not 0, pairs not finite, subnormals."""
    U = np.uint32
    zero, one, sign, infinity, edge = U(0), U(1), U(0x7FFFFFFF), U(0x7F800000), U(0x7FFFFF)

    def seen_in(w, d):  # type: ignore[no-untyped-def]
        changed, odd, rare = zero, zero, zero
        for i in range(w.size):
            a, b = U(d[i] & sign), U(w[i] & sign)
            good = U(U(a < infinity) & U(b < infinity))
            changed = U(changed + U(good & U(a != zero)))
            odd = U(odd + U(one ^ good))
            small = U(U(U(a - one) < edge) | U(U(b - one) < edge))
            rare = U(rare | small)
        return changed, odd, rare

    return inner(seen_in)


@cache
def _lost_in() -> Loop:
    """Return lost_in(w, d, first, second, *facts) -> updates lost to nearest rounding.

    w, d: weights and updates as words. Updates of 0 are none. first, second: what the update must
    be multiplied by to be the probability that stochastic rounding changes the weight, as words.
    """
    U = np.uint32
    zero, one, hidden, fraction = U(0), U(1), U(0x800000), U(0x7FFFFF)
    sign, infinity, far, above = U(0x7FFFFFFF), U(0x7F800000), U(26), U(_LOW)
    first, deep, inverse, steps = U(_LOW + 1), U(_LOW - 21), U(_LOW + 254), U(23)
    lower, upper = U(64), U(63)
    low = U(31)  # what tells the compiler that shifts stay within 32 bits

    def lost_in(  # type: ignore[no-untyped-def]
        w, d, first_factors, second_factors, mantissa, lowest, max_bits, max_code
    ):
        lost = zero
        drop = U(steps - mantissa)
        mantissa = U(mantissa & low)
        ones = U(U(one << mantissa) - one)
        start = U(U(U(lowest + above) - mantissa) - one)
        for i in range(w.size):
            a, b = U(d[i] & sign), U(w[i] & sign)
            counts = U(U(a != zero) & U(U(a < infinity) & U(b < infinity)))
            # the weight held in the format, as its magnitude code
            b = b if b < max_bits else max_bits
            field = U(b >> steps)
            v = U(b & fraction) if field == zero else U(U(b & fraction) | hidden)
            field = field if field > one else one
            base = field if field > lowest else lowest
            cut = U(drop + U(base - field))
            cut = U((cut if cut < far else far) & low)
            below = U(U(base - lowest) << mantissa)  # even, but without mantissa bits
            odd = U(U(U(v >> cut) + below) & one)
            half_up = U(U(U(one << cut) >> one) - one)
            code = U(U(U(v + U(half_up + odd)) >> cut) + below)
            # the gap to the next value in the update's direction, and half of it as float32 bits
            binade = U(code >> mantissa)
            binade = binade if binade > one else one
            outward = U(U(code == zero) | U(U(w[i] ^ d[i]) <= sign))
            narrow = U(U(one ^ outward) & U(U(U(code & ones) == zero) & U(binade > one)))
            gap = U(U(binade + start) - narrow)  # exponent field of float32, plus _LOW
            edge = U(U(gap - first) << steps) if gap > first else U(one << U(U(gap - deep) & low))
            stuck = U(outward & U(code == max_code))
            even = U(U(code & one) ^ one)
            lost = U(lost + U(counts & U(stuck | U(a < U(edge + even)))))
            # 1 / gap as two factors, each a normal number; 0 where draws change nothing
            rest = U(inverse - gap)
            part = U(rest >> one)
            mine = U(counts & U(one ^ stuck)) != zero
            first_factors[i] = U(U(part + lower) << steps) if mine else zero
            second_factors[i] = U(U(U(rest - part) + upper) << steps)
        return lost

    return inner(lost_in)


@cache
def _drawn_in() -> Loop:
    """Return drawn_in(x, first, second) -> units: each |x| * first * second, at most 1, cut."""
    F, U, none, one, unit = np.float32, np.uint32, np.float32(0), np.float32(1), np.float32(UNIT)

    def drawn_in(x, first, second):  # type: ignore[no-untyped-def]
        units = U(0)
        for i in range(x.size):
            share = F(F(abs(x[i]) * first[i]) * second[i])
            share = share if share < one else one
            share = share if first[i] > none else none  # infinity times 0 is not 0
            units = U(units + U(np.int32(F(share * unit))))
        return units

    return inner(drawn_in)


@cache
def _count_ratios() -> Loop:
    """Return count_ratios(w, d, places, counters): floor(log2(|d| / |w|)), no subnormals there."""
    U = np.uint32
    zero, sign, fraction, infinity = U(0), U(0x7FFFFFFF), U(0x7FFFFF), U(0x7F800000)
    last, middle, steps = U(BINS - 1), U(-RATIOS.start), U(23)

    def count_ratios(w, d, places, counters):  # type: ignore[no-untyped-def]
        for i in range(w.size):
            a, b = U(d[i] & sign), U(w[i] & sign)
            less = U(U(a & fraction) < U(b & fraction))
            ratio = U(U(U(U(a >> steps) + middle) - U(b >> steps)) - less)
            plain = U(U(U(a != zero) & U(b != zero)) & U(U(a < infinity) & U(b < infinity)))
            places[i] = ratio if plain != zero else last
        for i in range(w.size):
            counters[i & 3, places[i]] += 1

    return inner(count_ratios)


@cache
def _divide_ratios() -> Loop:
    """Return divide_ratios(y, x, counters): the same of any numbers, by division."""
    last, middle = BINS - 1, -RATIOS.start
    infinity = math.inf

    def divide_ratios(y, x, counters):  # type: ignore[no-untyped-def]
        for i in range(x.size):
            a, b = abs(np.float64(x[i])), abs(np.float64(y[i]))
            place = last
            if a > 0.0 and b > 0.0 and a < infinity and b < infinity:
                # a quotient of 24-bit significands is too far from a power of two to reach it
                place = math.frexp(a / b)[1] - 1 + middle
            counters[0, place] += 1

    return inner(divide_ratios)


@cache
def update_loop() -> Loop:
    """Return loop(w, d, y, x, formats, found, bins): what becomes of the updates x to weights y.

    w, d: y and x as words. formats: uint32, a row of Facts each. found: int64, 0 on entry: finite
    updates that are not 0, pairs not finite, then for each format updates lost and units drawn.
    bins: int64[BINS], 0 on entry.
    """
    seen_in, lost_in, drawn_in, block, many = _seen_in(), _lost_in(), _drawn_in(), _BLOCK, BINS
    count_ratios, divide_ratios = _count_ratios(), _divide_ratios()

    def loop(w, d, y, x, formats, found, bins):  # type: ignore[no-untyped-def]
        counters, places = np.zeros((4, many), np.int64), np.empty(block, np.uint32)
        first, second = np.empty(block, np.uint32), np.empty(block, np.uint32)
        for start in range(0, w.size, block):
            words, moves = w[start : start + block], d[start : start + block]
            size = words.size
            weights, updates = y[start : start + block], x[start : start + block]
            changed, odd, rare = seen_in(words, moves)
            found[0] += np.int64(changed)
            found[1] += np.int64(odd)
            if rare == np.uint32(0):
                count_ratios(words, moves, places, counters)
            else:
                divide_ratios(weights, updates, counters)
            for k in range(len(formats)):
                lost = lost_in(
                    words, moves, first[:size], second[:size],
                    formats[k, 0], formats[k, 1], formats[k, 2], formats[k, 3],
                )  # fmt: skip
                units = drawn_in(
                    updates, first.view(np.float32)[:size], second.view(np.float32)[:size]
                )
                found[2 + 2 * k] += np.int64(lost)
                found[3 + 2 * k] += np.int64(units)
        for lane in range(4):
            for k in range(many):
                bins[k] += counters[lane, k]

    return jit(loop)
