"""Explain: a number, what it becomes, its neighbours, the error and the other roundings."""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from fractions import Fraction

from fpemu.cast import Cast, Rounding
from fpemu.errors import InputError
from fpemu.format import Format
from fpemu.rounding import Real, Rounded, round_exact, value_of

__all__ = ["Explained", "Neighbour", "explain"]


@dataclass(frozen=True)
class Neighbour:
    """The nearest finite value of a format on one side of a number."""

    code: int
    value: Real
    distance: Fraction


@dataclass(frozen=True)
class Explained:
    """What a cast makes of a number, and what it might have been."""

    number: Real
    cast: Cast
    result: Rounded
    value: Real  #: of the result
    exact: bool  #: the number is one of the format's finite values
    below: Neighbour | None  #: strictly below the number; None: there is none, or it is not finite
    above: Neighbour | None
    ulp: Fraction | None  #: distance of the grid's points around the number; None: not finite
    others: dict[Rounding, Rounded]  #: by every rounding but stochastic, the cast's own included

    @property
    def error(self) -> Fraction | None:
        """|value - number|; None where either is not finite."""
        if self.ulp is None or self.value.denominator == 0:
            return None
        return abs(_fraction(self.value) - _fraction(self.number))

    @property
    def relative_error(self) -> Fraction | None:
        """The error divided by |number|; None for zero and where there is no error."""
        if self.error is None or not self.number.numerator:
            return None
        return self.error / abs(_fraction(self.number))

    @property
    def ulp_error(self) -> Fraction | None:
        """The error in ulps."""
        return None if self.error is None or self.ulp is None else self.error / self.ulp

    @property
    def up_chance(self) -> Fraction | None:
        """The chance that stochastic rounding takes `above`; None unless between two values."""
        if self.exact or self.below is None or self.above is None:
            return None
        return self.below.distance / (self.below.distance + self.above.distance)


def explain(number: Real, cast: Cast) -> Explained:
    """Return what a cast makes of an exact number, with all that surrounds it.

    >>> import fpemu
    >>> from fpemu.analysis.number import explain, read_number
    >>> found = explain(read_number("0.1"), fpemu.Cast("fp16"))
    >>> hex(found.result.code), float(found.above.value), found.ulp_error
    ('0x2e66', 0.10003662109375, Fraction(2, 5))

    The ulp of a number x is 2**(max(floor(log2|x|), emin) - mantissa_bits): the distance between
    the format's values around x, its grid continued above the largest one. A number between two
    values, one of which is beyond the largest or below the lowest, has one neighbour; NaN and
    infinity have none.
    Stochastic casts have no one result and are an InputError.
    """
    if cast.rounding is Rounding.STOCHASTIC:
        raise InputError(
            f"cast {cast}: stochastic rounding has no one result; leave the rounding out, and its "
            "two results are shown with their chances"
        )
    result = round_exact(cast, number)
    finite = number.denominator != 0
    ulp = _ulp(cast.format, abs(_fraction(number))) if finite else None
    exact, below, above = False, None, None
    if finite:
        exact, below, above = _neighbours(cast.format, _fraction(number))
    others: dict[Rounding, Rounded] = {
        mode: round_exact(cast.replace(rounding=mode), number)
        for mode in Rounding
        if mode is not Rounding.STOCHASTIC
    }
    value = value_of(cast.format, result.code)
    return Explained(number, cast, result, value, exact, below, above, ulp, others)


def _fraction(x: Real) -> Fraction:
    value = Fraction(x.numerator, x.denominator)
    return -value if x.sign else value


def _neighbours(
    form: Format, number: Fraction
) -> tuple[bool, Neighbour | None, Neighbour | None]:
    """Whether a number is a value, the largest finite value below it, the smallest above."""
    lowest = -form.max_code if form.signed else 0
    ranks = range(lowest, form.max_code + 1)  # magnitude codes with the sign: in order of value

    def at(rank: int) -> Fraction:
        return form.exact_magnitude(abs(rank)) * (-1 if rank < 0 else 1)

    first = bisect.bisect_left(ranks, number, key=at)  # its value is the number, or above it
    after = bisect.bisect_right(ranks, number, key=at)

    def neighbour(place: int) -> Neighbour | None:
        if not 0 <= place < len(ranks):
            return None
        rank = ranks[place]
        code = abs(rank) | (int(rank < 0) << form.magnitude_bits)
        return Neighbour(code, value_of(form, code), abs(at(rank) - number))

    return first != after, neighbour(first - 1), neighbour(after)


def _ulp(form: Format, magnitude: Fraction) -> Fraction:
    exponent = form.emin
    if magnitude:
        exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
        if Fraction(2) ** exponent > magnitude:
            exponent -= 1
    return Fraction(2) ** (max(exponent, form.emin) - form.mantissa_bits)
