"""Result: what a conversion wrote, and what is left of the numbers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fpemu.analysis.conversion.measure import Measured
from fpemu.analysis.conversion.rows import KeptRow, TensorRow, total

__all__ = ["SCHEMA", "Converted"]

#: Version of the JSON form; docs/convert.md describes it.
SCHEMA = 1


@dataclass(frozen=True)
class Converted:
    """A checkpoint that was converted: its rows, and where it is."""

    path: str
    out: str  #: a file, or the folder of the shards
    files: tuple[str, ...]  #: that were written, without the index
    to: str  #: the recipe or cast by its name
    recipe: str  #: its text
    codes: bool
    octets: int  #: bytes of the tensors that were read, dropped ones left out
    to_octets: int
    tensors: tuple[TensorRow, ...]
    kept: tuple[KeptRow, ...]
    dropped: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def worst(self) -> list[TensorRow]:
        """The tensors that were converted, the worst first."""
        return sorted(self.tensors, key=lambda row: row.rank)

    @cached_property
    def total(self) -> Measured:
        """What was measured of all tensors together."""
        return total(self.tensors)

    @cached_property
    def answer(self) -> tuple[str, ...]:
        """The answer in sentences, the most important one first."""
        from fpemu.analysis.conversion.answer import sentences

        return tuple(sentences(self))

    def to_json(self) -> dict[str, Any]:
        """Return the conversion as a JSON-ready dict."""
        sqnr = self.total.sqnr
        return {
            "schema": SCHEMA,
            "checkpoint": self.path,
            "out": self.out,
            "files": list(self.files),
            "to": self.to,
            "recipe": self.recipe,
            "codes": self.codes,
            "bytes": self.octets,
            "to_bytes": self.to_octets,
            "sqnr_db": sqnr if abs(sqnr) < 1e9 else None,
            "answer": list(self.answer),
            "tensors": [row.to_json() for row in self.tensors],
            "kept": [row.to_json() for row in self.kept],
            "dropped": list(self.dropped),
            "notes": list(self.notes),
        }
