"""The scalar bodies of scale rules: from a block's largest magnitude to its factors, over bits.

They are what `fpemu.scaling.rules` does to arrays on the host, for kernels that scale a block
while it is at hand. float32 numbers come and go as bits (uint32); each float operation is rounded
once, as on the host, and exponents are integers. Scales and magnitudes are not negative, so that
their bits are in the order of the numbers, and NaN above all.

`build_scale(facts, arithmetic, e4m3, jit)` returns
scale(amax, whole) -> (encode, decode, stored), and `build_kept` returns
kept(stored, whole) -> decode.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

__all__ = [
    "AmaxFacts",
    "ExponentFacts",
    "FixedFacts",
    "ScaleFacts",
    "TwoLevelFacts",
    "build_kept",
    "build_scale",
    "float_word",
]

U = np.uint32
Body = Callable[..., Any]

_INF = U(0x7F800000)
_FLT_MAX = U(0x7F7FFFFF)
_ONE = U(0x3F800000)
_NAN = U(0x7FC00000)
_EXPONENT = U(0xFF800000)
_FRACTION = U(0x7FFFFF)
_NORMAL = U(0x800000)  # the smallest one
_TINY = U(0x400000)  # 2^-127


def float_word(value: float | np.float32) -> Any:
    """Return the bits of a number rounded to float32."""
    with np.errstate(over="ignore"):
        return np.array(value, np.float32).view(np.uint32)[()]


class ExponentFacts(NamedTuple):
    """A power of two, kept as an E8M0 code; see `fpemu.scaling.rules.ExponentRule`."""

    quotient: str  #: what the exponent is taken of: "amax", "over" or "times" a factor
    factor: int  #: bits of the factor
    added: int  #: to the quotient's bits: a carry raises the exponent
    tiny: int  #: subnormals above it count one more than zero
    emax: int  #: taken off
    least: int  #: bits of what code 0 multiplies by
    broken: int  #: bits of what code 255 multiplies by


class AmaxFacts(NamedTuple):
    """max / amax; see `fpemu.scaling.rules.AmaxRule`. Numbers are bits but for the wide ones."""

    top: int  #: the largest element
    most: int  #: the same, less the margin
    least: int
    added: int
    wide: bool
    wide_most: float
    wide_least: float
    zero: int | None
    power_of_two: bool
    inverse: bool
    divides: bool


class FixedFacts(NamedTuple):
    """The same scale whatever amax is, as bits."""

    encode: int
    decode: int


class TwoLevelFacts(NamedTuple):
    """An E4M3 scale for a block, below a tensor's; see `fpemu.scaling.rules.TwoLevel`."""

    clamped: bool
    most: int  #: the largest element
    reciprocal: int  #: 1 / most


ScaleFacts = ExponentFacts | AmaxFacts | FixedFacts | TwoLevelFacts


def build_scale(
    facts: ScaleFacts, arithmetic: Any, e4m3: tuple[Body, Body], jit: Callable[[Any], Any]
) -> Body:
    """Return scale(amax, whole) -> (encode, decode, stored).

    arithmetic: times, over, plus and wide_over, on bits. e4m3: encode(bits) -> code, saturating,
    and decode(code) -> bits.
    """
    if isinstance(facts, ExponentFacts):
        return _exponent(facts, arithmetic, jit)
    if isinstance(facts, AmaxFacts):
        return _amax(facts, arithmetic, jit)
    if isinstance(facts, FixedFacts):
        return _fixed(facts, jit)
    return _two_level(facts, arithmetic, e4m3, jit)


def build_kept(
    facts: ScaleFacts, arithmetic: Any, e4m3: tuple[Body, Body], jit: Callable[[Any], Any]
) -> Body:
    """Return kept(stored, whole): the bits of what elements are multiplied or divided by."""

    def as_stored(stored, whole):  # type: ignore[no-untyped-def]
        return U(stored)

    if isinstance(facts, ExponentFacts):
        power = jit(_power)

        def exponent(stored, whole):  # type: ignore[no-untyped-def]
            return power(U(stored))

        return jit(exponent)  # type: ignore[no-any-return]
    if isinstance(facts, TwoLevelFacts):
        joined, decode = _joined(facts, arithmetic, jit), e4m3[1]

        def two_level(stored, whole):  # type: ignore[no-untyped-def]
            return joined(U(decode(U(stored))), whole)

        return jit(two_level)  # type: ignore[no-any-return]
    return jit(as_stored)  # type: ignore[no-any-return]


# --- powers of two -----------------------------------------------------------------------------


def _power(code):  # type: ignore[no-untyped-def]
    """What an E8M0 code stands for."""
    value = U(code << U(23)) if code < U(255) else _NAN
    return value if code != U(0) else _TINY


def _exponent(facts: ExponentFacts, arithmetic: Any, jit: Callable[[Any], Any]) -> Body:
    power = jit(_power)
    factor, added, tiny = U(facts.factor), U(facts.added), U(facts.tiny)
    lower, higher = U(max(facts.emax, 0)), U(max(-facts.emax, 0))
    least, broken = U(facts.least), U(facts.broken)
    given = {"over": arithmetic.over, "times": arithmetic.times, "amax": jit(_first)}
    quotient = given[facts.quotient]

    def scale(amax, whole):  # type: ignore[no-untyped-def]
        q = U(quotient(amax, factor))
        below = U(1) if q > tiny else U(0)
        field = U(U(q + added) >> U(23)) if q >= _NORMAL else below
        field = U(field + higher)
        code = U(field - lower) if field > lower else U(0)
        code = code if code < U(254) else U(254)  # 255 would be NaN, of numbers and of infinity
        inverse = U(U(U(254) - code) << U(23)) if code < U(254) else _TINY
        inverse = inverse if code > U(0) else least
        nan = amax > _INF
        code = U(255) if nan else code
        return broken if nan else inverse, power(code), code

    return jit(scale)  # type: ignore[no-any-return]


def _first(a, b):  # type: ignore[no-untyped-def]
    return a


# --- max / amax --------------------------------------------------------------------------------


def _amax(facts: AmaxFacts, arithmetic: Any, jit: Callable[[Any], Any]) -> Body:
    over, plus, wide_over = arithmetic.over, arithmetic.plus, arithmetic.wide_over
    top, most, least, added = map(U, (facts.top, facts.most, facts.least, facts.added))
    wide, wide_most, wide_least = facts.wide, facts.wide_most, facts.wide_least
    settles, zero = facts.zero is not None, U(facts.zero or 0)
    power_of_two, divides = facts.power_of_two, facts.divides

    def magnitude(amax):  # type: ignore[no-untyped-def]
        larger = amax if amax > least else least
        return U(plus(larger, added)) if added != U(0) else larger

    shared = jit(magnitude)

    def direct(amax, whole):  # type: ignore[no-untyped-def]
        size = shared(amax)
        scale = U(wide_over(wide_most, size, wide_least)) if wide else U(over(most, size))
        if settles:
            scale = zero if amax == U(0) or amax == _INF else scale
            scale = _FLT_MAX if scale == _INF else scale
        if power_of_two:
            nan = wide and scale > _INF  # which a division in float64 keeps, as torchao does
            scale = scale if nan else U(scale & _EXPONENT)
        kept = scale if divides else U(over(_ONE, scale))
        return scale, kept, kept

    def inverse(amax, whole):  # type: ignore[no-untyped-def]
        kept = U(over(shared(amax), top))
        if power_of_two:  # rounded up: the element must fit
            kept = U(U(kept + _FRACTION) & _EXPONENT) if kept < _INF else kept
        return U(over(_ONE, kept)), kept, kept

    return jit(inverse if facts.inverse else direct)  # type: ignore[no-any-return]


def _fixed(facts: FixedFacts, jit: Callable[[Any], Any]) -> Body:
    encode, decode = U(facts.encode), U(facts.decode)

    def scale(amax, whole):  # type: ignore[no-untyped-def]
        return encode, decode, decode

    return jit(scale)  # type: ignore[no-any-return]


# --- two levels --------------------------------------------------------------------------------


def _joined(facts: TwoLevelFacts, arithmetic: Any, jit: Callable[[Any], Any]) -> Body:
    """Return joined(block, whole): what elements are multiplied by."""
    times, over = arithmetic.times, arithmetic.over

    def clamped(block, whole):  # type: ignore[no-untyped-def]
        return U(times(whole, block))

    def plain(block, whole):  # type: ignore[no-untyped-def]
        return U(times(block, U(over(_ONE, whole))))

    return jit(clamped if facts.clamped else plain)  # type: ignore[no-any-return]


def _two_level(
    facts: TwoLevelFacts, arithmetic: Any, e4m3: tuple[Body, Body], jit: Callable[[Any], Any]
) -> Body:
    times, over = arithmetic.times, arithmetic.over
    encode, decode = e4m3
    joined = _joined(facts, arithmetic, jit)
    most, reciprocal = U(facts.most), U(facts.reciprocal)
    low, high = float_word(2**-6), float_word(448)

    def clamped(amax, whole):  # type: ignore[no-untyped-def]
        part = U(over(U(over(amax, most)), whole))
        part = U(part & U(0x7FFFFFFF))
        part = low if part < low else part
        part = high if part > high and part <= _INF else part
        code = U(encode(part))
        block = U(decode(code))
        return U(over(U(over(_ONE, whole)), block)), joined(block, whole), code

    def plain(amax, whole):  # type: ignore[no-untyped-def]
        code = U(encode(U(times(amax, U(times(whole, reciprocal))))))
        kept = joined(U(decode(code)), whole)
        inverse = U(U(over(_ONE, kept)) & U(0x7FFFFFFF))
        inverse = _FLT_MAX if inverse == _INF else inverse
        return inverse, kept, code

    return jit(clamped if facts.clamped else plain)  # type: ignore[no-any-return]
