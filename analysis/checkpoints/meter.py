"""Meter: how far the reading of checkpoints is, in bytes of all their files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence

from fpemu.analysis.checkpoints.checkpoint import Checkpoint
from fpemu.analysis.checkpoints.stored import Stored

__all__ = ["Meter", "Progress"]

#: Called with bytes done, bytes in all, and the file that is being read.
Progress = Callable[[int, int, str], None]


class Meter:
    """How far the work on checkpoints is, in bytes of all files."""

    def __init__(self, checkpoints: Iterable[Checkpoint], progress: Progress | None) -> None:
        files = [file for checkpoint in checkpoints for file in checkpoint.files]
        self._sizes = {file: _size(file) for file in files}
        self._total = sum(map(self._sizes.__getitem__, files))
        self._done = 0.0
        self._progress = progress

    def reading(self, file: str, tensors: Sequence[Stored]) -> Callable[[int], None]:
        """Return what is told of each piece of a file; packed files count as they lie."""
        held = sum(stored.octets for stored in tensors)
        factor = self._sizes[file] / held if held else 1.0

        def counted(octets: int) -> None:
            self._done += factor * octets
            if self._progress:
                self._progress(round(self._done), self._total, file)

        return counted


def _size(file: str) -> int:
    try:
        return os.stat(file).st_size
    except (OSError, ValueError):  # opening it says why
        return 0
