"""Contents: what a trace holds, selected and summed; the reading half of Trace."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from operator import add

from fpemu.analysis import tables
from fpemu.analysis.asked import known
from fpemu.analysis.counted import Counted, check_topic
from fpemu.analysis.records import KINDS, Event, Record, Scalar, check_kind, check_step
from fpemu.analysis.store import Reader
from fpemu.analysis.writer import Writer
from fpemu.moments import Moments
from fpemu.tallies import Tally

__all__ = ["Contents"]


class Contents:
    """Reading for Trace, the same for one in memory, one being written and one loaded."""

    _store: Writer | Reader

    @property
    def path(self) -> str | None:
        """The file, or None in memory."""
        return self._store.path

    def records(
        self, name: str | None = None, kind: str | None = None, step: int | None = None
    ) -> Iterator[Record]:
        """Iterate the records of a name, kind and step (None takes all), undecoded.

        >>> import numpy as np
        >>> from fpemu.analysis.trace import Trace
        >>> trace = Trace()
        >>> trace.record("fc2", "weight", np.float32([1, 2]), step=1)
        >>> trace.record("fc1", "weight", np.float32([3]), step=0)
        >>> [(r.step, r.name, r.moments.amax) for r in trace.records(kind="weight")]
        [(0, 'fc1', 3.0), (1, 'fc2', 2.0)]

        They come by step, and within a step in the order in which the trace first saw each name
        and kind. What is recorded during the iteration is not in it.
        Errors: InputError for a name that the trace does not know, a kind that is none.
        """
        self._check_selection(name, kind, step)
        return self._chosen(name, kind, step)

    def total(
        self, name: str | None = None, kind: str | None = None, step: int | None = None
    ) -> Tally:
        """Return the tally of all values of a name, kind and step (None takes all).

        >>> import numpy as np
        >>> from fpemu.analysis.trace import Trace
        >>> trace = Trace()
        >>> for step in range(3):
        ...     trace.record("fc1", "update", np.float32([0.0, step]), step)
        >>> trace.total(name="fc1").zero, trace.total(step=2).zero, trace.total(step=9).total
        (4, 1, 0)

        Errors: as `records`. A selection without records gives the empty tally.
        """
        tallies = (record.tally for record in self.records(name, kind, step))
        return reduce(add, tallies, Tally())

    def moments_total(
        self, name: str | None = None, kind: str | None = None, step: int | None = None
    ) -> Moments:
        """Return the moments of all finite values of a name, kind and step (None takes all).

        >>> import numpy as np
        >>> from fpemu.analysis.trace import Trace
        >>> trace = Trace()
        >>> for step in range(3):
        ...     trace.record("fc1", "update", np.float32([step, np.nan]), step)
        >>> trace.moments_total().count, trace.moments_total().mean
        (3, 1.0)

        Errors: as `records`. A selection without records gives the empty moments.
        """
        parts = (record.moments for record in self.records(name, kind, step))
        return reduce(add, parts, Moments())

    def tensors(self) -> list[tuple[str, str]]:
        """Return (name, kind) of each recorded tensor, in the order first seen."""
        with self._store.read() as connection:
            return tables.tensors(connection, self._store.limits)

    def names(self) -> list[str]:
        """Return the recorded names, in the order first seen."""
        return list(dict.fromkeys(name for name, _ in self.tensors()))

    def kinds(self) -> list[str]:
        """Return the recorded kinds, in the order of KINDS."""
        there = {kind for _, kind in self.tensors()}
        return [kind for kind in KINDS if kind in there]

    def steps(self) -> list[int]:
        """Return the recorded steps, in order."""
        with self._store.read() as connection:
            return tables.steps(connection, self._store.limits)

    def events(self) -> Iterator[Event]:
        """Iterate the events by step, then as they came."""
        with self._store.read() as connection:
            return iter(tables.events(connection, self._store.limits))

    def scalars(self, name: str | None = None) -> Iterator[Scalar]:
        """Iterate the scalars of a name, or all of them, by step, then as they came."""
        with self._store.read() as connection:
            return iter(tables.scalars(connection, self._store.limits, name))

    def counted(
        self,
        topic: str,
        name: str | None = None,
        kind: str | None = None,
        step: int | None = None,
    ) -> Iterator[Counted]:
        """Iterate what was counted under a topic of a name, kind and step (None takes all).

        >>> import numpy as np
        >>> from fpemu.analysis.trace import Trace
        >>> from fpemu.blocks import block_tally
        >>> trace = Trace()
        >>> trace.count("fc1", "weight", 0, block_tally(np.float32(np.ones((2, 64))), block=32))
        >>> [(c.name, c.step, c.value.blocks) for c in trace.counted("blocks")]
        [('fc1', 0, 4)]

        They come by step, and within a step in the order in which the trace first saw each name
        and kind.
        Errors: InputError for a topic that is none, and as `records`.
        """
        topic = check_topic(topic)
        self._check_selection(name, kind, step)
        with self._store.read() as connection:
            found = tables.counted(connection, self._store.limits, topic, name, kind, step)
            return iter(list(found))

    def _check_selection(self, name: str | None, kind: str | None, step: int | None) -> None:
        if name is not None:
            known("name", [name], self.names(), self.path)
        if kind is not None:
            check_kind(kind)
        if step is not None:
            check_step(step)

    def _chosen(self, name: str | None, kind: str | None, step: int | None) -> Iterator[Record]:
        with self._store.read() as connection:
            ids = tables.record_ids(connection, self._store.limits, name, kind, step)
        for chunk in tables.chunks(ids):
            with self._store.read() as connection:
                records = tables.records(connection, chunk)
            yield from records
