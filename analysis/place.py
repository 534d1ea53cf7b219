"""Place: a trace's file made and put in place whole or not at all, and brought to rest.

While it is written a trace is in WAL mode, so that a reader never waits and a killed writer leaves
all that it committed; at rest it is one plain file.
"""

from __future__ import annotations

import contextlib
import os
import random
import sqlite3
import stat
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from fpemu.analysis.files import beside, new_file
from fpemu.analysis.store import (
    check_path,
    check_trace,
    connect,
    set_up,
    trace_errors,
    trace_id,
    uri,
)
from fpemu.errors import TraceError

__all__ = ["PATIENCE_SECONDS", "check_same", "create", "save", "settle"]

_BESIDE = "-journal", "-wal", "-shm"
_LOOKS = 8  # before a file counts as in use: about a second
PATIENCE_SECONDS = 5.0  # how long closing waits for readers; ours come and go in milliseconds


def create(path: str, overwrite: bool, texts: Mapping[str, str]) -> sqlite3.Connection:
    """Make a new trace's file with its metadata, and return its connection, ready to write.

    The name is claimed before anything is written, so that of two processes one gets it; the
    tables then appear at once or not at all.
    """
    with trace_errors(path):
        claimed = None if overwrite and os.path.lexists(path) else _claim(path)
        try:
            made = _put_in_place(path, lambda target: set_up(target, texts))
        except BaseException:
            with contextlib.suppress(OSError):
                if claimed and os.path.samestat(claimed, os.stat(path)):
                    os.unlink(path)
            raise
        return _open_to_write(path, made)


def save(read: contextlib.AbstractContextManager[sqlite3.Connection], path: str) -> None:
    """Copy a database to a file, in place of a trace of that name, at once or not at all."""

    def copy(target: sqlite3.Connection) -> None:
        # The source is let go before the file is replaced: it may be the same one.
        with read as source, trace_errors(path):
            source.backup(target)

    with trace_errors(path):
        _put_in_place(path, copy)


def check_same(path: str, made: os.stat_result) -> None:
    """Refuse a path that leads to another file than the one that was made there, or to none."""
    try:
        same = os.path.samestat(made, os.stat(path))
    except OSError:
        same = False
    if not same:
        raise TraceError(
            f"trace {path!r} was deleted or replaced while it was written; save(...) it elsewhere"
        )


def settle(connection: sqlite3.Connection, path: str) -> None:
    """Bring a file that was written in WAL mode back to one file, and close it.

    SQLite does that only while nobody else has the file open. If it fails, the connection stays
    open: what was written can still be copied elsewhere.
    """
    with trace_errors(path):
        connection.execute("PRAGMA busy_timeout = 100")
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not _one_file(connection):
            if time.monotonic() > deadline:
                warnings.warn(
                    f"trace {path!r} is complete, but another program holds it open: keep "
                    f"{os.path.basename(path)}-wal beside it until that one is closed",
                    RuntimeWarning,
                    stacklevel=4,
                )
                break
            time.sleep(0.01)
        connection.close()


def _open_to_write(path: str, made: str) -> sqlite3.Connection:
    with contextlib.ExitStack() as unless_ready:
        connection = unless_ready.enter_context(contextlib.closing(connect(uri(path, "rw"))))
        [mode] = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        if trace_id(connection) != made:
            raise TraceError(f"trace {path!r}: another process took the name; choose another name")
        if mode != "wal":
            _remove(path)
            raise TraceError(
                f"trace {path!r}: its file system has no shared memory, which a trace needs to be "
                "read while it is written; choose a local disk and copy the file later"
            )
        # No commit waits for the disk: a killed process loses none at any level, and a power cut
        # takes the last ones but leaves the file whole.
        connection.execute("PRAGMA synchronous = NORMAL")
        unless_ready.pop_all()
    return connection


def _put_in_place(path: str, fill: Callable[[sqlite3.Connection], None]) -> str:
    """Fill a database beside a path, give it that name in one step, and return its trace id."""
    with beside(path) as half, contextlib.ExitStack() as at_end:
        at_end.callback(_remove, half)  # and what SQLite may have left beside it
        with contextlib.closing(connect(uri(half, "rwc"))) as connection:
            fill(connection)
            connection.execute("PRAGMA journal_mode = DELETE")  # the copy of a WAL file is one too
            made = trace_id(connection)
        if not os.path.lexists(path):
            _remove(path, *_BESIDE)  # a deleted trace's -wal would be played into the new file
        with _hold(path) if os.path.lexists(path) else contextlib.nullcontext() as held:
            if held and os.name == "nt":
                held.close()  # Windows replaces no file that is open
            os.replace(half, path)
    return made


@contextlib.contextmanager
def _hold(path: str) -> Iterator[sqlite3.Connection]:
    """Lock a file that is to be replaced: a trace that nobody uses, or an empty file.

    Several processes that look at once keep each other from it, so each goes away for a moment
    of its own length and looks again.
    """
    for attempt in range(_LOOKS):
        if attempt:
            time.sleep(random.uniform(0.01, 0.15))
        before = os.stat(path)
        if before.st_size or not stat.S_ISREG(before.st_mode):
            check_path(path)
            with contextlib.closing(connect(uri(path, "ro"))) as connection:
                check_trace(connection, path)
        with contextlib.closing(connect(uri(path, "rw"), patience=0.1)) as connection:
            # A -wal left behind would be played into the new file: the old one gives it up first.
            free = _one_file(connection) and _locked(connection)
            if free and os.path.samestat(before, os.stat(path)):
                yield connection
                return
    raise TraceError(
        f"trace {path!r} is being written or read by another program; close that one, or choose "
        "another name"
    )


def _locked(connection: sqlite3.Connection) -> bool:
    return _unless_busy(connection, "BEGIN EXCLUSIVE") is not None


def _claim(path: str) -> os.stat_result:
    try:
        return new_file(path)  # by the system rather than SQLite: its errors say what is wrong
    except FileExistsError:
        raise TraceError(
            f"trace {path!r} is there already; choose another name, or overwrite=True to replace it"
        ) from None


def _one_file(connection: sqlite3.Connection) -> bool:
    """Take a database out of WAL mode, which only its last user can; say whether it worked."""
    _unless_busy(connection, "PRAGMA wal_checkpoint(TRUNCATE)")
    return _unless_busy(connection, "PRAGMA journal_mode = DELETE") == [("delete",)]


def _unless_busy(connection: sqlite3.Connection, statement: str) -> list[tuple[str]] | None:
    try:
        return connection.execute(statement).fetchall()
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
            raise
        return None


def _remove(path: str, *ends: str) -> None:
    for end in ends or ("", *_BESIDE):
        Path(path + end).unlink(missing_ok=True)
