"""The numbers that are rounded: half like activations, half over many binades."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["DESCRIPTION", "sample"]

DESCRIPTION = "half N(0,1), half N(0,1) * 2**N(0,16), shuffled"


def sample(size: int, seed: int = 0) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return the float32 values that `fpemu bench` rounds.

    >>> from fpemu.analysis.bench.sample import sample
    >>> sample(1024).dtype.name, bool((sample(1024) == sample(1024)).all())
    ('float32', True)

    The wide half falls among the subnormals of narrow formats, to zero and beyond their largest
    value, where casts with branches are slow; without shuffling, such branches would be foreseen.
    """
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(size, np.float32)
    wide = values[size // 2 :]
    wide *= np.exp2(16 * rng.standard_normal(wide.size, np.float32))
    rng.shuffle(values)
    return values
