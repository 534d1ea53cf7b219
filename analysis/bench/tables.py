"""tables: the figures as text, one table for each verb."""

from __future__ import annotations

import re
import statistics
from typing import TYPE_CHECKING, Any

from fpemu.analysis.bench.sample import DESCRIPTION
from fpemu.analysis.bench.scaled import RECIPES
from fpemu.analysis.bench.sizes import size_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from fpemu.analysis.bench.imports import Startup
    from fpemu.analysis.bench.result import Result, Row

__all__ = ["render", "render_startup"]

_TITLES = {
    "round": "round, float32 to float32",
    "encode": "encode, float32 to codes",
    "decode": "decode, codes to float32",
    "modes": "round in other modes",
    "float64": "round, float64 to float64 (ratio to a copy of float64)",
}


_SCALED = {
    "scaled round": "scaled formats: round, float32 to float32",
    "quantize": "scaled formats: quantize, float32 to packed codes and scales",
}


def render(result: Result, console: Console) -> None:
    """Print every table of a result, and above them how it was measured."""
    _header(result, console)
    for verb, title in _TITLES.items():
        rows = [row for row in result.rows if row.verb == verb]
        if rows:
            console.print(_grid(title, rows, result, _rate))
    console.print(_statistics(result))
    for verb, title in _SCALED.items():
        rows = [row for row in result.rows if row.verb == verb]
        if rows:
            console.print(_grid(title, rows, result, _rate, RECIPES))
    for size in sorted({row.size for row in result.rows if row.verb == "call"}):
        rows = [row for row in result.rows if row.verb == "call" and row.size == size]
        plural = "" if size == 1 else "s"
        console.print(_grid(f"one call, {size:,} element{plural}: us", rows, result, _micro))
    console.print(_noise(result), highlight=False, soft_wrap=True)


def _header(result: Result, console: Console) -> None:
    facts, setup = result.machine, result.setup
    versions = ", ".join(f"{name} {found}" for name, found in facts["versions"].items())
    threads = f"{setup.threads} thread{'s' if setup.threads > 1 else ''}"
    copies = [r.timing.baseline_ns for r in result.rows if r.timing and r.verb == "round"]
    lines = [
        f"{facts['processor']}, {facts['cores']} cores, load {facts['load']}; {threads}",
        f"Python {facts['python']}, {versions}",
        f"data: {size_text(setup.size)} float32, {DESCRIPTION}, seed {setup.seed}",
        "cells: ns an element, then the median ratio to np.copyto of the same arrays, run just",
        f"before in each pair ({statistics.median(copies):.2f} ns an element here); - where a "
        "library lacks the format",
    ]
    if setup.cpu_time:
        lines.append("times are the thread's CPU time, not the wall's")
    console.print("\n".join(lines), highlight=False, soft_wrap=True)


def _table(title: str) -> Table:
    from rich import box
    from rich.table import Table

    return Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD,
                 pad_edge=False, padding=(0, 1))  # fmt: skip


def _grid(
    title: str, rows: list[Row], result: Result, cell: Any, columns: tuple[str, ...] | None = None
) -> Table:
    """Return a table with a line for each library and a column for each format or recipe."""
    columns = columns or result.setup.to
    table = _table(title)
    table.add_column("", no_wrap=True)
    for to in columns:
        table.add_column(re.sub(r"float\d_|torchao\.", "", to), justify="right")
    cells = {(row.who, row.to): row for row in rows}
    for who in dict.fromkeys(row.who for row in rows):
        mine = [cells[who, to] for to in columns]
        smaller = mine[0].size not in (result.setup.size, 1, 1024)
        label = f"{who}, {size_text(mine[0].size)}" if smaller else who
        table.add_row(label, *(cell(row) for row in mine))
    return table


def _rate(row: Row) -> str:
    if row.timing is None:
        return "-"
    return f"{_figure(row.timing.ns)} {_figure(row.timing.ratio):>4}x"


def _micro(row: Row) -> str:
    return "-" if row.timing is None else _figure(row.timing.ns * row.size / 1000)


def _figure(number: float) -> str:
    return f"{number:.2f}" if number < 9.995 else f"{number:.1f}" if number < 99.95 else (
        f"{number:.0f}"
    )


def _statistics(result: Result) -> Table:
    table = _table("statistics of float32")
    for name in ("", "ns", "ratio"):
        table.add_column(name, justify="left" if not name else "right")
    for row in result.rows:
        if row.verb in ("tally", "moments") and row.timing:
            ratio = f"{_figure(row.timing.ratio)}x"
            table.add_row(f"{row.verb}, {row.who}", _figure(row.timing.ns), ratio)
    return table


def _noise(result: Result) -> str:
    """Say how far the pairs of a case lay apart: what a ratio here can be trusted to."""
    widths = [(t.high - t.low) / (2 * t.ratio) for r in result.rows if (t := r.timing)]
    return (
        f"noise: half of a cell's pairs lie within +-{100 * statistics.median(widths):.0f} % of "
        f"its ratio (median over {len(widths)} cells)"
    )


def render_startup(found: list[Startup], machine: dict[str, Any], console: Console) -> None:
    """Print the times of imports and of `fpemu --help`."""
    load = f"load {machine['load']}"
    console.print(f"{machine['processor']}, {machine['cores']} cores, {load}", highlight=False)
    table = _table(f"fresh processes, medians of {found[0].runs}: ms")
    table.add_column("")
    table.add_column("median", justify="right")
    table.add_column("quartiles", justify="right")
    for row in found:
        quartiles = f"{1e3 * row.low:.0f} to {1e3 * row.high:.0f}"
        table.add_row(row.what, f"{1e3 * row.seconds:.0f}", quartiles)
    console.print(table)
