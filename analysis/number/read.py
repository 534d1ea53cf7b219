"""Read: a number as people type it, taken exactly."""

from __future__ import annotations

import re
from fractions import Fraction

from fpemu.errors import InputError
from fpemu.rounding import Real

__all__ = ["read_number"]

_SIGN = r"(?P<sign>[+-]?)"
_DECIMAL = re.compile(_SIGN + r"(?P<number>(\d+\.?\d*|\.\d+)(e[+-]?\d{1,4})?)", re.ASCII)
_HEX = re.compile(
    _SIGN + r"0x(?P<whole>[0-9a-f]*)\.?(?P<rest>[0-9a-f]*)(p(?P<power>[+-]?\d{1,5}))?", re.ASCII
)
_RATIO = re.compile(_SIGN + r"(?P<number>\d+/0*[1-9]\d*)", re.ASCII)
_SPECIAL = re.compile(_SIGN + r"(?P<word>inf|infinity|nan)")
_LONGEST = 1000  # characters: Python's own limit for whole numbers is 4,300 digits


def read_number(text: str) -> Real:
    """Return a decimal, a hexadecimal float, a fraction, inf or nan as an exact number.

    >>> from fpemu.analysis.number import read_number
    >>> read_number("0.1"), read_number("-0x1.8p-1"), read_number("1/3")
    (Real(sign=0, numerator=1, denominator=10), Real(sign=1, numerator=3, denominator=4), \
Real(sign=0, numerator=1, denominator=3))
    >>> read_number("-0").sign, read_number("inf").is_inf, read_number("nan").is_nan
    (1, True, True)

    Nothing is rounded: 0.1 is one tenth, not the float64 beside it. Decimal exponents have at
    most four digits, binary ones five. Anything else is an InputError.
    """
    typed = text.strip().lower()
    if len(typed) <= _LONGEST:
        if found := _SPECIAL.fullmatch(typed):
            return Real(int(found["sign"] == "-"), int(found["word"] != "nan"), 0)
        for pattern, value_of in _VALUES.items():
            found = pattern.fullmatch(typed)
            value = value_of(found) if found else None
            if found and value is not None:
                return Real(int(found["sign"] == "-"), value.numerator, value.denominator)
    raise InputError(
        f"value {text[:40]!r}: must be a number, such as 0.1, 6e-8, 0x1.8p3, 1/3, inf or nan"
    )


def _number(found: re.Match[str]) -> Fraction:
    return Fraction(found["number"])


def _hexadecimal(found: re.Match[str]) -> Fraction | None:
    digits = found["whole"] + found["rest"]
    if not digits:
        return None
    return int(digits, 16) * Fraction(2) ** (int(found["power"] or 0) - 4 * len(found["rest"]))


_VALUES = {_DECIMAL: _number, _RATIO: _number, _HEX: _hexadecimal}
