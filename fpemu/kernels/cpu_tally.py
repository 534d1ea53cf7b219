"""The CPU loops of the tally, and of counting what a rounding did; nothing else.

Loops take flat uint32 words. Cells are int64 of shape (2 signs, ROWS, SLOTS); specials are int64
of shape (5,): +0, -0, +inf, -inf, NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from fpemu.kernels.bucket import FINE, ROWS, SLOT_OF_FINE, SLOTS, Bodies, build
from fpemu.kernels.compile import inner, jit, source_stamp
from fpemu.kernels.outcome import build as build_kind
from fpemu.kernels.params import WORDS

__all__ = [
    "Scratch",
    "block_loop",
    "direct_loop",
    "flush_loop",
    "new_cells",
    "outcome_loop",
    "span_loop",
    "subnormal_loop",
]

# Every loop closes over the stamp, so that the disk cache sees a change in any kernel source.
_STAMP = source_stamp()

Array = np.ndarray[Any, Any]
Loop = Callable[..., Any]

_BLOCK = 1024  # elements whose places are worked out, vectorised, before they are counted
_ROW_BITS = 512  # values of sign and exponent field
_FIELD_SPECIAL = 255
_LANES = 2  # counters a place: equal neighbours would wait for each other's store


def new_cells() -> Array:
    """Return a histogram of zeros; the pages of a fresh one cost nothing until they are used."""
    return np.zeros((2, ROWS, SLOTS), np.int64)


class Scratch(NamedTuple):
    """What one thread counts in: block_loop's arguments."""

    counters: Array  #: uint32, _LANES a place
    distance: Array  #: float32
    distance_bits: Array  #: the same memory as words
    places: Array  #: uint16

    @classmethod
    def make(cls) -> Scratch:
        distance = np.empty(_BLOCK, np.float32)
        return cls(
            np.zeros(_ROW_BITS * FINE * _LANES, np.uint32),
            distance,
            distance.view(np.uint32),
            np.empty(_BLOCK, np.uint16),
        )


@cache
def _bodies() -> Bodies:
    return build(np.uint32, inner)


@cache
def block_loop() -> Loop:
    """Return loop(x, counters, distance, distance_bits, places).

    Rows are 93 places of 8 bytes apart: at a power of two the busy places of all rows would
    share a few sets of the first cache (1.8 ns an element against 0.7 on data of 64 binades).
    """
    row, left, fine = _bodies().row, _bodies().left, _bodies().fine
    block, lanes, pitch, stamp = _BLOCK, _LANES, np.uint32(FINE), _STAMP

    def loop(x, counters, distance, distance_bits, places):  # type: ignore[no-untyped-def]
        stamp  # noqa: B018
        one = np.uint32(1)
        for start in range(0, x.size, block):
            part = x[start : start + block]
            for i in range(part.size):  # exact, whatever the state of the FPU: 1 to 2**23
                distance[i] = np.float32(np.int32(left(part[i])))
            for i in range(part.size):
                places[i] = np.uint32(np.uint32(row(part[i]) * pitch) + fine(distance_bits[i]))
            for i in range(part.size // 4):
                counters[np.uint64(places[4 * i]) * lanes] += one
                counters[np.uint64(places[4 * i + 1]) * lanes + 1] += one
                counters[np.uint64(places[4 * i + 2]) * lanes] += one
                counters[np.uint64(places[4 * i + 3]) * lanes + 1] += one
            for i in range(part.size // 4 * 4, part.size):
                counters[np.uint64(places[i]) * lanes] += one

    return jit(loop)


@cache
def flush_loop() -> Loop:
    """Return loop(counters, cells, specials) -> how many subnormals it could not place.

    Moves the counts on and sets the counters to 0.
    """
    slot_of, stamp = SLOT_OF_FINE, _STAMP
    fines, lanes, rows, special = FINE, _LANES, _ROW_BITS, _FIELD_SPECIAL
    one = FINE // 2  # the fine slot of significands that are exactly 1

    def loop(counters, cells, specials):  # type: ignore[no-untyped-def]
        stamp  # noqa: B018
        subnormals = np.int64(0)
        for row in range(rows):
            sign, field = row // 256, row % 256
            for fine in range(fines):
                at = (row * fines + fine) * lanes
                count = np.int64(counters[at]) + np.int64(counters[at + 1])
                if count == 0:
                    continue
                counters[at] = counters[at + 1] = 0
                if field == special:
                    specials[2 + sign if fine == one else 4] += count
                elif field != 0:
                    cells[sign, field + 22, slot_of[fine]] += count
                elif fine == one:
                    specials[sign] += count
                else:
                    subnormals += count
        return subnormals

    return jit(loop)


@cache
def _place() -> Loop:
    """Return place(a) -> (row, slot) of the magnitude of a finite non-zero number."""
    left, fine_of = _bodies().left, _bodies().fine_of
    binade, normal = _bodies().binade, _bodies().normal
    slot_of = SLOT_OF_FINE

    def place(a):  # type: ignore[no-untyped-def]
        return binade(a), slot_of[fine_of(left(normal(a)))]

    return inner(place)


@cache
def subnormal_loop() -> Loop:
    """Return loop(x, cells): count subnormals alone."""
    place, stamp = _place(), _STAMP

    def loop(x, cells):  # type: ignore[no-untyped-def]
        stamp  # noqa: B018
        for i in range(x.size):
            a = x[i] & np.uint32(0x7FFFFFFF)
            if np.uint32(0) < a < np.uint32(0x800000):
                row, slot = place(a)
                cells[x[i] >> np.uint32(31), row, slot] += 1

    return jit(loop)


@cache
def direct_loop() -> Loop:
    """Return loop(x, cells, specials): for arrays too small to be worth counters apart."""
    place, stamp = _place(), _STAMP

    def loop(x, cells, specials):  # type: ignore[no-untyped-def]
        stamp  # noqa: B018
        for i in range(x.size):
            a = x[i] & np.uint32(0x7FFFFFFF)
            sign = x[i] >> np.uint32(31)
            if a == np.uint32(0):
                specials[sign] += 1
            elif a < np.uint32(0x7F800000):
                row, slot = place(a)
                cells[sign, row, slot] += 1
            else:
                specials[2 + sign if a == np.uint32(0x7F800000) else 4] += 1

    return jit(loop)


@cache
def span_loop() -> Loop:
    """Return loop(cells) -> (first row in use, one after the last); (0, 0) if none is."""
    rows, slots, stamp = ROWS, SLOTS, _STAMP

    def loop(cells):  # type: ignore[no-untyped-def]
        stamp  # noqa: B018
        first, end = rows, 0
        for sign in range(2):
            for row in range(rows):
                used = np.int64(0)
                for slot in range(slots):
                    used |= cells[sign, row, slot]
                if used != 0:
                    first, end = min(first, row), max(end, row + 1)
        return (first, end) if end else (0, 0)

    return jit(loop)


@cache
def outcome_loop(bits: int) -> Loop:
    """Return loop(x, rounded, limits, counts): what became of each word.

    limits: a row of words for each sign, see `outcome.py`. counts: int64, a row for each sign and
    a column for each of OUTCOMES.
    """
    word, stamp = WORDS[bits], _STAMP
    U, top, kind = word.uint, word.uint(bits - 1), build_kind(word.uint, word.mantissa, inner)

    def loop(x, rounded, limits, counts):  # type: ignore[no-untyped-def]
        stamp  # noqa: B018
        for i in range(x.size):
            sign = U(x[i] >> top)
            found = kind(x[i], rounded[i], limits[sign, 0], limits[sign, 1], limits[sign, 2],
                         limits[sign, 3], limits[sign, 4])  # fmt: skip
            counts[sign, found] += 1

    return jit(loop)
