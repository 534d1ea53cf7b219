"""npz: the arrays of numpy's archives, stored or deflated, unpacked as they are counted."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from fpemu.analysis.checkpoints import npy, opened, reasons
from fpemu.analysis.checkpoints.archives import members, open_member
from fpemu.analysis.checkpoints.npy import Header
from fpemu.analysis.checkpoints.stored import Stored, no_pieces

if TYPE_CHECKING:
    from fpemu.analysis.checkpoints.encodings import Room

__all__ = ["read"]

_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # what numpy writes; lzma takes gigabytes
_ENCRYPTED = 1


def read(archive: zipfile.ZipFile, path: str) -> list[Stored]:
    """Return the arrays of an open archive, named as `np.load` names them.

    Errors: InputError if one of them holds Python objects, is encrypted or not of its size.
    """
    return [_member(archive, info, path) for info in members(archive, path)]


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: str) -> Stored:
    what = f"member {info.filename[:80]!r}"
    if info.flag_bits & _ENCRYPTED or info.compress_type not in _METHODS:
        opened.refuse(path, f"{what} is encrypted, or packed as numpy does not pack",
                      "save it with np.savez or np.savez_compressed")  # fmt: skip
    if not info.filename.endswith(".npy"):
        return Stored(info.filename, "bytes", (), info.file_size, None, reasons.OTHER, no_pieces)
    with open_member(archive, info, path) as stream:
        header = npy.parse(stream, path, what)
    if header.size + header.octets != info.file_size:
        opened.damaged(path, f"{what} has {info.file_size:,} bytes, where its header promises "
                             f"{header.size + header.octets:,}")  # fmt: skip
    name = info.filename.removesuffix(".npy")
    return npy.stored(name, header, _pieces(archive, info, path, header))


def _pieces(archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: str, header: Header) -> Any:
    def pieces(room: Room) -> Iterator[np.ndarray[Any, Any]]:
        assert header.storage is not None
        step, left = room.values * header.storage.bits // 8, header.octets
        with open_member(archive, info, path) as stream:
            stream.read(header.size)
            while left:
                part = room.octets[: min(step, left)]
                _fill(stream, part, path, info)
                left -= part.size
                yield part

    return pieces


def _fill(stream: IO[bytes], part: np.ndarray[Any, Any], path: str, info: zipfile.ZipInfo) -> None:
    filled, view = 0, part.data
    while filled < part.size:
        count = stream.readinto(view[filled:])  # type: ignore[attr-defined]
        if not count:
            opened.damaged(path, f"member {info.filename[:80]!r} ends early")
        filled += count
