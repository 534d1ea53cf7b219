"""Text: a scan for a terminal: the answer, the formats, the tensors that lose most."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fpemu.analysis.checkpoints.result import Scan
from fpemu.analysis.checkpoints.rows import FormatRow, Loss, TensorRow, Uncounted
from fpemu.analysis.checkpoints.sizes import size
from fpemu.analysis.report.numbers import count, kind_words, number, plain, share, shorten
from fpemu.cast import Cast
from fpemu.catalog import ALIASES

__all__ = ["render", "short_name"]


_LINES = 6  # of the advice: a line for each layer that is kept wide


def short_name(to: str) -> str:
    """Return the short spelling of a format, or the text itself.

    >>> from fpemu.analysis.checkpoints.text import short_name
    >>> short_name("float8_e4m3fn"), short_name("bfloat16"), short_name("tf32")
    ('e4m3fn', 'bf16', 'tf32')
    """
    short = next((alias for alias, name in ALIASES.items() if name == to), to)
    return short if len(short) < len(to) else to


def render(found: Scan, console: Console, *, limit: int = 20) -> None:
    """Print a scan; of its tensors the `limit` worst.

    Names are printed as text, never as markup or control codes.
    """
    for sentence in found.answer:
        _item(sentence, "", console)
    if found.advised:
        console.print(Text(f"\nAdvice, for {found.casts[0]} first", "bold"))
        for line in found.advised[:_LINES]:
            _item(line.text, line.why, console)
        if left := len(found.advised[_LINES:]):
            console.print(Text(f"  {count(left)} more in --json or an .html --out.", "dim"))
    if found.tensors:
        console.print()
        _formats(found, console)
        console.print()
        _tensors(found, console, limit)
    if found.uncounted:
        console.print()
        _uncounted(found.uncounted, console)
    for note in found.notes:
        console.print(Text(plain(note), "dim"))


def _item(say: str, why: str, console: Console) -> None:
    grid = Table.grid(padding=(0, 1))
    reason = f": {why}." if why else ""
    grid.add_row(Text("•", "bold"), Text.assemble(say.rstrip(".") if why else say, (reason, "dim")))
    console.print(grid)


def _table() -> Table:
    return Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1), expand=False)


def _add(table: Table, title: str, right: bool = True) -> None:
    table.add_column(title, justify="right" if right else "left", no_wrap=right, overflow="fold")


#: Title, value, and the console width from which the column is shown.
_FORMAT_COLUMNS: tuple[tuple[str, Callable[[FormatRow], str], int], ...] = (
    ("size", lambda r: size(r.octets), 0),
    ("safe", lambda r: count(r.safe), 0),
    ("with a scale", lambda r: count(r.scaled), 0),
    ("not safe", lambda r: count(r.unsafe), 0),
    ("lost unscaled", lambda r: share(r.lost_percent), 0),
    ("worst with a scale", lambda r: share(r.worst_percent), 110),
)


def _formats(found: Scan, console: Console) -> None:
    columns = [c for c in _FORMAT_COLUMNS if console.width >= c[2]]
    kinds = len({row.kind for row in found.formats}) > 1
    table = _table()
    if kinds:
        _add(table, "kind", right=False)
    table.add_column("format", no_wrap=True)
    for title, _, _ in columns:
        _add(table, title)
    named = console.width >= 130
    if named:
        table.add_column("of", no_wrap=True)
    for _, rows in groupby(found.formats, key=lambda row: row.kind):
        for place, row in enumerate(rows):
            kind = [kind_words(row.kind) if place == 0 else ""] * kinds
            cells = [show(row) for _, show, _ in columns]
            worst = [Text(shorten(plain(row.worst or ""), console.width - 94))] * named
            table.add_row(*kind, Text(plain(row.to), _style(row)), *cells, *worst)
    console.print(table)
    console.print(Text(
        f"safe: tensors that lose at most {share(100 * found.tolerance)} of their non-zero values "
        "to underflow or saturation, and none to overflow, unscaled; with a scale: at a power of "
        "two of their own. Rounding is not counted here.", "dim"))  # fmt: skip


def _style(row: FormatRow) -> str:
    return "bold red" if row.unsafe else "yellow" if row.scaled else "green"


#: Title, value, and the console width from which the column is shown.
_COLUMNS: tuple[tuple[str, Callable[[TensorRow], str], int], ...] = (
    ("stored as", lambda r: plain(r.dtype).removeprefix("torch."), 110),
    ("shape", lambda r: shorten("x".join(map(str, r.shape)), 24), 130),
    ("values", lambda r: count(r.values), 130),
    ("zero", lambda r: count(r.zero), 150),
    ("amax", lambda r: number(r.amax), 90),
    ("smallest", lambda r: number(r.smallest_nonzero), 120),
    ("rms", lambda r: number(r.rms), 160),
)


def _tensors(found: Scan, console: Console, limit: int) -> None:
    columns = [c for c in _COLUMNS if console.width >= c[2]]
    dated = any(row.step for row in found.tensors)
    width = 30 if console.width < 100 else 44 if console.width < 140 else 60
    shown = _fitting(found, console.width - width - 10 * (len(columns) + dated) - 4)
    table = _table()
    _add(table, "lost unscaled", right=False)
    if dated:
        _add(table, "step")
    for title in [title for title, _, _ in columns] + [short_name(str(cast)) for cast in shown]:
        _add(table, title)
    for row in found.worst[:limit]:
        cells = [show(row) for _, show, _ in columns]
        lost = (_lost(loss) for loss in row.formats if loss.to in map(str, shown))
        table.add_row(_name(row, width), *[str(row.step)] * dated, *cells, *lost)
    console.print(table)
    note = "Worst first. * safe at another scale, + at none."
    if (left := len(found.tensors) - limit) > 0:
        note += f" {count(left)} more tensors in --json or --out."
    if absent := [short_name(str(cast)) for cast in found.casts if cast not in shown]:
        note += f" In a wider terminal: {', '.join(absent)}."
    console.print(Text(note, "dim"))


def _fitting(found: Scan, width: int) -> list[Cast]:
    """The formats whose columns fit a width, one at least; those that lose nothing go first."""
    shown = list(found.casts)
    hurt = {row.to for row in found.formats if row.lost_percent}
    last_first = [*reversed(found.casts)]
    for cast in sorted(last_first, key=lambda cast: str(cast) in hurt)[:-1]:
        if sum(max(len(short_name(str(one))), 8) + 2 for one in shown) <= width:
            break
        shown.remove(cast)
    return shown


def _lost(row: Loss) -> Text:
    mark, style = ("", "green") if row.safe.unscaled else (
        ("*", "yellow") if row.safe.safe else ("+", "bold red")
    )  # fmt: skip
    return Text(share(row.lost_percent).replace(" %", "%") + (mark or " "), style)


def _name(row: TensorRow, width: int) -> Text:
    held = [f"{count(n)} {what}" for n, what in ((row.nan, "NaN"), (row.inf, "infinite")) if n]
    if row.beyond_float32:
        held.append(f"{count(row.beyond_float32)} beyond float32")
    broken = f" ({', '.join(held)})" if held else ""
    kind = f" {kind_words(row.kind)}" if row.kind != "weight" else ""
    return Text.assemble(shorten(plain(row.name), width), (kind, "dim"), (broken, "bold red"))


def _uncounted(rows: Iterable[Uncounted], console: Console) -> None:
    by_reason: dict[str, list[Uncounted]] = {}
    for row in rows:
        by_reason.setdefault(row.reason, []).append(row)
    for reason, alike in by_reason.items():
        names = ", ".join(shorten(plain(row.name), 40) for row in alike[:3])
        more = f" and {count(len(alike) - 3)} more" if len(alike) > 3 else ""
        dtypes = ", ".join(dict.fromkeys(plain(row.dtype) for row in alike))
        octets = size(sum(row.octets for row in alike))
        say = f"Not counted: {names}{more} ({octets} of {dtypes}): {reason}."
        console.print(Text(say, "dim"))
