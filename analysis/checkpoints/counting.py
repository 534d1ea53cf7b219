"""Counting: a stored tensor's tally and moments, piece by piece in memory of a fixed size."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from fpemu.analysis.checkpoints.encodings import Room, beyond_float32, floats
from fpemu.analysis.checkpoints.histogram import Histogram, moments_of, tally_of, worth
from fpemu.analysis.checkpoints.stored import Stored
from fpemu.kernels.pool import thread_count
from fpemu.moments import Moments
from fpemu.summaries import summarize
from fpemu.tallies import Tally

__all__ = ["Counted", "count", "room_for"]

#: Numbers of a piece for each thread: 4 MB as float32, and 16 MB in all with its bytes.
_PIECE = 1 << 20
_MOST = 1 << 23


class Counted(NamedTuple):
    """What is known of a tensor."""

    tally: Tally
    moments: Moments
    beyond: int  #: float64 numbers beyond float32's range, counted as its largest or smallest


def room_for(threads: int | None) -> Room:
    """Return the memory for so many threads: at most 96 MB, whatever the checkpoint."""
    return Room(min(_PIECE * thread_count(threads), _MOST))


def count(
    stored: Stored,
    room: Room,
    *,
    threads: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Counted:
    """Return the tally and moments of a stored tensor that has an encoding.

    progress: called with the number of bytes of each piece that was counted.
    Errors: InputError where the file ends or fails within the tensor.
    """
    assert stored.encoding is not None
    if worth(stored.encoding, stored.values):
        return _by_codes(stored, room, threads, progress)
    found = Counted(Tally(), Moments(), 0)
    for octets in stored.pieces(room):
        beyond = beyond_float32(octets, stored.encoding)  # before the bytes are overwritten
        numbers = floats(octets, stored.encoding, room, threads)
        tally, moments = summarize(numbers, threads=threads)
        found = Counted(found.tally + tally, found.moments + moments, found.beyond + beyond)
        if progress:
            progress(octets.size)
    return found


def _by_codes(
    stored: Stored, room: Room, threads: int | None, progress: Callable[[int], None] | None
) -> Counted:
    """Count a narrow tensor by the codes that it holds."""
    assert stored.encoding is not None
    histogram = Histogram(stored.encoding)
    for octets in stored.pieces(room):
        histogram.add(octets, threads)
        if progress:
            progress(octets.size)
    values, counts = histogram.counts()
    return Counted(tally_of(values, counts), moments_of(values, counts), 0)
