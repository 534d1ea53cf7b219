"""Run: a checkpoint converted shard by shard, each tensor as it is read."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from fpemu.analysis.checkpoints.checkpoint import find
from fpemu.analysis.checkpoints.contents import notes_of as given_notes
from fpemu.analysis.checkpoints.contents import tensors_of
from fpemu.analysis.checkpoints.meter import Meter, Progress
from fpemu.analysis.checkpoints.opened import damaged
from fpemu.analysis.checkpoints.run import check_shard
from fpemu.analysis.conversion.choice import Choice
from fpemu.analysis.conversion.fitting import Inexact, read_inexact
from fpemu.analysis.conversion.jobs import How, Job, jobs_of, notes_of
from fpemu.analysis.conversion.places import Places, places, write_index
from fpemu.analysis.conversion.result import Converted
from fpemu.analysis.conversion.rows import KeptRow, TensorRow
from fpemu.analysis.conversion.scaling import Scaling
from fpemu.analysis.conversion.shard import write
from fpemu.analysis.conversion.targets import find_target
from fpemu.errors import InputError

if TYPE_CHECKING:
    from fpemu.analysis.checkpoints.checkpoint import Checkpoint
    from fpemu.analysis.checkpoints.stored import Stored
    from fpemu.cast import Cast
    from fpemu.format import Format
    from fpemu.scaling import Recipe

__all__ = ["convert"]

_Names = str | Iterable[str] | None


def convert(
    path: str | os.PathLike[str],
    to: str | Recipe | Cast | Format,
    out: str | os.PathLike[str],
    *,
    codes: bool = False,
    only: _Names = None,
    skip: _Names = None,
    drop: _Names = None,
    axis: int = -1,
    seed: int | None = None,
    inexact: str | Inexact = Inexact.FLOAT32,
    force: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Converted:
    """Write a checkpoint rounded to a recipe or a format, as safetensors, and say what is left.

    >>> import os, tempfile
    >>> import numpy as np
    >>> from fpemu.analysis import convert
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     source, out = os.path.join(folder, "a.npz"), os.path.join(folder, "a.safetensors")
    ...     np.savez(source, fc1=np.float32([[0.1, -0.3, 0.7, 1.0]]), bias=np.float32([0.1]))
    ...     done = convert(source, "mxfp4", out)
    >>> [(row.name, round(row.measured.sqnr, 1)) for row in done.tensors]
    [('fc1', 24.5)]
    >>> [(row.name, row.reason) for row in done.kept]
    [('bias', 'fewer than two dimensions, as norms and biases are')]

    path: what `scan` reads. to: a recipe or a cast, or a name or text of one. out: a file that
    ends in .safetensors, or a folder for a checkpoint of several files, which keeps its shards and
    gets an index. Tensors keep name, shape and dtype; one whose dtype does not hold every result
    exactly becomes float32, or is refused ("refuse"), or rounded once more ("round"): inexact.
    codes: write codes and scales instead, as fpemu.analysis.conversion.coded says.
    only, skip, drop: patterns of names: converted, kept as they are, left out. Without `only`,
    weights of two or more dimensions that are wider than 8 bits are converted.
    axis: along which blocks lie. seed: for stochastic casts; each tensor draws by
    `tensor_seed(seed, name)`. float64 tensors are made float32 first by a recipe, as all start
    from that, and not by a cast.
    NaN, infinity, zeros, overflow: as the recipe or cast says; what becomes NaN or infinite is
    counted. Errors: InputError for what `scan` refuses, for an `out` that is there (unless force)
    or is the checkpoint itself; nothing is left of a conversion that fails.
    """
    how = How(find_target(to), bool(codes), axis, seed, read_inexact(inexact), threads)
    if how.target.stochastic and seed is None:
        raise InputError(f"{to}: stochastic rounding needs a seed: give seed=0")
    checkpoint = find(path)
    where = places(checkpoint, out, force)
    work = _Work(how, Choice(only, skip, drop), Meter([checkpoint], progress))
    for file in checkpoint.files:
        work.look(checkpoint, file)  # so that a slip is told before an hour's work
    work.choice.check()
    with where.lend() as paths:
        for file in checkpoint.files:
            work.add(file, paths[file], where.names[file])
        if not where.single:
            write_index(os.path.dirname(paths[checkpoint.files[0]]), work.index, work.to_octets)
    return work.result(checkpoint, where)


class _Work:
    """What has been converted so far."""

    def __init__(self, how: How, choice: Choice, meter: Meter) -> None:
        self.choice = choice
        self.index: dict[str, str] = {}
        self.octets = self.to_octets = 0
        self._how, self._meter = how, meter
        self._tensors: list[TensorRow] = []
        self._kept: list[KeptRow] = []
        self._dropped: list[str] = []
        self._torch = False
        self._wide = 0

    def look(self, checkpoint: Checkpoint, file: str) -> None:
        """Refuse what cannot be converted, before anything is."""
        with tensors_of(file) as tensors:
            check_shard(checkpoint, file, tensors)
            for job in self._jobs(tensors):
                for entry in job.entries:
                    if entry.name in self.index:
                        damaged(file, f"tensor {entry.name[:80]!r} is in another file too")
                    self.index[entry.name] = file

    def _jobs(self, tensors: list[Stored]) -> list[Job]:
        """The jobs of a file's tensors, without those that are dropped."""
        kept = [one for one in tensors if not self.choice.drops(one.name)]
        return jobs_of(kept, self.choice.reasons(kept), self._how)

    def add(self, file: str, path: str, label: str) -> None:
        """Convert one file into another."""
        with tensors_of(file) as tensors:
            jobs = self._jobs(tensors)
            notes = notes_of(jobs, self._how, given_notes(file))
            kept = [job.stored for job in jobs]
            with open(path, "wb") as half:
                tell = self._meter.reading(file, kept)
                done = write(half, label, jobs, self._how.inexact, notes, tell)
            names = {one.name for one in kept}
            self._dropped += [one.name for one in tensors if one.name not in names]
        self._torch |= any(one.dtype.startswith("torch.") for one in kept)
        self._wide += sum(
            not job.reason and job.stored.octets == 8 * job.stored.values for job in jobs
        )
        self.index |= {entry.name: label for job in jobs for entry in job.entries}
        self._tensors += done[0]
        self._kept += done[1]
        self.octets += sum(one.octets for one in kept)
        self.to_octets += done[2]

    def result(self, checkpoint: Checkpoint, where: Places) -> Converted:
        """Return what was done."""
        return Converted(
            checkpoint.path, where.out,
            tuple(dict.fromkeys(where.names[file] for file in checkpoint.files)),
            self._how.target.name, str(self._how.target), self._how.codes,
            self.octets, self.to_octets,
            tuple(self._tensors), tuple(self._kept), tuple(self._dropped),
            (*checkpoint.notes, *self._notes()),
        )  # fmt: skip

    def _notes(self) -> list[str]:
        notes = []
        wide = self._wide if isinstance(self._how.target, Scaling) else 0
        if wide:
            what = f"{wide:,} float64 tensor{'s were' if wide > 1 else ' was'}"
            notes.append(f"{what} made float32 first, as recipes start from that.")
        if self._torch:
            notes.append("Only tensors were written: numbers, text and settings stay in the file.")
        return notes
