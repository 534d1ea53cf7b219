"""Random bits from (seed, element index): the same on every device, for any thread count.

A counter-based generator: the draw of an element is a hash of its index under keys that come
from the seed, so that nothing needs to be kept, split or skipped. The 32-bit finaliser is the
three-multiplication one of C. Wellons' hash search (bias 0.021); keys enter between its rounds,
so that two seeds give unrelated functions and not one function shifted. With two multiplications
neighbours 4096 apart were measurably correlated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["BLOCK", "build_draw", "keys_of"]

#: Elements that share one set of keys; the index inside a block has 32 bits.
BLOCK = 1 << 32

_MASK = (1 << 64) - 1


def _splitmix64(state: int) -> int:
    z = (state + 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def keys_of(seed: int, block: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """Return six 32-bit keys (in 64-bit words) for a block of 2**32 elements of a seed's stream."""
    state = _splitmix64(_splitmix64(seed) ^ _splitmix64(block ^ 0x5851F42D4C957F2D))
    words = []
    for _ in range(3):
        state = _splitmix64(state)
        words += [state & 0xFFFFFFFF, state >> 32]
    return np.array(words, np.uint64)


def build_draw(bits: int, jit: Callable[[Any], Any]) -> Callable[..., Any]:
    """Return draw(uint32 index, keys, shift): random words of 32 or 64 bits, shifted right.

    Products are formed in uint64 under a 32-bit mask, so that nothing wraps around.
    """
    W = np.uint64
    U = np.uint32
    LOW = W(0xFFFFFFFF)

    @jit
    def times(h, factor):  # type: ignore[no-untyped-def]
        return U(W(W(h) * factor) & LOW)

    @jit
    def mix(index, k0, k1, k2):  # type: ignore[no-untyped-def]
        h = U(index ^ U(k0))
        h = U(h ^ U(h >> U(17)))
        h = times(h, W(0xED5AD4BB))
        h = U(h ^ U(k1))
        h = U(h ^ U(h >> U(11)))
        h = times(h, W(0xAC4C1B51))
        h = U(h ^ U(k2))
        h = U(h ^ U(h >> U(15)))
        h = times(h, W(0x31848BAB))
        return U(h ^ U(h >> U(14)))

    @jit
    def draw32(index, keys, shift):  # type: ignore[no-untyped-def]
        return U(mix(index, keys[0], keys[1], keys[2]) >> U(shift))

    @jit
    def draw64(index, keys, shift):  # type: ignore[no-untyped-def]
        high = mix(index, keys[0], keys[1], keys[2])
        low = mix(index, keys[3], keys[4], keys[5])
        return W(W(W(W(high) << W(32)) | W(low)) >> W(shift))

    return draw32 if bits == 32 else draw64  # type: ignore[no-any-return]
