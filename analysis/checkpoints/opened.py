"""Opened: a regular file to read from; devices, pipes, sockets and folders are refused unread."""

from __future__ import annotations

import contextlib
import io
import os
import stat
from collections.abc import Iterator
from typing import Any, NoReturn

import numpy as np

from fpemu.analysis.shown import shorten
from fpemu.errors import InputError

__all__ = ["check_size", "damaged", "file_errors", "open_file", "pieces", "read_at", "refuse"]

Array = np.ndarray[Any, Any]

_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0) | getattr(
    os, "O_NOCTTY", 0
)  # fmt: skip
_PATH = 200  # letters of a path in a message
_SORTS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def refuse(path: str, rule: str, way_out: str) -> NoReturn:
    """Refuse a checkpoint in one line."""
    raise InputError(f"checkpoint {shorten(repr(path), _PATH)}: {rule}; {way_out}") from None


def damaged(path: str, what: str) -> NoReturn:
    """Refuse a file that contradicts itself."""
    refuse(path, f"damaged: {what}", "download or save it again")


@contextlib.contextmanager
def file_errors(path: str) -> Iterator[None]:
    """Turn what the system says of a file into one line."""
    try:
        yield
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        reason = getattr(error, "strerror", None) or str(error)
        refuse(path, f"cannot be read: {reason}", "give a file that may be read")


@contextlib.contextmanager
def open_file(path: str) -> Iterator[io.FileIO]:
    """Open a regular file, or what a link to one leads to.

    It is looked at before it is opened, since opening a device may do something, and again after,
    since the name may have changed hands; without waiting, as opening a pipe would.
    """
    with file_errors(path):
        _check(path, os.stat(path).st_mode)
        file = io.FileIO(os.open(path, _FLAGS), "rb", closefd=True)
    with file:
        with file_errors(path):
            _check(path, os.fstat(file.fileno()).st_mode)
        yield file


def _check(path: str, mode: int) -> None:
    if not stat.S_ISREG(mode):
        sort = next((name for test, name in _SORTS if test(mode)), "no regular file")
        refuse(path, f"is {sort}", "give a file")


def check_size(file: io.FileIO, path: str, size: int) -> None:
    """Refuse a file that is no longer of its size, such as one that is being written again.

    Who looks at a mapped page beyond a file's end is killed by the system.
    """
    with file_errors(path):
        now = os.fstat(file.fileno()).st_size
    if now != size:
        refuse(path, f"changed from {size:,} bytes to {now:,} while it was read",
               "scan it when it is complete")  # fmt: skip


def read_at(file: io.FileIO, path: str, start: int, size: int) -> bytes:
    """Return `size` bytes from a place of a file; a file that ends before is refused."""
    found = bytearray(size)
    _fill(file, path, start, memoryview(found))
    return bytes(found)


def pieces(
    file: io.FileIO, path: str, start: int, size: int, step: int, room: Array
) -> Iterator[Array]:
    """Iterate over `size` bytes from a place of a file, `step` at a time, all in the same memory.

    Read and not mapped: pages of a mapped file count as the memory of who looks at them.
    """
    for at in range(start, start + size, step):
        part = room[: min(step, start + size - at)]
        _fill(file, path, at, part.data)
        yield part


def _fill(file: io.FileIO, path: str, start: int, room: memoryview) -> None:
    with file_errors(path):
        file.seek(start)
        filled = 0
        while filled < len(room):
            count = file.readinto(room[filled:])
            if not count:
                damaged(path, f"it ends at byte {start + filled}, and more was promised")
            filled += count
