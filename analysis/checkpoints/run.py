"""Run: checkpoints read shard by shard, each tensor counted and judged as it is read."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from fpemu.analysis.asked import casts as asked_casts
from fpemu.analysis.asked import several
from fpemu.analysis.checkpoints.checkpoint import Checkpoint, find
from fpemu.analysis.checkpoints.contents import tensors_of
from fpemu.analysis.checkpoints.counting import count, room_for
from fpemu.analysis.checkpoints.encodings import FLOAT64_DIGITS
from fpemu.analysis.checkpoints.kinds import kind_of
from fpemu.analysis.checkpoints.meter import Meter, Progress
from fpemu.analysis.checkpoints.opened import damaged
from fpemu.analysis.checkpoints.patterns import Patterns, clean
from fpemu.analysis.checkpoints.result import Scan
from fpemu.analysis.checkpoints.rows import Question, TensorRow, Uncounted, tensor_row
from fpemu.analysis.checkpoints.stored import Stored
from fpemu.analysis.records import Record
from fpemu.analysis.scales import SCALES, TOLERANCE, check_tolerance, powers_of_two
from fpemu.analysis.trace import Trace
from fpemu.analysis.what_if import FORMATS
from fpemu.cast import Cast
from fpemu.errors import InputError
from fpemu.format import Format
from fpemu.tallies import Tally

__all__ = ["Progress", "check_shard", "scan"]


def scan(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    formats: str | Format | Cast | Iterable[str | Format | Cast] = FORMATS,
    scales: float | Iterable[float] = SCALES,
    tolerance: float = TOLERANCE,
    names: str | Iterable[str] | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Scan:
    """Count every tensor of checkpoints on disk, and what formats would lose of each.

    >>> import os, tempfile
    >>> import numpy as np
    >>> from fpemu.analysis.checkpoints.run import scan
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(os.path.join(folder, "a.npz"), fc1=np.float32([1e-9, 500.0]))
    ...     found = scan(folder, formats=["bf16", "e4m3fn"])
    >>> [(row.name, [to.lost_percent for to in row.formats]) for row in found.tensors]
    [('fc1', [0.0, 100.0])]
    >>> found.trace.kinds()
    ['weight']

    paths: one or more checkpoints: safetensors (one file, an index of shards, a folder), .npz,
    .npy, PyTorch's zip files. Memory stays bounded whatever their size. What is no pickle is read
    without; PyTorch's are read by its weights-only reader; everything else is refused.
    formats, scales, tolerance: as in `whatif` and `safe_scales`. names: patterns as in a shell; a
    tensor is read if one fits.
    A name that several of the checkpoints hold is recorded at steps 0, 1, 2, in their order.
    float64 tensors are counted by their float32 rounded to odd, which changes no outcome within
    float32's range in a format of up to 22 significant bits.
    Integer, bool and complex tensors are listed with the reason why they are not counted. NaN,
    infinities and zeros are counted apart.
    Errors: InputError in one line for what is no checkpoint, damaged, or would need pickle.
    """
    checkpoints = [find(path) for path in several("paths", paths, str, os.PathLike)]
    if not checkpoints:
        raise InputError("paths: at least one checkpoint is needed")
    check_tolerance(tolerance)
    asked = Question(
        tuple(asked_casts(formats)), tuple(sorted({1.0, *powers_of_two(scales)})), tolerance
    )
    if not asked.casts:
        raise InputError("formats: at least one is needed, such as 'bfloat16'")
    for cast in asked.casts:
        Tally().outcome(cast)  # refuses what no tally can tell, before anything is read
    patterns = Patterns("names", "*" if names is None else names)
    if not patterns:
        raise InputError("names: at least one pattern is needed, or None for all tensors")
    work = _Work(asked, patterns, threads, Meter(checkpoints, progress))
    for checkpoint in checkpoints:
        work.add(checkpoint)
    patterns.check()
    work.trace.metadata["checkpoints"] = [checkpoint.path for checkpoint in checkpoints]
    return Scan(
        tuple(checkpoint.path for checkpoint in checkpoints),
        asked.casts,
        asked.scales,
        tolerance,
        tuple(work.rows),
        tuple(work.uncounted),
        tuple(note for checkpoint in checkpoints for note in checkpoint.notes),
        work.trace,
    )


class _Work:
    """What has been counted so far."""

    def __init__(
        self, asked: Question, patterns: Patterns, threads: int | None, meter: Meter
    ) -> None:
        self.trace = Trace()
        self.rows: list[TensorRow] = []
        self.uncounted: list[Uncounted] = []
        self._asked = asked
        self._patterns = patterns
        self._threads = threads
        self._meter = meter
        self._room = room_for(threads)
        self._steps: dict[str, int] = {}  # name -> how many checkpoints had it

    def add(self, checkpoint: Checkpoint) -> None:
        """Count the tensors of one checkpoint."""
        here: set[str] = set()
        for file in checkpoint.files:
            with tensors_of(file) as tensors:
                check_shard(checkpoint, file, tensors)
                told = self._meter.reading(file, tensors)
                for stored in tensors:
                    name = clean(stored.name)
                    if name in here:
                        damaged(file, f"tensor {name[:80]!r} is there twice")
                    here.add(name)
                    if self._patterns.fits(name):
                        self._tensor(name, file, stored, told)
        for name in here:
            self._steps[name] = self._steps.get(name, 0) + 1

    def _tensor(
        self, name: str, file: str, stored: Stored, told: Callable[[int], None]
    ) -> None:
        if stored.encoding is None:
            self.uncounted.append(
                Uncounted(name, file, stored.dtype, stored.shape, stored.octets, stored.reason)
            )
            told(stored.octets)
            return
        _check_digits(self._asked.casts, name, stored)
        counted = count(stored, self._room, threads=self._threads, progress=told)
        if counted.tally.total != stored.values:
            damaged(file, f"tensor {name[:80]!r} has {counted.tally.total:,} values, "
                          f"not {stored.values:,}")  # fmt: skip
        kind, step = kind_of(name), self._steps.get(name, 0)
        self.trace.add(
            Record(name, kind, step, stored.shape, counted.tally, counted.moments)
        )
        self.rows.append(tensor_row(name, kind, step, file, stored, counted, self._asked))


def check_shard(checkpoint: Checkpoint, file: str, tensors: list[Stored]) -> None:
    """Refuse a shard that lacks a tensor which the index says is in it."""
    if checkpoint.shards is None:
        return
    there = {stored.name for stored in tensors}
    for name, shard in checkpoint.shards.items():
        if shard == file and name not in there:
            damaged(file, f"tensor {name[:80]!r}, which the index says is in it, is not")


def _check_digits(casts: Iterable[Cast], name: str, stored: Stored) -> None:
    if stored.encoding and stored.encoding.format == "float64":
        for cast in casts:
            if cast.format.mantissa_bits > FLOAT64_DIGITS:
                raise InputError(
                    f"tensor {name[:80]!r} is float64: what {cast} makes of it cannot be told from "
                    f"its float32; leave that format out (up to {FLOAT64_DIGITS} mantissa bits can)"
                )


