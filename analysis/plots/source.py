"""Source: whatever holds tallies, read as one stream of named, dated cells."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from fpemu.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    from fpemu.analysis.records import Record
    from fpemu.analysis.trace import Trace
    from fpemu.tallies import Tally

    Numbers: TypeAlias = Tally | np.ndarray[Any, Any]
    Source: TypeAlias = (
        Trace | Iterable[Record] | Numbers | Mapping[str, Numbers | Mapping[int, Numbers]]
    )

__all__ = ["Cell", "cells", "row_labels", "tensors"]


class Cell(NamedTuple):
    """One tensor at one step."""

    name: str
    kind: str  #: "" where the source knows no kinds
    step: int
    tally: Tally


def cells(
    source: Source, *, name: str | None = None, kind: str | None = None, step: int | None = None
) -> Iterator[Cell]:
    """Yield the cells of a source that have this name, kind and step (None takes them all)."""
    from fpemu.analysis.records import check_kind

    if kind is not None:
        check_kind(kind)
    for cell in _all_cells(source):
        if name in (None, cell.name) and kind in (None, cell.kind) and step in (None, cell.step):
            yield Cell(cell.name, cell.kind, cell.step, cell.tally)


def tensors(source: Source, **selection: Any) -> dict[tuple[str, str], Tally]:
    """Return the tally of each (name, kind), all steps selected together."""
    totals: dict[tuple[str, str], Tally] = {}
    for cell in cells(source, **selection):
        key = (cell.name, cell.kind)
        totals[key] = totals[key] + cell.tally if key in totals else cell.tally
    return totals


def row_labels(keys: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Name each (name, kind): by its name alone where all kinds are one, else by both."""
    keys = list(keys)
    if len({kind for _, kind in keys}) <= 1:
        return tuple(name for name, _ in keys)
    return tuple(f"{name} · {kind}" if name else kind for name, kind in keys)


def _all_cells(source: Any) -> Iterator[Cell | Record]:
    if hasattr(source, "records"):
        source = source.records()
    if isinstance(source, Mapping):
        for name, numbers in source.items():
            dated = numbers if isinstance(numbers, Mapping) else {0: numbers}
            for step, one in dated.items():
                yield Cell(str(name), "", int(step), _tally(one))
    elif _is_tally(source) or hasattr(source, "dtype"):
        yield Cell("", "", 0, _tally(source))
    elif isinstance(source, Iterable) and not isinstance(source, str | bytes):
        for record in source:
            if not hasattr(record, "kind"):  # its tally stays undecoded until it is wanted
                raise InputError(_refusal(record))
            yield record
    else:
        raise InputError(_refusal(source))


def _is_tally(numbers: Any) -> bool:
    return hasattr(numbers, "exponents") and hasattr(numbers, "outcome")


def _tally(numbers: Any) -> Tally:
    if _is_tally(numbers):
        return numbers  # type: ignore[no-any-return]
    if not hasattr(numbers, "dtype"):
        raise InputError(_refusal(numbers))
    import fpemu

    return fpemu.tally(numbers)


def _refusal(thing: Any) -> str:
    return (
        f"cannot plot {type(thing).__name__}: give a Trace or its records, a Tally, an array, or "
        "a dict of name -> Tally or array (or of name -> {step: Tally or array})"
    )
