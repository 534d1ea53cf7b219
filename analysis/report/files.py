"""Writing a report's file whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from fpemu.errors import InputError

__all__ = ["check_folder", "write_text"]


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file under its name in one step: readers see the old file or the new one.

    A folder that is not there or cannot be written is an InputError; nothing half is left. What
    UTF-8 cannot store (half of a surrogate pair) is written as a backslash escape.
    """
    target = Path(os.path.realpath(path))  # through a link, as open() would go
    data = text.encode("utf-8", "backslashreplace")
    half: str | None = None
    try:
        handle, half = tempfile.mkstemp(prefix=".fpemu-", suffix=".tmp", dir=target.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(half, _mode(target))
        os.replace(half, target)
    except OSError as error:
        if half is not None:
            with contextlib.suppress(OSError):
                os.unlink(half)
        raise InputError(
            f"cannot write {os.fspath(path)!r}: {error.strerror or error}; "
            "give a file in a folder that exists and may be written"
        ) from None


def check_folder(path: str | os.PathLike[str]) -> None:
    """Refuse a path that `write_text` cannot write, before the work is done."""
    folder = os.path.dirname(os.path.realpath(path))
    if not os.path.isdir(folder):
        raise InputError(
            f"cannot write {os.fspath(path)!r}: there is no folder {folder!r}; "
            "give a file in a folder that exists and may be written"
        )
    if not os.access(folder, os.W_OK):
        raise InputError(
            f"cannot write {os.fspath(path)!r}: the folder {folder!r} may not be written; "
            "give a file in another"
        )


def _mode(target: Path) -> int:
    """The permissions that the file has, or that open() would give a new one."""
    with contextlib.suppress(OSError):
        return target.stat().st_mode & 0o777
    mask = os.umask(0)  # reading it means setting it; the window is two calls long
    os.umask(mask)
    return 0o666 & ~mask
