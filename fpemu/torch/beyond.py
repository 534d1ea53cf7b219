"""Where a number lies beyond a Cast's largest value: where it saturates or overflows."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from fpemu.cast import Cast
from fpemu.kernels.params import WORDS
from fpemu.limits import word_limits

__all__ = ["bounds_of"]


@lru_cache(maxsize=1024)
def bounds_of(cast: Cast, bits: int) -> tuple[float, float]:
    """Return (low, high): beyond lies what is <= low or >= high, of float32 or float64 numbers.

    >>> import fpemu
    >>> from fpemu.torch.beyond import bounds_of
    >>> bounds_of(fpemu.Cast("fp16"), 32)
    (-65520.0, 65520.0)

    bits: 32 or 64. NaN is not beyond; nor is a finite negative number in an unsigned format. Of a
    stochastic cast only infinity surely is: for the others the draw decides.
    """
    table, _ = word_limits(cast, bits)
    words = np.array([row[2] for row in table], WORDS[bits].uint)  # of plus, of minus
    high, low = words.view(WORDS[bits].float).tolist()
    return (-low if table[1][0] else -np.inf), high
