"""The CPU loop of Hadamard rotations: groups of numbers by sums and differences of halves."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from fpemu.kernels.compile import jit, source_stamp

__all__ = ["hadamard_loop"]

_STAMP = source_stamp()

Loop = Callable[..., Any]


@cache
def hadamard_loop(size: int) -> Loop:
    """Return turn(x, before, after, out): each row of `size` float32 numbers times H.

    before, after: factors of the row's numbers, before and after; log2(size) rounds of sums and
    differences lie between, in this order, so that results are the same everywhere.
    """
    stamp, count = _STAMP, size

    def turn(x, before, after, out):  # type: ignore[no-untyped-def]
        stamp  # noqa: B018
        group = np.empty(count, np.float32)
        for row in range(x.shape[0]):
            for i in range(count):
                group[i] = x[row, i] * before[i]
            half = 1
            while half < count:
                for start in range(0, count, 2 * half):
                    for i in range(start, start + half):
                        low, high = group[i], group[i + half]
                        group[i], group[i + half] = low + high, low - high
                half *= 2
            for i in range(count):
                out[row, i] = group[i] * after[i]

    return jit(turn)
