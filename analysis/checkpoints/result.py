"""Result: everything that a scan found, as rows and as a trace that other commands take."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from fpemu.analysis.checkpoints.rows import FormatRow, TensorRow, Uncounted, format_rows
from fpemu.cast import Cast

if TYPE_CHECKING:
    from fpemu.analysis.advice import Advice, Line
    from fpemu.analysis.trace import Trace

__all__ = ["SCHEMA", "Scan"]

#: Version of the JSON form; docs/scan.md describes it.
SCHEMA = 1


@dataclass(frozen=True)
class Scan:
    """What the tensors of checkpoints are, and what formats would do to them."""

    paths: tuple[str, ...]
    casts: tuple[Cast, ...]
    scales: tuple[float, ...]
    tolerance: float
    tensors: tuple[TensorRow, ...]  #: in the order of the files and of their bytes
    uncounted: tuple[Uncounted, ...]
    notes: tuple[str, ...]  #: what was left out of a folder
    trace: Trace = field(repr=False, compare=False)  #: tallies and moments of the tensors

    @property
    def values(self) -> int:
        """How many numbers were counted."""
        return sum(row.values for row in self.tensors)

    @property
    def octets(self) -> int:
        """Bytes of the counted tensors."""
        return sum(row.octets for row in self.tensors)

    @cached_property
    def formats(self) -> tuple[FormatRow, ...]:
        """What each format would do to each kind."""
        return tuple(format_rows(self.tensors, self.casts))

    @property
    def worst(self) -> list[TensorRow]:
        """The tensors, the worst first."""
        return sorted(self.tensors, key=lambda row: row.rank)

    @cached_property
    def answer(self) -> tuple[str, ...]:
        """The answer in sentences, the most important one first."""
        from fpemu.analysis.checkpoints.answer import sentences

        return tuple(sentences(self.tensors, self.formats, self.tolerance))

    @cached_property
    def advice(self) -> Advice:
        """What `advise` says of the tensors: the first of the formats, or else the others."""
        from fpemu.analysis.advice import advise

        return advise(self.trace, formats=self.casts, tolerance=self.tolerance)

    @property
    def advised(self) -> list[Line]:
        """The lines of the advice that concern a checkpoint, and that the answer does not say."""
        there = self.advice.lines if self.values else ()
        return [line for line in there if line.topic in ("keep", "scales", "updates")]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the trace to a file, whole or not at all: `fpemu report` and others take it."""
        self.trace.save(path)

    def to_json(self) -> dict[str, Any]:
        """Return the scan as a JSON-ready dict."""
        return {
            "schema": SCHEMA,
            "checkpoints": list(self.paths),
            "formats": [str(cast) for cast in self.casts],
            "scales": list(self.scales),
            "tolerance": self.tolerance,
            "values": self.values,
            "bytes": self.octets,
            "answer": list(self.answer),
            "summary": _json(self.formats),
            "tensors": _json(self.tensors),
            "not_counted": _json(self.uncounted),
            "advice": self.advice.to_json() if self.values else None,
            "notes": list(self.notes),
        }


def _json(rows: Sequence[Any]) -> list[dict[str, Any]]:
    return [row.to_json() for row in rows]
