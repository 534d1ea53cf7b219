"""Files: one written under its name whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn, TypeAlias

from fpemu.errors import InputError

__all__ = ["beside", "check_folder", "make_folder", "new_file", "write_bytes", "write_text"]

_PathLike: TypeAlias = str | os.PathLike[str]


def write_bytes(path: _PathLike, data: bytes) -> None:
    """Write a file under its name in one step: readers see the old file or the new one.

    >>> import os, tempfile
    >>> from fpemu.analysis.files import write_bytes
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_bytes(os.path.join(folder, "a.txt"), b"one")
    ...     os.listdir(folder)
    ['a.txt']

    A link is followed, as open() would; a file that is replaced hands its permissions on.
    What cannot be written is an InputError, and nothing half is left.
    """
    try:
        target = os.path.realpath(path)
        with beside(target) as half:
            with open(half, "wb") as file:
                with contextlib.suppress(FileNotFoundError):
                    os.chmod(half, os.stat(target).st_mode & 0o777)
                file.write(data)
            os.replace(half, target)
    except (OSError, TypeError, ValueError) as error:  # a NUL in the name; a path that is none
        reason = getattr(error, "strerror", None) or str(error)
        _refuse(path, reason, "a file in a folder that exists and may be written")


def write_text(path: _PathLike, text: str) -> None:
    """Write a text file in UTF-8, as `write_bytes` does.

    What UTF-8 cannot store (half of a surrogate pair) is written as a backslash escape.
    """
    write_bytes(path, text.encode("utf-8", "backslashreplace"))


def check_folder(path: _PathLike) -> None:
    """Refuse a path that `write_bytes` cannot write, before the work is done."""
    folder = os.path.dirname(os.path.realpath(path))
    if not os.path.isdir(folder):
        way_out = "a file in a folder that exists and may be written"
        _refuse(path, f"there is no folder {folder!r}", way_out)
    if not os.access(folder, os.W_OK):
        _refuse(path, f"the folder {folder!r} may not be written", "a file in another")


@contextlib.contextmanager
def beside(target: str) -> Iterator[str]:
    """Lend the name of a new, empty file in the folder of another, to be renamed to that one."""
    half = os.path.join(os.path.dirname(target), f".fpemu-{uuid.uuid4().hex[:12]}.tmp")
    new_file(half)
    try:
        yield half
    finally:
        with contextlib.suppress(OSError):
            os.unlink(half)


def new_file(path: str) -> os.stat_result:
    """Make an empty file that is not there yet, with the permissions of open()."""
    # The system applies the umask: to read it, a program must set it, for all its threads.
    with open(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666), "wb") as file:
        return os.fstat(file.fileno())


def _refuse(path: object, reason: str, way_out: str) -> NoReturn:
    shown = os.fspath(path) if isinstance(path, os.PathLike) else path
    raise InputError(f"cannot write {shown!r}: {reason}; give {way_out}") from None


def make_folder(folder: Path) -> None:
    """Make a folder for results, and find out before any work whether files can be put there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InputError(
            f"cannot write to folder {str(folder)!r}: {error.strerror or error}; "
            "give another with --out"
        ) from None
