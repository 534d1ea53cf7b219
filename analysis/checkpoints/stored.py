"""Stored: a tensor as a checkpoint's file describes it, and how to get at its bytes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from fpemu.analysis.checkpoints.encodings import Encoding, Room

__all__ = ["LIMIT", "Pieces", "Storage", "Stored", "no_pieces", "values_of"]

#: More values than any tensor has: what JSON and SQLite hold exactly.
LIMIT = 2**53

#: Called with the memory to use: the bytes of the values, piece by piece, in whole groups. Without
#: a storage: none.
Pieces = Callable[["Room"], Iterator[np.ndarray[Any, Any]]]


def values_of(shape: Iterable[int]) -> int:
    """Return how many values a shape has; LIMIT for more, or for a side of so many.

    >>> from fpemu.analysis.checkpoints.stored import LIMIT, values_of
    >>> values_of([3, 4]), values_of([]), values_of([2**40] * 10**6) == LIMIT
    (12, 1, True)

    A hostile shape's product would have millions of digits.
    """
    values = 1
    for side in shape:
        if side >= LIMIT:
            return LIMIT
        values = min(values * side, LIMIT)
    return values


def no_pieces(room: Room) -> Iterator[np.ndarray[Any, Any]]:
    """The bytes of a tensor that no copy can hold: none."""
    return iter(())


@dataclass(frozen=True, slots=True)
class Storage:
    """How a tensor's bytes lie, in the words of safetensors."""

    dtype: str  #: F32, BF16, I64, ...
    bits: int
    swapped: bool = False  #: the other byte order than little-endian
    order: tuple[int, ...] = ()  #: dimensions as the bytes go, slowest first; (): as in the shape


@dataclass(frozen=True, slots=True)
class Stored:
    """One tensor of a file, not read yet."""

    name: str
    dtype: str  #: as the file's own kind calls it: BF16, <f4, torch.float16
    shape: tuple[int, ...]
    octets: int  #: bytes that its values take in the file, unpacked if it was compressed
    encoding: Encoding | None  #: None: it is not counted
    reason: str = ""  #: why it is not counted, and what would help
    pieces: Pieces = field(default=no_pieces, repr=False, compare=False)
    storage: Storage | None = None  #: None: safetensors cannot hold it

    @property
    def values(self) -> int:
        """How many numbers it has."""
        return math.prod(self.shape)
