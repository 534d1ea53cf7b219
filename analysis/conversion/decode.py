"""Decode: a checkpoint of codes and scales made one of values again."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fpemu.analysis.checkpoints.checkpoint import find
from fpemu.analysis.checkpoints.contents import notes_of, tensors_of
from fpemu.analysis.checkpoints.encodings import Room
from fpemu.analysis.checkpoints.meter import Meter, Progress
from fpemu.analysis.checkpoints.opened import damaged
from fpemu.analysis.checkpoints.run import check_shard
from fpemu.analysis.checkpoints.safetensors import DTYPES
from fpemu.analysis.checkpoints.stored import LIMIT, Stored, values_of
from fpemu.analysis.conversion.coded import CODES, codes_from, entries_of
from fpemu.analysis.conversion.container import Entry
from fpemu.analysis.conversion.fitting import Inexact, read_inexact
from fpemu.analysis.conversion.jobs import Job, Parts, Tell, about, check_names, kept_job, value_job
from fpemu.analysis.conversion.numbers import copied, evenly
from fpemu.analysis.conversion.part import Part
from fpemu.analysis.conversion.parts import rows_at_once
from fpemu.analysis.conversion.places import places, write_index
from fpemu.analysis.conversion.plain import Plain
from fpemu.analysis.conversion.scaling import Scaling
from fpemu.analysis.conversion.shard import write
from fpemu.analysis.conversion.targets import Target
from fpemu.cast import Cast
from fpemu.errors import InputError
from fpemu.scaling import Recipe

__all__ = ["Decoded", "decode"]

Array = np.ndarray[Any, Any]

_KEPT = "no codes"


@dataclass(frozen=True)
class Decoded:
    """A checkpoint of values that was made of one of codes."""

    path: str
    out: str
    tensors: int  #: that were codes
    octets: int
    to_octets: int

    def to_json(self) -> dict[str, Any]:
        """Return the facts as a JSON-ready dict."""
        return asdict(self)


def decode(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    inexact: str | Inexact = Inexact.FLOAT32,
    force: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Decoded:
    """Write the values that a checkpoint of `convert(..., codes=True)` stands for.

    >>> import os, tempfile
    >>> import numpy as np
    >>> from fpemu.analysis.conversion import convert, decode
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     a, b, c = (os.path.join(folder, f"{n}.safetensors") for n in "abc")
    ...     np.savez(a + ".npz", fc1=np.ones((4, 32), np.float32))
    ...     done = convert(a + ".npz", "mxfp4", b, codes=True)
    ...     back = decode(b, c)
    >>> (done.octets, done.to_octets), (back.octets, back.to_octets)
    ((512, 68), (68, 512))

    The recipe and the tensors' first dtypes are told by the file; where such a dtype does not
    hold every value exactly, `inexact` says what to do, as in `convert`. out, force: as there.
    Errors: InputError for a file without such notes, or one that contradicts them.
    """
    checkpoint, how = find(path), read_inexact(inexact)
    where = places(checkpoint, out, force)
    meter, index = Meter([checkpoint], progress), dict[str, str]()
    count = octets = to_octets = 0
    with where.lend() as paths:
        for file in checkpoint.files:
            with tensors_of(file) as tensors:
                check_shard(checkpoint, file, tensors)
                given = notes_of(file) or {}
                jobs = _jobs(file, tensors, given, how)
                check_names(jobs)
                notes = {key: text for key, text in given.items() if key != CODES}
                with open(paths[file], "wb") as half:
                    tell = meter.reading(file, tensors)
                    rows, _, size = write(half, where.names[file], jobs, how, notes, tell)
                octets += sum(stored.octets for stored in tensors)
            index |= {entry.name: where.names[file] for job in jobs for entry in job.entries}
            count, to_octets = count + len(rows), to_octets + size
        if not where.single:
            write_index(os.path.dirname(paths[checkpoint.files[0]]), index, to_octets)
    return Decoded(checkpoint.path, where.out, count, octets, to_octets)


def _jobs(
    file: str, tensors: Sequence[Stored], notes: Mapping[str, str], inexact: Inexact
) -> list[Job]:
    """Return the jobs of a file: coded tensors become values, all else is copied."""
    if CODES not in notes:
        raise InputError(
            f"checkpoint {file!r:.200}: says of no codes; give one of `fpemu convert --codes`"
        )
    there = {stored.name: stored for stored in tensors}
    jobs, used = [], set[str]()
    try:
        facts = json.loads(notes[CODES])
        target, axis = _target(facts), int(facts["axis"])
        coded = [(name, *_was(was)) for name, was in facts["tensors"].items()]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        damaged(file, f"its note of codes cannot be read ({' '.join(str(error).split())[:120]})")
    for name, dtype, shape in coded:
        with about(name):
            entries = entries_of(name, shape, axis, target)
        parts = [_found(file, there, entry) for entry in entries]
        used |= {part.name for part in parts}
        read = _reader(parts, shape, axis, target)
        jobs.append(value_job(parts[0], Entry(name, dtype, shape), inexact, read))
    kept = [kept_job(stored, _KEPT) for stored in tensors if stored.name not in used]
    return jobs + kept


def _target(facts: Any) -> Target:
    if "cast" in facts:
        return Plain(Cast.from_json(facts["cast"]))
    return Scaling(Recipe.from_json(facts["recipe"]))


def _was(facts: Any) -> tuple[str, tuple[int, ...]]:
    dtype, shape = facts["dtype"], tuple(facts["shape"])
    counts = all(type(n) is int and n > 0 for n in shape)
    if dtype not in DTYPES or not DTYPES[dtype].format or not counts or values_of(shape) >= LIMIT:
        raise ValueError(f"{str(dtype)[:20]} of shape {str(shape)[:40]}")
    return dtype, shape


def _found(file: str, there: Mapping[str, Stored], entry: Entry) -> Stored:
    stored = there.get(entry.name)
    if stored is None or stored.storage is None or (
        (stored.storage.dtype, stored.shape) != (entry.dtype, entry.shape)
    ):
        shape = "x".join(map(str, entry.shape)) or "()"
        damaged(file, f"tensor {entry.name[:80]!r} is not there as {entry.dtype} of {shape}")
    return stored


def _reader(parts: list[Stored], shape: tuple[int, ...], axis: int, target: Target) -> Parts:
    """Return what reads a tensor's codes piece by piece, and makes values of them."""

    def read(room: Room, tell: Tell) -> Iterator[tuple[Array, Part]]:
        view, own = target.view(shape, axis)
        scales = [np.concatenate([*copied(one, room, lambda octets: None)]) for one in parts[1:]]
        rows = rows_at_once(target, view, own)
        code, start = codes_from(target, view), 0
        size = code.octets(rows)
        for octets in evenly(copied(parts[0], room, tell), min(size, parts[0].octets)):
            codes = code.codes(octets)[: view[0] - start]
            values = target.values(codes, scales, view, own, start)
            yield values, Part(values, codes)
            start += len(codes)

    return read


