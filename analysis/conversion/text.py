"""Text: a conversion for a terminal: the answer, the tensors that lost most, what was kept."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.text import Text

from fpemu.analysis.checkpoints.sizes import size
from fpemu.analysis.conversion.answer import ratio
from fpemu.analysis.conversion.result import Converted
from fpemu.analysis.conversion.rows import KeptRow, TensorRow
from fpemu.analysis.report.numbers import count, plain, share, shorten
from fpemu.analysis.report.terminal import Column, item, left_out, note, print_rows

__all__ = ["dtypes", "render"]

_COLUMNS = (
    Column("tensor", lambda r: _name(r)),
    Column("SQNR>", lambda r: Text(ratio(r.measured.sqnr), _style(r))),
    Column("largest error>", lambda r: share(100 * r.measured.relative), 90),
    Column("lost>", lambda r: share(r.measured.lost_percent)),
    Column("clipped>", lambda r: share(r.measured.clipped_percent)),
    Column("dtype", lambda r: dtypes(r), 100),
    Column("shape>", lambda r: shorten("x".join(map(str, r.shape)), 24), 130),
    Column("before>", lambda r: size(r.octets), 80),
    Column("after>", lambda r: size(r.to_octets)),
)


def dtypes(row: TensorRow) -> str:
    """Return a tensor's dtype, and what it became if that is another."""
    same = row.dtype == row.to_dtype
    return row.dtype if same else f"{row.dtype} → {row.to_dtype}"


def render(done: Converted, console: Console, *, limit: int = 20) -> None:
    """Print a conversion; of its tensors the `limit` worst.

    Names are printed as text, never as markup or control codes.
    """
    for sentence in done.answer:
        console.print(item(sentence))
    if done.tensors:
        console.print()
        print_rows(console, done.worst, _COLUMNS, limit)
        note(console, (
            "Worst first. SQNR: signal to quantization noise. Largest error: of a value that is "
            "not lost, relative to it. Lost: became zero; clipped: beyond the largest element at "
            "their scale." + left_out(len(done.tensors), limit)
        ))  # fmt: skip
    if done.kept or done.dropped:
        console.print()
        _kept(done.kept, console)
    if done.dropped:
        names = _names(done.dropped)
        note(console, f"Left out: {names}.")
    for text in done.notes:
        note(console, plain(text))


def _name(row: TensorRow) -> Text:
    broken = row.measured.broken
    said = f" ({count(broken)} became infinite or NaN)" if broken else ""
    return Text.assemble(shorten(plain(row.name)), (said, "bold red"))


def _style(row: TensorRow) -> str:
    return "bold red" if row.measured.broken or not row.measured.sqnr > 0 else ""


def _kept(rows: Iterable[KeptRow], console: Console) -> None:
    by_reason: dict[str, list[KeptRow]] = {}
    for row in rows:
        by_reason.setdefault(row.reason, []).append(row)
    for reason, alike in by_reason.items():
        octets = size(sum(row.octets for row in alike))
        note(console, f"Kept as they are: {_names([r.name for r in alike])} ({octets}): {reason}.")


def _names(names: Iterable[str]) -> str:
    every = [shorten(plain(name), 40) for name in names]
    more = f" and {count(len(every) - 3)} more" if len(every) > 3 else ""
    return ", ".join(every[:3]) + more
