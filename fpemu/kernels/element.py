"""The scalar bodies of elements that are no floats: integers, codebooks; over float32 bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fpemu.cast import Cast
from fpemu.kernels.scale import float_word

__all__ = [
    "BookFacts",
    "ElementBodies",
    "ElementFacts",
    "FloatFacts",
    "IntegerFacts",
    "book_facts",
    "book_table",
    "build_book",
    "build_integer",
    "integer_facts",
]

U = np.uint32
Body = Callable[..., Any]

_MAGNITUDE = U(0x7FFFFFFF)
_INF = U(0x7F800000)
_SIGN = U(0x80000000)


class ElementBodies(NamedTuple):
    """What is done to one scaled number; words are float32 bits.

    n: its number, for random bits. table: an array of uint32.
    """

    round: Body  #: (word, n, table) -> word
    encode: Body  #: (word, n, table) -> code
    decode: Body  #: (code, n, table) -> word


class FloatFacts(NamedTuple):
    """An element that is a format's value: a cast, and the width of a draw."""

    cast: Cast
    random_bits: int = 32


class IntegerFacts(NamedTuple):
    """Two's complement of `bits` bits over 2^fraction_bits; limits are whole numbers."""

    bits: int
    fraction_bits: int
    least: int  #: magnitude of the lowest
    most: int


def integer_facts(bits: int, fraction_bits: int, symmetric: bool) -> IntegerFacts:
    """Return the facts of an integer element."""
    most = (1 << (bits - 1)) - 1
    return IntegerFacts(bits, fraction_bits, most if symmetric else most + 1, most)


def build_integer(
    facts: IntegerFacts, times: Body, float_bits: Body, jit: Callable[[Any], Any]
) -> ElementBodies:
    """Return an integer's bodies: to the nearest, ties to even, clipped; NaN becomes 0.

    times: of two float32, on bits. float_bits: of a whole number, its float32.
    """
    whole = float_word(2.0**facts.fraction_bits)
    part = float_word(2.0**-facts.fraction_bits)
    lowest, highest = float_word(facts.least), float_word(facts.most)
    mask, over_all = U((1 << facts.bits) - 1), 1 << facts.bits
    half_codes = U(over_all >> 1)

    @jit
    def nearest(x):  # type: ignore[no-untyped-def]
        """The magnitude, a whole number; clipped first, which is the same, as limits are whole."""
        x = U(times(x, whole))
        a = U(x & _MAGNITUDE)
        limit = lowest if x >= _SIGN else highest
        number = a if a <= _INF else U(0)
        number = number if number < limit else limit
        field = U(number >> U(23))
        v = U(U(number & U(0x7FFFFF)) | U(0x800000))
        drop = U(U(150) - field)  # limits are at most 2^15: more than 7 bits lie below the point
        drop = drop if drop < U(25) else U(25)
        below = U(U(U(1) << U(drop - U(1))) - U(1))
        return U(U(v + U(below + U(U(v >> drop) & U(1)))) >> drop)

    @jit
    def rounded(x, n, table):  # type: ignore[no-untyped-def]
        whole_number = U(nearest(x))
        sign = U(x & _SIGN) if whole_number else U(0)  # integers have no -0; nor has NaN a sign
        return U(U(times(U(float_bits(whole_number)), part)) | sign)

    @jit
    def encoded(x, n, table):  # type: ignore[no-untyped-def]
        w = nearest(x)
        minus = U(U(mask - w) + U(1))
        return U(U(minus if x >= _SIGN else w) & mask)

    @jit
    def decoded(code, n, table):  # type: ignore[no-untyped-def]
        c = U(code & mask)
        minus = c >= half_codes
        w = U(U(mask - c) + U(1)) if minus else c
        value = U(times(U(float_bits(w)), part))
        return U(value | _SIGN) if minus else value

    return ElementBodies(rounded, encoded, decoded)


class BookFacts(NamedTuple):
    """A codebook's sizes; its numbers are in a table."""

    steps: int  #: halvings that find a place
    nearest: int  #: place of the value nearest to 0


ElementFacts = FloatFacts | IntegerFacts | BookFacts


def book_facts(values: tuple[float, ...]) -> BookFacts:
    """Return the facts of a codebook."""
    return BookFacts((len(values) - 1).bit_length(), int(np.argmin(np.abs(values))))


def book_table(values: tuple[float, ...]) -> np.ndarray[Any, np.dtype[np.uint32]]:
    """Return a codebook as uint32: the keys to pass for each next place, then the values' bits.

    A key orders float32 numbers as their values; that of the middle between two values is of the
    largest float32 not above it, so that a number passes it if it lies above the middle itself.
    """
    book = np.array(values, np.float64)
    middles = (book[1:] + book[:-1]) / 2  # exact
    below = middles.astype(np.float32)
    below = np.where(below > middles, np.nextafter(below, np.float32(-np.inf)), below)
    bits = (below + np.float32(0)).view(np.uint32)  # -0 becomes +0
    keys = np.where(bits >> 31, ~bits, bits | _SIGN)
    size = 1 << book_facts(values).steps
    table = np.full(2 * size, 0xFFFFFFFF, np.uint32)
    table[: keys.size] = keys
    table[size : size + book.size] = book.astype(np.float32).view(np.uint32)
    return table


def build_book(facts: BookFacts, jit: Callable[[Any], Any]) -> ElementBodies:
    """Return a codebook's bodies: the nearest value's place; the lower one in a tie."""
    size, nearest = U(1 << facts.steps), U(facts.nearest)

    @jit
    def encoded(x, n, table):  # type: ignore[no-untyped-def]
        key = U(U(0xFFFFFFFF) - x) if x >= _SIGN else U(x | _SIGN)
        place = U(0)
        step = U(size >> U(1))
        while step > U(0):
            further = U(place + step)
            place = further if key > table[U(further - U(1))] else place
            step = U(step >> U(1))
        return nearest if U(x & _MAGNITUDE) > _INF else place

    @jit
    def decoded(code, n, table):  # type: ignore[no-untyped-def]
        return table[U(size + U(U(code) & U(size - U(1))))]

    @jit
    def rounded(x, n, table):  # type: ignore[no-untyped-def]
        return table[U(size + encoded(x, n, table))]

    return ElementBodies(rounded, encoded, decoded)
