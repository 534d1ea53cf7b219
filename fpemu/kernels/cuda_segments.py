"""Where the CUDA kernels of scaled blocks find rows, segments, blocks and numbers.

Places are computed in 64 bits. A place that a thread divides for costs as much as two numbers, so
that rows which lie in one piece, and have no ends to look after, are given as one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from fpemu.kernels.cuda_target import inner

__all__ = ["Layout", "Segments", "make_block_of", "make_number_of", "make_place_of"]

Loop = Callable[..., Any]

U = np.uint32
L = np.uint64


class Segments(NamedTuple):
    """How a row is cut, as far as it is built in."""

    size: int  #: numbers of a segment
    group: int  #: of them in one access, 4 or 1
    strided: bool  #: numbers of a row do not lie side by side
    tile: int  #: rows that share a scale; 0: all of them
    alone: bool  #: a segment is all of a block's columns; else a row is

    @property
    def lanes(self) -> int:
        """Threads that share a segment: each has two accesses of it, or more, if there are.

        What is done once for a segment costs each of them as much as two or three numbers.
        """
        groups = -(-self.size // (2 * self.group))
        return 1 if self.strided else min(8, 1 << (groups - 1).bit_length())

    @property
    def rounds(self) -> int:
        """Accesses of each of them."""
        return -(-self.size // (self.group * self.lanes))


class Layout(NamedTuple):
    """Where rows, segments, blocks and numbers are, at run time; a tuple of uint64 there."""

    units: int  #: segments in all
    width: int  #: numbers of a row
    inner: int  #: from one number of a row to the next
    across: int  #: segments of a row
    high: int  #: rows of a matrix: of the dimension that tiles have rows from
    down: int  #: tiles of a matrix, one below the other
    counted_high: int  #: rows of a matrix and numbers of a row, as random bits count them
    counted_width: int
    first: int  #: number of the first


@cache
def _quotient() -> Loop:
    """Return quotient(n, d), in 32 bits where both fit: a fifth of the instructions."""

    def quotient(n, d):  # type: ignore[no-untyped-def]
        if L(n | d) <= L(0xFFFFFFFF):
            return L(U(U(n) // U(d)))
        return L(n // d)

    return inner(quotient)


@cache
def make_place_of(strided: bool) -> Loop:
    """Return place(unit, layout) -> (row, segment of it, place of the row's first number)."""
    quotient = _quotient()

    def along(unit, layout):  # type: ignore[no-untyped-def]
        across = layout[3]
        row = L(0)
        if across < layout[0]:
            row = quotient(unit, across)
        return row, L(unit - L(row * across)), L(row * layout[1])

    def beside(unit, layout):  # type: ignore[no-untyped-def]
        width, step, across = layout[1], layout[2], layout[3]
        rest = quotient(unit, step)
        place = L(unit - L(rest * step))
        outer = quotient(rest, across)
        segment = L(rest - L(outer * across))
        return L(L(outer * step) + place), segment, L(L(L(outer * width) * step) + place)

    return inner(beside if strided else along)


@cache
def make_block_of(segments: Segments) -> Loop:
    """Return block(row, segment, layout): the number of a segment's block."""
    quotient = _quotient()
    tile, one, alone = L(segments.tile), segments.tile == 1, segments.alone
    every = segments.tile == 0

    def block(row, segment, layout):  # type: ignore[no-untyped-def]
        at = L(0)
        if one:
            at = row
        elif not every:
            high = layout[4]
            matrix = quotient(row, high)
            at = L(L(matrix * layout[5]) + quotient(L(row - L(matrix * high)), tile))
        return L(L(at * layout[3]) + segment) if alone else at

    return inner(block)


@cache
def make_number_of(segments: Segments) -> Loop:
    """Return number(row, layout): that of a row's first number, as random bits count."""
    quotient, plain = _quotient(), segments.tile < 2

    def number(row, layout):  # type: ignore[no-untyped-def]
        counted = row
        if not plain:
            high = layout[4]
            matrix = quotient(row, high)
            counted = L(L(matrix * layout[6]) + L(row - L(matrix * high)))
        return L(L(counted * layout[7]) + layout[8])

    return inner(number)
