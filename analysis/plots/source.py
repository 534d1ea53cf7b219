"""Source: whatever holds tallies, read as one stream of named, dated cells."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from fpemu.errors import InputError, did_you_mean

if TYPE_CHECKING:
    import numpy as np

    from fpemu.analysis.trace import Record, Trace
    from fpemu.tallies import Tally

    Numbers: TypeAlias = Tally | np.ndarray[Any, Any]
    Source: TypeAlias = (
        Trace | Iterable[Record] | Numbers | Mapping[str, Numbers | Mapping[int, Numbers]]
    )

__all__ = ["Cell", "cells", "row_labels", "total"]


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
    _check_kind(kind)
    for cell in _all_cells(source):
        if name in (None, cell.name) and kind in (None, cell.kind) and step in (None, cell.step):
            yield cell


def total(source: Source, **selection: Any) -> Tally | None:
    """Return the tally of everything selected, or None if nothing is."""
    tallies = [cell.tally for cell in cells(source, **selection)]
    return reduce(add, tallies) if tallies else None


def row_labels(keys: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Name each (name, kind): by its name alone where all kinds are one, else by both."""
    keys = list(keys)
    if len({kind for _, kind in keys}) <= 1:
        return tuple(name for name, _ in keys)
    return tuple(f"{name} · {kind}" if name else kind for name, kind in keys)


def _all_cells(source: Any) -> Iterator[Cell]:
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
            yield _from_record(record)
    else:
        raise InputError(_refusal(source))


def _from_record(record: Any) -> Cell:
    try:
        return Cell(record.name, record.kind, record.step, record.tally)
    except AttributeError:
        raise InputError(_refusal(record)) from None


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


def _check_kind(kind: str | None) -> None:
    from fpemu.analysis.trace import KINDS

    if kind is not None and kind not in KINDS:
        hint = did_you_mean(str(kind), KINDS)
        raise InputError(f"unknown kind {kind!r}; {hint}kinds: {', '.join(KINDS)}")
