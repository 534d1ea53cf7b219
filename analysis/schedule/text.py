"""Text: rows and decisions as tables for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from fpemu.analysis.schedule.decisions import Decision
from fpemu.analysis.schedule.first_safe import SafeFrom
from fpemu.analysis.shown import NOTHING, number, plain, share, shorten
from fpemu.errors import InputError

__all__ = ["table"]

_Pad = Callable[[str, int], str]
_Columns = Mapping[str, tuple[_Pad, Callable[[Any], str]]]
_LEFT, _RIGHT = str.ljust, str.rjust


def _name(text: str) -> str:
    return plain(shorten(text))


def _step(step: int | None) -> str:
    return NOTHING if step is None else str(step)


_ROWS: _Columns = {
    "tensor": (_LEFT, lambda row: _name(row.name)),
    "kind": (_LEFT, lambda row: row.kind),
    "format": (_LEFT, lambda row: row.to),
    "scale": (_RIGHT, lambda row: number(row.scale)),
    "safe from": (_RIGHT, lambda row: _step(row.step)),
    "unsafe": (_RIGHT, lambda row: f"{row.unsafe_steps} of {row.steps}"),
    "worst loss": (_RIGHT, lambda row: share(row.worst_percent)),
    "at step": (_RIGHT, lambda row: str(row.worst_step)),
}

_LOG: _Columns = {
    "step": (_RIGHT, lambda one: str(one.step)),
    "layer": (_LEFT, lambda one: _name(one.layer)),
    "statistic": (_LEFT, lambda one: one.statistic.removesuffix("_percent")),
    "value": (_RIGHT, lambda one: share(one.value)),
    "line": (_RIGHT, lambda one: share(one.line)),
    "from": (_LEFT, lambda one: one.before),
    "to": (_LEFT, lambda one: one.after),
    "tensor": (_LEFT, lambda one: f"{_name(one.tensor)} ({one.kind})"),
}

_TABLES = {SafeFrom: _ROWS, Decision: _LOG}


def table(items: Iterable[SafeFrom] | Iterable[Decision]) -> str:
    """Return the rows of `first_safe`, or a log of decisions, as a table.

    >>> import numpy as np
    >>> from fpemu.analysis import Trace, schedule
    >>> trace = Trace()
    >>> for step in range(4):
    ...     trace.record("fc1", "weight", np.float32([0.5]), step)
    >>> print(schedule.table(schedule.first_safe(trace, formats="e4m3fn")))
    tensor  kind    format         scale  safe from  unsafe  worst loss  at step
    fc1     weight  float8_e4m3fn      1          0  0 of 4         0 %        0

    Nothing gives the empty text.
    """
    given = list(items)
    for kind, columns in _TABLES.items():
        if all(isinstance(one, kind) for one in given):
            return _drawn(columns, given) if given else ""
    raise InputError("table: give the rows of first_safe(trace), or a log of decisions, not a mix")


def _drawn(columns: _Columns, items: Sequence[Any]) -> str:
    cells = [list(columns), *([cell(one) for _, cell in columns.values()] for one in items)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    pads = [pad for pad, _ in columns.values()]
    lines = (
        "  ".join(pad(text, width) for text, width, pad in zip(row, widths, pads, strict=True))
        for row in cells
    )
    return "\n".join(line.rstrip() for line in lines)
