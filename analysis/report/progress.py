"""Progress: how far the reading of a trace is, on stderr, where that is a terminal."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.progress import Progress as Bars

    from fpemu.analysis.records import Record

__all__ = ["Progress", "Silent", "shown"]


class Progress(Protocol):
    """Who wants to know how far a report is."""

    def records(self, records: Iterable[Record], most: int) -> Iterable[Record]:
        """Hand records on, of which there are so many at most."""

    def phase(self, what: str) -> None:
        """Hear what is done next."""


class Silent:
    """Nobody does."""

    def records(self, records: Iterable[Record], most: int) -> Iterable[Record]:
        return records

    def phase(self, what: str) -> None:
        pass


class _Shown:
    """Bars in a terminal."""

    def __init__(self, bars: Bars) -> None:
        self._bars = bars

    def records(self, records: Iterable[Record], most: int) -> Iterable[Record]:
        return self._bars.track(records, total=most, description="records")

    def phase(self, what: str) -> None:
        for task in self._bars.task_ids:
            self._bars.remove_task(task)
        self._bars.add_task(what, total=None)


@contextlib.contextmanager
def shown() -> Iterator[Progress]:
    """Lend what shows a report's progress; where nobody would see it, nothing does."""
    from rich.console import Console
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    console = Console(stderr=True)
    if not console.is_terminal:
        yield Silent()
        return
    columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn()
    with Bars(*columns, TimeRemainingColumn(), console=console, transient=True) as bars:
        yield _Shown(bars)
