"""Tables: how a trace's records, events, scalars and metadata lie in SQLite.

Everything that is SQL and knows rows; files are `fpemu.analysis.store`'s business. Each function
takes an open connection. Reading functions take a Limits, so that a trace loaded from a file that
is still being written shows what was there when it was loaded.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from fpemu.analysis.counted import Counted, pack, unpack
from fpemu.analysis.records import Event, Record, Scalar
from fpemu.errors import TraceError

__all__ = [
    "SCHEMA",
    "Limits",
    "chunks",
    "counted",
    "events",
    "find_counted",
    "limits",
    "metadata",
    "put_counted",
    "put_event",
    "put_metadata",
    "put_record",
    "put_scalar",
    "record_ids",
    "records",
    "scalars",
    "steps",
    "tensors",
]

# record.tally is Tally.to_bytes(), record.moments is Moments.to_json() as text. The unique
# constraint's index walks a trace by step, the other one by tensor: reports do both.
SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE metadata (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE tensor (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, kind TEXT NOT NULL, UNIQUE (name, kind)
);
CREATE TABLE record (
    id INTEGER PRIMARY KEY, step INTEGER NOT NULL, tensor INTEGER NOT NULL REFERENCES tensor (id),
    shape TEXT NOT NULL, recordings INTEGER NOT NULL, moments TEXT NOT NULL, tally BLOB NOT NULL,
    UNIQUE (step, tensor)
);
CREATE INDEX record_by_tensor ON record (tensor, step);
CREATE TABLE counted (
    id INTEGER PRIMARY KEY, step INTEGER NOT NULL, tensor INTEGER NOT NULL REFERENCES tensor (id),
    topic TEXT NOT NULL, counts TEXT NOT NULL, UNIQUE (topic, step, tensor)
);
CREATE TABLE event (
    id INTEGER PRIMARY KEY, step INTEGER NOT NULL, name TEXT NOT NULL, kind TEXT NOT NULL,
    message TEXT NOT NULL, facts TEXT NOT NULL
);
CREATE TABLE scalar (
    id INTEGER PRIMARY KEY, step INTEGER NOT NULL, name TEXT NOT NULL, value REAL,
    UNIQUE (step, name)
);
"""

_ALL = 2**63 - 1
_CHUNK = 256  # records a query: few enough to hold in memory, enough to make its cost vanish


class Limits(NamedTuple):
    """The newest row of each table that a reader looks at."""

    tensor: int = _ALL
    record: int = _ALL
    event: int = _ALL
    scalar: int = _ALL
    counted: int = _ALL


def limits(connection: sqlite3.Connection) -> Limits:
    """Return the newest row of each table as of now."""
    there = [table for table in Limits._fields if table != "counted" or _has_counted(connection)]
    newest = ", ".join(f"(SELECT coalesce(max(id), 0) FROM {table})" for table in there)
    row = connection.execute(f"SELECT {newest}").fetchone()
    return Limits(**{"counted": 0, **dict(zip(there, row, strict=True))})


def put_record(connection: sqlite3.Connection, record: Record) -> None:
    """Store a record, joined with the one of the same key if there is one."""
    tensor = _tensor_id(connection, record.name, record.kind)
    row = connection.execute(
        "SELECT shape, recordings, moments, tally FROM record WHERE step = ? AND tensor = ?",
        (int(record.step), tensor),
    ).fetchone()
    whole = Record.packed(*record.key, *row) + record if row else record
    connection.execute(
        "INSERT INTO record (step, tensor, shape, recordings, moments, tally) "
        "VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (step, tensor) DO UPDATE SET "
        "recordings = excluded.recordings, moments = excluded.moments, tally = excluded.tally",
        (int(record.step), tensor, *whole.pack()),
    )


def put_counted(connection: sqlite3.Connection, counted: Counted) -> None:
    """Store what was counted, in place of what was there under the same key."""
    name, kind, step, topic = counted.key
    connection.execute(
        "INSERT INTO counted (step, tensor, topic, counts) VALUES (?, ?, ?, ?) "
        "ON CONFLICT (topic, step, tensor) DO UPDATE SET counts = excluded.counts",
        (step, _tensor_id(connection, name, kind), topic, pack(counted.value)),
    )


def put_event(connection: sqlite3.Connection, event: Event, facts: str) -> None:
    """Store an event."""
    connection.execute(
        "INSERT INTO event (step, name, kind, message, facts) VALUES (?, ?, ?, ?, ?)",
        (event.step, event.name, event.kind, event.message, facts),
    )


def put_scalar(connection: sqlite3.Connection, scalar: Scalar) -> None:
    """Store a scalar; the last value of a step and name stays. SQLite keeps NaN as NULL."""
    connection.execute(
        "INSERT INTO scalar (step, name, value) VALUES (?, ?, ?) "
        "ON CONFLICT (step, name) DO UPDATE SET value = excluded.value",
        (scalar.step, scalar.name, scalar.value),
    )


def put_metadata(connection: sqlite3.Connection, texts: Mapping[str, str | None]) -> None:
    """Store metadata, each value as JSON text; None takes the key away."""
    for key, text in texts.items():
        if text is None:
            connection.execute("DELETE FROM metadata WHERE key = ?", (key,))
        else:
            connection.execute(
                "INSERT INTO metadata (key, value) VALUES (?, ?) "
                "ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                (key, text),
            )


def metadata(connection: sqlite3.Connection) -> dict[str, str]:
    """Return the metadata's JSON texts in the order of their keys' first writing."""
    return dict(connection.execute("SELECT key, value FROM metadata ORDER BY rowid"))


def tensors(connection: sqlite3.Connection, limits: Limits) -> list[tuple[str, str]]:
    """Return (name, kind) of each tensor in the order first seen."""
    query = "SELECT name, kind FROM tensor WHERE id <= ? ORDER BY id"
    return [_typed(row, str, str) for row in connection.execute(query, (limits.tensor,))]


def steps(connection: sqlite3.Connection, limits: Limits) -> list[int]:
    """Return the steps that have records, in order."""
    query = "SELECT DISTINCT step FROM record WHERE id <= ? ORDER BY step"
    return [_typed(row, int)[0] for row in connection.execute(query, (limits.record,))]


def record_ids(
    connection: sqlite3.Connection,
    limits: Limits,
    name: str | None = None,
    kind: str | None = None,
    step: int | None = None,
) -> list[int]:
    """Return the row ids of the records asked for, by step, then by tensor as first seen."""
    query, values = "SELECT id FROM record WHERE id <= ?", [limits.record]
    which = {key: value for key, value in (("name", name), ("kind", kind)) if value is not None}
    if which:
        terms = " AND ".join(f"{key} = ?" for key in which)
        query += f" AND tensor IN (SELECT id FROM tensor WHERE {terms})"
        values += which.values()  # type: ignore[arg-type]
    if step is not None:
        query += " AND step = ?"
        values.append(step)
    return [id for (id,) in connection.execute(f"{query} ORDER BY step, tensor", values)]


def records(connection: sqlite3.Connection, ids: Sequence[int]) -> list[Record]:
    """Return the records with these row ids, undecoded."""
    marks = ", ".join("?" * len(ids))
    query = (
        "SELECT record.id, name, kind, step, shape, recordings, moments, tally FROM record "
        f"JOIN tensor ON tensor.id = record.tensor WHERE record.id IN ({marks})"
    )
    rows = {id: row for id, *row in connection.execute(query, ids)}
    if len(rows) < len(ids):
        raise _damaged(f"{len(ids) - len(rows)} of {len(ids)} records are missing")
    types = str, str, int, str, int, str, bytes
    return [Record.packed(*_typed(rows[id], *types)) for id in ids]


def chunks(ids: Sequence[int]) -> Iterator[Sequence[int]]:
    """Split row ids into what one query takes."""
    return (ids[k : k + _CHUNK] for k in range(0, len(ids), _CHUNK))


def events(connection: sqlite3.Connection, limits: Limits) -> list[Event]:
    """Return the events by step, then as they were stored."""
    query = "SELECT step, name, kind, message, facts FROM event WHERE id <= ? ORDER BY step, id"
    rows = connection.execute(query, (limits.event,))
    return [_event(*_typed(row, int, str, str, str, str)) for row in rows]


def counted(
    connection: sqlite3.Connection,
    limits: Limits,
    topic: str,
    name: str | None,
    kind: str | None,
    step: int | None,
) -> Iterator[Counted]:
    """Iterate what was counted under a topic or a part of one, by step, then by tensor."""
    if limits.counted == 0:  # as in files of the first versions, which have no such table
        return
    query = (
        "SELECT name, kind, step, counts FROM counted JOIN tensor ON tensor.id = counted.tensor "
        "WHERE counted.id <= ? AND (topic = ?2 OR (topic > ?2 || '/' AND topic < ?2 || '0')) "
        "AND (?3 IS NULL OR name = ?3) AND (?4 IS NULL OR kind = ?4) "
        "AND (?5 IS NULL OR step = ?5) ORDER BY step, tensor, counted.id"
    )
    whole = topic.partition("/")[0]  # '0' comes after '/'
    for row in connection.execute(query, (limits.counted, topic, name, kind, step)).fetchall():
        name, kind, step, counts = _typed(row, str, str, int, str)
        yield Counted(name, kind, step, unpack(whole, counts, _place(name, kind, step)))


def find_counted(
    connection: sqlite3.Connection, key: tuple[str, str, int, str]
) -> Counted | None:
    """Return what is stored under a key, if anything is."""
    name, kind, step, topic = key
    return next(counted(connection, Limits(), topic, name, kind, step), None)


def scalars(connection: sqlite3.Connection, limits: Limits, name: str | None) -> list[Scalar]:
    """Return the scalars of a name, or all, by step, then as they were stored."""
    query = (
        "SELECT step, name, value FROM scalar WHERE id <= ? AND (?2 IS NULL OR name = ?2) "
        "ORDER BY step, id"
    )
    rows = connection.execute(query, (limits.scalar, name))
    return [_scalar(*_typed(row, int, str, float | None)) for row in rows]


def _tensor_id(connection: sqlite3.Connection, name: str, kind: str) -> int:
    query = "SELECT id FROM tensor WHERE name = ? AND kind = ?"
    row = connection.execute(query, (name, kind)).fetchone()
    if row is None:
        insert = "INSERT INTO tensor (name, kind) VALUES (?, ?)"
        return int(connection.execute(insert, (name, kind)).lastrowid or 0)
    return int(row[0])


def _has_counted(connection: sqlite3.Connection) -> bool:
    """Whether a file has the table: those of the first versions have not."""
    query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'counted'"
    return connection.execute(query).fetchone() is not None


def _place(name: str, kind: str, step: int) -> str:
    return f"{name!r} ({kind}, step {step})"


def _event(step: int, name: str, kind: str, message: str, facts: str) -> Event:
    try:
        return Event(step, name, kind, message, dict(json.loads(facts)))
    except (TypeError, ValueError) as error:
        raise _damaged(f"the facts of event {message!r} at step {step} are no JSON") from error


def _scalar(step: int, name: str, value: float | None) -> Scalar:
    return Scalar(step, name, math.nan if value is None else value)


def _typed(row: Sequence[Any], *types: Any) -> tuple[Any, ...]:
    """Return a row whose columns have these types; SQLite itself lets any column hold anything."""
    if not all(map(isinstance, row, types)):
        found = ", ".join(type(value).__name__ for value in row)
        raise _damaged(f"a row holds ({found})")
    return tuple(row)


def _damaged(what: str) -> TraceError:
    return TraceError(
        f"the trace is damaged: {what}; the file was changed after it was written, "
        "restore it from a copy"
    )
