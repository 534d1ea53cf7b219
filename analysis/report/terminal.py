"""Terminal: the few shapes that every section prints: tables, lists, notes, tensors' names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from fpemu.analysis.report.numbers import count, kind_words, plain, shorten

__all__ = ["Column", "add_columns", "item", "left_out", "new_table", "note", "print_rows", "tensor"]

_Row = TypeVar("_Row")


class Column(NamedTuple):
    """A column of a table whose columns depend on the room there is."""

    title: str  #: one that ends in > holds numbers
    show: Callable[..., str | Text]  #: row -> cell
    width: int = 0  #: of the console, from which the column is shown


def new_table() -> Table:
    """Return an empty table as all sections print it."""
    return Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1), expand=False)


def add_columns(table: Table, *titles: str) -> None:
    """Add columns; those whose title ends in > are numbers, to the right."""
    for title in titles:
        right = title.endswith(">")
        table.add_column(
            title.rstrip(">"),
            justify="right" if right else "left",
            no_wrap=right or not title,
            min_width=16 if title == "tensor" else None,
            overflow="fold",
        )


def print_rows(
    console: Console, rows: Sequence[_Row], columns: Sequence[Column], limit: int
) -> None:
    """Print the first `limit` rows with as many columns as there is room for."""
    shown = [column for column in columns if console.width >= column.width]
    table = new_table()
    add_columns(table, *(column.title for column in shown))
    for row in rows[:limit]:
        table.add_row(*(column.show(row) for column in shown))
    console.print(table)


def tensor(name: str, kind: str) -> Text:
    """Return a tensor's name with its kind."""
    return Text.assemble(shorten(plain(name)), " ", (kind_words(kind), "dim"))


def item(sentence: str) -> Padding:
    """Return a line of a list, its continuation set in."""
    grid = Table.grid(padding=(0, 1))
    grid.add_row("•", Text(sentence))
    return Padding(grid, (0, 0, 0, 2))


def left_out(rows: int, limit: int) -> str:
    """Return what is said of rows that are not shown."""
    more = rows - limit
    return f" {count(more)} more row{'s' * (more > 1)} not shown." if more > 0 else ""


def note(console: Console, text: str) -> None:
    """Print a remark below a table, if there is any."""
    if text.strip():
        console.print(Text(text.strip(), "dim"))
