"""The CPU loops that look at what a recipe left of lines: what was lost and clipped, the noise.

The sums may be reassociated, so that they vectorise; their last bits may differ between
processors. The counts are integers. Nothing else here is fast math.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from fpemu.kernels.compile import jit, source_stamp

__all__ = ["COUNTS", "SUMS", "recipe_loop"]

_STAMP = source_stamp()

#: What the loop counts of all lines together, by index.
COUNTS = ("zero", "nan", "inf", "overflow", "lost", "subnormal", "clipped")

#: What it adds up for each line, by index.
SUMS = ("signal", "noise", "clipped", "broken")


@cache
def recipe_loop(divide: bool = False) -> Callable[..., Any]:
    """Return look(x, kept, factors, normals, top, bottom, counts, sums).

    x, kept: lines of numbers and of what is left of them. factors: what each line's numbers are
    multiplied by (divided by) before the element. normals: the smallest normal element times each
    line's scale. top, bottom: from where on a scaled number lies beyond the largest element.
    """
    stamp = _STAMP
    infinity, one, nothing = np.float32(np.inf), np.uint32(1), np.uint32(0)

    def look(x, kept, factors, normals, top, bottom, counts, sums):  # type: ignore[no-untyped-def]
        stamp  # noqa: B018
        for row in range(x.shape[0]):
            factor, normal = factors[row], normals[row]
            zero = nan = inf = over = lost = small = beyond = broken = nothing
            signal = noise = 0.0
            for column in range(x.shape[1]):
                value, left = x[row, column], kept[row, column]
                scaled = value / factor if divide else value * factor
                size, rest = abs(value), abs(left)
                finite, good = size < infinity, rest < infinity
                some = finite & (size > 0)
                gone = some & (rest == 0)
                here = some & good & (rest > 0)
                far = here & ((scaled >= top) | (scaled <= bottom))
                zero += one if size == 0 else nothing
                inf += one if size == infinity else nothing
                nan += one if size != size else nothing
                over += one if some & (not good) else nothing
                broken += nothing if good else one
                lost += one if gone else nothing
                beyond += one if far else nothing
                small += one if here & (not far) & (rest < normal) else nothing
                wide = np.float64(value) if finite & good else 0.0
                error = np.float64(value) - np.float64(left) if finite & good else 0.0
                signal += wide * wide
                noise += error * error
            counts[0] += zero
            counts[1] += nan
            counts[2] += inf
            counts[3] += over
            counts[4] += lost
            counts[5] += small
            counts[6] += beyond
            sums[row, 0] += signal
            sums[row, 1] += noise
            sums[row, 2] += beyond
            sums[row, 3] += broken

    return jit(look, error_model="numpy", fastmath={"reassoc"})
