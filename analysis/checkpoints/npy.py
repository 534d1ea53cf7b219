"""npy: the array of a numpy file, its header read as text and never by pickle.

Source: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
"""

from __future__ import annotations

import ast
import io
import re
from collections.abc import Iterator
from pathlib import PurePath
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fpemu.analysis.checkpoints import opened, reasons
from fpemu.analysis.checkpoints.encodings import Encoding
from fpemu.analysis.checkpoints.stored import LIMIT, Storage, Stored, no_pieces, values_of

if TYPE_CHECKING:
    from fpemu.analysis.checkpoints.encodings import Room

__all__ = ["MAGIC", "Header", "parse", "read", "stored"]

MAGIC = b"\x93NUMPY"

_HEADER_LIMIT = 10_000  # numpy's own
_DTYPE = re.compile(r"[<>|=]?[a-zA-Z][0-9]{0,8}(\[[0-9a-zA-Z]+\])?")

#: numpy's kind of a dtype that is not counted -> why.
_REASONS = {
    "i": reasons.INTEGERS, "u": reasons.INTEGERS, "b": reasons.TRUTH, "c": reasons.COMPLEX,
    "f": reasons.LONG, "V": reasons.VOID,
}  # fmt: skip


#: numpy's kind and size of a dtype -> safetensors' name of it.
_STORED = {
    "f2": "F16", "f4": "F32", "f8": "F64", "b1": "BOOL", "c8": "C64", "i1": "I8", "i2": "I16",
    "i4": "I32", "i8": "I64", "u1": "U8", "u2": "U16", "u4": "U32", "u8": "U64",
}  # fmt: skip


class Header(NamedTuple):
    """What stands before an array's bytes."""

    dtype: str
    shape: tuple[int, ...]
    size: int  #: bytes of the header, its magic included
    octets: int  #: bytes of the array
    encoding: Encoding | None
    reason: str
    storage: Storage | None


def parse(file: IO[bytes], path: str, what: str) -> Header:
    """Read an array's header from where a stream stands; `what` names the array in errors.

    Errors: InputError for what is no header, and for an array of Python objects: those are a
    pickle, and nothing is unpickled here.
    """
    with opened.file_errors(path):
        begin = file.read(12)
        wide = begin[6:7] in (b"\x02", b"\x03")
        length = int.from_bytes(begin[8 : 12 if wide else 10], "little")
        start = begin[10:] if not wide else b""
        if begin[:6] != MAGIC or begin[6:7] not in (b"\x01", b"\x02", b"\x03"):
            opened.damaged(path, f"{what} is no array of numpy's versions 1 to 3")
        if length > _HEADER_LIMIT:
            opened.damaged(path, f"{what} has a header of {length:,} bytes")
        text = start + file.read(length - len(start))
    if len(text) != length:
        opened.damaged(path, f"{what} ends within its header")
    return _header(text, (12 if wide else 10) + length, path, what)


def _header(text: bytes, size: int, path: str, what: str) -> Header:
    try:
        facts = ast.literal_eval(text.decode("utf-8" if text.isascii() else "latin1").strip())
    except Exception:  # whatever such a text does to Python's parser
        facts = None
    if not isinstance(facts, dict) or set(facts) != {"descr", "fortran_order", "shape"}:
        opened.damaged(path, f"{what} has a header that says no dtype and shape")
    shape = facts["shape"]
    if not isinstance(shape, tuple) or not all(type(n) is int and n >= 0 for n in shape):
        opened.damaged(path, f"{what} has the shape {_brief(shape)}")
    dtype = _dtype(facts["descr"], path, what)
    if dtype.hasobject:
        opened.refuse(path, *reasons.pickled(f"{what} holds Python objects, and to read them"))
    values = values_of(shape)
    if values >= LIMIT:
        opened.damaged(path, f"{what} has the shape {_brief(shape)}")
    encoding = None
    if dtype.kind == "f" and dtype.itemsize in (2, 4, 8):
        encoding = Encoding(f"float{8 * dtype.itemsize}", 8 * dtype.itemsize, not dtype.isnative)
    reason = "" if encoding else _REASONS.get(dtype.kind, reasons.OTHER)
    reason = reasons.OTHER if dtype.names or dtype.subdtype else reason
    storage = _storage(dtype, len(shape), bool(facts["fortran_order"]))
    return Header(dtype.str, shape, size, values * dtype.itemsize, encoding, reason, storage)


def _storage(dtype: np.dtype[Any], dimensions: int, fortran: bool) -> Storage | None:
    name = _STORED.get(f"{dtype.kind}{dtype.itemsize}")
    swapped = dtype.newbyteorder("<") != dtype
    if name is None or dtype.names or dtype.subdtype or (swapped and dtype.kind == "c"):
        return None
    order = tuple(reversed(range(dimensions))) if fortran and dimensions > 1 else ()
    return Storage(name, 8 * dtype.itemsize, swapped, order)


def _dtype(text: Any, path: str, what: str) -> np.dtype[Any]:
    try:
        if isinstance(text, list):  # of named fields
            return np.dtype([tuple(field) for field in text])
        if isinstance(text, str) and _DTYPE.fullmatch(text):
            return np.dtype(text)
    except Exception:  # whatever numpy makes of such a text
        pass
    opened.damaged(path, f"{what} has the dtype {_brief(text)}")


def _brief(value: Any) -> str:
    """The beginning of a value as Python writes it; its type, if that has too many digits."""
    try:
        return repr(value)[:40]
    except ValueError:
        return f"of a {type(value).__name__} with thousands of digits"


def stored(name: str, header: Header, pieces: Any) -> Stored:
    """Return the array of a header as a tensor."""
    return Stored(
        name, header.dtype, header.shape, header.octets, header.encoding, header.reason,
        pieces if header.storage else no_pieces, header.storage,
    )  # fmt: skip


def read(file: io.FileIO, path: str, size: int) -> list[Stored]:
    """Return the array of an open .npy file of `size` bytes, named like the file."""
    with opened.file_errors(path):
        file.seek(0)
    header = parse(file, path, "it")
    if header.size + header.octets != size:
        opened.damaged(
            path, f"{size:,} bytes, where its header promises {header.size + header.octets:,}"
        )

    def pieces(room: Room) -> Iterator[np.ndarray[Any, Any]]:
        assert header.storage is not None
        step = room.values * header.storage.bits // 8
        return opened.pieces(file, path, header.size, header.octets, step, room.octets)

    return [stored(PurePath(path).stem, header, pieces)]
