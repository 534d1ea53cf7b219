"""Jobs: what becomes of each tensor of a file, settled before anything is written."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

import fpemu
from fpemu.analysis.checkpoints.encodings import Room
from fpemu.analysis.checkpoints.stored import Stored
from fpemu.analysis.conversion.coded import CODES, entries_of
from fpemu.analysis.conversion.container import Entry
from fpemu.analysis.conversion.fitting import FORMATS, Inexact
from fpemu.analysis.conversion.measure import Measured, measure, tops_of
from fpemu.analysis.conversion.part import Part
from fpemu.analysis.conversion.parts import parts_of
from fpemu.analysis.conversion.plain import Plain
from fpemu.analysis.conversion.targets import Target
from fpemu.errors import InputError

__all__ = ["How", "Job", "Parts", "Tell", "about", "check_names", "jobs_of", "kept_job",
           "notes_of", "value_job"]  # fmt: skip

Tell = Callable[[int], None]

#: The numbers of a tensor before and after, piece by piece; told of the bytes that were read.
Parts = Callable[[Room, Tell], Iterator[tuple[np.ndarray[Any, Any], Part]]]


#: What numbers were, what they are as written, and the part that they are of.
Measure = Callable[[np.ndarray[Any, Any], np.ndarray[Any, Any], Part], Measured]


def nothing_measured(x: object, q: object, part: object) -> Measured:
    """Measure nothing: of what is copied, or made of codes."""
    return Measured()


@dataclass(frozen=True)
class How:
    """What is asked of every tensor."""

    target: Target
    codes: bool
    axis: int
    seed: int | None
    inexact: Inexact
    threads: int | None


@dataclass(frozen=True)
class Job:
    """A tensor, and what it becomes: copied for a reason, or converted."""

    stored: Stored
    reason: str
    entries: tuple[Entry, ...]  #: of the new file; the first may become float32 if it is not sure
    sure: bool = True
    widened: bool = False
    parts: Parts | None = None  #: None: it is copied
    measure: Measure = nothing_measured
    target: Target | None = None  #: of codes; None: values are written


def jobs_of(tensors: Sequence[Stored], reasons: Mapping[str, str], how: How) -> list[Job]:
    """Return what becomes of each tensor of a file.

    Errors: InputError for a tensor that safetensors cannot hold, and for two of one name.
    """
    jobs = [_job(stored, reasons[stored.name], how) for stored in tensors]
    check_names(jobs)
    return jobs


def check_names(jobs: Sequence[Job]) -> None:
    """Refuse two tensors of one name, and the name of what is no tensor."""
    names: set[str] = set()
    for entry in (entry for job in jobs for entry in job.entries):
        if entry.name in names or entry.name == "__metadata__":
            raise InputError(
                f"tensor {entry.name[:80]!r}: the new file would hold two of this name; "
                "drop or skip one"
            )
        names.add(entry.name)


def kept_job(stored: Stored, reason: str) -> Job:
    """Return the job of a tensor that is copied."""
    name, storage = stored.name, stored.storage
    if storage is None:
        raise InputError(
            f"tensor {name[:80]!r} of {stored.dtype[:40]}: no dtype of safetensors holds it; "
            f"leave it out: drop={name[:80]!r}"
        )
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InputError(
            f"tensor {name[:80]!r}: its name is no text that JSON holds; drop it"
        ) from None
    return Job(stored, reason, (Entry(name, storage.dtype, stored.shape),))


def _job(stored: Stored, reason: str, how: How) -> Job:
    kept = kept_job(stored, reason)
    if reason:
        return kept

    def parts(room: Room, tell: Tell) -> Iterator[tuple[np.ndarray[Any, Any], Part]]:
        with about(stored.name):
            yield from parts_of(stored, how.target, how.axis, how.seed, how.threads, room, tell)

    if how.codes:
        with about(stored.name):
            made = entries_of(stored.name, stored.shape, how.axis, how.target)
        job = Job(stored, "", tuple(made), parts=parts, target=how.target)
    else:
        job = value_job(stored, kept.entries[0], how.inexact, parts)
    return replace(job, measure=partial(measure, tops=tops_of(how.target), limit=how.target.limit))


def value_job(stored: Stored, entry: Entry, inexact: Inexact, parts: Parts) -> Job:
    """Return the job of a tensor that is written as values, if possible in an entry's dtype."""
    if entry.dtype in ("F32", "F64"):
        return Job(stored, "", (entry,), parts=parts)
    if entry.dtype in FORMATS:
        return Job(stored, "", (entry,), sure=inexact is not Inexact.FLOAT32, parts=parts)
    if inexact is not Inexact.FLOAT32:
        raise InputError(
            f"tensor {stored.name[:80]!r} is {entry.dtype}: results are not packed into that; skip "
            "it, or let it become float32"
        )
    return Job(stored, "", (entry._replace(dtype="F32"),), widened=True, parts=parts)


@contextlib.contextmanager
def about(name: str) -> Iterator[None]:
    """Say which tensor a refusal is about."""
    try:
        yield
    except InputError as error:
        if str(error).startswith(("tensor ", "checkpoint ")):
            raise
        way_out = "" if "skip" in str(error) else ", or skip the tensor"
        raise InputError(f"tensor {name[:80]!r}: {error}{way_out}") from None


def notes_of(jobs: Sequence[Job], how: How, given: Mapping[str, str] | None) -> dict[str, str]:
    """Return what the new file says of itself: what the old one did, and what was done.

    Files that were no safetensors say the format that PyTorch's loaders ask for.
    """
    notes = dict(given) if given is not None else {"format": "pt"}
    for key in [key for key in notes if key.startswith("fpemu.")]:
        del notes[key]
    notes["fpemu.version"] = fpemu.__version__
    notes["fpemu.to"] = str(how.target)
    if how.codes:
        notes[CODES] = json.dumps(_codes(jobs, how), separators=(",", ":"))
    return notes


def _codes(jobs: Sequence[Job], how: How) -> dict[str, Any]:
    """What is needed to make values of codes again."""
    target = how.target
    plain = isinstance(target, Plain)
    facts = target.cast.to_json() if isinstance(target, Plain) else target.recipe.to_json()
    tensors = {
        job.stored.name: {
            "dtype": job.stored.storage.dtype if job.stored.storage else "F32",
            "shape": list(job.stored.shape),
        }
        for job in jobs
        if not job.reason
    }
    return {"cast" if plain else "recipe": facts, "axis": how.axis, "tensors": tensors}
