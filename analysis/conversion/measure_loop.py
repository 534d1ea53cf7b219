"""The loop that measures what a conversion left; plain Python, compiled on first use."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

from fpemu.kernels.compile import jit

__all__ = ["measure_loop"]

Loop = Callable[..., Any]


@cache
def measure_loop(coded: bool) -> Loop:
    """Return measure(x, q, codes, top, limit) -> eight figures, as `Measured` has them.

    x, q: flat floats before and after. codes: of q, if coded; top: which codes are the largest
    magnitudes. A number is clipped beyond the limit, or where its code is such a one and it is
    larger than what that stands for. Counting without branches is 2.5 times as fast: whether a
    number grows is the toss of a coin.
    """
    infinity = math.inf

    def measure(x, q, codes, top, limit):  # type: ignore[no-untyped-def]
        signal, noise, relative = 0.0, 0.0, 0.0
        nonfinite, nonzero, lost, clipped, broken = 0, 0, 0, 0, 0
        for i in range(x.size):
            a, b = float(x[i]), float(q[i])
            large, left = abs(a), abs(b)
            if not (large < infinity and left < infinity):
                finite = large < infinity
                nonfinite += 1 - finite
                broken += finite
                nonzero += finite and large > 0.0
                continue
            error = abs(b - a)
            signal += a * a
            noise += error * error
            nonzero += large > 0.0
            lost += (large > 0.0) & (left == 0.0)
            if coded:
                clipped += top[codes[i]] & (large > left)
            else:
                clipped += large > limit
            # a product and not a quotient; the quotient is taken of the few that are larger
            if error > relative * large and left > 0.0 and large > 0.0:
                relative = error / large
        return signal, noise, relative, nonfinite, nonzero, lost, clipped, broken

    return jit(measure, error_model="numpy")
