"""Writer: what has been recorded and not yet been committed, and when it is.

Records of one key are joined while they wait, so that gradient accumulation costs one row. A
commit comes after 256 records or half a second, whichever is first, before each reading and on
closing: a killed process loses no more than that.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sqlite3
import threading
import warnings
import weakref
from collections.abc import Iterator
from dataclasses import replace

from fpemu.analysis import place, store, tables
from fpemu.analysis.counted import Counted
from fpemu.analysis.records import Event, Record, Scalar
from fpemu.errors import TraceError

__all__ = ["BATCH_RECORDS", "BATCH_SECONDS", "Writer"]

BATCH_RECORDS = 256
BATCH_SECONDS = 0.5


class Writer:
    """The one connection that writes a trace, with its batch, for any number of threads."""

    def __init__(self, connection: sqlite3.Connection, path: str | None) -> None:
        self.path = path
        self.limits = tables.Limits()
        self.trace_id = store.trace_id(connection)
        with store.trace_errors(self._name):
            self._made = os.stat(path) if path else None
        self._connection = connection
        self._process = os.getpid()
        self._lock = threading.RLock()
        self._timer: threading.Timer | None = None
        self._late = False  # the timer's commit failed: the next caller must hear of it
        self._whole = False  # inside at_once(): commits wait for its end
        self._closed = False
        self._forget()
        _writers.add(self)

    def add(self, record: Record) -> None:
        """Take a record."""
        with self._changing():
            known = self._records.get(record.key)
            self._records[record.key] = known + record if known else record

    def add_counted(self, counted: Counted) -> None:
        """Take what was counted of a tensor, joined with what is there.

        That is read now and not when it is written: counts that do not add up are refused here.
        """
        with self._changing():
            key = counted.key
            known = self._counted.get(key) or tables.find_counted(self._connection, key)
            joined = replace(counted, value=known.value + counted.value) if known else counted
            self._counted[key] = joined

    def add_event(self, event: Event, facts: str) -> None:
        """Take an event, with its facts as JSON text."""
        with self._changing():
            self._events.append((event, facts))

    def add_scalar(self, scalar: Scalar) -> None:
        """Take a scalar."""
        with self._changing():
            self._scalars.append(scalar)

    def add_metadata(self, texts: dict[str, str], key: str, text: str | None) -> None:
        """Take a value of the metadata as JSON text, in `texts` too; None takes the key away."""
        with self._changing():
            self._metadata[key] = text
            if text is None:
                texts.pop(key, None)
            else:
                texts[key] = text

    @contextlib.contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """Lend the connection, with everything recorded so far in it."""
        with self._mine():
            self._commit(anywhere=True)  # a file that is lost can still be saved elsewhere
            with store.trace_errors(self._name):
                yield self._connection

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """Commit all that is taken inside in one piece, or none of it if the inside fails."""
        with self._mine():
            self._commit()
            with self._transaction():
                self._whole = True
                try:
                    yield
                    self._put_batch()
                finally:
                    self._whole = False
                    self._forget()

    def check_file(self) -> None:
        """Refuse to go on in a file that is no longer found under its name."""
        if self.path and self._made:
            place.check_same(self.path, self._made)

    def lost(self) -> bool:
        """Say whether the file is no longer found under its name."""
        try:
            self.check_file()
        except TraceError:
            return True
        return False

    def check(self) -> None:
        """Refuse what cannot record, before any work is done for it."""
        with self._mine():
            pass

    def close(self) -> bool:
        """Commit, leave one file, and end; say whether it is ended: a child must not do that."""
        if os.getpid() != self._process:
            return False
        with self._lock:
            if not self._closed:
                self._commit()
                self.check_file()
                if self.path is None:
                    self._connection.close()
                else:
                    place.settle(self._connection, self.path)
                self._end()
        return True

    def leave(self) -> bool:
        """End without a look at the file, if nothing waits: all was saved elsewhere."""
        with self._mine():
            if not self._waiting():
                self._connection.close()
                self._end()
            return self._closed

    def finish(self) -> None:
        """Close what nobody closed; nobody is there to catch an error, so it is a warning."""
        try:
            self.close()
        except Exception as error:  # whatever it is, its traceback would tell nobody anything
            self._connection.close()
            self._end()
            message = f"{error} (what was not committed is lost)"
            warnings.warn_explicit(message, RuntimeWarning, f"<{__name__}>", 1)

    def _end(self) -> None:
        self._closed = True
        if self._timer:
            self._timer.cancel()

    def _waiting(self) -> bool:
        return bool(
            self._records or self._counted or self._events or self._scalars or self._metadata
        )

    @property
    def _name(self) -> str:
        return self.path or "in memory"

    @contextlib.contextmanager
    def _mine(self) -> Iterator[None]:
        # The process is compared before the lock is touched: in a child, a thread that is not
        # there any more may have held it for ever.
        if os.getpid() != self._process:
            raise TraceError(
                f"trace {self._name!r} belongs to process {self._process}, and this is its child "
                f"{os.getpid()}: SQLite connections do not survive a fork; create a trace in each "
                "process and merge them"
            )
        with self._lock:
            if self._closed:
                raise TraceError(
                    f"trace {self._name!r} is closed; create another to record, or Trace.load it "
                    "to read"
                )
            yield

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        with self._mine():
            yield
            waiting = len(self._records) + len(self._counted)
            waiting += len(self._events) + len(self._scalars)
            if waiting >= BATCH_RECORDS or self._late:
                self._commit()
            elif self.path and not self._timer and not self._whole:
                self._start_timer()

    def _start_timer(self) -> None:
        timer = threading.Timer(BATCH_SECONDS, self._on_time)
        timer.daemon = True
        try:
            timer.start()
        except RuntimeError:  # no more threads: the interpreter is ending
            self._commit()
        else:
            self._timer = timer

    def _on_time(self) -> None:
        with self._lock:
            self._timer = None
            if not self._closed:
                try:
                    self._commit()
                except TraceError:
                    self._late = True

    def _commit(self, anywhere: bool = False) -> None:
        if not self._waiting():
            return
        if not anywhere:
            self.check_file()
        if self._whole:
            self._put_batch()
        else:
            with self._transaction():
                self._put_batch()
        self._late = False
        self._forget()

    def _put_batch(self) -> None:
        tables.put_metadata(self._connection, self._metadata)
        for record in self._records.values():
            tables.put_record(self._connection, record)
        for counted in self._counted.values():
            tables.put_counted(self._connection, counted)
        for event, facts in self._events:
            tables.put_event(self._connection, event, facts)
        for scalar in self._scalars:
            tables.put_scalar(self._connection, scalar)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        with store.trace_errors(self._name):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:  # a full disk may have ended it already
                    self._connection.execute("ROLLBACK")
                raise

    def _forget(self) -> None:
        self._records: dict[tuple[str, str, int], Record] = {}
        self._counted: dict[tuple[str, str, int, str], Counted] = {}
        self._events: list[tuple[Event, str]] = []
        self._scalars: list[Scalar] = []
        self._metadata: dict[str, str | None] = {}


_writers: weakref.WeakSet[Writer] = weakref.WeakSet()


def _keep_inherited_connections() -> None:
    # In a child, closing a connection that its parent opened can damage the parent's file, and
    # Python closes what it frees (https://www.sqlite.org/howtocorrupt.html, section 2.6): so the
    # child keeps them for ever. A reference too many is the only way that outlives its shutdown.
    for writer in _writers:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(writer._connection))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_keep_inherited_connections)
