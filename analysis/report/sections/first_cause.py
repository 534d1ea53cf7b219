"""Section "First cause": what happened, where, what went in and what led to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.padding import Padding
from rich.text import Text

from fpemu.analysis.first_cause import FirstCause, Glimpse
from fpemu.analysis.report.numbers import count, kind_words, number, plain, shorten
from fpemu.analysis.report.rows import json_value
from fpemu.analysis.report.section import Section
from fpemu.analysis.report.terminal import add_columns, new_table

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from fpemu.analysis.report.summary import Report

__all__ = ["SECTION", "SeenRow", "render_causes", "seen_rows"]


@dataclass(frozen=True, slots=True)
class SeenRow:
    """A tensor that went into the cause, or went by before it, or the one it is about."""

    part: str  #: "before it", "went in" or "came out"
    seen: Glimpse


def seen_rows(cause: FirstCause) -> list[SeenRow]:
    """Return the tensors of a cause in the order of time: before it, what went in, what came out.

    >>> from fpemu.analysis.first_cause import FirstCause
    >>> cause = FirstCause("nan", None, 0, "sqrt@a.py:1", "activation", "", "sqrt", "a.py:1", "",
    ...     "forward", "producer", 1.0, 0.0, 1, 0, 1, 1)
    >>> [(row.part, row.seen.name) for row in seen_rows(cause)]
    [('came out', 'sqrt@a.py:1')]
    """
    out = Glimpse(
        cause.name, cause.kind, cause.phase, cause.operation, cause.amax_out, cause.nan,
        cause.inf, cause.total,
    )  # fmt: skip
    return [
        *(SeenRow("before it", seen) for seen in cause.lead_up),
        *(SeenRow("went in", seen) for seen in cause.inputs),
        SeenRow("came out", out),
    ]


def render_causes(causes: Sequence[FirstCause], console: Console, limit: int) -> None:
    """Print first causes; of a lead-up the `limit` last tensors."""
    for place, cause in enumerate(causes):
        if place:
            console.print()
        console.print(Text(plain(cause.headline), "bold yellow" if cause.caught else "bold red"))
        if cause.code:
            console.print(Padding(Text(plain(cause.code), "dim"), (0, 0, 0, 2)))
        console.print(Padding(Text(plain(cause.explanation)), (0, 0, 0, 2)))
        console.print(Padding(_table(seen_rows(cause)[-limit:]), (0, 0, 0, 2)))


def _table(rows: Sequence[SeenRow]) -> Table:
    table = new_table()
    odd = any(not row.seen.normal for row in rows)  # else the names have the columns' room
    add_columns(table, "", "tensor", "operation", "amax>", *(("NaN>", "infinite>") if odd else ()),
                "values>")  # fmt: skip
    last = ""
    for row in rows:
        seen = row.seen
        kind = kind_words(seen.kind) if seen.kind != seen.name else ""
        name = Text.assemble(shorten(plain(seen.name)), " ", (kind, "dim"))
        counts = (seen.nan, seen.inf, seen.total) if odd else (seen.total,)
        table.add_row(
            Text(row.part if row.part != last else "", "dim"), name, Text(plain(seen.operation)),
            number(seen.amax), *map(count, counts),
        )  # fmt: skip
        last = row.part
    return table


def _json(report: Report) -> dict[str, Any]:
    return {"first_causes": [json_value(cause.to_json()) for cause in report.first_causes]}


SECTION = Section(
    "first_cause",
    lambda report: "First cause",
    lambda report: bool(report.first_causes),
    lambda report, console, limit: render_causes(report.first_causes, console, limit),
    _json,
    lambda report: {"causes": [(cause, seen_rows(cause)) for cause in report.first_causes]},
)
