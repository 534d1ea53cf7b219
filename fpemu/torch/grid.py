"""The grids of fake quantization: float formats by a Cast, and symmetric integers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch

from fpemu.cast import Cast, Rounding, make_cast
from fpemu.errors import FormatError, InputError
from fpemu.torch.beyond import bounds_of
from fpemu.torch.graphs import constant
from fpemu.torch.operators import cast_text, round_values
from fpemu.torch.rounding import Target, cast_to

__all__ = ["Floats", "Grid", "Integer", "make_grid"]


class Grid(Protocol):
    """Numbers that a scaled tensor is rounded to."""

    @property
    def largest(self) -> float:
        """The largest number; the smallest is its negative."""

    @property
    def bits(self) -> int:
        """How many bits a number takes."""

    def quantize(self, x: torch.Tensor) -> torch.Tensor:
        """Return the rounded tensor, in new memory."""

    def bounds(self, dtype: torch.dtype) -> tuple[float, float]:
        """Return (low, high): at and outside them numbers come to lie beyond the largest."""


@dataclass(frozen=True)
class Integer:
    """Symmetric integers of so many bits: from -(2**(bits - 1) - 1) to 2**(bits - 1) - 1.

    >>> from fpemu.torch import Integer
    >>> Integer(8).largest, Integer(4).largest, str(Integer(4))
    (127.0, 7.0, 'int4')

    Rounded to nearest, ties to even, saturated; NaN stays NaN, and zero has no sign.
    """

    bits: int

    def __post_init__(self) -> None:
        if type(self.bits) is not int or not 2 <= self.bits <= 24:
            raise FormatError(f"Integer({self.bits!r}): bits must be an int from 2 to 24")

    @property
    def largest(self) -> float:
        return float(2 ** (self.bits - 1) - 1)

    def quantize(self, x: torch.Tensor) -> torch.Tensor:
        return x.round().clamp(-self.largest, self.largest).add_(0.0)  # which takes -0's sign

    def bounds(self, dtype: torch.dtype) -> tuple[float, float]:
        return -self.largest - 0.5, self.largest + 0.5  # that tie goes to an even number, beyond

    def __str__(self) -> str:
        return f"int{self.bits}"


@dataclass(frozen=True)
class Floats:
    """The values of a Cast's format, rounded to by the Cast."""

    cast: Cast

    @property
    def largest(self) -> float:
        return float(self.cast.format.max)

    @property
    def bits(self) -> int:
        return self.cast.format.bits

    def quantize(self, x: torch.Tensor) -> torch.Tensor:
        return round_values(x, _text(self.cast))

    def bounds(self, dtype: torch.dtype) -> tuple[float, float]:
        return _bounds(self.cast, 64 if dtype == torch.float64 else 32)

    def __str__(self) -> str:
        return str(self.cast)


@constant
def _text(cast: Cast) -> str:
    return cast_text(cast)


@constant
def _bounds(cast: Cast, bits: int) -> tuple[float, float]:
    return bounds_of(cast, bits)


#: The integers that a name finds.
INTEGERS = {"int8": Integer(8), "int4": Integer(4)}


def make_grid(to: Grid | Target, **rules: Any) -> Grid:
    """Return the grid that `to` names; rules that are given take the place of a cast's own.

    >>> from fpemu.torch.grid import make_grid
    >>> str(make_grid("int8")), str(make_grid("e4m3fn", overflow="saturate"))
    ('int8', 'float8_e4m3fn:overflow=saturate')
    """
    if isinstance(to, Integer | Floats):
        return to
    if isinstance(to, str) and to in INTEGERS:
        return INTEGERS[to]
    cast = make_cast(cast_to(to), **rules)  # type: ignore[arg-type]
    if not cast.format.signed or not cast.format.zero:
        raise InputError(f"format {cast.format.name}: fake quantization needs a sign and a zero")
    if cast.rounding is Rounding.STOCHASTIC:
        raise InputError(
            f"cast {cast}: fake quantization draws nothing; call fpemu.torch.round with a seed"
        )
    return Floats(cast)
