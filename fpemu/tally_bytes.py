"""A tally as bytes: sparse, compressed, versioned, exact both ways."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np

from fpemu.errors import InputError
from fpemu.kernels.bucket import ROWS, SLOTS

__all__ = ["LIMIT", "pack", "unpack"]

Array = np.ndarray[Any, Any]

#: A tally counts fewer numbers than this, so that no sum of its int64 counts overflows.
LIMIT = 1 << 63

_MAGIC = b"fpT\x01"  # the last byte is the version
_HEAD = struct.Struct("<5qhHB")  # specials, first row, rows, bytes a count


def pack(cells: Array, low: int, specials: tuple[int, ...]) -> bytes:
    """Return the bytes of a tally: int64 cells (2 signs, rows, SLOTS) from row `low`."""
    # slot by slot and byte by byte: edges are mostly zeros, high bytes vary little
    counts = cells.transpose(2, 1, 0).astype("<u8")
    width = -(-int(counts.max(initial=0)).bit_length() // 8)
    planes = counts.reshape(-1, 1).view(np.uint8)[:, :width].T
    head = _HEAD.pack(*specials, low, cells.shape[1], width)
    # level 9 takes 17 times as long for 6 % fewer bytes, and would dominate recording
    return _MAGIC + zlib.compress(head + planes.tobytes(), 3)


def unpack(data: Any) -> tuple[Array, int, tuple[int, ...]]:
    """Read `pack`'s bytes back; anything else is an InputError."""
    if not isinstance(data, bytes | bytearray | memoryview):
        raise InputError(f"{type(data).__name__}: a tally is read from bytes")
    payload = _inflate(_body(bytes(data)))
    *specials, low, rows, width = _HEAD.unpack_from(payload)
    count = rows * SLOTS * 2
    if low < 0 or low + rows > ROWS or width > 8 or len(payload) != _HEAD.size + count * width:
        raise InputError("tally bytes: their parts contradict each other; they are damaged")
    whole = np.zeros((count, 8), np.uint8)
    whole[:, :width] = np.frombuffer(payload, np.uint8, offset=_HEAD.size).reshape(width, count).T
    counts = whole.view("<u8").reshape(SLOTS, rows, 2).transpose(2, 1, 0)
    exact = np.uint64 if width <= 5 else object  # 2**15 cells of 2**40 cannot wrap
    total = sum(specials) + int(counts.sum(dtype=exact))
    if min(specials) < 0 or total >= LIMIT:
        raise InputError("tally bytes: counts below 0 or of 2**63 and more; they are damaged")
    ends = counts[:, 0].any() and counts[:, -1].any() if rows else low == 0
    if not ends:
        raise InputError("tally bytes: rows without a count at their ends; they are damaged")
    return counts.astype(np.int64), low, tuple(specials)


def _body(data: bytes) -> bytes:
    magic, version = _MAGIC[:3], _MAGIC[3]
    if data[:3] != magic:
        raise InputError(f"bytes {data[:8]!r}...: not a tally, which begins with {magic!r}")
    if data[3:4] != bytes([version]):
        raise InputError(
            f"tally bytes of version {data[3:4].hex() or 'none'}: this fpemu reads version "
            f"{version}; read them with the one that wrote them"
        )
    return data[4:]


def _inflate(data: bytes) -> bytes:
    largest = _HEAD.size + 2 * ROWS * SLOTS * 8  # more is hostile, and is not unpacked
    reader = zlib.decompressobj()
    try:
        payload = reader.decompress(data, largest)
    except zlib.error:
        raise InputError("tally bytes: they do not unpack; they are damaged") from None
    if not reader.eof or reader.unused_data or len(payload) < _HEAD.size:
        raise InputError("tally bytes: cut short or too long; they are damaged")
    return payload
