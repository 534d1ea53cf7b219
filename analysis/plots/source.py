"""Source: whatever holds tallies, read as one stream of named, dated cells."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from fpemu.analysis.records import Record, check_kind
from fpemu.analysis.totals import Total, add_to
from fpemu.analysis.trace import Trace
from fpemu.errors import InputError
from fpemu.tallies import Tally, tally

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Cell", "Numbers", "Source", "cells", "row_labels", "tensors"]

Numbers: TypeAlias = "Tally | np.ndarray[Any, Any]"
Source: TypeAlias = (
    "Trace | Iterable[Record | Total] | Numbers | Mapping[str, Numbers | Mapping[int, Numbers]]"
)


class Cell(NamedTuple):
    """One tensor at one step."""

    name: str
    kind: str  #: "" where the source knows no kinds
    step: int
    tally: Tally


def cells(
    source: Source, *, name: str | None = None, kind: str | None = None, step: int | None = None
) -> Iterator[Cell | Record]:
    """Yield the cells of a source that have this name, kind and step (None takes all).

    A trace's records keep their tally undecoded until it is asked for.
    """
    if kind is not None:
        check_kind(kind)
    if isinstance(source, Trace):
        yield from source.records(name, kind, step)
        return
    for cell in _all_cells(source):
        if name in (None, cell.name) and kind in (None, cell.kind) and step in (None, cell.step):
            yield cell


def tensors(source: Source, **selection: Any) -> dict[tuple[str, str], Tally]:
    """Return the tally of each (name, kind), all steps selected together."""
    totals: dict[tuple[str, str], Tally] = {}
    for cell in cells(source, **selection):
        add_to(totals, (cell.name, cell.kind), cell.tally)
    return totals


def row_labels(keys: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Name each (name, kind): by its name alone where all kinds are one, else by both."""
    keys = list(keys)
    if len({kind for _, kind in keys}) <= 1:
        return tuple(name for name, _ in keys)
    return tuple(f"{name} · {kind}" if name else kind for name, kind in keys)


def _all_cells(source: Any) -> Iterator[Cell | Record]:
    if isinstance(source, Mapping):
        for name, numbers in source.items():
            dated = numbers if isinstance(numbers, Mapping) else {0: numbers}
            for step, one in dated.items():
                yield Cell(str(name), "", int(step), _tally(one))
    elif isinstance(source, Tally) or hasattr(source, "dtype"):
        yield Cell("", "", 0, _tally(source))
    elif isinstance(source, Iterable) and not isinstance(source, str | bytes):
        for record in source:
            if isinstance(record, Total):  # no step of its own: like a mapping without steps
                yield Cell(record.name, record.kind, 0, record.tally)
            elif isinstance(record, Record):
                yield record
            else:
                raise InputError(_refusal(record))
    else:
        raise InputError(_refusal(source))


def _tally(numbers: Any) -> Tally:
    if isinstance(numbers, Tally):
        return numbers
    if not hasattr(numbers, "dtype"):
        raise InputError(_refusal(numbers))
    return tally(numbers)


def _refusal(thing: Any) -> str:
    return (
        f"cannot plot {type(thing).__name__}: give a Trace or its records, a Tally, an array, or "
        "a dict of name -> Tally or array (or of name -> {step: Tally or array})"
    )
