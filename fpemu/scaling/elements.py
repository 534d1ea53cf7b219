"""Elements: what each scaled number is kept as: a format's value, an integer, a codebook's."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from fpemu.cast import Cast, Overflow, Rounding, make_cast
from fpemu.codes import code_dtype, decode, dtype_of_bits
from fpemu.elementwise import Draws, draws_of, run
from fpemu.errors import InputError
from fpemu.format import Format
from fpemu.kernels.plan import plan

__all__ = ["Codebook", "Element", "FloatElement", "IntegerElement", "draws_for", "make_element"]

Array = np.ndarray[Any, Any]
Fused = Callable[..., None]


class Element(Protocol):
    """What numbers are kept as once they are scaled."""

    @property
    def bits(self) -> int:
        """Bits of a code."""

    @property
    def max(self) -> float:
        """The largest value."""

    @property
    def emax(self) -> int:
        """Its exponent, floor(log2(max))."""

    @property
    def mantissa_bits(self) -> int:
        """Explicit bits of a significand."""

    def round(self, scaled: Array, draws: Draws | None) -> None:
        """Round flat float32 numbers in place."""

    def encode(self, scaled: Array, draws: Draws | None) -> Array:
        """Return the codes of flat float32 numbers, one a byte or word; `scaled` may be spoilt."""

    def decode(self, codes: Array) -> Array:
        """Return the float32 values of codes."""

    def fused(self, verb: str) -> Fused | None:
        """Return (x, out, encode, decode), which scales rows, rounds, and scales back at once.

        verb: "round", or "encode", which leaves codes. None where there is no such loop.
        """


@dataclass(frozen=True)
class FloatElement:
    """A value of a float format, by a Cast.

    >>> from fpemu.scaling.elements import FloatElement
    >>> FloatElement.of("fp4").max, FloatElement.of("e4m3fn").emax
    (6.0, 8)
    """

    cast: Cast

    def __post_init__(self) -> None:
        if not isinstance(self.cast, Cast):
            raise InputError(f"float element {self.cast!r:.40}: no Cast; give FloatElement.of(it)")

    @classmethod
    def of(cls, to: str | Format | Cast) -> FloatElement:
        """Return the element of a format (saturating) or of a Cast (as it is)."""
        cast = make_cast(to)
        plain = isinstance(to, Format) or (isinstance(to, str) and ":" not in to)
        return cls(cast.replace(overflow=Overflow.SATURATE) if plain else cast)

    @property
    def bits(self) -> int:
        return self.cast.format.bits

    @property
    def max(self) -> float:
        return self.cast.format.max

    @property
    def emax(self) -> int:
        return self.cast.format.emax

    @property
    def mantissa_bits(self) -> int:
        return self.cast.format.mantissa_bits

    def round(self, scaled: Array, draws: Draws | None) -> None:
        """Round flat float32 numbers in place."""
        loop = plan("round", self.cast, 32, draws.bits if draws else 32)
        if draws is None:
            loop.run(scaled, None)
        else:
            run(loop, scaled, scaled.dtype, scaled.dtype, scaled, draws, 1)

    def encode(self, scaled: Array, draws: Draws | None) -> Array:
        """Return the codes."""
        loop = plan("encode", self.cast, 32, draws.bits if draws else 32)
        codes = np.empty(scaled.size, code_dtype(self.cast.format))
        if draws is None:
            loop.run(scaled, codes)
        else:
            run(loop, scaled, codes.dtype, codes.dtype, codes, draws, 1)
        return codes

    def decode(self, codes: Array) -> Array:
        """Return the values of codes."""
        values: Array = decode(codes, self.cast.format)
        return values

    def fused(self, verb: str) -> Fused | None:
        """Return the loop that scales rows, rounds, and scales back; None: stochastic."""
        if self.cast.rounding is Rounding.STOCHASTIC:
            return None
        return plan(verb, self.cast, 32, 32, "scaled").run

    def __str__(self) -> str:
        text = str(self.cast)
        if ":" in text or self.cast.overflow is Overflow.SATURATE:
            return text
        return f"{text}:overflow={self.cast.overflow.value}"  # a format alone is one that saturates


@dataclass(frozen=True)
class IntegerElement:
    """An integer of `bits` bits, two's complement, over 2^fraction_bits; nearest, ties to even.

    >>> from fpemu.scaling.elements import IntegerElement
    >>> IntegerElement(8, 6).max, IntegerElement(8, 0, symmetric=True).least
    (1.984375, -127.0)

    symmetric: without the lowest integer, as most integer recipes clip. NaN becomes 0, as PTX's
    cvt has it.
    """

    bits: int
    fraction_bits: int = 0
    symmetric: bool = False

    def __post_init__(self) -> None:
        whole = type(self.bits) is int and type(self.fraction_bits) is int
        if not (whole and 2 <= self.bits <= 16 and 0 <= self.fraction_bits <= 64):
            raise InputError(
                f"integer element of {self.bits!r:.20} bits, {self.fraction_bits!r:.20} of them a "
                "fraction: bits must be an int from 2 to 16, fraction_bits from 0 to 64"
            )

    @property
    def max(self) -> float:
        return math.ldexp((1 << (self.bits - 1)) - 1, -self.fraction_bits)

    @property
    def least(self) -> float:
        """The lowest value."""
        return -self.max if self.symmetric else math.ldexp(-1, self.bits - 1 - self.fraction_bits)

    @property
    def emax(self) -> int:
        return self.bits - 2 - self.fraction_bits

    @property
    def mantissa_bits(self) -> int:
        return self.bits - 2

    def round(self, scaled: Array, draws: Draws | None) -> None:
        """Round flat float32 numbers in place."""
        _no_draws(draws)
        whole = np.float32(2**self.fraction_bits)
        with np.errstate(over="ignore", invalid="ignore"):
            np.multiply(scaled, whole, out=scaled)
            np.rint(scaled, out=scaled)
            low, high = np.float32(self.least) * whole, np.float32(self.max) * whole
            np.clip(scaled, low, high, out=scaled)
        scaled[np.isnan(scaled)] = 0
        np.add(scaled, np.float32(0), out=scaled)  # integers have no -0
        np.divide(scaled, whole, out=scaled)

    def encode(self, scaled: Array, draws: Draws | None) -> Array:
        """Return the codes: two's complement, right-aligned."""
        self.round(scaled, draws)
        whole = (scaled * np.float32(2**self.fraction_bits)).astype(np.int32)
        mask = np.int32((1 << self.bits) - 1)
        return (whole & mask).astype(dtype_of_bits(self.bits))

    def decode(self, codes: Array) -> Array:
        """Return the values of codes."""
        shift = 32 - self.bits
        whole = (codes.astype(np.int32) << shift) >> shift
        return whole.astype(np.float32) / np.float32(2**self.fraction_bits)

    def fused(self, verb: str) -> None:
        """Return no loop: there is none."""

    def __str__(self) -> str:
        signed = ":symmetric" if self.symmetric else ""
        return f"int{self.bits}.{self.fraction_bits}{signed}"


@dataclass(frozen=True)
class Codebook:
    """The nearest of some values; the code is its place; a tie takes the lower one.

    >>> import numpy as np
    >>> from fpemu.scaling.elements import Codebook
    >>> Codebook("three", (-1.0, 0.0, 1.0)).encode(np.float32([0.4, 0.5, 0.6]), None)
    array([1, 1, 2], dtype=uint8)

    values: rising float32 values, at most 256. NaN takes the code of the value nearest to 0.
    """

    name: str
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        if not re.fullmatch(r"\w+", str(self.name)):  # else its text could not be read back
            raise InputError(f"codebook {self.name!r:.40}: must be called by letters and digits")
        try:
            table = np.array(self.values, np.float64)
            object.__setattr__(self, "values", tuple(map(float, self.values)))
        except (TypeError, ValueError):
            raise InputError(
                f"codebook {self.name!r}: {self.values!r:.40}: must be numbers"
            ) from None
        rising = 2 <= table.size <= 256 and bool((np.diff(table) > 0).all())
        if not (rising and np.isfinite(table).all() and (table == table.astype(np.float32)).all()):
            raise InputError(
                f"codebook {self.name!r}: must hold 2 to 256 finite float32 values, each above the "
                "one before"
            )

    @property
    def bits(self) -> int:
        return (len(self.values) - 1).bit_length()

    @property
    def max(self) -> float:
        return max(map(abs, self.values))

    @property
    def emax(self) -> int:
        return math.frexp(self.max)[1] - 1

    @property
    def mantissa_bits(self) -> int:
        raise InputError(
            f"codebook {self.name!r}: has no mantissa bits, which scales of mode 'even' are "
            "rounded to; take another mode"
        )

    @cached_property
    def _middles(self) -> Array:
        table = np.array(self.values)
        middles: Array = (table[1:] + table[:-1]) / 2  # exact in float64
        return middles

    def round(self, scaled: Array, draws: Draws | None) -> None:
        """Round flat float32 numbers in place."""
        scaled[:] = self.decode(self.encode(scaled, draws))

    def encode(self, scaled: Array, draws: Draws | None) -> Array:
        """Return the places of the nearest values."""
        _no_draws(draws)
        places = np.searchsorted(self._middles, scaled.astype(np.float64), side="left")
        nearest = int(np.argmin(np.abs(self.values)))
        codes: Array = np.where(np.isnan(scaled), nearest, places).astype(np.uint8)
        return codes

    def decode(self, codes: Array) -> Array:
        """Return the values of codes."""
        table = np.array(self.values, np.float32)
        if codes.size and int(codes.max()) >= table.size:
            raise InputError(
                f"codebook {self.name!r}: has {table.size} values, and no code {int(codes.max())}"
            )
        found: Array = table[codes]
        return found

    def fused(self, verb: str) -> None:
        """Return no loop: there is none."""

    def __str__(self) -> str:
        return f"{self.name}[{', '.join(map(repr, self.values))}]"


def make_element(to: Any) -> Element:
    """Return the element that a name, Format or Cast stands for; an element is one already."""
    if isinstance(to, FloatElement | IntegerElement | Codebook):
        return to
    return FloatElement.of(to)


def draws_for(element: Element, seed: Any, offset: Any, random_bits: Any) -> Draws | None:
    """Return where an element's random bits come from; None if it needs none."""
    if not isinstance(element, FloatElement):
        return None
    return draws_of(element.cast, np.dtype(np.float32), seed, offset, random_bits)


def _no_draws(draws: Draws | None) -> None:
    if draws is not None:
        raise InputError(f"rounding={Rounding.STOCHASTIC.value!r}: is for float elements")
