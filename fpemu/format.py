"""Format: a small floating-point format in eight facts.

A format is a set of values and their codes. How a real number reaches one of them (rounding,
overflow, subnormals) is never part of it: that is a `fpemu.Cast`.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

from fpemu.errors import FormatError, short

__all__ = ["Format", "NaN"]


class NaN(enum.Enum):
    """Where a format keeps its NaN codes."""

    TOP_BINADE = "top_binade"  #: IEEE 754: all-ones exponent, mantissa not zero
    TOP_CODE = "top_code"  #: the "fn" formats: the all-ones code of each sign
    MINUS_ZERO = "minus_zero"  #: the "fnuz" formats and signed P3109: the code of -0
    NONE = "none"  #: OCP FP6 and FP4: there is no NaN


@dataclass(frozen=True)
class Format:
    """A floating-point format: its widths, its bias and which codes are special.

    >>> import fpemu
    >>> e4m3 = fpemu.Format("mine", exponent_bits=4, mantissa_bits=3, bias=7,
    ...                     nan=fpemu.NaN.TOP_CODE, inf=False)
    >>> e4m3.max, e4m3.smallest_subnormal, e4m3.bits
    (448.0, 0.001953125, 8)

    Fields
        name: what errors and reports call it.
        exponent_bits: 1 to 8.
        mantissa_bits: explicit fraction bits, 0 to 23.
        bias: a normal code of exponent field E has the value 1.f * 2**(E - bias).
        nan: a `NaN` or its name: "top_binade", "top_code", "minus_zero", "none".
        inf: whether the code just below the NaNs is infinity.
        signed: False for formats without a sign bit.
        zero: False only for exponent-only scales (E8M0), which have no zero and no subnormals.

    Everything else is derived, under numpy.finfo's names where it has one. Every value must be
    a float32 (between 2**-149 and the largest finite float32), otherwise `FormatError` says which
    one is not. Sources: IEEE 754-2019 section 3.4, OCP FP8 v1.0, OCP MX v1.0, IEEE P3109 draft.
    """

    name: str
    exponent_bits: int
    mantissa_bits: int
    bias: int
    nan: NaN
    inf: bool
    signed: bool = True
    zero: bool = True

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "nan", NaN(self.nan))
        except ValueError:
            raise FormatError(
                f"nan={self.nan!r}: must be one of {[n.value for n in NaN]}"
            ) from None
        for field in ("exponent_bits", "mantissa_bits", "bias"):
            value = getattr(self, field)
            if isinstance(value, bool) or not isinstance(value, int):
                raise FormatError(f"{field}={value!r}: must be an int")
        for field in ("inf", "signed", "zero"):
            if not isinstance(getattr(self, field), bool):
                raise FormatError(f"{field}={getattr(self, field)!r}: must be True or False")
        if not isinstance(self.name, str) or not re.fullmatch(r"[A-Za-z0-9_.+-]{1,64}", self.name):
            raise FormatError(
                f"name={short(self.name)}: must be 1 to 64 letters, digits or any of '_.+-'"
            )
        for rule, broken in self._broken_rules():
            if broken:
                raise FormatError(f"format {self.name!r}: {rule}")

    def _broken_rules(self) -> list[tuple[str, bool]]:
        e, m = self.exponent_bits, self.mantissa_bits
        shape = [
            (f"exponent_bits={e} must be 1 to 8 (wider ones leave float32)", not 1 <= e <= 8),
            (f"mantissa_bits={m} must be 0 to 23 (wider ones leave float32)", not 0 <= m <= 23),
            (f"bias={short(self.bias)} must be -400 to 400 (others leave float32)",
             not -400 <= self.bias <= 400),
            ("an infinity needs a NaN (nan is 'none')", self.inf and self.nan is NaN.NONE),
            (
                "nan='top_binade' is IEEE's and brings an infinity and at least one mantissa bit",
                self.nan is NaN.TOP_BINADE and not (self.inf and m),
            ),
            (
                "nan='minus_zero' needs a sign bit and a zero",
                self.nan is NaN.MINUS_ZERO and not (self.signed and self.zero),
            ),
            ("zero=False is for unsigned formats without mantissa bits, such as E8M0",
             not self.zero and (self.signed or m > 0)),
        ]
        if any(broken for _, broken in shape):
            return shape
        if self.max_code < self.min_normal_code:
            return [("no finite normal value is left beside its NaN and infinity", True)]
        low, high = self.exact_magnitude(self.min_code), self.exact_magnitude(self.max_code)
        return [
            (f"its largest value, about 2**{self.emax}, exceeds float32; raise the bias by "
             f"{self.emax - 127}", high > _FLOAT32_MAX),
            (f"its smallest value is below 2**-149, float32's; lower the bias of {self.bias}",
             low < Fraction(1, 1 << 149)),
        ]

    # --- codes: the magnitude part, without the sign bit -------------------------------------

    @cached_property
    def bits(self) -> int:
        """Width of a code in bits."""
        return int(self.signed) + self.exponent_bits + self.mantissa_bits

    @cached_property
    def magnitude_bits(self) -> int:
        """Width of a code without its sign bit."""
        return self.exponent_bits + self.mantissa_bits

    @cached_property
    def inf_code(self) -> int | None:
        """Magnitude code of infinity, or None."""
        return self.max_code + 1 if self.inf else None

    @cached_property
    def nan_code(self) -> int | None:
        """Magnitude code of the canonical quiet NaN, or None; for MINUS_ZERO, the whole code."""
        top = (1 << self.magnitude_bits) - 1
        match self.nan:
            case NaN.TOP_BINADE:  # the quiet bit is the top mantissa bit
                return (top >> self.mantissa_bits << self.mantissa_bits) | (
                    1 << self.mantissa_bits >> 1
                )
            case NaN.TOP_CODE:
                return top
            case NaN.MINUS_ZERO:
                return top + 1
            case NaN.NONE:
                return None

    @cached_property
    def max_code(self) -> int:
        """Magnitude code of the largest finite value."""
        top = (1 << self.magnitude_bits) - 1
        nans = {
            NaN.TOP_BINADE: (1 << self.mantissa_bits) - 1,
            NaN.TOP_CODE: 1,
            NaN.MINUS_ZERO: 0,
            NaN.NONE: 0,
        }[self.nan]
        return top - nans - int(self.inf)

    @cached_property
    def min_code(self) -> int:
        """Magnitude code of the smallest value above zero."""
        return 1 if self.zero else 0

    @cached_property
    def min_normal_code(self) -> int:
        """Magnitude code of the smallest normal value."""
        return (1 << self.mantissa_bits) if self.zero else 0

    @cached_property
    def minus_zero(self) -> bool:
        """Whether -0 is a value of the format."""
        return self.signed and self.zero and self.nan is not NaN.MINUS_ZERO

    def exact_magnitude(self, magnitude_code: int) -> Fraction:
        """The value of a finite magnitude code."""
        field, fraction = divmod(magnitude_code, 1 << self.mantissa_bits)
        if field == 0 and self.zero:
            significand, exponent = fraction, 1
        else:
            significand, exponent = fraction + (1 << self.mantissa_bits), field
        return Fraction(significand) * Fraction(2) ** (exponent - self.bias - self.mantissa_bits)

    # --- values: numpy.finfo's names ----------------------------------------------------------

    @cached_property
    def precision(self) -> int:
        """Significand bits with the hidden one (IEEE 754's p)."""
        return self.mantissa_bits + 1

    @cached_property
    def emin(self) -> int:
        """Exponent of the smallest normal value."""
        return (1 if self.zero else 0) - self.bias

    @cached_property
    def emax(self) -> int:
        """Exponent of the largest finite value."""
        return (self.max_code >> self.mantissa_bits) - self.bias

    @cached_property
    def max(self) -> float:
        """Largest finite value."""
        return float(self.exact_magnitude(self.max_code))

    @cached_property
    def min(self) -> float:
        """Lowest finite value: -max, or the smallest value of an unsigned format."""
        if self.signed:
            return -self.max
        return 0.0 if self.zero else self.smallest_normal

    @cached_property
    def eps(self) -> float:
        """Distance from 1.0 to the next larger value on the format's grid."""
        return float(2.0**-self.mantissa_bits)

    @cached_property
    def smallest_normal(self) -> float:
        """Smallest value with full precision."""
        return float(self.exact_magnitude(self.min_normal_code))

    @cached_property
    def smallest_subnormal(self) -> float:
        """Smallest value above zero (equal to smallest_normal where there are no subnormals)."""
        return float(self.exact_magnitude(self.min_code))

    @property
    def tiny(self) -> float:
        """numpy.finfo's other name for smallest_normal."""
        return self.smallest_normal

    @property
    def has_nan(self) -> bool:
        """Whether any code is NaN."""
        return self.nan is not NaN.NONE

    @cached_property
    def _hash(self) -> int:
        return hash(("Format", *asdict(self).values()))

    def __hash__(self) -> int:  # kept: casts are looked up by hash on every small call
        return self._hash

    def __str__(self) -> str:
        return self.name

    def __getstate__(self) -> dict[str, Any]:
        return asdict(self)  # not the cached values: a str hash differs in the next process

    def to_json(self) -> dict[str, Any]:
        """Return the eight facts as a JSON-ready dict; `from_json` reads it back.

        >>> import fpemu
        >>> f = fpemu.finfo("e5m2")
        >>> fpemu.Format.from_json(f.to_json()) == f
        True
        """
        return asdict(self) | {"nan": self.nan.value}

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> Format:
        """Make a Format from `to_json`'s dict; unknown or missing keys are a FormatError."""
        try:
            return cls(**facts)
        except TypeError as wrong:
            reason = str(wrong).replace("Format.__init__() ", "")
            raise FormatError(f"format facts {facts!r}: {reason}") from None


_FLOAT32_MAX = Fraction((1 << 24) - 1) * Fraction(2) ** 104
