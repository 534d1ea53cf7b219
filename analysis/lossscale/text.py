"""Text: replays for a terminal, one in full or several side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from fpemu.analysis.lossscale.replayed import Replay, ReplayedStep
from fpemu.analysis.lossscale.state import scale_text
from fpemu.analysis.lossscale.trajectory import marks, span, spark
from fpemu.analysis.shown import NOTHING, plain, share, shorten
from fpemu.analysis.what_if import percent

__all__ = ["render"]


def render(replays: Sequence[Replay], console: Console, *, limit: int = 5) -> None:
    """Print replays of one trace: a table of several; one in full, its first `limit` overflows."""
    console.print(_what(replays[0]))
    if len(replays) == 1:
        _one(replays[0], console, limit)
    else:
        _table(replays, console)


def _what(replay: Replay) -> Text:
    kinds = " and ".join(kind.replace("_", " ") + "s" for kind in replay.kinds)
    steps = f"{len(replay.steps):,} step" + "s" * (len(replay.steps) != 1)
    by = f", {replay.accumulate} to one of the optimizer" * (replay.accumulate > 1)
    return Text(f"Loss scalers on the {kinds} of {steps}{by}, in {plain(replay.to)}", "bold")


# --- several ---------------------------------------------------------------------------------


#: Title, cell, and the console width from which the column is shown.
_COLUMNS: tuple[tuple[str, Callable[[Replay], Text], int], ...] = (
    ("overflow", lambda r: _overflow(r), 0),
    ("skipped", lambda r: Text(f"{r.skipped_steps:,}"), 52),
    ("lost", lambda r: Text(share(r.lost_percent)), 0),
    ("underflow", lambda r: Text(share(r.underflow_percent)), 76),
    ("last scale", lambda r: _last(r), 64),
)


def _table(replays: Sequence[Replay], console: Console) -> None:
    columns = [column for column in _COLUMNS if console.width >= column[2]]
    name_width = max(len(replay.scaler) + 2 for replay in replays)
    room = min(60, console.width - name_width - 57)  # what the columns of numbers leave
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("scaler", overflow="fold", min_width=14)
    for title, _, _ in columns:
        table.add_column(title, justify="right", no_wrap=True)
    lines: list[list[Text]] = [[] for _ in replays]
    real = _recorded(replays[0])
    if room >= 8:
        table.add_column("scale", no_wrap=True)
        spans = [span(steps) for steps in (*(r.steps for r in replays), *filter(None, [real]))]
        low, high = min(s[0] for s in spans), max(s[1] for s in spans)
        lines = [[Text(spark(replay.steps, room, low, high))] for replay in replays]
    for replay, line in zip(replays, lines, strict=True):
        name = Text(replay.scaler + " *" * (not replay.open_loop))
        table.add_row(name, *(cell(replay) for _, cell, _ in columns), *line)
    if real and room >= 8:
        blank = [Text(NOTHING, "dim")] * len(columns)
        table.add_row(Text("as recorded", "dim"), *blank, Text(spark(real, room, low, high), "dim"))
    console.print(table)
    if room >= 8:
        console.print(Text(f"scale: from 2^{low:.4g} (lowest bar) to 2^{high:.4g}.", "dim"))
    _notes(replays, console)


def _recorded(replay: Replay) -> list[ReplayedStep]:
    """The steps at the scales that were recorded; none where the run had no loss scale."""
    steps = [replace(step, scale=step.recorded_scale) for step in replay.steps]
    return steps if any(step.scale != 1.0 for step in steps) else []


def _last(replay: Replay) -> Text:
    return Text(scale_text(replay.final_scale) + " end" * (replay.stopped is not None))


def _overflow(replay: Replay) -> Text:
    spoiled = replay.spoiled_steps > 0
    return Text(f"{replay.overflow_steps:,}" + "!" * spoiled, "bold red" if spoiled else "")


def _notes(replays: Sequence[Replay], console: Console) -> None:
    """What the signs of the table mean, each where it occurs."""
    notes = {
        "lost: gradients that never reach the weights, those of skipped steps among them.": True,
        "* the scaler that ran, as far as its scales tell; the others are estimates: their "
        "gradients are those of the recorded run.": any(not r.open_loop for r in replays),
        "All are estimates: the gradients are those of the recorded run, which went another "
        "way.": all(r.open_loop for r in replays),
        "! overflows that are not skipped: infinity or NaN reaches the weights.": any(
            r.spoiled_steps for r in replays
        ),
        "end: the framework ends the run there, at an overflow at its smallest scale.": any(
            r.stopped is not None for r in replays
        ),
        "One scaler for each layer; the scale shown is the smallest of any.": any(
            r.layers for r in replays
        ),
    }
    for text in (text for text, holds in notes.items() if holds):
        console.print(Text(text, "dim"))


# --- one -------------------------------------------------------------------------------------


def _one(replay: Replay, console: Console, limit: int) -> None:
    console.print(Text(replay.scaler))
    console.print()
    low, high = span(replay.steps)
    width = max(8, min(100, console.width - 12))
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, text in _facts(replay, low, high):
        grid.add_row(name, Text(text))
    console.print(grid)
    console.print()
    drawn = Table.grid(padding=(0, 2))
    drawn.add_column(style="dim", no_wrap=True)
    drawn.add_column(no_wrap=True)
    drawn.add_row("scale", Text(spark(replay.steps, width, low, high)))
    if replay.overflow_steps:
        sign = "! spoils" if replay.spoiled_steps else "x skips"
        drawn.add_row(sign, Text(marks(replay.steps, width), "red"))
    console.print(drawn)
    _layers(replay, console, limit)
    _overflows(replay, console, limit)
    console.print()
    console.print(Text(replay.note, "dim"))


def _facts(replay: Replay, low: float, high: float) -> list[tuple[str, str]]:
    steps = len(replay.steps)
    facts = [
        ("overflow", f"{_count(replay.overflow_steps)} of {steps:,}"),
        ("skipped", f"{_count(replay.skipped_steps)}, "
         f"{share(percent(replay.skipped_steps, steps))} of the run"),
        ("lost", f"{share(replay.lost_percent)} of the non-zero gradients"
         + ", those of skipped steps among them" * (replay.skipped_steps > 0)),
        ("underflow", f"{share(replay.underflow_percent)} of them"),
        ("scale", f"2^{low:.4g} to 2^{high:.4g}, last {scale_text(replay.final_scale)}"),
    ]  # fmt: skip
    if replay.spoiled_steps:
        spoiled = f"{_count(replay.spoiled_steps)}: infinity or NaN reaches the weights"
        facts.insert(2, ("not skipped", spoiled))
    if replay.stopped is not None:
        facts.append(("ends", f"at step {replay.stopped:,}: overflow at the smallest scale"))
    return facts


def _count(steps: int) -> str:
    return f"{steps:,} step" + "s" * (steps != 1)


def _layers(replay: Replay, console: Console, limit: int) -> None:
    if not replay.layers:
        return
    console.print()
    console.print(Text(f"layers, of {len(replay.layers):,} those that overflow most", "dim"))
    worst = sorted(replay.layers, key=lambda part: -part.overflow_steps)[:limit]
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("layer", overflow="fold")
    for title in ("overflow", "underflow", "last scale"):
        table.add_column(title, justify="right")
    for part in worst:
        table.add_row(
            Text(shorten(plain(part.layer))), f"{part.overflow_steps:,}",
            share(part.underflow_percent), scale_text(part.final_scale),
        )  # fmt: skip
    console.print(Padding(table, (0, 0, 0, 2)))


def _overflows(replay: Replay, console: Console, limit: int) -> None:
    found = [step for step in replay.steps if step.overflow]
    if not found:
        return
    console.print()
    console.print(Text("overflows", "dim"))
    for step in found[:limit]:
        names = [shorten(plain(name)) for name in step.overflowed]
        more = f" and {len(names) - 3:,} more" if len(names) > 3 else ""
        where = ", ".join(names[:3]) + more or "by the steps beside it"
        at = "" if replay.layers else f" at {scale_text(step.scale)}"
        console.print(Padding(Text(f"step {step.step:,}{at}: {where}"), (0, 0, 0, 2)))
    if len(found) > limit:
        console.print(Text(f"  {len(found) - limit:,} more; --json has all", "dim"))
