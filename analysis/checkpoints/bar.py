"""Bar: how far a long reading of files is, drawn on stderr where that is a terminal."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from fpemu.analysis.shown import plain, shorten

if TYPE_CHECKING:
    from fpemu.analysis.checkpoints.meter import Progress

__all__ = ["bar"]


@contextlib.contextmanager
def bar(what: str) -> Iterator[Progress | None]:
    """Yield a progress callback that draws on a terminal, or None where stderr is none."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (
        TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(),
        TransferSpeedColumn(), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console, transient=True) as drawn:
        task = drawn.add_task(what, total=None)

        def told(done: int, total: int, file: str) -> None:
            name = shorten(plain(Path(file).name), 32)
            drawn.update(task, completed=done, total=total, description=name)

        yield told
