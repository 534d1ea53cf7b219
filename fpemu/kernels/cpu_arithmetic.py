"""Exact operations on float64, rounded to odd: what one more rounding makes correctly rounded.

An operation's float64 result s and the exact rest e (s + e is the result, or e has the sign of
what is missing) give the float64 "to odd": s if e is zero, else the one of the two float64 around
the exact result whose last bit is 1. Of at least p + 2 bits, it rounds to p bits as the exact
result does, in every mode: no tie and no format's value has that bit, and which side of each the
result lies on is kept (Boldo and Melquiond, IEEE Transactions on Computers 57(4), 2008).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from fpemu.kernels.compile import inner, jit, source_stamp

__all__ = ["Operations", "operation_loop", "operations", "word_functions"]

_STAMP = source_stamp()

_inner: Callable[[Any], Any] = inner

U = np.uint64


class Operations(NamedTuple):
    """Scalar functions of float64 numbers that return the result rounded to odd.

    down: an exact zero that is no sum of two +0 is -0, as rounding down wants (IEEE 754, 6.3).
    """

    add: Callable[..., Any]  #: (a, b, down)
    multiply: Callable[..., Any]  #: (a, b, down)
    divide: Callable[..., Any]  #: (a, b, down)
    sqrt: Callable[..., Any]  #: (a, down)
    fma: Callable[..., Any]  #: (a, b, c, down)


@cache
def word_functions() -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return word_of(float64) -> uint64 and float_of(uint64) -> float64: the same bits.

    They reach loops as overloads: an intrinsic in a loop's closure is pickled with a random
    number, and the disk cache would never find the loop again.
    """
    from numba import types
    from numba.extending import intrinsic, overload

    made: Any = intrinsic

    @made
    def to_word(context, x):  # type: ignore[no-untyped-def]
        def code(context, builder, signature, args):  # type: ignore[no-untyped-def]
            return builder.bitcast(args[0], context.get_value_type(types.uint64))

        return types.uint64(types.float64), code

    @made
    def to_float(context, x):  # type: ignore[no-untyped-def]
        def code(context, builder, signature, args):  # type: ignore[no-untyped-def]
            return builder.bitcast(args[0], context.get_value_type(types.float64))

        return types.float64(types.uint64), code

    def word_of(x):  # type: ignore[no-untyped-def]
        return np.float64(x).view(np.uint64)

    def float_of(x):  # type: ignore[no-untyped-def]
        return np.uint64(x).view(np.float64)

    @overload(word_of, inline="always")
    def typed_word(x):  # type: ignore[no-untyped-def]
        return lambda x: to_word(np.float64(x))

    @overload(float_of, inline="always")
    def typed_float(x):  # type: ignore[no-untyped-def]
        return lambda x: to_float(np.uint64(x))

    return word_of, float_of


@cache
def operations() -> Operations:
    """Return the scalar functions, to be called from compiled loops."""
    word_of, float_of = word_functions()
    INF = np.inf
    NAN = np.nan
    ONE, SIGN = U(1), U(63)
    SPLIT = 134217729.0  # 2**27 + 1: Veltkamp's, halves of at most 26 bits

    @_inner
    def to_odd(s, e):  # type: ignore[no-untyped-def]
        """S moved to the float64 with an odd last bit that lies towards s + e, if e is not 0.

        (word - 1) | 1 is the odd one below an even word and an odd word itself; word | 1 above.
        """
        word = word_of(s)
        back = U(U(word ^ word_of(e)) >> SIGN)
        moved = float_of(U(U(word - back) | ONE))
        return moved if ((e > 0.0) | (e < 0.0)) & (abs(s) < INF) else s

    @_inner
    def signed_zero(s, a, b, down):  # type: ignore[no-untyped-def]
        """The sum s of a and b; an exact zero gets its sign, NaN becomes the positive quiet one.

        The sign is joined by bits: a choice that `down` takes part in keeps a loop from being
        vectorised.
        """
        some = U(word_of(a) | word_of(b))
        sign = U(U(down) << SIGN) if (s == 0.0) & (some != U(0)) else U(0)
        s = float_of(U(word_of(s) | sign))
        return s if s == s else NAN

    @_inner
    def two_sum(a, b):  # type: ignore[no-untyped-def]
        """S + e == a + b exactly, s the nearest float64, where nothing overflows (Knuth)."""
        s = a + b
        other = s - a
        return s, (a - (s - other)) + (b - other)

    @_inner
    def add(a, b, down):  # type: ignore[no-untyped-def]
        s = a + b
        first = abs(a) >= abs(b)
        large = a if first else b
        small = b if first else a
        rest = small - (s - large)  # no step of Dekker's overflows unless s does
        beyond = (abs(s) == INF) & (abs(a) < INF) & (abs(b) < INF)
        # past the largest float64 lies the odd word of the largest itself
        top = float_of(U(word_of(s) - ONE))
        odd = to_odd(s, rest)
        odd = top if beyond else odd
        return signed_zero(odd, a, b, down)

    @_inner
    def two_product(a, b):  # type: ignore[no-untyped-def]
        """P + e == a * b exactly, where nothing overflows or underflows (Dekker 1971)."""
        p = a * b
        x = SPLIT * a
        a1 = x - (x - a)
        a2 = a - a1
        y = SPLIT * b
        b1 = y - (y - b)
        b2 = b - b1
        return p, a2 * b2 - (((p - a1 * b1) - a2 * b1) - a1 * b2)

    @_inner
    def multiply(a, b, down):  # type: ignore[no-untyped-def]
        p, e = two_product(a, b)
        p = to_odd(p, e)
        return p if p == p else NAN

    @_inner
    def divide(a, b, down):  # type: ignore[no-untyped-def]
        q = a / b
        p, e = two_product(q, b)
        rest = (a - p) - e  # a - p is exact, and the rest has the right sign
        q = to_odd(q, rest if b > 0.0 else -rest)
        return q if q == q else NAN

    @_inner
    def sqrt(a, down):  # type: ignore[no-untyped-def]
        r = np.sqrt(a)
        p, e = two_product(r, r)
        r = to_odd(r, (a - p) - e)
        return r if r == r else NAN

    @_inner
    def fma(a, b, c, down):  # type: ignore[no-untyped-def]
        """Three parts are summed as Boldo and Melquiond do, 2008, section 5."""
        high, low = two_product(a, b)
        plain = high + c
        finite = abs(plain) < INF
        s, rest = two_sum(c, low)
        t, more = two_sum(high, s)
        below, tail = two_sum(rest, more)
        t, more = two_sum(t, to_odd(below, tail))
        odd = to_odd(t, more)  # before the choice: work inside one is not vectorised
        odd = odd if finite & (odd != 0.0) else plain
        return signed_zero(odd, high, c, down)

    return Operations(add, multiply, divide, sqrt, fma)


@cache
def operation_loop(name: str) -> Callable[..., None]:
    """Return loop(a, ..., out, down) over flat arrays of one length, for one operation."""
    operation, stamp = getattr(operations(), name), _STAMP

    def one(a, out, down):  # type: ignore[no-untyped-def]
        stamp  # noqa: B018
        for i in range(out.size):
            out[i] = operation(np.float64(a[i]), down)

    def two(a, b, out, down):  # type: ignore[no-untyped-def]
        stamp  # noqa: B018
        for i in range(out.size):
            out[i] = operation(np.float64(a[i]), np.float64(b[i]), down)

    def three(a, b, c, out, down):  # type: ignore[no-untyped-def]
        stamp  # noqa: B018
        for i in range(out.size):
            out[i] = operation(np.float64(a[i]), np.float64(b[i]), np.float64(c[i]), down)

    loops: dict[str, Callable[..., None]] = {"sqrt": one, "fma": three}
    return jit(loops.get(name, two), error_model="numpy")
