"""The CPU loops that put codes of a few bits side by side in bytes, and take them apart."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from fpemu.kernels.compile import jit, source_stamp

__all__ = ["group_of", "pack_loop", "unpack_loop"]

_STAMP = source_stamp()

Loop = Callable[..., Any]


def group_of(bits: int) -> tuple[int, int]:
    """Return how many codes of so many bits fill how many whole bytes."""
    codes = 8 // math.gcd(bits, 8)
    return codes, codes * bits // 8


@cache
def pack_loop(bits: int) -> Loop:
    """Return pack(codes, octets): flat uint8 codes side by side, the first in the lowest bits."""
    count, size = group_of(bits)
    width, stamp = bits, _STAMP

    def pairs(codes, octets):  # type: ignore[no-untyped-def]
        stamp  # noqa: B018
        for i in range(octets.size):
            octets[i] = codes[2 * i] | codes[2 * i + 1] << np.uint8(4)

    def pack(codes, octets):  # type: ignore[no-untyped-def]
        stamp  # noqa: B018
        for i in range(octets.size // size):
            word = np.uint64(0)
            for place in range(count):
                word |= np.uint64(codes[count * i + place]) << np.uint64(width * place)
            for place in range(size):
                octets[size * i + place] = np.uint8(word >> np.uint64(8 * place))

    return jit(pairs if bits == 4 else pack)


@cache
def unpack_loop(bits: int) -> Loop:
    """Return unpack(octets, codes): what `pack_loop` put side by side."""
    count, size = group_of(bits)
    width, stamp = bits, _STAMP
    mask = np.uint64((1 << bits) - 1)

    def unpack(octets, codes):  # type: ignore[no-untyped-def]
        stamp  # noqa: B018
        for i in range(octets.size // size):
            word = np.uint64(0)
            for place in range(size):
                word |= np.uint64(octets[size * i + place]) << np.uint64(8 * place)
            for place in range(count):
                codes[count * i + place] = np.uint8(word >> np.uint64(width * place) & mask)

    return jit(unpack)
