"""Rounders: how the loops of sums round a partial sum, and when float64 sums need no correction.

A rounder is one of two: "magic" for nearest_even into ordinary formats, which lets the processor
round (adding and taking away a number whose last place is the format's), or the scalar body of
every Cast. Before it the sum is rounded to odd (see cpu_arithmetic); it may be left as float64
rounds it where `plain_sums` shows that this changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np

from fpemu.cast import Cast, Rounding, Subnormals
from fpemu.kernels.bits import build
from fpemu.kernels.compile import inner
from fpemu.kernels.cpu_arithmetic import word_functions
from fpemu.kernels.params import Shape, build_unpack, general_shape, params_of
from fpemu.kernels.random import build_draw

__all__ = ["Kind", "Rounder", "adder", "multiplier", "plain_sums", "rounder_of", "rounding"]

_inner: Callable[[Any], Any] = inner

U = np.uint64


class Kind(NamedTuple):
    """What is compiled into a loop of a rounder: few kinds serve every Cast."""

    shape: Shape | None  #: of the scalar body; None: "magic"
    down: bool  #: exact zeros are -0
    random_bits: int  #: 0 where nothing is drawn


class Rounder(NamedTuple):
    """How a loop rounds: its kind, and the Cast's constants at run time."""

    kind: Kind
    constants: Any


@lru_cache(maxsize=1024)
def rounder_of(cast: Cast, random_bits: int = 32) -> Rounder:
    """Return the rounder of a Cast."""
    p = params_of(cast, 64, random_bits)
    form = cast.format
    over = np.array(p.values.over_positive, U).view(np.float64)
    ordinary = (
        cast.rounding is Rounding.NEAREST_EVEN
        and form.signed
        and form.mantissa_bits > 0
        and form.has_nan
        and cast.subnormals is Subnormals.KEEP
        and p.values.over_positive == p.values.inf
    )
    if ordinary:
        last = 1.5 * 2.0 ** (52 - form.mantissa_bits)
        plus = -0.0 if form.minus_zero else 0.0  # x + 0.0 makes +0 of -0, x + -0.0 does not
        facts = [2.0**form.emin, 2.0 ** (form.emax + 2), last, form.max, float(over), plus]
        return Rounder(Kind(None, False, 0), np.array(facts).view(U))
    drawn = random_bits if cast.rounding is Rounding.STOCHASTIC else 0
    kind = Kind(general_shape(p.shape), cast.rounding is Rounding.DOWN, drawn)
    return Rounder(kind, np.array([*p.grid, *p.values], U))


def plain_sums(cast: Cast, product_bits: int) -> bool:
    """Whether float64 sums of a value of the format and a product round as the exact sums do.

    To the nearest only. A float64 sum that is not exact could do harm by landing on a midpoint m
    of the format (or on none, from one). With a partial sum x of p bits and a product y of q, x
    is no midpoint. If y is none either, m - x and m - y are not 0, and so x + y, a multiple of
    the last places of both, is further than 2**(e - p - q - 2) from m, where float64 errs by
    2**(e - 53) at most (e: exponent of the sum). If y is a midpoint, x + y is a multiple of half
    the format's smallest value, and exact unless it is too large for the format anyway.
    """
    form = cast.format
    p, q = form.precision, product_bits
    span = form.emax + 2 - (form.emin - p)
    return cast.rounding is Rounding.NEAREST_EVEN and p + q + 2 < 52 and span <= 53


@cache
def rounding(kind: Kind) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return (open, apply): constants -> state, and (x, state, index, keys) -> rounded x."""
    word_of, float_of = word_functions()
    if kind.shape is None:
        EXPONENT, TOP = U(0x7FF << 52), U(1 << 63)
        MAGNITUDE = U((1 << 63) - 1)

        @_inner
        def facts(c):  # type: ignore[no-untyped-def]
            return (float_of(c[0]), float_of(c[1]), float_of(c[2]), float_of(c[3]),
                    float_of(c[4]), float_of(c[5]))  # fmt: skip

        @_inner
        def magic(x, state, index, keys):  # type: ignore[no-untyped-def]
            lowest, highest, last, top, over, plus = state
            word = word_of(x)
            binade = float_of(U(word & EXPONENT))
            binade = binade if binade > lowest else lowest
            binade = binade if binade < highest else highest
            number = binade * last
            r = abs((x + number) - number)
            r = over if r > top else r
            return float_of(U(U(word_of(r) & MAGNITUDE) | U(word & TOP))) + plus

        return facts, magic

    body = build(U, 52, inner).round
    unpack, shape = build_unpack(64, inner), kind.shape
    if kind.random_bits:
        draw, shift = build_draw(64, inner), U(64 - kind.random_bits)

        @_inner
        def drawn(x, state, index, keys):  # type: ignore[no-untyped-def]
            spare = draw(index, keys, shift)
            return float_of(body(word_of(x), spare, state[0], state[1], shape))

        return unpack, drawn

    @_inner
    def fixed(x, state, index, keys):  # type: ignore[no-untyped-def]
        return float_of(body(word_of(x), U(0), state[0], state[1], shape))

    return unpack, fixed


@cache
def _adding(down: bool, plain: bool) -> Callable[..., Any]:
    """Return add(a, b): to odd, or as float64 has it; no number here is near float64's ends."""
    word_of, float_of = word_functions()
    ONE, SIGN = U(1), U(63)

    @_inner
    def nearest(a, b):  # type: ignore[no-untyped-def]
        return a + b

    @_inner
    def to_odd(a, b):  # type: ignore[no-untyped-def]
        s = a + b
        other = s - a
        rest = (a - (s - other)) + (b - other)  # Knuth's, without a comparison
        word = word_of(s)
        back = U(U(word ^ word_of(rest)) >> SIGN)
        moved = U(U(word - back) | ONE)
        inexact = (rest > 0.0) | (rest < 0.0)  # not where it is NaN: s is infinite or NaN
        s = float_of(moved if inexact else word)
        if down:
            some = U(word_of(a) | word_of(b)) != U(0)
            s = -0.0 if (s == 0.0) & some else s
        return s

    add: Callable[..., Any] = nearest if plain else to_odd
    return add


@cache
def adder(cast: Kind, plain: bool) -> tuple[Callable[..., Any], ...]:
    """Return (open, step): the state, and (a, b, state, index, keys) -> the rounded sum."""
    opened, apply = rounding(cast)
    add = _adding(cast.down, plain)

    @_inner
    def step(a, b, state, index, keys):  # type: ignore[no-untyped-def]
        return apply(add(a, b), state, index, keys)

    return opened, step


@cache
def multiplier(kind: Kind | None) -> tuple[Callable[..., Any], ...]:
    """Return (open, times): None leaves products exact."""
    if kind is not None:
        opened, apply = rounding(kind)

        @_inner
        def times(a, b, state, index, keys):  # type: ignore[no-untyped-def]
            return apply(a * b, state, index, keys)

        return opened, times

    @_inner
    def nothing(c):  # type: ignore[no-untyped-def]
        return 0

    @_inner
    def exact(a, b, state, index, keys):  # type: ignore[no-untyped-def]
        return a * b

    return nothing, exact
