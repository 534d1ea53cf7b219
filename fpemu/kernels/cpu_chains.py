"""The CPU loop of chains: products added one by one with fused multiply-adds, subnormals flushed.

A product of two bfloat16 is exact in float64, and so, but for numbers that differ by more than 53
bits, is its sum with a float32. Rounding a sum of two float32 to float64 first never changes what
it is in float32 (53 bits are more than twice 24 and two: Figueroa, 1995).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from fpemu.kernels.compile import inner, jit, source_stamp
from fpemu.kernels.cpu_aligned import WIDTH

__all__ = ["chains_loop"]

_STAMP = source_stamp()

Loop = Callable[..., Any]


@cache
def chains_loop() -> Loop:
    """Return add(a, ae, b, be, sums, tile, facts) for float64 operands, as `aligned_loop` does.

    facts: (products of an instruction, chains). Product k goes to chain k modulo chains; the
    chains begin at zero in each instruction, are added, and then to the accumulator.
    """
    stamp = _STAMP
    # what rounds up to 2**-126 as a normal number is not tiny (x86: tininess after rounding)
    TINY = 2.0**-126 - 2.0**-151

    @inner
    def rounded(x: Any) -> Any:
        return x * 0.0 if abs(x) < TINY else np.float64(np.float32(x))

    def add(a, ae, b, be, sums, tile, facts):  # type: ignore[no-untyped-def]
        stamp  # noqa: B018
        top_row, bottom_row, first_column, last_column, start, stop = tile
        group, chains = facts
        all_parts = np.empty((chains, WIDTH))
        for left in range(first_column, last_column, WIDTH):
            width = min(WIDTH, last_column - left)
            right = left + width
            for first in range(start, stop, group):
                last = min(first + group, stop)
                for row in range(top_row, bottom_row):
                    all_parts[:, :width] = 0.0
                    for k in range(first, last):
                        x, column = a[row, k], b[k, left:right]
                        parts = all_parts[(k - first) % chains, :width]
                        for j in range(width):
                            parts[j] = rounded(x * column[j] + parts[j])
                    total = all_parts[0, :width]
                    for chain in range(1, chains):
                        parts = all_parts[chain, :width]
                        for j in range(width):
                            total[j] = rounded(total[j] + parts[j])
                    held = sums[row, left:right]
                    for j in range(width):
                        held[j] = rounded(held[j] + total[j])

    return jit(add, error_model="numpy")
