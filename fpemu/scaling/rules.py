"""Rules: from a block's largest magnitude to its scale, as the systems that use it compute it.

Each works on float32 arrays with the very operations of the system it is named for: a scale that
is off by one unit in the last place changes codes. Powers of two come from exponent bits, never
from log2, which is wrong just below a power of two.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any, ClassVar, NamedTuple

import numpy as np

from fpemu.codes import decode, encode
from fpemu.errors import InputError
from fpemu.kernels.cpu_blocks import exponent_loop
from fpemu.scaling.elements import Element

__all__ = [
    "AmaxRule",
    "Exponent",
    "ExponentRule",
    "Exponents",
    "FixedRule",
    "ScaleRule",
    "Scales",
    "TwoLevel",
    "exponents_of",
]

Array = np.ndarray[Any, Any]

_FLT_MAX = np.float32(np.finfo(np.float32).max)
_ONE = np.float32(1)
_MARGIN = 126  #: binades: 2^margin and its reciprocal are float32


class Scales(NamedTuple):
    """The scales of some blocks, one each."""

    encode: Array  #: float32: the cast sees x * encode
    decode: Array  #: float32: the value of an element is element * decode, or element / decode
    stored: Array  #: as kept beside the elements: codes (uint8), or decode's own floats


class _OneLevel:
    """What rules share that scale blocks and not the tensor: they store what elements meet."""

    __slots__ = ()

    whole_first: ClassVar[bool] = False  #: scales depend on the largest magnitude of all blocks
    stored: ClassVar[Any] = np.float32  #: dtype of scales as stored

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

    least: what code 0, 2^-127, multiplies by: 2^127, unless a system has another. broken: whether
    code 255, NaN, multiplies by NaN and not by 0; the values are NaN in either case, the codes of
    the elements are not.
    """

    divides: ClassVar[bool] = False
    divides_first: ClassVar[bool] = False
    stored: ClassVar[Any] = np.uint8

    mode: Exponent = Exponent.FLOOR
    least: float = 2.0**127
    broken: bool = False

    def __post_init__(self) -> None:
        _check("exponent", "mode", self.mode, isinstance(self.mode, Exponent), "an Exponent")
        _check_positive("exponent", "least", self.least)

    def scales(self, amax: Array, element: Element, whole: np.float32) -> Scales:
        """Return the scales of blocks with these largest magnitudes."""
        how = exponents_of(self.mode, element)
        codes = np.empty(amax.shape, np.uint8)
        words = _QUOTIENTS[how.quotient](amax, how.factor).view(np.uint32)
        exponent_loop()(words, how.added, how.tiny, how.emax, codes)
        return Scales(_inverses(self.least, self.broken)[codes], _POWERS[codes], codes)

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

    def __post_init__(self) -> None:
        margin = type(self.margin) is int and abs(self.margin) <= _MARGIN
        _check("amax", "margin", self.margin, margin, f"an int from -{_MARGIN} to {_MARGIN}")
        for name in ("least", "added"):
            _check_positive("amax", name, getattr(self, name), or_zero=True)
        if self.zero is not None:
            _check_positive("amax", "zero", self.zero)

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
            down = (scale.view(np.uint32) & np.uint32(0xFF800000)).view(np.float32)
            # which makes NaN infinite, as TransformerEngine's does; torchao's log2 keeps it
            scale = np.where(np.isnan(scale), scale, down) if self.wide else down
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

    def __post_init__(self) -> None:
        # Keras comes to a scale of 0, of numbers below 2^-119
        _check_positive("fixed", "scale", self.scale, or_zero=self.inverse)

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
    whole_first: ClassVar[bool] = True
    stored: ClassVar[Any] = np.uint8

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


def _check(rule: str, name: str, value: object, good: bool, must: str) -> None:
    if not good:
        raise InputError(f"{rule}: {name}={value!r:.40}: must be {must}")


def _check_positive(rule: str, name: str, value: Any, or_zero: bool = False) -> None:
    """Refuse what is no finite float32 above 0: every scale would be NaN, or a NaN's."""
    number = isinstance(value, float | int | np.floating) and not isinstance(value, bool)
    good = number and (2.0**-149 <= value <= float(_FLT_MAX) or (or_zero and value == 0))
    _check(rule, name, value, good, f"a float32 above 0{', or 0' if or_zero else ''}")


ScaleRule = ExponentRule | AmaxRule | FixedRule | TwoLevel

_FORMAT = "float8_e4m3fn"
_SCALE = f"{_FORMAT}:overflow=saturate"


#: What each E8M0 code stands for.
_POWERS = np.array([*(2.0 ** (code - 127) for code in range(255)), math.nan], np.float32)


@cache
def _inverses(least: float, broken: bool) -> Array:
    """What each E8M0 code multiplies by."""
    powers = [least, *(math.ldexp(1, 127 - code) for code in range(1, 255))]
    return np.array([*powers, math.nan if broken else 0.0], np.float32)


# --- exponents of two, from the bits of amax -----------------------------------------------------

_FULL = 0x7FFFFF  # the significand's bits
_HALF = 0x400000  # 2^-127, a subnormal


class Exponents(NamedTuple):
    """How a mode finds the exponent: that of a quotient, to which a carry may add one."""

    quotient: str  #: what it is taken of: "amax", amax "over" a factor, or amax "times" it
    factor: np.float32
    added: int  #: to the quotient's bits: its carry raises the exponent
    emax: int  #: taken off
    tiny: int  #: subnormals above it count one more than zero


def exponents_of(mode: Exponent, element: Element) -> Exponents:
    """Return how a mode finds the exponents of an element's scales."""
    return _EXPONENTS[mode](element)


_QUOTIENTS: dict[str, Callable[[Array, np.float32], Array]] = {
    "amax": lambda amax, _: amax,
    "over": lambda amax, factor: amax / factor,
    "times": lambda amax, factor: amax * factor,
}


def _of_amax(added: int, element: Element) -> Exponents:
    return Exponents("amax", _ONE, added, element.emax, _FULL - added)


def _even(element: Element) -> Exponents:
    return _of_amax((1 << 23) >> (element.mantissa_bits + 1), element)


def _fit(element: Element) -> Exponents:
    top = np.float32(element.max).reshape(1).view(np.uint32)
    return _of_amax(_FULL - (int(top[0]) & _FULL), element)


def _rceil(element: Element) -> Exponents:
    return Exponents("over", np.float32(element.max), _FULL, 0, _HALF)


def _reciprocal(element: Element) -> Exponents:
    return Exponents("times", _ONE / np.float32(element.max), _FULL, 0, _HALF)


_EXPONENTS: dict[Exponent, Callable[[Element], Exponents]] = {
    Exponent.FLOOR: lambda element: _of_amax(0, element),
    Exponent.CEIL: lambda element: _of_amax(_FULL, element),
    Exponent.EVEN: _even,
    Exponent.RCEIL: _rceil,
    Exponent.RECIPROCAL: _reciprocal,
    Exponent.FIT: _fit,
}
