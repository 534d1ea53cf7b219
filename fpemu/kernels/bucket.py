"""The scalar bodies of the tally: float32 bits -> the place in a histogram that counts them.

A histogram has a row for each sign and binade and, in each, slots between the significands at
which some format changes its mind: 1, 2 - 2**-m, 2 - 3*2**-m, 2 - 5*2**-m and the last one,
2 - 2**-23, which float32 itself rounds up to a power of two among its subnormals. Every edge is a
slot of its own, and so is every open interval between two.

Written as 2 - f, those edges are 1, 3/2 and 5/4 times a power of two. So the distance from the
significand to the next power of two, taken as a float, names its slot by its exponent and its top
two mantissa bits, and whether anything follows tells an edge from an interval. These are the
"fine" slots; they know more edges (2 - 7*2**-m) than the public ones, and `SLOT_OF_FINE` merges.

Same rules as in bits.py: every operation in the word type, nothing wraps, no branches.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from fpemu.kernels.bits import build_lead

__all__ = ["EDGES", "FINE", "ROWS", "SLOTS", "SLOT_OF_FINE", "Bodies", "build"]

#: The edges of the slots as significands in [1, 2).
EDGES: tuple[Fraction, ...] = tuple(
    sorted(
        {Fraction(1)}
        | {2 - Fraction(1, 1 << m) for m in (*range(1, 12), 23)}
        | {2 - Fraction(3, 1 << m) for m in range(2, 10)}
        | {2 - Fraction(5, 1 << m) for m in range(3, 10)}
    )
)

#: Slots of a row: 2 * i is EDGES[i], 2 * i + 1 the open interval above it.
SLOTS = 2 * len(EDGES)

#: Rows of a histogram for each sign: the binades of float32, 2**-149 to 2**127.
ROWS = 277

_TOP = 45  # fine intervals above 2 - 2**-11 are one, but for the last number in it
#: Fine slots of a row: k is the interval that ends at the k-th fine edge, k + _TOP + 1 that edge.
FINE = 2 * (_TOP + 1) + 1


def _slot_of_fine() -> np.ndarray[Any, np.dtype[np.uint8]]:
    def edge(k: int) -> Fraction:
        quarter = -k % 4
        return 2 - Fraction(4 + quarter, 4) / (1 << (k + quarter) // 4)

    slots = []
    for fine in range(FINE - 1):
        exact, k = divmod(fine, _TOP + 1)
        end = edge(min(k, _TOP - 1))
        below = sum(e < end for e in EDGES)
        if k == _TOP:
            slots.append(2 * below + 1)
        else:
            slots.append(2 * below if exact and end in EDGES else max(2 * below - 1, 0))
    slots.append(SLOTS - 2)
    return np.array(slots, np.uint8)


#: Public slot of each fine slot.
SLOT_OF_FINE = _slot_of_fine()


class Bodies(NamedTuple):
    """The scalar bodies, compiled for one target; all take and return uint32 words."""

    row: Callable[..., Any]  #: bits -> sign and exponent field, 0 to 511
    left: Callable[..., Any]  #: bits -> distance to the next power of two, 1 to 2**23
    float_bits: Callable[..., Any]  #: that distance -> its bits as a float32
    fine: Callable[..., Any]  #: those bits -> fine slot
    fine_of: Callable[..., Any]  #: distance to the next power of two -> fine slot
    binade: Callable[..., Any]  #: magnitude bits of a finite non-zero number -> its row, 0 to 276
    normal: Callable[..., Any]  #: magnitude bits -> bits with the same significand, never subnormal


def build(
    U: Any, jit: Callable[[Any], Any], leading_zeros: Any = None, own_float_bits: Any = None
) -> Bodies:
    """Return the scalar bodies; U is uint32.

    A target may bring its own count of a word's leading zeros, and its own conversion from int
    to float as `float_bits`: exact, as distances have 24 bits.
    """
    ZERO = U(0)
    MANTISSA = U(23)
    FRACTION = U(0x7FFFFF)
    HIDDEN = U(0x800000)
    REST = U(0x1FFFFF)  # float bits below the top two of the mantissa
    FIRST = U((127 + 23) * 4)  # exponent and top bits of the distance 2**23, where f is 1
    TOP = U(_TOP)
    EXACT = U(_TOP + 1)
    LAST = U(FINE - 1)
    FLOAT_ONE = U(127 << 23)

    @jit
    def row(x):  # type: ignore[no-untyped-def]
        return U(x >> MANTISSA)

    lead_of = build_lead(U, jit, leading_zeros)

    @jit
    def left(x):  # type: ignore[no-untyped-def]
        return U(HIDDEN - U(x & FRACTION))

    @jit
    def float_bits(distance):  # type: ignore[no-untyped-def]
        lead = lead_of(distance)
        fraction = U(U(distance << U(MANTISSA - lead)) & FRACTION)
        return U(U(U(lead + U(127)) << MANTISSA) | fraction)

    @jit
    def fine(w):  # type: ignore[no-untyped-def]
        k = U(FIRST - U(w >> U(21)))
        k = k if k < TOP else TOP
        k = k if U(w & REST) != ZERO else U(k + EXACT)
        return LAST if w == FLOAT_ONE else k

    to_float_bits = float_bits if own_float_bits is None else own_float_bits

    @jit
    def fine_of(distance):  # type: ignore[no-untyped-def]
        return fine(to_float_bits(distance))

    @jit
    def binade(a):  # type: ignore[no-untyped-def]
        return lead_of(a) if a < HIDDEN else U(U(a >> MANTISSA) + U(22))

    @jit
    def normal(a):  # type: ignore[no-untyped-def]
        shift = U(MANTISSA - lead_of(a)) if a < HIDDEN else ZERO
        return U(U(a << shift) | HIDDEN) if a < HIDDEN else a

    return Bodies(row, left, to_float_bits, fine, fine_of, binade, normal)
