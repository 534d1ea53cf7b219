"""Encodings: what the bytes of a stored tensor mean, and the float32 numbers that they are."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

import fpemu

__all__ = ["FLOAT64_DIGITS", "Encoding", "Room", "beyond_float32", "floats"]

Array = np.ndarray[Any, Any]

#: Formats of up to so many mantissa bits can be judged from a float64's float32 rounded to odd.
FLOAT64_DIGITS = 21


@dataclass(frozen=True, slots=True)
class Encoding:
    """How values lie in bytes: a format of fpemu's or "float64", side by side.

    >>> from fpemu.analysis.checkpoints.encodings import Encoding
    >>> Encoding("float6_e2m3fn", 6).group
    (4, 3)
    """

    format: str
    bits: int
    swapped: bool = False  #: the other byte order than this machine's

    @property
    def group(self) -> tuple[int, int]:
        """How many values fill how many whole bytes."""
        common = math.lcm(self.bits, 8)
        return common // self.bits, common // 8

    def octets(self, values: int) -> int:
        """How many bytes so many values take, the last one perhaps in part."""
        return -(-values * self.bits // 8)


class Room:
    """Memory that every piece of every tensor is read into: what a scan needs, and no more.

    values: how many numbers a piece has at most, a multiple of 8.
    """

    def __init__(self, values: int) -> None:
        self.values = values
        self.octets = np.empty(8 * values, np.uint8)
        self.floats = np.empty(values, np.float32)


def floats(octets: Array, encoding: Encoding, room: Room, threads: int | None = None) -> Array:
    """Return the numbers that whole groups of bytes hold, as float32 in `room` or in place.

    >>> import numpy as np
    >>> from fpemu.analysis.checkpoints.encodings import Encoding, Room, floats
    >>> floats(np.uint8([0x21, 0xF7]), Encoding("float4_e2m1fn", 4), Room(8))
    array([ 0.5,  1. ,  6. , -6. ], dtype=float32)

    All are exact but float64's, which are rounded to odd: their float32 lies on the same side of
    every value and midpoint of a narrower format, so that format makes the same of it. Beyond
    float32's range they become its largest or smallest. float64 `octets` may be overwritten.
    Source: Boldo and Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms
    using rounding to odd" (2008), theorem 3.
    """
    if encoding.bits < 8:
        return _unpacked(octets, encoding, room)
    words = octets.view(f"u{encoding.bits // 8}")
    if encoding.swapped:
        words = words.byteswap()
    if encoding.format == "float32":
        return words.view(np.float32)
    out = room.floats[: words.size]
    if encoding.format == "float64":
        wide = words.view(np.float64)
        wide = wide if wide.flags.writeable else wide.copy()
        odd = fpemu.round(wide, "float32", rounding="to_odd", out=wide, threads=threads)
        np.copyto(out, odd, casting="same_kind")
        return out
    fpemu.decode(words, encoding.format, out=out, threads=threads)
    return out


def _unpacked(octets: Array, encoding: Encoding, room: Room) -> Array:
    if encoding.bits != 4:
        return fpemu.decode(octets, encoding.format, packed=True)  # type: ignore[no-any-return]
    out = room.floats[: 2 * octets.size]
    np.take(_pairs(encoding.format), octets, axis=0, out=out.reshape(-1, 2), mode="clip")
    return out


@cache
def _pairs(format: str) -> Array:
    """The two values in each byte: looked up at 10 times the speed of taking it apart."""
    every = np.arange(256, dtype=np.uint8)[:, None]
    return fpemu.decode(every, format, packed=True)  # type: ignore[no-any-return]


def beyond_float32(octets: Array, encoding: Encoding) -> int:
    """Return how many float64 numbers leave float32's range, either end; 0 for other encodings."""
    if encoding.format != "float64":
        return 0
    words = octets.view(np.uint64)
    magnitudes = np.abs((words.byteswap() if encoding.swapped else words).view(np.float64))
    high = (magnitudes > float(np.finfo(np.float32).max)) & (magnitudes < np.inf)
    low = (magnitudes < float(np.finfo(np.float32).smallest_subnormal)) & (magnitudes > 0)
    return int(np.count_nonzero(high | low))
