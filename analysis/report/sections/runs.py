"""Section "Runs": runs set side by side, and the scalars of the recorded one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.text import Text

from fpemu.analysis.report.numbers import cell, count, plain, shorten
from fpemu.analysis.report.rows import json_value, record_json
from fpemu.analysis.report.section import Section
from fpemu.analysis.report.terminal import Column, left_out, new_table, note, print_rows

if TYPE_CHECKING:
    from rich.console import Console

    from fpemu.analysis.report.summary import Report
    from fpemu.analysis.trace import Trace

__all__ = ["SECTION", "ScalarRow", "runs_of", "scalar_rows"]


@dataclass(frozen=True, slots=True)
class ScalarRow:
    """One scalar of the recorded run, such as its loss: where it began and ended, its range."""

    name: str
    first: float
    last: float
    smallest: float | None  #: of the finite values; None: there is none
    largest: float | None
    count: int
    nonfinite: int

    @classmethod
    def of(cls, name: str, values: Sequence[float]) -> ScalarRow:
        """Sum up the values of a scalar, in the order of steps."""
        finite = [value for value in values if math.isfinite(value)]
        return cls(
            name,
            first=values[0],
            last=values[-1],
            smallest=min(finite, default=None),
            largest=max(finite, default=None),
            count=len(values),
            nonfinite=len(values) - len(finite),
        )

    def to_json(self) -> dict[str, Any]:
        return record_json(self)


def scalar_rows(trace: Trace) -> tuple[ScalarRow, ...]:
    """Return the scalars of a trace, each summed up."""
    values: dict[str, list[float]] = {}
    for scalar in trace.scalars():
        values.setdefault(scalar.name, []).append(scalar.value)
    return tuple(ScalarRow.of(name, numbers) for name, numbers in values.items())


def runs_of(trace: Trace) -> tuple[Mapping[str, Any], ...]:
    """Return the runs to set side by side, if the trace's metadata hold any."""
    runs = trace.metadata.get("runs")
    return tuple(run for run in runs if isinstance(run, Mapping)) if isinstance(runs, list) else ()


# --- text --------------------------------------------------------------------------------------

_COLUMNS = (
    Column("over the recorded run", lambda r: Text(shorten(plain(r.name)))),
    Column("first>", lambda r: cell(r.first)),
    Column("last>", lambda r: cell(r.last)),
    Column("smallest>", lambda r: cell(r.smallest)),
    Column("largest>", lambda r: cell(r.largest)),
    Column("values>", lambda r: count(r.count)),
)


def _show(report: Report, console: Console, limit: int) -> None:
    if report.runs:
        _side_by_side(report, console)
    if report.runs and report.scalars:
        console.print()
    if report.scalars:
        print_rows(console, report.scalars, _COLUMNS, limit)
        note(console, left_out(len(report.scalars), limit))


def _side_by_side(report: Report, console: Console) -> None:
    table = new_table()
    numeric = _numeric(report)
    for key in _run_columns(report):
        table.add_column(Text(plain(key.replace("_", " "))), overflow="fold",
                         justify="right" if key in numeric else "left")  # fmt: skip
    for run in report.runs:
        table.add_row(*(Text(cell(run.get(key))) for key in _run_columns(report)))
    console.print(table)


def _run_columns(report: Report) -> list[str]:
    return list(dict.fromkeys(key for run in report.runs for key in run))


def _numeric(report: Report) -> list[str]:
    """Return the columns that hold numbers."""
    return [
        key
        for key in _run_columns(report)
        if any(isinstance(run.get(key), int | float) for run in report.runs)
    ]


def _json(report: Report) -> dict[str, Any]:
    return {
        "runs": [json_value(run) for run in report.runs],
        "scalars": [row.to_json() for row in report.scalars],
    }


SECTION = Section(
    "runs",
    lambda report: "Runs side by side" if report.runs else "Scalars",
    lambda report: bool(report.runs or report.scalars),
    _show,
    _json,
    lambda report: {"columns": _run_columns(report), "numeric": _numeric(report)},
)
