"""The report for a terminal: the same rows as rich tables, as many columns as there is room."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from fpemu.analysis.report.causes import render_causes
from fpemu.analysis.report.numbers import (
    bits,
    cell,
    count,
    interval,
    kind_words,
    number,
    plain,
    power,
    share,
    shorten,
)
from fpemu.analysis.report.rows import Incident, TensorRow
from fpemu.analysis.report.scale_rows import ScaleRow
from fpemu.analysis.report.summary import Report
from fpemu.analysis.report.verdict import Status, Verdict

__all__ = ["BADGES", "render", "render_scales", "render_verdict"]

#: The word that says the severity, and the colour that repeats it.
BADGES = {
    Status.SAFE: ("SAFE", "bold green"),
    Status.SAFE_WITH_LOSS_SCALE: ("SAFE WITH A LOSS SCALE", "bold yellow"),
    Status.NOT_SAFE: ("NOT SAFE", "bold red"),
    Status.BROKEN: ("BROKEN AS RECORDED", "bold red"),
    Status.NO_DATA: ("NO DATA", "bold"),
}


def render(report: Report, console: Console, *, limit: int = 20) -> None:
    """Print a report; of long tables the `limit` worst rows, and how many are left out.

    A section without data is left out. Names are printed as text, never as markup or control
    codes.
    """
    runs = "Runs side by side" if report.runs else "Scalars"
    sections: tuple[tuple[str, Callable[[], None], Sequence[Any]], ...] = (
        ("Verdict", lambda: _verdict(report, console), (report.verdict,)),
        ("First cause", lambda: render_causes(report.first_causes, console, limit),
         report.first_causes),
        (runs, lambda: _runs(report, console, limit), report.runs + report.scalars),
        ("Tensors", lambda: _tensors(report, console, limit), report.tensors),
        ("What if", lambda: _what_if(report, console), report.kind_scales),
        ("Events", lambda: _events(report, console, limit), (*report.events, *report.log)),
        ("Definitions", lambda: _definitions(report, console), report.definitions),
    )
    present = [(title, show) for title, show, rows in sections if rows]
    for place, (title, show) in enumerate(present, 1):
        console.rule(Text(f"{place} {title}", style="bold"), align="left", style="dim")
        show()
        console.print()


def render_verdict(verdict: Verdict, console: Console) -> None:
    """Print the verdict alone: the headline and its reasons."""
    word, style = BADGES[verdict.status]
    console.print(Text.assemble((f" {word} ", f"reverse {style}"), " ", (verdict.headline, "bold")))
    for reason in verdict.reasons:
        console.print(_item(reason))


def _item(sentence: str) -> Padding:
    """A line of a list, its continuation set in."""
    grid = Table.grid(padding=(0, 1))
    grid.add_row("•", Text(sentence))
    return Padding(grid, (0, 0, 0, 2))


def _verdict(report: Report, console: Console) -> None:
    render_verdict(report.verdict, console)
    console.print()
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for key, value in report.provenance:
        grid.add_row(Text(plain(key.replace("_", " "))), Text(cell(value)))
    console.print(grid)


def _runs(report: Report, console: Console, limit: int) -> None:
    if report.runs:
        _side_by_side(report, console)
    if report.runs and report.scalars:
        console.print()
    if report.scalars:
        table = _table()
        _add(table, "over the recorded run", "first>", "last>", "smallest>", "largest>", "values>")
        for row in report.scalars[:limit]:
            numbers = (row.first, row.last, row.smallest, row.largest)
            table.add_row(Text(shorten(plain(row.name))), *map(cell, numbers), count(row.count))
        console.print(table)
        if left := _left_out(len(report.scalars), limit):
            console.print(Text(left.strip(), "dim"))


def _side_by_side(report: Report, console: Console) -> None:
    columns = list(dict.fromkeys(key for run in report.runs for key in run))
    table = _table()
    for key in columns:
        numeric = any(isinstance(run.get(key), int | float) for run in report.runs)
        table.add_column(Text(plain(key.replace("_", " "))), justify="right" if numeric else "left",
                         overflow="fold")  # fmt: skip
    for run in report.runs:
        table.add_row(*(Text(cell(run.get(key))) for key in columns))
    console.print(table)


#: Title, value, and the console width from which the column is shown.
_COLUMNS: tuple[tuple[str, Callable[[TensorRow], str], int], ...] = (
    ("lost", lambda r: share(r.lost_percent), 0),
    ("underflow", lambda r: share(r.underflow_percent), 0),
    ("subnormal", lambda r: share(r.subnormal_percent), 100),
    ("overflow", lambda r: share(r.overflow_percent + r.saturated_percent), 0),
    ("latent", lambda r: share(r.latent_percent), 150),
    ("zero", lambda r: share(r.zero_percent), 120),
    ("count", lambda r: count(r.count), 130),
    ("shape", lambda r: "x".join(map(str, r.shape)), 140),
    ("smallest", lambda r: number(r.smallest_nonzero), 130),
    ("amax", lambda r: number(r.amax), 0),
    ("rms", lambda r: number(r.rms), 160),
    ("mean", lambda r: number(r.mean), 180),
    ("std", lambda r: number(r.std), 180),
    ("kurtosis", lambda r: number(r.kurtosis), 180),
    ("range", lambda r: bits(r.dynamic_range_bits), 170),
    ("to max", lambda r: bits(r.headroom_max_bits), 90),
    ("to normal", lambda r: bits(r.headroom_normal_bits), 120),
)


def _tensors(report: Report, console: Console, limit: int) -> None:
    columns = [c for c in _COLUMNS if console.width >= c[2]]
    table = _table()
    table.add_column("", no_wrap=True)
    table.add_column("tensor", overflow="fold", min_width=16)
    for title, _, _ in columns:
        table.add_column(title, justify="right", no_wrap=True)
    worst = sorted(report.tensors, key=lambda row: row.rank)
    for row in worst[:limit]:
        shown = (show(row) for _, show, _ in columns)
        table.add_row(_mark(row), _tensor(row.name, row.kind), *shown)
    console.print(table)
    note = f"{report.to}, unscaled; worst first; !! not safe, - not judged."
    left = len(_COLUMNS) - len(columns)
    note += f" {left} more columns in a wider terminal, --json or an .html --out." * (left > 0)
    console.print(Text(note + _left_out(len(worst), limit), "dim"))


def _mark(row: TensorRow) -> Text:
    if not row.judged:
        return Text("-", "dim")
    return Text("ok", "green") if row.safe else Text("!!", "bold red")


def _tensor(name: str, kind: str) -> Text:
    return Text.assemble(shorten(plain(name)), " ", (kind_words(kind), "dim"))


def _what_if(report: Report, console: Console) -> None:
    found = report.verdict.loss_scale
    if found is not None:
        say = f"{power(found.best)}; safe: {interval(found)}" if found.safe else (
            f"none is safe; the best, {power(found.best)}, still loses {share(found.lost_percent)}"
            " of one tensor"
        )
        console.print(Text(f"Loss scale for {found.to}, all gradient tensors: {say}."))
    table = _table()
    _add(table, "kind", "format", *_SCALE_COLUMNS)
    last = None
    for row in report.kind_scales:
        table.add_row(*_scale_cells(row, Text(kind_words(row.kind) if row.kind != last else "")))
        last = row.kind
    console.print(table)
    console.print(Text("Lost unscaled: of the kind's values together. Safe scales, and lost then:"
                       " tensor by tensor, the worst one.", "dim"))  # fmt: skip


def _scale_cells(row: ScaleRow, first: Text) -> Iterable[str | Text]:
    safe = row.safe
    style = "green" if safe.unscaled else "yellow" if safe.safe else "bold red"
    return (
        first,
        Text(plain(row.to)),
        share(row.lost_percent),
        Text(interval(safe), style),
        power(safe.best) if safe.safe else f"({power(safe.best)})",
        share(safe.lost_percent),
    )


def render_scales(rows: Sequence[ScaleRow], console: Console) -> None:
    """Print safe scales, one line for each tensor and format."""
    table = _table()
    dated = any(row.step is not None for row in rows)
    _add(table, "tensor", *(["step>"] * dated), "format", *_SCALE_COLUMNS)
    last = None
    for row in rows:
        here = (row.name, row.kind, row.step)
        first = _tensor(row.name or "", row.kind) if here != last else Text()
        cells = list(_scale_cells(row, first))
        table.add_row(cells[0], *([str(row.step)] * dated), *cells[1:])
        last = here
    console.print(table)


def _events(report: Report, console: Console, limit: int) -> None:
    table = _table()
    _add(table, "step>", "event", "tensor", "values>", "share>", "amax>", "steps>", "worst>")
    events = sorted(report.events, key=lambda e: not e.hard)
    for event in events[:limit]:
        table.add_row(*_event_cells(event))
    if events:
        console.print(table)
        note = "First step of each; NaN, infinity and overflow first."
        console.print(Text(note + _left_out(len(events), limit), "dim"))
    for row in report.log[:limit]:
        what = f"step {row.step}: {plain(row.message)} {plain(row.name)} {cell(row.facts)}"
        console.print(_item(" ".join(what.split())))
    if left := _left_out(len(report.log), limit):
        console.print(Text(left.strip(), "dim"))


def _event_cells(event: Incident) -> Iterable[str | Text]:
    return (
        str(event.step),
        Text(event.what, "bold red" if event.hard else "yellow"),
        _tensor(event.name, event.kind),
        count(event.count),
        share(event.percent),
        number(event.amax),
        str(event.steps),
        share(event.worst_percent),
    )


def _definitions(report: Report, console: Console) -> None:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", max_width=18)
    grid.add_column(overflow="fold")
    for word in report.definitions:
        grid.add_row(Text(plain(word.term)), Text(word.meaning))
    console.print(grid)


def _table() -> Table:
    return Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1), expand=False)


_SCALE_COLUMNS = ("lost unscaled>", "safe scales", "advised>", "lost then>")


def _add(table: Table, *titles: str) -> None:
    """Add columns; those whose title ends in > are numbers, to the right."""
    for title in titles:
        right = title.endswith(">")
        table.add_column(
            title.rstrip(">"), justify="right" if right else "left", no_wrap=right, overflow="fold"
        )


def _left_out(rows: int, limit: int) -> str:
    return f" {count(rows - limit)} more rows not shown." if rows > limit else ""
