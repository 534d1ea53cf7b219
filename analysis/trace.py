"""Trace: what the tensors of a run were, by step, name and kind, as exact mergeable counts."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from types import TracebackType
from typing import Any

import numpy as np

from fpemu.analysis import place, store
from fpemu.analysis.contents import Contents
from fpemu.analysis.counted import TOPICS, Counted, check_counts
from fpemu.analysis.metadata import Metadata, start
from fpemu.analysis.records import (
    KINDS,
    Event,
    Record,
    Scalar,
    check_kind,
    check_name,
    check_number,
    check_record,
    check_step,
    facts_apart,
    json_text,
)
from fpemu.analysis.store import PathLike, Reader
from fpemu.analysis.writer import Writer
from fpemu.errors import InputError, TraceError
from fpemu.moments import moments
from fpemu.tallies import tally

__all__ = ["KINDS", "Event", "Metadata", "Record", "Scalar", "Trace", "check_trace"]


class Trace(Contents):
    """The recorded tensors of a run: (step, name, kind) -> Tally, Moments and shape.

    >>> import numpy as np
    >>> from fpemu.analysis.trace import Trace
    >>> trace = Trace(metadata={"seed": 1})
    >>> for step in range(3):
    ...     trace.record("fc1", "weight_gradient", np.float32([1e-9, 0.5, 0.0]), step)
    >>> trace.steps(), trace.total(name="fc1").outcome("float16").underflow
    ([0, 1, 2], 3)

    `Trace()` lives in memory; `Trace.create(path)` writes through to a file that survives a
    killed process; `Trace.load(path)` reads one, also while another process writes it.
    Recording is safe from any number of threads. In a forked child a trace of the parent raises
    TraceError: create one in each process and `merge` them.
    """

    _metadata: Metadata

    def __init__(self, *, metadata: Mapping[str, Any] | None = None) -> None:
        texts = start(metadata)
        self._begin(Writer(store.memory(texts), None), texts)

    @classmethod
    def create(
        cls,
        path: PathLike,
        *,
        metadata: Mapping[str, Any] | None = None,
        overwrite: bool = False,
    ) -> Trace:
        """Return a trace on a new file, written as it is recorded.

        >>> import os, tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> path = os.path.join(folder.name, "run.fpemu")
        >>> with Trace.create(path, metadata={"seed": 1}) as trace:
        ...     trace.record("fc1", "weight", np.float32([0.5]), step=0)
        >>> Trace.load(path).names(), os.listdir(folder.name)
        (['fc1'], ['run.fpemu'])
        >>> folder.cleanup()

        What is recorded is committed after 256 records or half a second, whichever is first, and
        on closing: a killed process (kill -9) loses no more than that, and its file loads. Until
        it is closed, the file has two companions (-wal, -shm); closing leaves one file, and the
        trace can still be read. A trace that is not closed is closed when it is no longer used.
        metadata: text -> JSON values (seed, format asked for, ...) beside what is known of every
        run: versions, date, command.
        Errors: TraceError if the file exists (unless overwrite=True, and then only a trace that
        nobody uses is replaced), or cannot be made; nothing half made is left.
        """
        texts, file = start(metadata), store.real_path(path)
        trace = cls.__new__(cls)
        trace._begin(Writer(place.create(file, overwrite, texts), file), texts)
        return trace

    @classmethod
    def load(cls, path: PathLike) -> Trace:
        """Return the trace that a file held at this moment, to be read.

        It works while another process writes the file (load it again to see more) and after a
        killed one. Nothing is decoded before it is asked for, and the file is not held open.
        Errors: TraceError for a file that is missing, no trace, of a newer schema, or damaged;
        damage inside is found when it is read. A loaded trace cannot be changed: merge it into
        another.
        """
        trace = cls.__new__(cls)
        trace._read_from(store.real_path(path))
        return trace

    def record(self, name: str, kind: str, array: Any, step: int) -> None:
        """Count an array's values under a step, name and kind.

        >>> trace = Trace()
        >>> trace.record("fc1", "activation", np.float32([0.0, 1.0, np.inf]), step=0)
        >>> trace.record("fc1", "activation", np.float32([2.0]), step=0)
        >>> [(r.recordings, r.tally.total, r.shape) for r in trace.records()]
        [(2, 4, (3,))]

        name: any printable text; kind: one of KINDS; array: what `fpemu.tally` takes; step: an
        integer from 0 on. A key that was recorded before is added to (gradient accumulation,
        shared modules, micro-batches).
        Errors: InputError for anything else, and nothing is recorded; TraceError if the file
        cannot be written, and what waits is kept for the next try.
        """
        key = check_name(name), check_kind(kind), check_step(step)
        writer, values = self._writer(), _values(array, name)
        writer.add(Record(*key, tuple(values.shape), tally(values), moments(values)))

    def add(self, record: Record) -> None:
        """Take a finished record, joined with the one of its name, kind and step if there is one.

        >>> a, b = Trace(), Trace()
        >>> a.record("fc1", "weight", np.float32([0.5]), step=0)
        >>> for record in a.records():
        ...     b.add(record)
        >>> b.names()
        ['fc1']

        Errors: InputError for a part that no recorded array has (a negative size, moments that
        are not finite, a tally that is none), TraceError for one that is damaged; nothing is added.
        """
        self._writer().add(check_record(record))

    def count(self, name: str, kind: str, step: int, counts: Any) -> None:
        """Take more that was counted of a tensor: its blocks, recipes, the updates that it took.

        >>> from fpemu.blocks import block_tally
        >>> trace = Trace()
        >>> for _ in range(2):
        ...     trace.count("fc1", "weight", 0, block_tally(np.float32([1, 2, 0, 0]), block=2))
        >>> [counted] = trace.counted("blocks")
        >>> counted.value.blocks, counted.value.zero
        (4, 2)

        counts: a `fpemu.blocks.BlockTally`, `fpemu.scaling.tally.RecipeTally` or
        `fpemu.analysis.updates.UpdateTally`. Those of the same name, kind and step, and of one
        recipe, are added up.
        Errors: InputError for anything else, and for counts that do not add up with those there;
        nothing is changed.
        """
        key = check_name(name), check_kind(kind), check_step(step)
        self._writer().add_counted(Counted(*key, check_counts(counts)))

    @facts_apart
    def event(self, step: int, name: str, kind: str, message: str, **facts: Any) -> None:
        """Note that something happened: an overflow found, a step skipped.

        >>> trace = Trace()
        >>> trace.event(12, "fc2", "weight_gradient", "overflow found", amax=float("inf"))
        >>> [event] = trace.events()
        >>> event.message, event.facts
        ('overflow found', {'amax': inf})

        name: the tensor or layer, "" for the run as a whole; kind: a tensor's kind or any other
        word; facts: JSON values. Each call adds one event.
        """
        event = Event(
            check_step(step),
            name if name == "" else check_name(name),
            check_name(kind, "kind"),
            check_name(message, "message"),
            facts,
        )
        self._writer().add_event(event, json_text(facts, f"facts of event {message!r}"))

    def scalar(self, step: int, name: str, value: float) -> None:
        """Note one number of a step: loss, accuracy, loss_scale.

        >>> trace = Trace()
        >>> trace.scalar(0, "loss", 2.5)
        >>> trace.scalar(1, "loss", float("nan"))
        >>> [s.value for s in trace.scalars("loss")]
        [2.5, nan]

        A second value of the same step and name replaces the first. NaN and infinities are kept.
        """
        number = Scalar(check_step(step), check_name(name), check_number(value, name))
        self._writer().add_scalar(number)

    def merge(self, other: Trace) -> None:
        """Add all that another trace holds, such as another rank's or another shard's.

        >>> a, b = Trace(), Trace()
        >>> a.record("fc1", "weight", np.float32([0.5, 0.0]), step=0)
        >>> b.record("fc1", "weight", np.float32([0.0]), step=0)
        >>> a.merge(b)
        >>> a.total().zero
        2

        Records of one key are joined, events are all kept; of metadata and of scalars that both
        hold, this trace's stay. All of it is taken, or nothing if `other` fails half way.
        Errors: TraceError if `other` is this trace or a copy of it: it would be counted twice.
        """
        writer = self._writer()
        if check_trace(other)._store.trace_id == writer.trace_id:
            raise TraceError(
                f"{other!r} is this trace or a copy of it: it would be counted twice; merge "
                "traces that were recorded apart"
            )
        missing = {key: other.metadata[key] for key in other.metadata if key not in self.metadata}
        with writer.at_once():
            for record in other.records():
                writer.add(record)
            for topic in TOPICS:
                for counted in other.counted(topic):
                    writer.add_counted(counted)
            for event in other.events():
                writer.add_event(event, json_text(event.facts, "facts"))
            known = {(scalar.step, scalar.name) for scalar in self.scalars()}
            for scalar in other.scalars():
                if (scalar.step, scalar.name) not in known:
                    writer.add_scalar(scalar)
        self.metadata.update(missing)

    def save(self, path: PathLike) -> None:
        """Write the trace to one file, complete or not at all.

        >>> import os, tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> trace = Trace()
        >>> trace.record("fc1", "weight", np.float32([0.5]), step=0)
        >>> trace.save(os.path.join(folder.name, "run.fpemu"))
        >>> Trace.load(os.path.join(folder.name, "run.fpemu")).total() == trace.total()
        True
        >>> folder.cleanup()

        A trace of that name is replaced in one step. A trace that is being written and whose file
        was deleted or replaced meanwhile is closed by saving it under another name.
        Errors: TraceError if the path is another kind of file, a trace that is being written, or
        cannot be written; what was there stays.
        """
        file, written = store.real_path(path), self._store
        lost = written if isinstance(written, Writer) and written.lost() else None
        if lost and file == lost.path:
            lost.check_file()
        place.save(written.read(), file)
        if lost and lost.leave():
            self._read_from(file)

    def close(self) -> None:
        """Commit what waits and leave one file; the trace can then only be read.

        Errors: TraceError if that fails (a full disk, a file that was deleted); the trace stays
        open, so that `save` can still put it elsewhere, and `close` may be tried again.
        """
        writer = self._store
        if isinstance(writer, Writer) and writer.path is not None and writer.close():
            self._read_from(writer.path)

    def __enter__(self) -> Trace:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def metadata(self) -> Metadata:
        """The facts of the run, a dict of text to JSON values that writes through."""
        return self._metadata

    def __repr__(self) -> str:
        return f"<Trace {self.path or 'in memory'!r}>"

    # The metadata get the store's method and not the trace's: a trace in no reference cycle is
    # closed as soon as it is dropped, by the thread that drops it.

    def _begin(self, writer: Writer, texts: Mapping[str, str]) -> None:
        self._store = writer
        weakref.finalize(self, writer.finish)
        self._metadata = Metadata(texts, writer.add_metadata)

    def _read_from(self, path: str) -> None:
        self._store = reader = Reader(path)
        self._metadata = Metadata(reader.metadata, reader.refuse)

    def _writer(self) -> Writer:
        if isinstance(self._store, Reader):
            self._store.refuse()
        self._store.check()
        return self._store


def check_trace(trace: object) -> Trace:
    """Return what is a Trace."""
    if not isinstance(trace, Trace):
        raise InputError(f"{type(trace).__name__} is no Trace; Trace.load(path) reads a file")
    return trace


def _values(array: Any, name: str) -> Any:
    if hasattr(array, "shape") and hasattr(array, "dtype"):
        return array
    try:
        return np.asarray(array)
    except Exception as error:  # whatever the object's own conversion raises
        raise InputError(
            f"array of {name!r}: {type(array).__name__} is no array ({error}); give a float array"
        ) from error
