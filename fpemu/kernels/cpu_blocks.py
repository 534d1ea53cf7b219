"""The CPU loops of scaled blocks: each block's largest magnitude, and a factor for each block."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from fpemu.kernels.compile import jit, source_stamp

__all__ = ["amax_loop", "factor_loop"]

_STAMP = source_stamp()

Loop = Callable[..., Any]


@cache
def amax_loop() -> Loop:
    """Return amax(words, out): the largest magnitude of each row, as float32 bits.

    NaN is larger than infinity there, and that than all numbers: so a NaN comes through. (LLVM
    does not vectorise the loop where the width is a constant: it unrolls it first.)
    """
    stamp = _STAMP
    magnitude = np.uint32(0x7FFFFFFF)

    def amax(words, out):  # type: ignore[no-untyped-def]
        stamp  # noqa: B018
        for row in range(words.shape[0]):
            top = np.uint32(0)
            for column in range(words.shape[1]):
                top = max(top, words[row, column] & magnitude)
            out[row] = top

    return jit(amax)


@cache
def factor_loop(divide: bool = False) -> Loop:
    """Return apply(x, factors, out): each row of x times, or divided by, a factor of its own."""
    stamp = _STAMP

    def apply(x, factors, out):  # type: ignore[no-untyped-def]
        stamp  # noqa: B018
        for row in range(x.shape[0]):
            factor = factors[row]
            for column in range(x.shape[1]):
                value = x[row, column]
                out[row, column] = value / factor if divide else value * factor

    return jit(apply, error_model="numpy")
