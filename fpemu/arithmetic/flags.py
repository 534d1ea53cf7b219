"""Flags: the exceptions of IEEE 754 that an operation raised, for each element and as counts."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fpemu.cast import Cast, Rounding, Zero
from fpemu.errors import InputError
from fpemu.format import Format, NaN
from fpemu.kernels.params import WORDS
from fpemu.limits import word_limits
from fpemu.outcomes import visible

__all__ = ["Flags", "Tininess", "find_flags", "read_tininess"]

Array = np.ndarray[Any, Any]

#: Flag -> its bit in `Flags.codes`.
BITS = {"invalid": 1, "divide_by_zero": 2, "overflow": 4, "underflow": 8, "inexact": 16}


class Tininess(enum.Enum):
    """When a result counts as tiny: IEEE 754-2019, 7.5 leaves the choice."""

    AFTER = "after"  #: rounded to the format's precision, it is below the smallest normal (x86)
    BEFORE = "before"  #: it is so already before it is rounded (Arm)


def read_tininess(value: Tininess | str) -> Tininess:
    """Return the Tininess of a name, or refuse it."""
    try:
        return Tininess(value)
    except ValueError:
        raise InputError(f"tininess={value!r}: must be 'after' or 'before' rounding") from None


@dataclass(frozen=True)
class Flags:
    """How many results raised each exception of IEEE 754, and which.

    >>> import numpy as np
    >>> from fpemu import arithmetic
    >>> x = np.float32([1.0, 1.0, 0.0, 60000.0])
    >>> quotient, flags = arithmetic.divide(x, np.float32([3, 0, 0, 0.5]), "fp16", flags=True)
    >>> flags
    Flags(total=4, invalid=1, divide_by_zero=1, overflow=1, underflow=0, inexact=2)
    >>> flags.where("inexact")
    array([ True, False, False,  True])

    invalid: there is no useful result: inf - inf, 0 * inf, 0 / 0, inf / inf, the root of a
        negative number; and a number that the format has no value for (negative in an unsigned
        one). NaN operands are quiet and raise nothing, 0 * inf + NaN neither.
    divide_by_zero: a finite number that is not 0, divided by 0.
    overflow: rounded on the format's grid, continued above its largest value, the result lies
        beyond; it does so too where it saturates. It is inexact as well.
    underflow: tiny (see `Tininess`) and inexact.
    inexact: the result differs from the exact one.
    Infinite operands are exact: a result that is infinite because of them raises nothing, also
    where the format has no infinity. Counts of several arrays are added with +.
    Source: IEEE 754-2019, section 7.
    """

    total: int = 0
    invalid: int = 0
    divide_by_zero: int = 0
    overflow: int = 0
    underflow: int = 0
    inexact: int = 0
    #: uint8 for each element: invalid 1, divide_by_zero 2, overflow 4, underflow 8, inexact 16;
    #: None for sums
    codes: Array | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of_codes(cls, codes: Array) -> Flags:
        """Count codes."""
        counts = {name: int(np.count_nonzero(codes & bit)) for name, bit in BITS.items()}
        return cls(codes.size, codes=codes, **counts)

    def where(self, name: str) -> Array:
        """Return where a flag was raised, as booleans of the result's shape."""
        if name not in BITS:
            raise InputError(f"flag {name!r}: must be one of {list(BITS)}")
        if self.codes is None:
            raise InputError("these flags are sums of several: only single calls know where")
        raised: Array = (self.codes & BITS[name]) != 0
        return raised

    def __add__(self, other: Flags) -> Flags:
        """Return the counts of both."""
        if not isinstance(other, Flags):
            return NotImplemented
        return Flags(*(getattr(self, n) + getattr(other, n) for n in ("total", *BITS)))

    def __radd__(self, other: object) -> Flags:
        return replace(self, codes=None) if other == 0 else NotImplemented  # for sum()

    def to_json(self) -> dict[str, int]:
        """Return the counts as a JSON-ready dict."""
        return {name: getattr(self, name) for name in ("total", *BITS)}


def find_flags(
    exact: Array, rounded: Array, operands: list[Array], cast: Cast, tininess: Tininess,
    again: Callable[[Array, Cast], Array],
) -> Flags:  # fmt: skip
    """Return the flags of results rounded to odd (`exact`) and then by the cast.

    again: rounds an array by another cast with the same random bits. That `exact` has the same
    flags as the true result: it has an odd last bit if that has no 53 bits, and no value of a
    format of up to 24 bits, nor a limit between two outcomes, has one.
    """
    finite = np.isfinite(exact)
    nan = np.isnan(exact)
    known = ~np.any([np.isnan(x) for x in operands], axis=0)
    refused = ~nan & (exact < 0) & (not cast.format.signed)
    if not cast.format.zero and cast.zero is Zero.NAN:
        refused |= exact == 0
    taken = finite & ~refused
    from_finite = np.all([np.isfinite(x) for x in operands], axis=0)
    inexact = taken & (rounded != exact)
    found = {
        "invalid": nan & known | refused,
        "divide_by_zero": np.isinf(exact) & from_finite,
        "overflow": taken & _overflowed(exact, cast, again),
        "underflow": inexact & _tiny(exact, cast, tininess, again),
        "inexact": inexact,
    }
    codes = np.zeros(exact.shape, np.uint8)
    for name, where in found.items():
        codes |= where * np.uint8(BITS[name])
    return Flags.of_codes(codes)


def _overflowed(exact: Array, cast: Cast, again: Callable[[Array, Cast], Array]) -> Array:
    if cast.rounding is Rounding.STOCHASTIC:  # the draws decide
        result = again(exact, visible(cast))
        over: Array = ~(np.abs(result) <= cast.format.max)
        return over
    table, _ = word_limits(cast, 64)
    words = np.abs(exact).view(WORDS[64].uint)
    beyond: Array = words >= np.where(np.signbit(exact), table[1, 2], table[0, 2])
    return beyond


def _tiny(
    exact: Array, cast: Cast, tininess: Tininess, again: Callable[[Array, Cast], Array]
) -> Array:
    """Where results are below the smallest normal; only the binade below it can round up to it."""
    least = cast.format.smallest_normal
    before: Array = (np.abs(exact) < least) & (exact != 0)
    if tininess is Tininess.BEFORE or not cast.format.zero:
        return before
    # that binade moved to [1, 2) of a format of the same precision; 1 has an even code there, as
    # the binade would have in the format continued downwards
    scaled = np.where(before, exact, 0.0) * (2.0 / least)
    grid = Format("grid", 7, cast.format.mantissa_bits, 64, NaN.TOP_CODE, inf=True)
    rounded = again(scaled, Cast(grid, cast.rounding))
    tiny: Array = before & (np.abs(rounded) < 2.0)
    return tiny
