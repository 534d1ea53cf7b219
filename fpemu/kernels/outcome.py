"""The scalar body of counting: what a rounding did to one number.

Limits are words to compare magnitudes with, for numbers of one sign: whether the sign is taken;
input below which it is underflow; input from which it lies beyond; the smallest normal and the
largest value. Same rules as in bits.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["LIMITS", "OUTCOMES", "build"]

#: What the body tells apart, by index.
OUTCOMES = ("nan", "inf", "zero", "invalid", "beyond", "underflow", "subnormal", "normal")

#: Words of one sign's limits.
LIMITS = 5


def build(U: Any, mantissa: int, jit: Callable[[Any], Any]) -> Callable[..., Any]:
    """Return kind(x, rounded, taken, under, beyond, normal, largest): an index of OUTCOMES."""
    width = 32 if mantissa == 23 else 64
    MAGNITUDE = U((1 << (width - 1)) - 1)
    INF = U(((1 << (width - 1 - mantissa)) - 1) << mantissa)
    ZERO = U(0)

    @jit
    def kind(x, rounded, taken, under, beyond, normal, largest):  # type: ignore[no-untyped-def]
        a, r = U(x & MAGNITUDE), U(rounded & MAGNITUDE)
        found = U(6) if r < normal else U(7)
        found = U(5) if a < under or r == ZERO else found
        found = U(4) if a >= beyond or r > largest else found
        found = U(3) if taken == ZERO else found
        found = U(2) if a == ZERO else found
        found = U(1) if a == INF else found
        return ZERO if a > INF else found

    return kind  # type: ignore[no-any-return]
