"""Parts: a stored tensor's numbers, and what a target makes of them, piece by piece."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from fpemu.analysis.checkpoints.encodings import Room
from fpemu.analysis.checkpoints.stored import Stored
from fpemu.analysis.conversion.numbers import PIECE, rows_of, top_of
from fpemu.analysis.conversion.part import Draw, Part
from fpemu.analysis.conversion.targets import Target

__all__ = ["parts_of", "rows_at_once", "tensor_seed"]

Array = np.ndarray[Any, Any]


def parts_of(
    stored: Stored, target: Target, axis: int, seed: int | None, threads: int | None, room: Room,
    tell: Callable[[int], None],
) -> Iterator[tuple[Array, Part]]:  # fmt: skip
    """Yield a tensor's numbers, and what the target makes of them; `tell` of the bytes read."""
    shape, axis = target.view(stored.shape, axis)
    row, rows = math.prod(shape[1:]), rows_at_once(target, shape, axis)
    top = top_of(stored, room) if target.wide and rows < shape[0] else None
    own = None if seed is None else tensor_seed(seed, stored.name)
    at = 0
    for x in rows_of(stored, room, shape, rows):
        yield x, target.part(x, axis, top, Draw(own, at * row), threads)
        at += len(x)
        tell(stored.octets * len(x) // shape[0])


def rows_at_once(target: Target, shape: tuple[int, ...], axis: int) -> int:
    """Return how many of a shape's rows make a piece that a target may be given by itself."""
    step = target.step(shape, axis)
    if step is None:
        return shape[0]
    return min(max(1, PIECE // max(math.prod(shape[1:]), 1) // step) * step, shape[0])


def tensor_seed(seed: int, name: str) -> int:
    """Return the seed of a tensor's draws, so that tensors do not share them.

    >>> from fpemu.analysis.conversion import tensor_seed
    >>> tensor_seed(0, "fc1.weight") == tensor_seed(0, "fc2.weight")
    False
    """
    digest = hashlib.blake2b(name.encode(errors="surrogatepass"), digest_size=8).digest()
    return (seed + int.from_bytes(digest, "little")) % 2**64


