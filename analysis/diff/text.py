"""The comparison of two runs for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from fpemu.analysis.report.numbers import cell, count, number, plain, share, shorten
from fpemu.analysis.report.terminal import Column, item, left_out, note, print_rows, tensor

if TYPE_CHECKING:
    from rich.console import Console

    from fpemu.analysis.diff.rows import Diff

__all__ = ["STYLES", "render"]

#: A change's colour, which repeats its word.
STYLES = {"worse": "bold red", "better": "green", "same": "dim", "new": "yellow", "gone": "yellow"}

_COLUMNS = (
    Column("", lambda r: Text(r.change, STYLES[r.change] if r.judged else "dim")),
    Column("tensor", lambda r: tensor(r.name, r.kind)),
    Column("lost before>", lambda r: share(r.lost_percent_before)),
    Column("after>", lambda r: share(r.lost_percent_after)),
    Column("amax before>", lambda r: number(r.amax_before), 100),
    Column("after>", lambda r: number(r.amax_after), 100),
    Column("rms before>", lambda r: number(r.rms_before), 150),
    Column("after>", lambda r: number(r.rms_after), 150),
    Column("why", lambda r: Text(r.why, "" if r.judged else "dim"), 70),
)

_SCALARS = (
    Column("last value", lambda r: Text(shorten(plain(r.name)))),
    Column("before>", lambda r: cell(r.before)),
    Column("after>", lambda r: cell(r.after)),
)


def render(diff: Diff, console: Console, *, limit: int = 20) -> None:
    """Print a comparison; of the tensors the first `limit` that changed."""
    style = STYLES[diff.change]
    badge = (f" {diff.change.upper()} ", f"reverse {style}")
    _, _, headline = diff.headline.partition(": ")
    console.print(Text.assemble(badge, " ", (headline, "bold")))
    for word, side in (("before", diff.before), ("after", diff.after)):
        name = "" if side.name == word else f"{shorten(plain(side.name), 60)}, "
        size = f"{count(side.tensors)} tensors, {count(side.steps)} steps"
        console.print(item(f"{word}: {name}{side.to}, {size}. {side.verdict.headline}"))
    changed = [row for row in diff.rows if row.change != "same"]
    if changed:
        print_rows(console, changed, _COLUMNS, limit)
    same = len(diff.rows) - len(changed)
    alike = sum(row.identical for row in diff.rows)
    said = f"{count(same)} tensors did not change ({count(alike)} are alike to the last value). "
    note(console, said * bool(same) + diff.thresholds.words + left_out(len(changed), limit))
    if diff.scalars:
        print_rows(console, diff.scalars, _SCALARS, limit)
        note(console, left_out(len(diff.scalars), limit))
