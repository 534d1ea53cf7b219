"""Store: a trace's SQLite file as a file: checked, opened, created, copied, put in place whole.

One file, recognised by SQLite's application id, with a schema version in `user_version` and in
the table `meta`. While it is written it is in WAL mode, so that a reader never waits and a killed
writer leaves everything that it committed.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
import time
import uuid
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

from fpemu.analysis import tables
from fpemu.errors import InputError, TraceError

__all__ = [
    "APPLICATION_ID",
    "SCHEMA_VERSION",
    "PathLike",
    "Reader",
    "create",
    "memory",
    "real_path",
    "save",
    "settle",
    "trace_errors",
    "trace_id",
]

PathLike: TypeAlias = str | os.PathLike[str]

APPLICATION_ID = 0x66707472  # "fptr"; https://www.sqlite.org/pragma.html#pragma_application_id
SCHEMA_VERSION = 1
PATIENCE_SECONDS = 5.0  # how long closing waits for readers; ours come and go in milliseconds

_NAME_ANOTHER = "name a file that Trace.create or Trace.save wrote"
_WAY_OUT = {
    sqlite3.SQLITE_CORRUPT: "the file is damaged or cut short; restore it from a copy",
    sqlite3.SQLITE_NOTADB: f"it is no trace, or was damaged; {_NAME_ANOTHER}",
    sqlite3.SQLITE_FULL: "free some space or choose another disk",
    sqlite3.SQLITE_CANTOPEN: "check that it and its folder may be read and written",
    sqlite3.SQLITE_READONLY: "copy it, and the files that start with its name, to a folder that "
    "may be written",
    sqlite3.SQLITE_BUSY: "another program holds it; close that one",
    sqlite3.SQLITE_LOCKED: "another program holds it; close that one",
}


@contextlib.contextmanager
def trace_errors(path: str) -> Iterator[None]:
    """Turn what SQLite and the file system raise into a TraceError of one line."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
        way_out = _WAY_OUT.get(code, "check the disk, or restore it from a copy")
        raise TraceError(f"trace {path!r}: {error}; {way_out}") from error
    except UnicodeDecodeError as error:
        raise TraceError(
            f"trace {path!r}: {error}; {_WAY_OUT[sqlite3.SQLITE_CORRUPT]}"
        ) from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise TraceError(
            f"trace {path!r}: {reason}; check the path, its folder and what you may do there"
        ) from error


def real_path(path: PathLike) -> str:
    """Return the file a path leads to: SQLite keeps its -wal beside that, not beside a link."""
    try:
        text = os.fsdecode(path)
    except TypeError:
        raise InputError(f"path {path!r}: must be text or a Path, such as 'run.fpemu'") from None
    if not text or "\0" in text:
        raise InputError(f"path {path!r}: names no file; give one such as 'run.fpemu'")
    return os.path.realpath(text)


def memory() -> sqlite3.Connection:
    """Return an empty trace's database in memory."""
    connection = _connect(":memory:")
    _set_up(connection)
    return connection


def create(path: str, overwrite: bool) -> sqlite3.Connection:
    """Make an empty trace on a new file and return its connection, ready to write.

    The name is claimed before anything is written, so that of two processes one gets it; the
    tables then appear at once or not at all.
    """
    claimed = False
    with trace_errors(path):
        try:
            if not (overwrite and os.path.lexists(path)):
                _claim(path)
                claimed = True
            return _open_to_write(path, _put_in_place(path, _set_up))
        except BaseException:
            if claimed:
                _remove(path)
            raise


def save(read: contextlib.AbstractContextManager[sqlite3.Connection], path: str) -> None:
    """Copy a database to a file, in place of a trace of that name, at once or not at all."""

    def copy(target: sqlite3.Connection) -> None:
        with read as source:  # let go before the file is replaced: it may be the same one
            source.backup(target)

    with trace_errors(path):
        _put_in_place(path, copy)


def settle(connection: sqlite3.Connection, path: str) -> None:
    """Bring a file that was written in WAL mode back to one file, and close it.

    SQLite does that only while nobody else has the file open.
    """
    with trace_errors(path), contextlib.closing(connection):
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
                return
            time.sleep(0.01)


class Reader:
    """A trace's file, opened for each look and never held: its writer can always close it."""

    def __init__(self, path: str) -> None:
        self.path = path
        with trace_errors(path):
            _check_path(path)
        with self._open() as connection:
            connection.execute("BEGIN")  # one look: the limits and the metadata of one moment
            _check_trace(connection, path)
            self.trace_id = trace_id(connection)
            self.limits = tables.limits(connection)
            self.metadata = tables.metadata(connection)

    @contextlib.contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """Lend a connection to the very trace that was opened."""
        with self._open() as connection:
            if trace_id(connection) != self.trace_id:
                raise TraceError(
                    f"trace {self.path!r} was replaced by another since it was loaded; load it anew"
                )
            yield connection

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        with (
            trace_errors(self.path),
            contextlib.closing(_connect(_uri(self.path, "ro"))) as connection,
        ):
            yield connection


def _connect(database: str, patience: float = 10.0) -> sqlite3.Connection:
    connection = sqlite3.connect(
        database, uri=True, isolation_level=None, check_same_thread=False, timeout=patience
    )
    connection.execute("PRAGMA trusted_schema = OFF")  # a file may come from anywhere
    return connection


def _open_to_write(path: str, made: str) -> sqlite3.Connection:
    connection = _connect(_uri(path, "rw"))
    [mode] = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal" or trace_id(connection) != made:
        connection.close()
        raise TraceError(
            f"trace {path!r}: another process took the name; choose another name"
            if mode == "wal"
            else f"trace {path!r}: its file system has no shared memory, which a trace needs to be "
            "read while it is written; choose a local disk and copy the file later"
        )
    # No commit waits for the disk: a killed process loses none at any level, and a power cut
    # takes the last ones but leaves the file whole.
    connection.execute("PRAGMA synchronous = NORMAL")
    return connection


def _set_up(connection: sqlite3.Connection) -> None:
    connection.executescript(
        f"BEGIN; PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {SCHEMA_VERSION};"
        f"{tables.SCHEMA} INSERT INTO meta VALUES ('schema_version', '{SCHEMA_VERSION}'), "
        f"('trace_id', '{uuid.uuid4().hex}'); COMMIT;"
    )


def trace_id(connection: sqlite3.Connection) -> str:
    row = connection.execute("SELECT value FROM meta WHERE key = 'trace_id'").fetchone()
    return str(row[0]) if row else ""


def _put_in_place(path: str, fill: Callable[[sqlite3.Connection], None]) -> str:
    """Fill a database beside a path, give it that name in one step, and return its trace id."""
    half = os.path.join(os.path.dirname(path), f".fpemu-{uuid.uuid4().hex[:12]}.tmp")
    _new_file(half)
    try:
        with contextlib.closing(_connect(_uri(half, "rwc"))) as connection:
            fill(connection)
            connection.execute("PRAGMA journal_mode = DELETE")  # the copy of a WAL file is one too
            made = trace_id(connection)
        with _hold(path) if os.path.lexists(path) else contextlib.nullcontext() as held:
            if held and os.name == "nt":
                held.close()  # Windows replaces no file that is open
            os.replace(half, path)
    finally:
        _remove(half)
    return made


@contextlib.contextmanager
def _hold(path: str) -> Iterator[sqlite3.Connection]:
    """Lock a file that is to be replaced: a trace that nobody uses, or an empty file."""
    before = os.stat(path)
    if before.st_size or not stat.S_ISREG(before.st_mode):
        _check_path(path)
        with contextlib.closing(_connect(_uri(path, "ro"))) as connection:
            _check_trace(connection, path)
    with contextlib.closing(_connect(_uri(path, "rw"), patience=1.0)) as connection:
        # A -wal left behind would be played into the new file: the old one gives it up first.
        free = _one_file(connection) and _locked(connection)
        if not (free and os.path.samestat(before, os.stat(path))):
            raise TraceError(
                f"trace {path!r} is being written or read by another program; close that one, or "
                "choose another name"
            )
        yield connection


def _locked(connection: sqlite3.Connection) -> bool:
    return _unless_busy(connection, "BEGIN EXCLUSIVE") is not None


def _new_file(path: str) -> None:
    # By the system rather than SQLite: its errors say what is wrong.
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))


def _claim(path: str) -> None:
    try:
        _new_file(path)
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


def _check_path(path: str) -> None:
    # By name only: to open and close the file here would drop the locks that a writer in this
    # process holds on it (https://www.sqlite.org/howtocorrupt.html, section 2.2).
    if os.path.isdir(path):
        raise TraceError(f"trace {path!r} is a folder; {_NAME_ANOTHER}")
    if os.stat(path).st_size == 0:
        raise TraceError(
            f"trace {path!r} is empty: its recording ended before it began; record it again"
        )


def _check_trace(connection: sqlite3.Connection, path: str) -> None:
    [application] = connection.execute("PRAGMA application_id").fetchone()
    [version] = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION_ID:
        raise TraceError(f"{path!r} is another program's SQLite file, no trace; {_NAME_ANOTHER}")
    if version > SCHEMA_VERSION:
        raise TraceError(
            f"trace {path!r} has schema version {version}, this fpemu reads up to "
            f"{SCHEMA_VERSION}; update fpemu (pip install -U fpemu)"
        )
    if version < 1:
        raise TraceError(
            f"trace {path!r} has schema version {version}, the first is 1: the file is damaged; "
            "restore it from a copy"
        )


def _uri(path: str, mode: str) -> str:
    return f"{Path(path).as_uri()}?mode={mode}"


def _remove(path: str) -> None:
    for end in ("", "-journal", "-wal", "-shm"):
        Path(path + end).unlink(missing_ok=True)
