"""The exact definition of a Cast, in Python ints: the meaning of the library.

Slow on purpose and free of floats: every fast path is tested against `round_exact`.
"""

from __future__ import annotations

import math
import numbers
from fractions import Fraction
from typing import Any, NamedTuple, SupportsFloat

from fpemu.cast import Cast, Negative, Overflow, Rounding, Subnormals, Zero
from fpemu.errors import InputError
from fpemu.format import Format, NaN

__all__ = ["Real", "Rounded", "exact", "round_exact", "value_of"]


class Real(NamedTuple):
    """A signed fraction; n/0 is infinity and 0/0 is NaN, both with a sign."""

    sign: int
    numerator: int
    denominator: int = 1

    @property
    def is_nan(self) -> bool:
        return self.numerator == self.denominator == 0

    @property
    def is_inf(self) -> bool:
        return self.denominator == 0 and self.numerator != 0

    def __float__(self) -> float:
        """The nearest float64 (exact for every value of every format)."""
        sign = -1.0 if self.sign else 1.0
        if self.denominator == 0:
            return math.copysign(math.nan if self.is_nan else math.inf, sign)
        return math.copysign(self.numerator / self.denominator, sign)


class Rounded(NamedTuple):
    """What a Cast makes of one number."""

    code: int  #: the format's code, with its sign bit
    outcome: str  #: the field of `fpemu.tallies.Outcome` that counts it


def exact(x: Real | Fraction | SupportsFloat) -> Real:
    """Return a number as an exact signed fraction; floats keep the sign of zero and NaN."""
    if isinstance(x, Real):
        return x
    if isinstance(x, numbers.Rational):  # any integer too
        return Real(int(x < 0), abs(int(x.numerator)), int(x.denominator))
    try:
        value: Any = x if hasattr(x, "as_integer_ratio") else x.__float__()
        sign = int(math.copysign(1.0, value) < 0)
        if value != value:
            return Real(sign, 0, 0)
        if abs(value) == math.inf:
            return Real(sign, 1, 0)
        numerator, denominator = value.as_integer_ratio()  # exact for any width, Decimal too
    except (AttributeError, TypeError, ValueError, ArithmeticError):
        raise InputError(f"{x!r}: not a number; give a float, an int or a Fraction") from None
    return Real(sign, abs(int(numerator)), int(denominator))


def round_exact(
    cast: Cast, x: Real | Fraction | SupportsFloat, *, draw: int = 0, random_bits: int = 32
) -> Rounded:
    """Return the code that `cast` gives a number, and the outcome that it counts as.

    >>> import fpemu
    >>> from fpemu.rounding import round_exact
    >>> round_exact(fpemu.Cast("e4m3fn"), 464.0)     # a tie, to the even code of 448
    Rounded(code=126, outcome='normal')

    draw: for stochastic rounding, an integer of `random_bits` bits; the number moves away from
    zero if floor(discarded fraction * 2**random_bits) + draw reaches 2**random_bits.
    """
    x = exact(x)
    form = cast.format
    sign = x.sign
    if x.is_nan:
        return Rounded(_nan_code(form, sign), "nan")
    invalid = False
    if sign and not form.signed:
        invalid = x.numerator != 0 and not x.is_inf
        if x.numerator != 0 and cast.negative is Negative.NAN:
            return Rounded(_nan_code(form, sign), "inf" if x.is_inf else "invalid")
        sign = 0
    if x.is_inf:
        return Rounded(_overflowed(cast, sign, infinite_input=True), "inf")
    if x.numerator == 0:
        return Rounded(_zero_code(cast, sign), "zero")
    code, outcome = _round_finite(cast, sign, x, draw, random_bits)
    return Rounded(code, "invalid" if invalid else outcome)


def _round_finite(
    cast: Cast, sign: int, x: Real, draw: int, random_bits: int
) -> Rounded:
    """Round a finite non-zero number whose sign the format can take."""
    form = cast.format
    below, rest, unit = _position(form, x.numerator, x.denominator)
    if below < form.min_code and not form.zero:
        return Rounded(_signed(form, sign, form.min_code), "underflow")
    magnitude = below + int(rest and _goes_away(cast, sign, below, rest, unit, draw, random_bits))
    if magnitude > form.max_code:
        code = _overflowed(cast, sign, infinite_input=False)
        finite = code & ((1 << form.magnitude_bits) - 1) == form.max_code
        return Rounded(code, "saturated" if finite else "overflow")
    if magnitude < form.min_normal_code and cast.subnormals is Subnormals.FLUSH:
        magnitude = 0
    if magnitude == 0 and form.zero:
        return Rounded(_zero_code(cast, sign), "underflow")
    outcome = "subnormal" if magnitude < form.min_normal_code else "normal"
    return Rounded(_signed(form, sign, magnitude), outcome)


def _position(form: Format, numerator: int, denominator: int) -> tuple[int, int, int]:
    """Place a positive fraction on the format's grid, continued above its largest value.

    Returns the magnitude code of the grid point at or below it (-1: below the smallest value of
    a format without zero), and the distance from there as rest/unit of the gap to the next.
    """
    exponent = numerator.bit_length() - denominator.bit_length()
    if numerator << max(-exponent, 0) < denominator << max(exponent, 0):
        exponent -= 1  # now 2**exponent <= x < 2**(exponent + 1)
    exponent = max(exponent, form.emin)
    gap = exponent - form.mantissa_bits
    unit = denominator << max(gap, 0)
    steps, rest = divmod(numerator << max(-gap, 0), unit)
    code = ((exponent - form.emin) << form.mantissa_bits) + steps
    return (code if form.zero else code - 1), rest, unit


def _goes_away(
    cast: Cast, sign: int, below: int, rest: int, unit: int, draw: int, random_bits: int
) -> bool:
    """Whether a number off the grid goes to the neighbour away from zero."""
    match cast.rounding:
        case Rounding.NEAREST_EVEN:
            # a format without zero has no even significand: its ties go up (torch, ml_dtypes)
            return 2 * rest > unit or (
                2 * rest == unit and (below % 2 == 1 or not cast.format.zero)
            )
        case Rounding.NEAREST_AWAY:
            return 2 * rest >= unit
        case Rounding.TOWARD_ZERO:
            return False
        case Rounding.UP:
            return not sign
        case Rounding.DOWN:
            return bool(sign)
        case Rounding.TO_ODD:
            return below % 2 == 0
        case Rounding.STOCHASTIC:
            return (rest << random_bits) // unit + draw >= 1 << random_bits


def _overflowed(cast: Cast, sign: int, *, infinite_input: bool) -> int:
    """The code of infinite input, or of a finite number that rounded beyond the largest value."""
    form = cast.format
    stops = {
        Rounding.TOWARD_ZERO: True,
        Rounding.TO_ODD: True,
        Rounding.UP: bool(sign),
        Rounding.DOWN: not sign,
    }.get(cast.rounding, False)
    match cast.overflow:
        case Overflow.SATURATE:
            finite = True
        case Overflow.SATURATE_KEEP_INF:
            finite = not infinite_input
        case Overflow.IEEE:
            finite = stops and not infinite_input
    if finite:
        return _signed(form, sign, form.max_code)
    if form.inf_code is not None:
        return _signed(form, sign, form.inf_code)
    return _nan_code(form, sign)


def _zero_code(cast: Cast, sign: int) -> int:
    form = cast.format
    if form.zero:
        return _signed(form, sign, 0) if form.minus_zero else 0
    return form.min_code if cast.zero is Zero.SMALLEST else _nan_code(form, 0)


def _nan_code(form: Format, sign: int) -> int:
    if form.nan_code is None:
        return form.max_code  # +max, as PTX and CUDA do for FP6 and FP4
    return form.nan_code if form.nan is NaN.MINUS_ZERO else _signed(form, sign, form.nan_code)


def _signed(form: Format, sign: int, magnitude: int) -> int:
    return magnitude | (sign << form.magnitude_bits) if form.signed else magnitude


def value_of(form: Format, code: int) -> Real:
    """Return the exact value of a code.

    >>> import fpemu
    >>> from fpemu.rounding import value_of
    >>> value_of(fpemu.finfo("e4m3fn"), 0b1_0000_001)
    Real(sign=1, numerator=1, denominator=512)
    """
    if not 0 <= code < 1 << form.bits:
        raise InputError(f"code {code}: {form.name} has codes 0 to {(1 << form.bits) - 1}")
    sign, magnitude = divmod(code, 1 << form.magnitude_bits)
    if form.nan is NaN.MINUS_ZERO and code == form.nan_code:
        return Real(0, 0, 0)
    if magnitude <= form.max_code:
        value = form.exact_magnitude(magnitude)
        return Real(sign, value.numerator, value.denominator)
    return Real(sign, 1, 0) if magnitude == form.inf_code else Real(sign, 0, 0)
