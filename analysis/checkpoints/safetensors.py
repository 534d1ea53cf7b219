"""Safetensors: the tensors of one file, its header read and checked as the format's library does.

The library's numpy half knows no narrow floats, and the pages that it maps would count as memory.
Source: https://huggingface.co/docs/safetensors, "Format".
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

from fpemu.analysis.checkpoints import opened, reasons
from fpemu.analysis.checkpoints.encodings import Encoding
from fpemu.analysis.checkpoints.stored import LIMIT, Pieces, Storage, Stored, values_of

if TYPE_CHECKING:
    import numpy as np

    from fpemu.analysis.checkpoints.encodings import Room

__all__ = ["DTYPES", "HEADER_LIMIT", "read", "read_notes", "unique"]

#: What the library takes too.
HEADER_LIMIT = 100_000_000

#: Names, numbers, lists and dicts that a header may hold: 400,000 tensors. A header of nothing but
#: empty lists would take twenty times its size in memory.
_TOKENS = 4_000_000


class _Dtype(NamedTuple):
    bits: int
    format: str | None
    reason: str = ""


_F, _I = _Dtype, reasons.INTEGERS

#: The dtypes of the format, with the formats that they hold; the packed ones from 0.6 on.
DTYPES = {
    "F64": _F(64, "float64"), "F32": _F(32, "float32"), "F16": _F(16, "float16"),
    "BF16": _F(16, "bfloat16"), "F8_E4M3": _F(8, "float8_e4m3fn"), "F8_E5M2": _F(8, "float8_e5m2"),
    "F8_E4M3FNUZ": _F(8, "float8_e4m3fnuz"), "F8_E5M2FNUZ": _F(8, "float8_e5m2fnuz"),
    "F8_E8M0": _F(8, "float8_e8m0fnu"), "F6_E2M3": _F(6, "float6_e2m3fn"),
    "F6_E3M2": _F(6, "float6_e3m2fn"), "F4": _F(4, "float4_e2m1fn"),
    "C64": _F(64, None, reasons.COMPLEX), "BOOL": _F(8, None, reasons.TRUTH),
    "I64": _F(64, None, _I), "I32": _F(32, None, _I), "I16": _F(16, None, _I),
    "I8": _F(8, None, _I), "U64": _F(64, None, _I), "U32": _F(32, None, _I),
    "U16": _F(16, None, _I), "U8": _F(8, None, _I),
}  # fmt: skip


def read(file: io.FileIO, path: str, size: int) -> list[Stored]:
    """Return the tensors of an open file of `size` bytes, in the order of their bytes.

    Errors: InputError where header and data do not fit together exactly: the library refuses the
    same (a name that is written twice, and a side of 2^53 or more of an empty tensor, are refused
    here alone).
    """
    length, (entries, _) = _header_of(file, path, size)
    found = [_entry(name, value, path) for name, value in entries.items()]
    found.sort(key=lambda entry: entry.span)
    end = 0
    for entry in found:
        if entry.span[0] != end:
            opened.damaged(path, f"{_named(entry.name)} begins at {entry.span[0]}, not at {end}")
        end = entry.span[1]
    if 8 + length + end != size:
        opened.damaged(path, f"its tensors end at byte {8 + length + end:,} of {size:,}")
    return [_stored(entry, file, path, 8 + length) for entry in found]


def read_notes(file: io.FileIO, path: str, size: int) -> dict[str, str]:
    """Return the `__metadata__` of an open file: text by name."""
    return _header_of(file, path, size)[1][1]


def _header_of(
    file: io.FileIO, path: str, size: int
) -> tuple[int, tuple[dict[str, Any], dict[str, str]]]:
    """The length of the header, its tensors and its metadata."""
    length = int.from_bytes(opened.read_at(file, path, 0, 8), "little")
    if length > HEADER_LIMIT:
        opened.damaged(path, f"a header of {length:,} bytes, where {HEADER_LIMIT:,} are allowed")
    if 8 + length > size:
        opened.damaged(path, f"a header of {length:,} bytes in a file of {size:,}")
    return length, _header(opened.read_at(file, path, 8, length), path)


class _Entry(NamedTuple):
    name: str
    dtype: str
    shape: tuple[int, ...]
    span: tuple[int, int]


def _header(text: bytes, path: str) -> tuple[dict[str, Any], dict[str, str]]:
    if sum(map(text.count, (b",", b"[", b"{"))) > _TOKENS:
        opened.damaged(path, "a header of more names and numbers than any checkpoint has")
    try:
        header = json.loads(text.decode(), object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        opened.damaged(path, f"its header is no JSON ({str(error)[:80]})")
    if not isinstance(header, dict) or text[:1] != b"{":
        opened.damaged(path, "its header is no JSON object")
    notes = header.pop("__metadata__", None) or {}
    if not isinstance(notes, dict) or not all(isinstance(v, str) for v in notes.values()):
        opened.damaged(path, "its __metadata__ is no dict of text")
    return header, notes


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object as a dict; a key that is written twice is a ValueError."""
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"{_named(twice)} is written twice")
    return found


def _entry(name: str, value: Any, path: str) -> _Entry:
    facts: dict[str, Any] = value if isinstance(value, dict) else {}
    dtype, shape, span = facts.get("dtype"), facts.get("shape"), facts.get("data_offsets")
    if not isinstance(dtype, str) or not _counts(shape) or not _counts(span) or len(span) != 2:
        opened.damaged(path, f"{_named(name)} has no dtype, shape and data_offsets")
    if dtype not in DTYPES:
        opened.refuse(path, f"{_named(name)} has the unknown dtype {dtype[:20]!r}",
                      f"known: {', '.join(DTYPES)}")  # fmt: skip
    values = values_of(shape)
    bits, (start, stop) = values * DTYPES[dtype].bits, span
    if values >= LIMIT or start > stop or bits != 8 * (stop - start):
        opened.damaged(path, f"{_named(name)} of {bits} bits takes bytes {start} to {stop}")
    return _Entry(name, dtype, tuple(shape), (start, stop))


def _counts(value: Any) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(n) is int and 0 <= n < 2**64 for n in value)


def _named(name: str) -> str:
    return f"tensor {name[:80]!r}"


def _stored(entry: _Entry, file: io.FileIO, path: str, base: int) -> Stored:
    kind, (start, stop) = DTYPES[entry.dtype], entry.span
    swapped = kind.bits > 8 and sys.byteorder == "big"
    encoding = Encoding(kind.format, kind.bits, swapped) if kind.format else None
    pieces = _pieces(file, path, base + start, stop - start, kind.bits)
    return Stored(
        entry.name, entry.dtype, entry.shape, stop - start, encoding, kind.reason, pieces,
        Storage(entry.dtype, kind.bits),
    )  # fmt: skip


def _pieces(file: io.FileIO, path: str, start: int, size: int, bits: int) -> Pieces:
    def pieces(room: Room) -> Iterator[np.ndarray[Any, Any]]:
        step = room.values * bits // 8
        return opened.pieces(file, path, start, size, step, room.octets)

    return pieces
