"""Rows: what a scan found, as frozen records; text, HTML and JSON are views of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fpemu.analysis.report.rows import record_json
from fpemu.analysis.scales import SafeScales, safe_of
from fpemu.analysis.what_if import percent
from fpemu.cast import Cast
from fpemu.codes import code_dtype
from fpemu.tallies import Outcome, Tally

if TYPE_CHECKING:
    from fpemu.analysis.checkpoints.counting import Counted
    from fpemu.analysis.checkpoints.stored import Stored

__all__ = ["FormatRow", "Loss", "Question", "TensorRow", "Uncounted", "format_rows", "tensor_row"]


@dataclass(frozen=True, slots=True)
class Loss:
    """What one format does to a tensor, unscaled and at its safe scales."""

    to: str  #: the Cast, as `str(cast)`
    unscaled: Outcome  #: exact counts at scale 1
    safe: SafeScales

    @property
    def lost_percent(self) -> float:
        """Values lost unscaled, in percent of the finite non-zero ones."""
        return percent(self.unscaled.lost, self.unscaled.nonzero)

    def to_json(self) -> dict[str, Any]:
        return record_json(self) | {"lost_percent": self.lost_percent}


@dataclass(frozen=True, slots=True)
class TensorRow:
    """A tensor of a checkpoint, and what each format would do to it."""

    name: str
    kind: str
    step: int  #: 0; of several checkpoints that hold the name: 0, 1, 2, ... as they were given
    file: str
    dtype: str  #: as the file calls it
    shape: tuple[int, ...]
    values: int
    octets: int  #: bytes in the file, unpacked
    zero: int
    nan: int
    inf: int
    amax: float | None
    smallest_nonzero: float | None
    rms: float | None
    beyond_float32: int  #: float64 values counted as float32's largest or smallest
    formats: tuple[Loss, ...]

    @property
    def broken(self) -> bool:
        """Whether it holds NaN or infinity already."""
        return bool(self.nan or self.inf)

    @property
    def rank(self) -> tuple[bool, int, float]:
        """Sorts the worst first: broken, unsafe in most formats, losing most."""
        unsafe = sum(not row.safe.unscaled for row in self.formats)
        return not self.broken, -unsafe, -sum(row.lost_percent for row in self.formats)

    def to_json(self) -> dict[str, Any]:
        return record_json(self)


@dataclass(frozen=True, slots=True)
class Uncounted:
    """A tensor that is not counted, and why."""

    name: str
    file: str
    dtype: str
    shape: tuple[int, ...]
    octets: int
    reason: str

    def to_json(self) -> dict[str, Any]:
        return record_json(self)


@dataclass(frozen=True, slots=True)
class FormatRow:
    """What one format would do to all tensors of a kind, each at its own scale or unscaled."""

    kind: str
    to: str
    bits: int  #: that a value takes in memory
    tensors: int
    safe: int  #: tensors that are safe unscaled
    scaled: int  #: tensors that are safe at a power-of-two scale of their own, but not unscaled
    lost_percent: float  #: unscaled, of all non-zero values of the kind together
    worst: str | None  #: the tensor that loses most at its best scale; None: none loses anything
    worst_percent: float  #: what that one loses then
    octets: int  #: bytes of all values in this format

    @property
    def unsafe(self) -> int:
        """Tensors that no single power-of-two scale makes safe."""
        return self.tensors - self.safe - self.scaled

    def to_json(self) -> dict[str, Any]:
        return record_json(self) | {"unsafe": self.unsafe}


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of every tensor."""

    casts: tuple[Cast, ...]
    scales: tuple[float, ...]  #: sorted, 1 among them
    tolerance: float


def tensor_row(
    name: str, kind: str, step: int, file: str, stored: Stored, counted: Counted, asked: Question
) -> TensorRow:
    """Return the row of a counted tensor."""
    tally, moments = counted.tally, counted.moments
    return TensorRow(
        name, kind, step, file, stored.dtype, stored.shape, stored.values, stored.octets,
        zero=tally.zero,
        nan=tally.nan,
        inf=tally.inf,
        amax=moments.amax if moments.count else None,
        smallest_nonzero=moments.smallest_nonzero or None,
        rms=moments.rms if moments.count and math.isfinite(moments.rms) else None,
        beyond_float32=counted.beyond,
        formats=tuple(_losses(tally, asked)),
    )  # fmt: skip


def _losses(tally: Tally, asked: Question) -> Iterator[Loss]:
    one = asked.scales.index(1.0)
    for cast in asked.casts:
        outcomes = tally.outcomes(cast, asked.scales)
        safe = safe_of([outcomes], str(cast), asked.scales, asked.tolerance)
        yield Loss(str(cast), outcomes[one], safe)


def format_rows(tensors: Sequence[TensorRow], casts: Sequence[Cast]) -> list[FormatRow]:
    """Return a row for each kind and format, in the order of the tensors and of the formats."""
    found = []
    for kind in dict.fromkeys(row.kind for row in tensors):
        members = [row for row in tensors if row.kind == kind]
        values = sum(row.values for row in members)
        for place, cast in enumerate(casts):
            found.append(_format_row(kind, cast, place, members, values))
    return found


def _format_row(
    kind: str, cast: Cast, place: int, members: Sequence[TensorRow], values: int
) -> FormatRow:
    worst = max(members, key=lambda row: row.formats[place].safe.lost_percent)
    rows = [row.formats[place] for row in members]
    # memory holds codes of 9 bits or more in 16 or 32: tf32 takes 32
    bits = cast.format.bits if cast.format.bits <= 8 else 8 * code_dtype(cast.format).itemsize
    return FormatRow(
        kind,
        str(cast),
        bits,
        tensors=len(rows),
        safe=sum(row.safe.unscaled for row in rows),
        scaled=sum(row.safe.safe and not row.safe.unscaled for row in rows),
        lost_percent=percent(
            sum(row.unscaled.lost for row in rows), sum(row.unscaled.nonzero for row in rows)
        ),
        worst=worst.name if worst.formats[place].safe.lost_percent else None,
        worst_percent=worst.formats[place].safe.lost_percent,
        octets=-(-values * bits // 8),
    )
