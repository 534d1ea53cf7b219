"""Operations written a second time, on integer significands with a sticky bit, vectorised.

A float is sign * significand * 2**exponent with an integer significand; an operation makes the
result's significand as an integer of up to 62 bits, whose lowest bit is set too if anything below
it is lost; and that is rounded by shifts and comparisons. No floating-point operation is used but
the exact splitting and joining of numbers. Nothing of this is shared with fpemu.kernels.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import fpemu
from fpemu.cast import Negative, Overflow, Rounding, Subnormals, Zero

Array = np.ndarray[Any, Any]

ONE = np.int64(1)


class Exact(NamedTuple):
    """Results as integers: (-1)**sign * significand * 2**exponent, or special."""

    sign: Array
    significand: Array  #: int64, below 2**62, its last bit sticky
    exponent: Array  #: int64
    infinite: Array
    nan: Array
    divided_by_zero: Array


def split(x: Array) -> tuple[Array, Array, Array]:
    """Sign, significand (24 bits, its leading bit set unless it is 0) and exponent."""
    fraction, exponent = np.frexp(np.abs(np.where(np.isfinite(x), x, 0)).astype(np.float64))
    return np.signbit(x), np.ldexp(fraction, 24).astype(np.int64), exponent.astype(np.int64) - 24


def jam(m: Array, shift: Array) -> Array:
    """Shift right; the last bit becomes 1 if any that fell off was."""
    shift = np.minimum(shift, 62)
    return (m >> shift) | ((m & ((ONE << shift) - 1)) != 0)


def _exact(sign, m, e, inf=False, nan=False, by_zero=False) -> Exact:
    arrays = np.broadcast_arrays(sign, m, e, inf, nan, by_zero)
    return Exact(*arrays)


def _sum(s1, m1, e1, s2, m2, e2, room: int, down: bool) -> tuple[Array, Array, Array]:
    """Add two numbers; the larger exponent's significand has `room` bits free above it."""
    e1, e2 = np.where(m1 == 0, -100000, e1), np.where(m2 == 0, -100000, e2)
    width1, width2 = _width(m1), _width(m2)
    swap = e2 + width2 > e1 + width1
    (s1, s2), (m1, m2), (e1, e2) = (
        (np.where(swap, b, a), np.where(swap, a, b))
        for a, b in ((s1, s2), (m1, m2), (e1, e2))
    )
    lift = 60 - _width(m1)  # the larger as far up as it goes
    m1, e1 = m1 << lift, e1 - lift
    d = e1 - e2  # the smaller has exponent e2; move it to e1
    m2 = np.where(d >= 0, jam(m2, np.maximum(d, 0)), m2 << np.clip(-d, 0, 60))
    total = np.where(s1 == s2, m1 + m2, m1 - m2)
    sign = np.where(total < 0, ~s1, s1)
    zero_sign = np.where(s1 == s2, s1, down)
    return np.where(total == 0, zero_sign, sign), np.abs(total), e1


def _width(m: Array) -> Array:
    """Bits of an integer below 2**62."""
    width = np.frexp(m.astype(np.float64))[1].astype(np.int64)
    return width - ((m < (ONE << np.maximum(width - 1, 0))) & (m > 0))


def add(a: Array, b: Array, down: bool = False) -> Exact:
    nan = np.isnan(a) | np.isnan(b)
    clash = np.isinf(a) & np.isinf(b) & (np.signbit(a) != np.signbit(b))
    sign, m, e = _sum(*split(a), *split(b), 26, down)
    sign = np.where(np.isinf(a), np.signbit(a), np.where(np.isinf(b), np.signbit(b), sign))
    return _exact(sign, m, e, np.isinf(a) | np.isinf(b), nan | clash)


def subtract(a: Array, b: Array, down: bool = False) -> Exact:
    return add(a, -b, down)


def multiply(a: Array, b: Array, down: bool = False) -> Exact:
    (sa, ma, ea), (sb, mb, eb) = split(a), split(b)
    inf = np.isinf(a) | np.isinf(b)
    nan = np.isnan(a) | np.isnan(b) | (inf & ((a == 0) | (b == 0)))
    return _exact(sa ^ sb, ma * mb, ea + eb, inf, nan)


def divide(a: Array, b: Array, down: bool = False) -> Exact:
    (sa, ma, ea), (sb, mb, eb) = split(a), split(b)
    nan = np.isnan(a) | np.isnan(b) | (np.isinf(a) & np.isinf(b)) | ((a == 0) & (b == 0))
    by_zero = (b == 0) & np.isfinite(a) & (a != 0)
    divisor = np.where(mb == 0, 1, mb)
    q, rest = np.divmod(ma << np.int64(38), divisor)
    q = np.where(np.isinf(b), 0, q << ONE | (rest != 0))
    return _exact(sa ^ sb, q, ea - eb - 39, np.isinf(a) | (by_zero & ~nan), nan, by_zero)


def sqrt(a: Array, down: bool = False) -> Exact:
    s, m, e = split(a)
    odd = e & 1
    m, e = m << (odd + 36), e - odd - 36
    root = np.sqrt(m.astype(np.float64)).astype(np.int64)
    root -= root * root > m
    root += (root + 1) * (root + 1) <= m
    root = root << ONE | (root * root != m)
    return _exact(s, root, (e >> 1) - 1, np.isinf(a), np.isnan(a) | (s & (a != 0)))


def fma(a: Array, b: Array, c: Array, down: bool = False) -> Exact:
    p = multiply(a, b)
    sign, m, e = _sum(p.sign, p.significand, p.exponent, *split(c), 13, down)
    clash = p.infinite & np.isinf(c) & (p.sign != np.signbit(c))
    nan = p.nan | np.isnan(c) | clash
    sign = np.where(p.infinite, p.sign, np.where(np.isinf(c), np.signbit(c), sign))
    return _exact(sign, m, e, p.infinite | np.isinf(c), nan)


OPERATIONS = {f.__name__: f for f in (add, subtract, multiply, divide, sqrt, fma)}


# --- rounding ---------------------------------------------------------------------------------


class Result(NamedTuple):
    values: Array  #: float32
    flags: dict[str, Array]


def _kept(m: Array, shift: Array, sign: Array, mode: Rounding, parity: Array) -> Array:
    """Round integers to multiples of 2**shift and shift them right; parity: 1 for odd results."""
    below = m >> shift
    rest, unit = m & ((ONE << shift) - 1), ONE << shift
    odd = (below & 1) ^ parity
    if mode is Rounding.NEAREST_EVEN:
        away = (2 * rest > unit) | ((2 * rest == unit) & (odd == 1))
    elif mode is Rounding.NEAREST_AWAY:
        away = 2 * rest >= unit
    elif mode is Rounding.TO_ODD:
        away = odd == 0
    else:
        away = {Rounding.TOWARD_ZERO: np.zeros_like(sign), Rounding.UP: ~sign,
                Rounding.DOWN: sign}[mode]
    return below + (away & (rest != 0) & (shift > 0))


def _on_grid(x: Exact, form: fpemu.Format, mode: Rounding, bounded: bool) -> tuple[Array, Array]:
    """(significand, exponent) on the format's grid; unbounded: of its precision everywhere."""
    m = np.where(x.significand == 0, 1, x.significand)
    top = x.exponent + _width(m) - 1
    if bounded:
        top = np.maximum(top, form.emin)
    q = top - form.mantissa_bits
    shift = q - x.exponent
    far = shift > 61  # all of it lies below half the quantum
    m = np.where(far, 1, m)
    parity = np.zeros_like(m)
    if form.mantissa_bits == 0:  # the exponent's parity decides
        code = top - form.emin + int(form.zero)
        hidden = ((m >> np.clip(shift, 0, 61)) & 1) * ~far
        parity = (np.where(hidden == 1, code, 0) & 1) ^ hidden
        if not form.zero:  # ties go up, and to_odd has its code's parity
            parity = (code & 1) ^ hidden if mode is not Rounding.NEAREST_EVEN else 1 ^ hidden
    kept = _kept(m, np.where(far, 61, np.clip(shift, 0, 61)), x.sign, mode, parity)
    kept = np.where(shift < 0, m << np.clip(-shift, 0, 62), kept)
    return np.where(x.significand == 0, 0, kept), np.where(shift < 0, x.exponent + shift, q)


def rounded(x: Exact, cast: fpemu.Cast, after: bool = True) -> Result:
    """Round exact results by a deterministic cast."""
    form, mode = cast.format, cast.rounding
    sign = x.sign.copy()
    finite = ~(x.infinite | x.nan)
    negative = sign & ~x.nan & ((x.significand != 0) | x.infinite) & (not form.signed)
    if not form.signed:
        sign = np.zeros_like(sign)
        x = x._replace(sign=sign)
    kept, q = _on_grid(x, form, mode, True)
    values = np.ldexp(kept.astype(np.float64), q.astype(np.int32))
    exact = _equal(kept, q, x)
    zero = finite & (x.significand == 0)
    over = finite & (values > form.max)
    tiny_before = _below(x, form.smallest_normal) & ~zero
    unbounded, uq = _on_grid(x, form, mode, False)
    tiny_after = np.ldexp(unbounded.astype(np.float64), uq.astype(np.int32))
    tiny_after = (tiny_after < form.smallest_normal) & tiny_before
    if not form.zero:
        values = np.where(finite & ~zero & (values < form.smallest_normal),
                          form.smallest_normal, values)
        tiny_after = tiny_before
        exact = exact & ~tiny_before
    elif cast.subnormals is Subnormals.FLUSH:
        gone = (values < form.smallest_normal) & (values > 0)
        exact = exact & ~gone
        values = np.where(gone, 0.0, values)
    values = _special(values, x, sign, over, cast)
    nan = np.nan if form.has_nan else form.max
    values = np.where(zero & ~np.bool_(form.zero),
                      form.smallest_normal if cast.zero is Zero.SMALLEST else nan, values)
    bad_negative = negative
    if not form.signed and cast.negative is Negative.NAN:
        values = np.where(negative, np.nan, values)
    signed = np.where(sign & ~np.isnan(values), -values, values)
    if not form.minus_zero:
        signed = signed + 0.0
    if not form.has_nan:  # NaN becomes the largest positive value
        signed = np.where(x.nan, form.max, signed)
    refused = bad_negative | (zero & (not form.zero) & (cast.zero is Zero.NAN))
    counted = finite & ~refused
    inexact = counted & (~exact | over)
    if not form.zero:
        inexact = inexact | (counted & zero)
    flags = {
        "invalid": x.nan | refused,  # where no operand is NaN: the caller knows
        "divide_by_zero": x.divided_by_zero,
        "overflow": counted & over,
        "underflow": inexact & (tiny_after if after else tiny_before),
        "inexact": inexact,
    }
    return Result(signed.astype(np.float32), flags)


def _special(values: Array, x: Exact, sign: Array, over: Array, cast: fpemu.Cast) -> Array:
    form = cast.format
    infinite = np.inf if form.inf else np.nan if form.has_nan else form.max
    out = {
        Rounding.NEAREST_EVEN: True, Rounding.NEAREST_AWAY: True,
        Rounding.TOWARD_ZERO: False, Rounding.TO_ODD: False,
        Rounding.UP: ~sign, Rounding.DOWN: sign,
    }[cast.rounding]  # fmt: skip
    ieee = cast.overflow is Overflow.IEEE
    values = np.where(over, np.where(out, infinite, form.max) if ieee else form.max, values)
    at_infinity = form.max if cast.overflow is Overflow.SATURATE else infinite
    values = np.where(x.infinite, at_infinity, values)
    return np.where(x.nan, np.nan, values)


def _equal(kept: Array, q: Array, x: Exact) -> Array:
    """Whether kept * 2**q is significand * 2**exponent: the odd parts and their exponents."""
    a, b = np.where(kept == 0, 1, kept), np.where(x.significand == 0, 1, x.significand)
    za, zb = _trailing(a), _trailing(b)
    same = (a >> za == b >> zb) & (q + za == x.exponent + zb)
    return np.where((kept == 0) | (x.significand == 0), kept == x.significand, same)


def _trailing(m: Array) -> Array:
    return _width(m & -m) - 1


def _below(x: Exact, power: float) -> Array:
    """Whether the magnitude is below a power of two."""
    top = x.exponent + _width(np.where(x.significand == 0, 1, x.significand)) - 1
    return ~(x.infinite | x.nan) & (top < int(np.frexp(power)[1]) - 1)


def second(name: str, cast: fpemu.Cast, *operands: Array, after: bool = True) -> Result:
    """The result of an operation, as float32, and its flags."""
    exact = OPERATIONS[name](*operands, down=cast.rounding is Rounding.DOWN)
    found = rounded(exact, cast, after)
    quiet = np.any([np.isnan(x) for x in operands], axis=0)
    flags = {flag: where & ~quiet if flag == "invalid" else where
             for flag, where in found.flags.items()}
    return Result(found.values, flags)
