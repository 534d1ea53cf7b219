"""Store: a trace's SQLite file, recognised, checked and read.

It is known by SQLite's application id and carries a schema version in `user_version` and in the
table `meta`. `fpemu.analysis.place` makes such files, `fpemu.analysis.writer` adds to them.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NoReturn, TypeAlias

from fpemu.analysis import tables
from fpemu.errors import InputError, TraceError

__all__ = [
    "APPLICATION_ID",
    "SCHEMA_VERSION",
    "PathLike",
    "Reader",
    "check_path",
    "check_trace",
    "connect",
    "memory",
    "real_path",
    "set_up",
    "trace_errors",
    "trace_id",
    "uri",
]

PathLike: TypeAlias = str | os.PathLike[str]

APPLICATION_ID = 0x66707472  # "fptr"; https://www.sqlite.org/pragma.html#pragma_application_id
SCHEMA_VERSION = 1

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
        raise TraceError(f"trace {path!r}: {error}; {_WAY_OUT[sqlite3.SQLITE_CORRUPT]}") from error
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


def memory(texts: Mapping[str, str]) -> sqlite3.Connection:
    """Return the database of a new trace in memory, with its metadata."""
    connection = connect(":memory:")
    set_up(connection, texts)
    return connection


class Reader:
    """A trace's file, opened for each look and never held: its writer can always close it."""

    def __init__(self, path: str) -> None:
        self.path = path
        with trace_errors(path):
            check_path(path)
        with self._open() as connection:
            connection.execute("BEGIN")  # one look: the limits and the metadata of one moment
            check_trace(connection, path)
            self.trace_id = trace_id(connection)
            self.limits = tables.limits(connection)
            self.metadata = tables.metadata(connection)

    @contextlib.contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """Lend a connection to the very trace that was opened."""
        with self._open() as connection:
            check_trace(connection, self.path)  # before it is read: it may be another by now
            if trace_id(connection) != self.trace_id:
                raise TraceError(
                    f"trace {self.path!r} was replaced by another since it was loaded; load it anew"
                )
            yield connection

    def refuse(self, *_: object) -> NoReturn:
        """Say that nothing can be added."""
        raise TraceError(
            f"trace {self.path!r} was loaded or closed, and is only read from then on; merge it "
            "into Trace() or Trace.create(...) to add to it"
        )

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        with (
            trace_errors(self.path),
            contextlib.closing(connect(uri(self.path, "ro"))) as connection,
        ):
            yield connection


def connect(database: str, patience: float = 10.0) -> sqlite3.Connection:
    """Open a database by its URI; another's lock is waited for `patience` seconds."""
    connection = sqlite3.connect(
        database, uri=True, isolation_level=None, check_same_thread=False, timeout=patience
    )
    connection.execute("PRAGMA trusted_schema = OFF")  # a file may come from anywhere
    return connection


def set_up(connection: sqlite3.Connection, texts: Mapping[str, str]) -> None:
    """Make the tables of a new trace, with its metadata in them."""
    connection.executescript(
        f"BEGIN; PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {SCHEMA_VERSION};"
        f"{tables.SCHEMA} INSERT INTO meta VALUES ('schema_version', '{SCHEMA_VERSION}'), "
        f"('trace_id', '{uuid.uuid4().hex}');"
    )
    tables.put_metadata(connection, texts)
    connection.execute("COMMIT")


def trace_id(connection: sqlite3.Connection) -> str:
    """Return what tells a trace and its copies from all others."""
    row = connection.execute("SELECT value FROM meta WHERE key = 'trace_id'").fetchone()
    return str(row[0]) if row else ""


def check_path(path: str) -> None:
    """Refuse what is no file, or an empty one."""
    # By name only: to open and close the file here would drop the locks that a writer in this
    # process holds on it (https://www.sqlite.org/howtocorrupt.html, section 2.2).
    if os.path.isdir(path):
        raise TraceError(f"trace {path!r} is a folder; {_NAME_ANOTHER}")
    if os.stat(path).st_size == 0:
        raise TraceError(
            f"trace {path!r} is empty: its recording ended before it began; record it again"
        )


def check_trace(connection: sqlite3.Connection, path: str) -> None:
    """Refuse another program's database and a schema that this fpemu does not know.

    A view, a trigger or a virtual table is a program: one under a table's name may never end.
    """
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
    foreign = connection.execute(
        "SELECT type, name FROM sqlite_master WHERE type NOT IN ('table', 'index') OR "
        "(type = 'table' AND rootpage < 1)"
    ).fetchone()
    if foreign:
        raise TraceError(
            f"trace {path!r} holds a {foreign[0]} {foreign[1]!r:.40}, a trace has plain tables "
            f"alone: the file was changed after it was written; {_NAME_ANOTHER}"
        )


def uri(path: str, mode: str) -> str:
    """Return a path as SQLite opens it: mode "ro", "rw" or "rwc"."""
    return f"{Path(path).as_uri()}?mode={mode}"
