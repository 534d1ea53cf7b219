"""Source: whatever holds tallies, read as one stream of named, dated cells."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from fpemu.analysis.answers import Answers, answers, score_array
from fpemu.analysis.carried import Carried, carried
from fpemu.analysis.parts import Parts
from fpemu.analysis.records import Record, check_kind
from fpemu.analysis.totals import Total, add_to
from fpemu.analysis.trace import Trace
from fpemu.errors import InputError
from fpemu.moments import Moments, moments
from fpemu.tallies import Tally, tally

if TYPE_CHECKING:
    import numpy as np

    from fpemu.analysis.by_recipe import Target

__all__ = ["Cell", "Numbers", "Source", "cells", "row_labels", "tensors"]

Numbers: TypeAlias = "Tally | np.ndarray[Any, Any]"
Source: TypeAlias = (
    "Trace | Iterable[Record | Total | Cell] | Numbers "
    "| Mapping[str, Numbers | Mapping[int, Numbers]]"
)

_UNSCALED = Carried({})  #: of sources that know of no loss scale


class _Holds(Protocol):
    """What has moments, and a tally or its parts: a Record, a Total, an array."""

    @property
    def moments(self) -> Moments: ...


@dataclass(frozen=True, eq=False)
class Cell:
    """One tensor at one step, and the loss scale that its numbers were recorded times."""

    name: str
    kind: str  #: "" where the source knows no kinds
    step: int
    holds: _Holds
    carried: Any = _UNSCALED  #: a Carried, which asks a cell for its kind and step alone
    answered: Answers | None = None  #: what recipes make of a trace's records
    tried: Sequence[Target] = ()  #: recipes among them are counted of arrays

    @property
    def array(self) -> Any:
        """The array itself, where the source held it; else None."""
        return getattr(self.holds, "array", None)

    @property
    def parts(self) -> Parts:
        """The true numbers' counts, exact; InputError for a loss scale that is no power of two."""
        if isinstance(self.holds, Total):
            return self.holds.parts
        holds: Any = self.holds
        if self.answered is not None:
            return self.answered.parts(holds, self.carried.factor(self))
        scored = {} if self.array is None else score_array(self.array, self.tried)
        return Parts.of(holds.tally, self.carried.factor(self), scored)

    @property
    def nonfinite(self) -> bool:
        """Whether infinities or NaNs are among the numbers."""
        holds: Any = self.holds
        if isinstance(holds, Total):
            return any(holds.parts.apart[1:])
        return bool(holds.tally.inf or holds.tally.nan)

    @property
    def moments(self) -> Moments:
        """The moments of the numbers as recorded, that is times `loss_scale`."""
        return self.holds.moments

    @property
    def loss_scale(self) -> float:
        """What the numbers in `moments` were multiplied by."""
        return float(self.carried.of(self))

    @property
    def scaled(self) -> bool:
        """Whether a loss scale is taken out."""
        within = isinstance(self.holds, Total) and self.holds.parts.scaled
        return within or self.loss_scale != 1.0


def cells(
    source: Source,
    *,
    name: str | None = None,
    kind: str | None = None,
    step: int | None = None,
    unscaled: bool = True,
    tried: Sequence[Target] = (),
) -> Iterator[Cell]:
    """Yield the cells of a source that have this name, kind and step (None takes all).

    A trace's records keep their tally undecoded until it is asked for. unscaled: take out the
    loss scale that a trace's gradients carry (`fpemu.analysis.carried`); without it, they are as
    they were recorded. tried: those of these that are recipes are answered by the cells' parts.
    """
    if kind is not None:
        check_kind(kind)
    if isinstance(source, Trace):
        scales = carried(source) if unscaled else _UNSCALED
        answered = answers(source, tried)
        for record in source.records(name, kind, step):
            yield Cell(record.name, record.kind, record.step, record, scales, answered)
        return
    for cell in _all_cells(source):
        if name in (None, cell.name) and kind in (None, cell.kind) and step in (None, cell.step):
            yield replace(cell, tried=tried) if tried else cell


def tensors(source: Source, **selection: Any) -> dict[tuple[str, str], Parts]:
    """Return the counts of each (name, kind), all steps selected together."""
    totals: dict[tuple[str, str], Parts] = {}
    for cell in cells(source, **selection):
        add_to(totals, (cell.name, cell.kind), cell.parts)
    return totals


def row_labels(keys: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Name each (name, kind): by its name alone where all kinds are one, else by both."""
    keys = list(keys)
    if len({kind for _, kind in keys}) <= 1:
        return tuple(name for name, _ in keys)
    return tuple(f"{name} · {kind}" if name else kind for name, kind in keys)


class _Array:
    """An array that is counted when somebody asks."""

    def __init__(self, array: Any) -> None:
        self.array = array

    @cached_property
    def tally(self) -> Tally:
        return tally(self.array)

    @cached_property
    def moments(self) -> Moments:
        return moments(self.array)


class _Counts:
    """A tally without moments."""

    def __init__(self, counted: Tally) -> None:
        self.tally = counted

    @property
    def moments(self) -> Moments:
        raise InputError(
            "a Tally has counts alone: amax, rms and the smallest value need a Trace, its records "
            "or arrays"
        )


def _all_cells(source: Any) -> Iterator[Cell]:
    if isinstance(source, Mapping):
        for name, numbers in source.items():
            dated = numbers if isinstance(numbers, Mapping) else {0: numbers}
            for step, one in dated.items():
                yield Cell(str(name), "", _step(step), _holder(one))
    elif isinstance(source, Tally) or hasattr(source, "dtype"):
        yield Cell("", "", 0, _holder(source))
    elif isinstance(source, Iterable) and not isinstance(source, str | bytes):
        for record in source:
            if isinstance(record, Cell):
                yield record
            elif isinstance(record, Total):  # no step of its own: like a mapping without steps
                yield Cell(record.name, record.kind, 0, record)
            elif isinstance(record, Record):
                yield Cell(record.name, record.kind, record.step, record)
            else:
                raise InputError(_refusal(record))
    else:
        raise InputError(_refusal(source))


def _step(step: Any) -> int:
    try:
        return operator.index(step)
    except TypeError:
        raise InputError(f"step {step!r:.40}: must be an integer, the step of the run") from None


def _holder(numbers: Any) -> _Holds:
    if isinstance(numbers, Tally):
        return _Counts(numbers)
    if not hasattr(numbers, "dtype"):
        raise InputError(_refusal(numbers))
    return _Array(numbers)


def _refusal(thing: Any) -> str:
    return (
        f"cannot plot {type(thing).__name__}: give a Trace or its records, a Tally, an array, or "
        "a dict of name -> Tally or array (or of name -> {step: Tally or array})"
    )
