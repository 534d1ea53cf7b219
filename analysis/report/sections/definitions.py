"""Section "Definitions": the words of the report, as it uses them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from fpemu.analysis.report.numbers import plain
from fpemu.analysis.report.section import Section

if TYPE_CHECKING:
    from rich.console import Console

    from fpemu.analysis.report.summary import Report

__all__ = ["SECTION"]


def _show(report: Report, console: Console, limit: int) -> None:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", max_width=18)
    grid.add_column(overflow="fold")
    for word in report.definitions:
        grid.add_row(Text(plain(word.term)), Text(word.meaning))
    console.print(grid)


SECTION = Section(
    "definitions",
    lambda report: "Definitions",
    lambda report: bool(report.definitions),
    _show,
    lambda report: {"definitions": [word.to_json() for word in report.definitions]},
)
