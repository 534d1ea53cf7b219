"""The CPU loops of scaled blocks: largest magnitudes, exponents of scales, factors of rows."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from fpemu.kernels.compile import jit, source_stamp
from fpemu.kernels.cpu_intrinsics import largest

__all__ = ["amax_loop", "exponent_loop", "factor_loop"]

_STAMP = source_stamp()

Loop = Callable[..., Any]


def amax_loop(width: int) -> Loop:
    """Return amax(words, out): the largest magnitude of each row of a width, as float32 bits.

    NaN is larger than infinity there, and that than all numbers: so a NaN comes through.
    """
    return _amax(next((count for count in (32, 16) if width % count == 0), 1))


@cache
def _amax(count: int) -> Loop:
    """The loop for widths that a count divides: it takes so many words at once."""
    stamp = _STAMP
    magnitude = np.uint32(0x7FFFFFFF)
    most = largest(count)

    def vectors(words, out):  # type: ignore[no-untyped-def]
        stamp  # noqa: B018
        rows, width = words.shape
        flat = words.reshape(rows * width)
        for row in range(rows):
            top = np.uint32(0)
            for start in range(row * width, (row + 1) * width, count):
                top = max(top, most(flat, start))
            out[row] = top

    def words(words, out):  # type: ignore[no-untyped-def]
        stamp  # noqa: B018
        for row in range(words.shape[0]):
            top = np.uint32(0)
            for column in range(words.shape[1]):
                top = max(top, words[row, column] & magnitude)
            out[row] = top

    return jit(words if count == 1 else vectors)


@cache
def exponent_loop() -> Loop:
    """Return exponents(words, added, tiny, emax, out): E8M0 codes from float32 magnitudes.

    A carry of `added` out of the significand raises the exponent; subnormals have one more than
    zero where they are above `tiny`. NaN gives code 255, and nothing else does.
    """
    stamp = _STAMP

    def exponents(words, added, tiny, emax, out):  # type: ignore[no-untyped-def]
        stamp  # noqa: B018
        for i in range(words.size):
            bits = np.int64(words[i])
            field = (bits + added) >> 23 if bits >= 0x800000 else np.int64(bits > tiny)
            code = min(max(field - emax, 0), 254)
            out[i] = 255 if bits > 0x7F800000 else code

    return jit(exponents)


@cache
def factor_loop(divide: bool = False, in_place: bool = False) -> Loop:
    """Return apply(x, factors, out): each row of x times, or divided by, a factor of its own.

    in_place: apply(x, factors); of two arrays that may be one LLVM vectorises nothing.
    """
    stamp = _STAMP

    def apply(x, factors, out):  # type: ignore[no-untyped-def]
        stamp  # noqa: B018
        for row in range(x.shape[0]):
            factor = factors[row]
            for column in range(x.shape[1]):
                value = x[row, column]
                out[row, column] = value / factor if divide else value * factor

    def apply_in_place(x, factors):  # type: ignore[no-untyped-def]
        stamp  # noqa: B018
        for row in range(x.shape[0]):
            factor = factors[row]
            for column in range(x.shape[1]):
                value = x[row, column]
                x[row, column] = value / factor if divide else value * factor

    return jit(apply_in_place if in_place else apply, error_model="numpy")
