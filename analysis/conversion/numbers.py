"""Numbers: a stored tensor as rows of floats, exactly, piece by piece in bounded memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from fpemu.analysis.checkpoints.encodings import Encoding, Room, floats
from fpemu.analysis.checkpoints.stored import Storage, Stored
from fpemu.errors import InputError

__all__ = ["PIECE", "copied", "evenly", "rows_of", "top_of"]

Array = np.ndarray[Any, Any]

#: Numbers of a piece: what is made of them takes some 50 bytes each.
PIECE = 1 << 21

_TOP = 1 << 16  # numbers looked at for the largest: they stay in the cache


def rows_of(stored: Stored, room: Room, shape: tuple[int, ...], rows: int) -> Iterator[Array]:
    """Yield a tensor's numbers, `rows` of the shape's first dimension at a time.

    float32, or float64 of a float64 tensor; the memory is used again for the next. A tensor whose
    dimensions lie in another order in the file is read as a whole.
    """
    assert stored.storage is not None
    row = math.prod(shape[1:])
    if stored.storage.order:
        whole = next(_flat(stored, room, stored.values), np.empty(0, np.float32))
        whole = _as_stored(whole, stored).reshape(shape)
        yield from (whole[at : at + rows] for at in range(0, shape[0], rows))
        return
    for flat in _flat(stored, room, rows * row):
        yield flat.reshape(flat.size // row, *shape[1:])


def _as_stored(flat: Array, stored: Stored) -> Array:
    """Return a whole tensor's numbers, as they lie in the file, in the order of its shape."""
    assert stored.storage is not None
    order = stored.storage.order
    lying = flat.reshape([stored.shape[place] for place in order])
    return np.ascontiguousarray(lying.transpose(np.argsort(order)))


def _flat(stored: Stored, room: Room, size: int) -> Iterator[Array]:
    """Yield a tensor's numbers in one dimension, so many at a time."""
    return evenly(_floats(stored, room), min(size, stored.values))


def _floats(stored: Stored, room: Room) -> Iterator[Array]:
    """Yield a tensor's numbers as they are read; another count than it should have is refused."""
    assert stored.encoding is not None
    seen = 0
    for octets in stored.pieces(room):
        found = _exact(octets, stored.encoding, room)
        seen += found.size
        yield found
    if seen != stored.values:
        raise InputError(
            f"tensor {stored.name[:80]!r}: it has {seen:,} values, not {stored.values:,}; "
            "download or save it again"
        )


def evenly(pieces: Iterable[Array], size: int) -> Iterator[Array]:
    """Yield what pieces hold, `size` at a time and the rest; the memory is used again.

    >>> import numpy as np
    >>> from fpemu.analysis.conversion.numbers import evenly
    >>> [part.tolist() for part in evenly(iter([np.arange(3), np.arange(3, 5)]), 2)]
    [[0, 1], [2, 3], [4]]
    """
    kept, filled = np.empty(0), 0
    for piece in pieces:
        if not kept.size:
            kept = np.empty(size := max(size, 1), piece.dtype)
        while piece.size:
            part = piece[: size - filled]
            kept[filled : filled + part.size] = part
            filled, piece = filled + part.size, piece[part.size :]
            if filled == size:
                yield kept
                filled = 0
    if filled:
        yield kept[:filled]


def _exact(octets: Array, encoding: Encoding, room: Room) -> Array:
    if encoding.format != "float64":
        return floats(octets, encoding, room, 1)
    words = octets.view(np.uint64)
    return (words.byteswap() if encoding.swapped else words).view(np.float64)


def top_of(stored: Stored, room: Room) -> float:
    """Return the float32 number of a tensor with the largest magnitude; NaN is larger than all."""
    top = np.uint32(0)
    for flat in _flat(stored, room, _TOP):
        with np.errstate(over="ignore"):
            words = flat.astype(np.float32, copy=False).view(np.uint32)
        top = max(top, (words & np.uint32(0x7FFFFFFF)).max(initial=np.uint32(0)))
    return float(top.reshape(1).view(np.float32)[0])


def _little_endian(octets: Array, storage: Storage) -> Array:
    """Return bytes of a tensor as a safetensors file holds them."""
    if not storage.swapped:
        return octets
    width = storage.bits // 8
    return octets.reshape(-1, width)[:, ::-1].reshape(-1)


def copied(stored: Stored, room: Room, tell: Callable[[int], None]) -> Iterator[Array]:
    """Yield a tensor's bytes as a safetensors file holds them."""
    assert stored.storage is not None
    if not stored.storage.order:
        for octets in stored.pieces(room):
            yield _little_endian(octets, stored.storage)
            tell(octets.size)
        return
    whole = np.concatenate([octets.copy() for octets in stored.pieces(room)])
    whole = _little_endian(whole, stored.storage).view(f"V{stored.storage.bits // 8}")
    yield _as_stored(whole, stored).reshape(-1).view(np.uint8)
    tell(whole.nbytes)
