"""Binades: the powers of two that numbers lie between, and how many lie where."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fpemu.analysis.parts import Parts

__all__ = ["BINADES", "by_binade"]

#: The binades of float32, subnormals included: binade k holds 2^k <= |x| < 2^(k + 1).
BINADES = range(-149, 128)


def by_binade(rows: Sequence[Parts]) -> tuple[range, np.ndarray[Any, np.dtype[np.int64]]]:
    """Return the binades of all true numbers, float32's at least, and counts [row, binade].

    A tally whose numbers are to be multiplied by 2^k has its counts moved by k binades, which
    rounds nothing; they may end below or above float32's.
    """
    shifts = {exponent for row in rows for exponent in row.by_exponent} | {0}
    binades = range(BINADES.start + min(shifts), BINADES.stop + max(shifts))
    counts = np.zeros((len(rows), len(binades)), np.int64)
    for into, row in zip(counts, rows, strict=True):
        for exponent, tally in row.by_exponent.items():
            first = BINADES.start + exponent - binades.start
            into[first : first + len(BINADES)] += tally.exponents()
    return binades, counts
