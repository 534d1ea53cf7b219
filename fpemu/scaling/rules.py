"""Rules: from a block's largest magnitude to its scale, as the systems that use it compute it.

Each works on float32 arrays with the very operations of the system it is named for: a scale that
is off by one unit in the last place changes codes. Powers of two come from exponent bits, never
from log2, which is wrong just below a power of two.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any, ClassVar, NamedTuple

import numpy as np

from fpemu.codes import decode, encode
from fpemu.scaling.elements import Element

__all__ = ["AmaxRule", "Exponent", "ExponentRule", "FixedRule", "ScaleRule", "Scales", "TwoLevel"]

Array = np.ndarray[Any, Any]

_FLT_MAX = np.float32(np.finfo(np.float32).max)
_ONE = np.float32(1)


class Scales(NamedTuple):
    """The scales of some blocks, one each."""

    encode: Array  #: float32: the cast sees x * encode
    decode: Array  #: float32: the value of an element is element * decode, or element / decode
    stored: Array  #: as kept beside the elements: codes (uint8), or decode's own floats


class _OneLevel:
    """What rules share that scale blocks and not the tensor: they store what elements meet."""

    __slots__ = ()

    def whole(self, amax: np.float32, element: Element) -> np.float32:
        """Return the scale of the tensor as a whole: none."""
        return _ONE

    def kept(self, stored: Array, whole: np.float32) -> Array:
        """Return what the elements are multiplied or divided by, from what is stored."""
        return stored


class Exponent(Enum):
    """How a power-of-two scale follows from amax; emax is the exponent of the largest element."""

    FLOOR = "floor"  #: 2^(floor(log2 amax) - emax): OCP MX 1.0, 6.3
    CEIL = "ceil"  #: 2^(ceil(log2 amax) - emax)
    EVEN = "even"  #: as FLOOR, of amax rounded half up to the element's mantissa bits
    RCEIL = "rceil"  #: the first power of two from float32(amax / max) on
    RECIPROCAL = "reciprocal"  #: the same from float32(amax * float32(1 / max)) on
    FIT = "fit"  #: the first power of two from the exact amax / max on: nothing is clipped


@dataclass(frozen=True, slots=True)
class ExponentRule(_OneLevel):
    """A power of two for each block, kept as an E8M0 code; NaN in, NaN scale (0xFF) out.

    least: what code 0, 2^-127, multiplies by: 2^127, unless a system has another. broken: what
    code 255, NaN, multiplies by; the values are NaN whatever it is.
    """

    divides: ClassVar[bool] = False
    divides_first: ClassVar[bool] = False

    mode: Exponent = Exponent.FLOOR
    least: float = 2.0**127
    broken: float = 0.0

    def scales(self, amax: Array, element: Element, whole: np.float32) -> Scales:
        """Return the scales of blocks with these largest magnitudes."""
        codes = _EXPONENTS[self.mode](amax, element)
        codes += 127
        np.maximum(codes, 0, out=codes)
        np.minimum(codes, 254, out=codes)  # 255 would be NaN, of numbers and of infinity
        codes[amax.view(np.uint32) > _INF] = 255
        inverses = _inverses(self.least, self.broken)
        return Scales(inverses.take(codes), _POWERS.take(codes), codes.astype(np.uint8))

    def kept(self, stored: Array, whole: np.float32) -> Array:
        """Return what the elements are multiplied by, from what is stored."""
        values: Array = _POWERS[stored]
        return values


@dataclass(frozen=True, slots=True)
class AmaxRule(_OneLevel):
    """The scale max / amax, in float32.

    wide: divided in float64, then rounded. least: amax is at least this. margin: as much headroom
    in binades. power_of_two: rounded down to one. zero: the scale of amax 0 and inf; None: that
    of the formula. inverse: the scale kept is amax / max, and its reciprocal multiplies.
    divides: elements are divided by the scale afterwards, not multiplied by its reciprocal.
    added: put on top of amax.
    """

    divides_first: ClassVar[bool] = False

    wide: bool = False
    least: float = 0.0
    margin: int = 0
    power_of_two: bool = False
    zero: float | None = 1.0
    inverse: bool = False
    divides: bool = False
    added: float = 0.0

    def scales(self, amax: Array, element: Element, whole: np.float32) -> Scales:
        """Return the scales of blocks with these largest magnitudes."""
        top = np.maximum(amax, np.float32(self.least)) + np.float32(self.added)
        if self.inverse:
            return self._inverse(top, element)
        scale = self._divided(top, element)
        if self.zero is not None:
            scale = np.where((amax == 0) | np.isinf(amax), np.float32(self.zero), scale)
            scale = np.where(np.isinf(scale), _FLT_MAX, scale)
        if self.power_of_two:
            scale = (scale.view(np.uint32) & np.uint32(0xFF800000)).view(np.float32)
        kept = scale if self.divides else _ONE / scale
        return Scales(scale, kept, kept)

    def _divided(self, top: Array, element: Element) -> Array:
        most = math.ldexp(element.max, -self.margin)
        if self.wide:
            least = max(self.least, 0.0)
            return (most / np.maximum(top.astype(np.float64), least)).astype(np.float32)
        quotient: Array = np.float32(most) / top
        return quotient

    def _inverse(self, top: Array, element: Element) -> Scales:
        kept = top / np.float32(element.max)
        if self.power_of_two:  # rounded up: the element must fit
            bits = kept.view(np.uint32)
            up = (bits + np.uint32(0x7FFFFF)) & np.uint32(0xFF800000)
            kept = np.where(np.isfinite(kept), up.view(np.float32), kept)
        return Scales(_ONE / kept, kept, kept)


@dataclass(frozen=True, slots=True)
class FixedRule(_OneLevel):
    """The same scale whatever amax is: of fixed point, or what an earlier step settled.

    inverse: values are divided by it, and elements multiplied, in place of the other way round;
    in float32 that is not the same.
    """

    divides: ClassVar[bool] = False

    scale: float = 1.0
    inverse: bool = False

    @property
    def divides_first(self) -> bool:
        """Whether values are divided, by what `scales` gives as `encode`."""
        return self.inverse

    def scales(self, amax: Array, element: Element, whole: np.float32) -> Scales:
        """Return the scales of blocks with these largest magnitudes."""
        scale = np.full(amax.shape, self.scale, np.float32)
        kept = scale if self.inverse else _ONE / scale
        return Scales(scale, kept, kept)


@dataclass(frozen=True, slots=True)
class TwoLevel:
    """A float32 scale for the tensor and an E4M3 one for each block of it (NVFP4).

    clamped: as torchao has it, whose tensor scale is amax / (448 * 6) and whose block scales are
    at least 2^-6; else as TransformerEngine, whose scale is the reciprocal and clamps nothing.
    """

    divides: ClassVar[bool] = False
    divides_first: ClassVar[bool] = False

    clamped: bool = False

    def whole(self, amax: np.float32, element: Element) -> np.float32:
        """Return the scale of a tensor with this largest magnitude."""
        most = np.float32(element.max)
        if self.clamped:
            return np.float32(amax / (np.float32(448) * most))
        whole = np.minimum(np.float32(448) * most / amax, _FLT_MAX)
        return np.float32(_ONE if amax == 0 else whole)

    def scales(self, amax: Array, element: Element, whole: np.float32) -> Scales:
        """Return the scales of blocks with these largest magnitudes."""
        most = np.float32(element.max)
        if self.clamped:
            part = np.clip((amax / most) / whole, np.float32(2**-6), np.float32(448))
            codes = encode(part, _SCALE)
            return Scales((_ONE / whole) / decode(codes, _FORMAT), self.kept(codes, whole), codes)
        codes = encode(amax * (whole * (_ONE / most)), _SCALE)
        kept = self.kept(codes, whole)
        return Scales(np.minimum(_ONE / kept, _FLT_MAX), kept, codes)

    def kept(self, stored: Array, whole: np.float32) -> Array:
        """Return what the elements are multiplied by, from what is stored."""
        block: Array = decode(stored, _FORMAT)
        return whole * block if self.clamped else block * (_ONE / whole)


ScaleRule = ExponentRule | AmaxRule | FixedRule | TwoLevel

_FORMAT = "float8_e4m3fn"
_SCALE = f"{_FORMAT}:overflow=saturate"


_INF = np.uint32(0x7F800000)

#: What each E8M0 code stands for.
_POWERS = decode(np.arange(256, dtype=np.uint8), "float8_e8m0fnu")


@cache
def _inverses(least: float, broken: float) -> Array:
    """What each E8M0 code multiplies by."""
    powers = [least, *(math.ldexp(1, 127 - code) for code in range(1, 255)), broken]
    return np.array(powers, np.float32)


# --- exponents of two, from the bits of amax -----------------------------------------------------


def _field(amax: Array) -> Array:
    """floor(log2(amax)) of a normal number; -127 below, 128 for infinity and NaN."""
    field = (amax.view(np.uint32) >> np.uint32(23)).view(np.int32)
    field -= 127
    return field


def _significand(amax: Array) -> Array:
    return amax.view(np.uint32) & np.uint32(0x7FFFFF)


def _ceil(amax: Array, element: Element) -> Array:
    return _field(amax) + (_significand(amax) > 0) - element.emax


def _even(amax: Array, element: Element) -> Array:
    half = np.uint32(1 << (22 - element.mantissa_bits))
    return _field((amax.view(np.uint32) + half).view(np.float32)) - element.emax


def _fit(amax: Array, element: Element) -> Array:
    top = np.float32(element.max).reshape(1)
    return _field(amax) - element.emax + (_significand(amax) > _significand(top))


def _round_up(quotient: Array) -> Array:
    # 2^-127 lies among the subnormals: code 0 up to it, code 1 above
    tiny = np.where(quotient > np.float32(2**-127), -126, -127)
    up = _field(quotient) + (_significand(quotient) > 0)
    return np.where(quotient < np.float32(2**-126), tiny, up)


_EXPONENTS = {
    Exponent.FLOOR: lambda amax, element: _field(amax) - element.emax,
    Exponent.CEIL: _ceil,
    Exponent.EVEN: _even,
    Exponent.RCEIL: lambda amax, element: _round_up(amax / np.float32(element.max)),
    Exponent.RECIPROCAL: lambda amax, element: _round_up(
        amax * (_ONE / np.float32(element.max))
    ),
    Exponent.FIT: _fit,
}
