"""Shard: one safetensors file written, tensor by tensor, each as it is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import IO, Any

import numpy as np

from fpemu.analysis.checkpoints.encodings import Room
from fpemu.analysis.conversion.coded import code_octets, scale_octets
from fpemu.analysis.conversion.container import Container, Entry
from fpemu.analysis.conversion.fitting import WIDTHS, Inexact, fit
from fpemu.analysis.conversion.jobs import Job, Tell
from fpemu.analysis.conversion.measure import Measured
from fpemu.analysis.conversion.numbers import copied
from fpemu.analysis.conversion.rows import KeptRow, TensorRow
from fpemu.analysis.conversion.targets import Target
from fpemu.errors import InputError

__all__ = ["write"]

Array = np.ndarray[Any, Any]

_ROOM = 1 << 20  # numbers that are read at a time


def write(
    file: IO[bytes], label: str, jobs: Sequence[Job], inexact: Inexact, notes: Mapping[str, str],
    tell: Tell,
) -> tuple[list[TensorRow], list[KeptRow], int]:  # fmt: skip
    """Write a file of the jobs' tensors; return their rows and the bytes of all.

    Tensors of eight bytes a value come first, then those of four, two and one, so that each is
    aligned. One that may become float32 after all is tried first where that would shift others.
    """
    room = Room(_ROOM)
    jobs = [_settled(job, room) for job in jobs]
    entries = [entry for job in jobs for entry in job.entries]
    out = Container(file, entries, notes)
    sure = sorted(
        (e for job in jobs if job.sure for e in job.entries), key=lambda e: -_width(e)
    )  # stable: else as they were
    places = {e.name: out.place(e) for e in sure if _width(e) >= 4}
    found: dict[str, TensorRow | KeptRow] = {}
    for job in jobs:
        if not job.sure:
            found[job.stored.name] = _convert_unsure(job, room, out, label, tell)
    places |= {e.name: out.place(e) for e in sure if _width(e) < 4}
    for job in jobs:
        if job.sure:
            found[job.stored.name] = _do(job, inexact, room, out, places, label, tell)
    out.close()
    rows = [found[job.stored.name] for job in jobs]
    return (
        [row for row in rows if isinstance(row, TensorRow)],
        [row for row in rows if isinstance(row, KeptRow)],
        out.octets,
    )


def _width(entry: Entry) -> int:
    return WIDTHS.get(entry.dtype, 1)


def _settled(job: Job, room: Room) -> Job:
    """Try a tensor after which one of four bytes would not be aligned: few have an odd size."""
    if job.sure or job.entries[0].octets % 4 == 0:
        return job
    return _sure(job, all(one.exact for one in _fitted(job, room, lambda octets: None)))


def _sure(job: Job, exact: bool) -> Job:
    (entry,) = job.entries
    if exact:
        return replace(job, sure=True)
    return replace(job, sure=True, widened=True, entries=(entry._replace(dtype="F32"),))


def _convert_unsure(
    job: Job, room: Room, out: Container, label: str, tell: Tell
) -> TensorRow:
    """Write a tensor in its own dtype; on the first result that this does not hold, as float32."""
    teller = _Teller(tell)
    at = out.place(job.entries[0])
    measured = Measured()
    for one in _fitted(job, room, teller.again()):
        if not one.exact:
            break
        measured += one.measured
        out.put(at, one.octets)
        at += one.octets.size
    else:
        return _row(job, label, measured)
    wide = _sure(job, exact=False)
    places = {job.stored.name: out.place(wide.entries[0])}
    row = _do(wide, Inexact.FLOAT32, room, out, places, label, teller.again())
    assert isinstance(row, TensorRow)
    return row


class _Teller:
    """Tells of bytes once, however often they are read."""

    def __init__(self, tell: Tell) -> None:
        self._tell, self._told = tell, 0

    def again(self) -> Tell:
        """Return what is told of a reading from the start."""
        seen = 0

        def tell(octets: int) -> None:
            nonlocal seen
            seen += octets
            self._tell(max(0, seen - self._told))
            self._told = max(self._told, seen)

        return tell


def _do(
    job: Job, inexact: Inexact, room: Room, out: Container, places: Mapping[str, int], label: str,
    tell: Tell,
) -> TensorRow | KeptRow:  # fmt: skip
    """Write a tensor whose places are known."""
    stored, at = job.stored, places[job.stored.name]
    if job.reason:
        for octets in copied(stored, room, tell):
            out.put(at, octets)
            at += octets.size
        dtype = job.entries[0].dtype
        return KeptRow(stored.name, label, dtype, stored.shape, stored.octets, job.reason)
    if job.target is not None:
        return _row(job, label, _write_codes(job, job.target, room, out, places, tell))
    measured, again = Measured(), False
    for one in _fitted(job, room, tell):
        again = again or not one.exact
        if again and inexact is Inexact.REFUSE:
            raise InputError(
                f"tensor {stored.name[:80]!r}: {job.entries[0].dtype} does not hold every result "
                "exactly; let it become float32, round again, skip it, or write codes"
            )
        measured += one.measured
        out.put(at, one.octets)
        at += one.octets.size
    return replace(_row(job, label, measured), rounded_again=again)


@dataclass(frozen=True)
class _Piece:
    octets: Array
    exact: bool
    measured: Measured


def _fitted(job: Job, room: Room, tell: Tell) -> Iterator[_Piece]:
    """Yield the bytes of a converted tensor in the dtype of its entry."""
    assert job.parts is not None
    dtype = job.entries[0].dtype
    for x, part in job.parts(room, tell):
        octets, values, exact = fit(part.values.reshape(x.shape), dtype)
        yield _Piece(octets, exact, job.measure(x, values, part))


def _write_codes(
    job: Job, target: Target, room: Room, out: Container, places: Mapping[str, int], tell: Tell
) -> Measured:
    """Write a tensor as codes, scales and the tensor's scale."""
    assert job.parts is not None
    ats = [places[entry.name] for entry in job.entries]
    measured = Measured()
    for x, part in job.parts(room, tell):
        measured += job.measure(x, part.values, part)
        parts = [code_octets(part, target)]
        parts += [scale_octets(part.scales)] if part.scales is not None else []
        parts += [_one(part.tensor_scale)] if part.tensor_scale is not None else []
        for place, octets in enumerate(parts):
            out.put(ats[place], octets)
            # a scale of the whole tensor comes with each piece, and is the same
            shared = place == 2 or (place == 1 and not job.entries[1].shape)
            ats[place] += 0 if shared else octets.size
    return measured


def _one(scale: np.float32) -> Array:
    return np.array(scale, "<f4").reshape(1).view(np.uint8)


def _row(job: Job, label: str, measured: Measured) -> TensorRow:
    stored = job.stored
    dtype = stored.storage.dtype if stored.storage else stored.dtype
    return TensorRow(
        stored.name, label, dtype, job.entries[0].dtype, stored.shape, stored.values,
        stored.octets, sum(entry.octets for entry in job.entries), measured, job.widened,
    )  # fmt: skip
