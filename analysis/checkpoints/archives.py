"""Archives: the directory of a zip file, which npz and PyTorch's files are."""

from __future__ import annotations

import contextlib
import io
import zipfile
from collections.abc import Iterator
from typing import IO

from fpemu.analysis.checkpoints import opened
from fpemu.errors import InputError

__all__ = ["MAGIC", "is_torch", "members", "open_archive", "open_member"]

MAGIC = b"PK\x03\x04"

#: Bytes of a directory that are taken: a member's entry takes ten times its size in memory.
_DIRECTORY_LIMIT = 1 << 24
_TAIL = (1 << 16) + 22 + 20 + 56  # the last record, its comment and those for large files


def open_archive(file: io.FileIO, path: str, size: int) -> zipfile.ZipFile:
    """Return an open zip file, if its directory is of a size that a checkpoint's can have."""
    tail = opened.read_at(file, path, max(0, size - _TAIL), min(size, _TAIL))
    if _directory_size(tail) > _DIRECTORY_LIMIT:
        opened.damaged(path, "a zip directory of more names than any checkpoint has")
    try:
        return zipfile.ZipFile(file)
    except Exception as error:  # whatever damaged bytes do to zipfile
        opened.damaged(path, f"no whole zip file ({str(error)[:80]!r})")


def _directory_size(tail: bytes) -> int:
    """Where the last record of a zip file stands, the size that it gives for the directory.

    APPNOTE.TXT sections 4.3.14 and 4.3.16: 64-bit sizes stand in a record before the last one.
    """
    last, wide = tail.rfind(b"PK\x05\x06"), tail.rfind(b"PK\x06\x06")
    small = int.from_bytes(tail[last + 12 : last + 16], "little") if last >= 0 else 0
    large = int.from_bytes(tail[wide + 40 : wide + 48], "little") if wide >= 0 else 0
    return max(large, small if small != 0xFFFFFFFF or wide < 0 else 0)


@contextlib.contextmanager
def open_member(
    archive: zipfile.ZipFile, info: zipfile.ZipInfo | str, path: str
) -> Iterator[IO[bytes]]:
    """Open a member; what unpacking finds wrong, its checksum too, is said in one line."""
    try:
        with archive.open(info) as stream:
            yield stream
    except InputError:
        raise
    except Exception as error:  # whatever damaged bytes do to zipfile and zlib
        name = info if isinstance(info, str) else info.filename
        why = str(error)[:60]
        opened.damaged(path, f"member {name[:80]!r} cannot be unpacked ({why!r})")


def members(archive: zipfile.ZipFile, path: str) -> list[zipfile.ZipInfo]:
    """Return the members of an archive, each name once; folders left out."""
    found = [info for info in archive.infolist() if not info.is_dir()]
    if len({info.filename for info in found}) < len(found):
        opened.damaged(path, "a member of the archive is there twice")
    return found


def is_torch(archive: zipfile.ZipFile) -> bool:
    """Whether an archive is one of torch.save's."""
    return any(name.count("/") == 1 and name.endswith("/data.pkl") for name in archive.namelist())
