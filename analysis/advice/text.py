"""Text: an advice for a terminal, the answer first, then the reasons, then the tables."""

from __future__ import annotations

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from fpemu.analysis.advice.rows import Advice, Choice, LayerAdvice, Line, MemoryRow, TensorAdvice
from fpemu.analysis.report.numbers import (
    NOTHING,
    bits,
    count,
    number,
    plain,
    power,
    share,
    shorten,
)
from fpemu.analysis.report.terminal import Column, left_out, note, print_rows, tensor
from fpemu.analysis.what_if import percent

__all__ = ["BADGES", "render"]

#: The word that says the status, and the colour that repeats it.
BADGES = {
    "safe": ("SAFE", "bold green"),
    "safe_with_loss_scale": ("SAFE WITH A LOSS SCALE", "bold yellow"),
    "needs_changes": ("NEEDS CHANGES", "bold yellow"),
    "broken": ("BROKEN AS RECORDED", "bold red"),
    "no_data": ("NO DATA", "bold"),
}


def render(advice: Advice, console: Console, *, limit: int = 20) -> None:
    """Print an advice; of long tables `limit` rows, and how many are left out."""
    word, style = BADGES[advice.status]
    console.print(Text.assemble((f" {word} ", f"reverse {style}"), " ", (advice.headline, "bold")))
    for line in advice.lines:
        console.print(_line(line))
    for title, show, rows in (
        ("Layers", _layers, advice.layers),
        ("Tensors", _tensors, advice.tensors),
        ("Updates of weights held in a format", _updates, advice.updates),
        ("Memory", _memory, advice.memory),
        ("Memory against damage", _pareto, advice.pareto[1:]),
    ):
        if rows:
            console.print()
            console.rule(Text(title, style="bold"), align="left", style="dim")
            show(advice, console, limit)


def _line(line: Line) -> Padding:
    """What to do, and below it why."""
    grid = Table.grid(padding=(0, 1))
    why = line.why[:1].upper() + line.why[1:]
    grid.add_row("•", Text.assemble(line.text, " ", (f"{why}.", "dim")))
    return Padding(grid, (0, 0, 0, 2))


def _layers(advice: Advice, console: Console, limit: int) -> None:
    worst = sorted(advice.layers, key=lambda row: -row.damage)
    columns = [
        Column("layer", lambda r: Text(shorten(plain(r.layer)))),
        Column("format", lambda r: _formats(r)),
        Column("scales>", lambda r: _layer_scales(r)),
        Column("damage>", lambda r: number(float(f"{r.damage:.2g}"))),
        Column("bytes>", lambda r: count(r.memory_bytes), 90),
    ]
    print_rows(console, worst, columns, limit)
    note(console, "Most damage first. Scales: of what products read, of weights, of gradients."
                  + left_out(len(worst), limit))  # fmt: skip


def _formats(row: LayerAdvice) -> Text:
    backward = "" if row.gradient_to == row.to else f", gradients {plain(row.gradient_to)}"
    return Text(plain(row.to) + backward)


def _layer_scales(row: LayerAdvice) -> str:
    scales = (row.activation_scale, row.weight_scale, row.gradient_scale)
    return " ".join(map(power, scales)) if any(s != 1.0 for s in scales) else "1"


def _tensors(advice: Advice, console: Console, limit: int) -> None:
    worst = sorted(advice.tensors, key=_rank)
    columns = [
        Column("tensor", lambda r: tensor(r.name, r.kind)),
        Column("format", lambda r: Text(plain(r.to))),
        Column("scale>", lambda r: power(r.scale)),
        Column("safe scales", lambda r: r.safe, 90),
        Column("margin>", lambda r: bits(r.margin_bits), 110),
        Column("underflow>", lambda r: share(r.underflow_percent)),
        Column("saturated>", lambda r: share(r.saturated_percent), 90),
        Column("SQNR dB>", lambda r: _decibels(r)),
        Column("bits>", lambda r: f"{r.bits_per_value:.3g}", 100),
        Column("reason", lambda r: Text(plain(r.reason)), 150),
    ]
    print_rows(console, worst, columns, limit)
    note(console, "At the scale advised, most lost first; SQNR is predicted from the histogram"
                  + ", that of recipes measured" * any(r.measured for r in worst) + "."
                  + left_out(len(worst), limit))  # fmt: skip


def _rank(row: TensorAdvice) -> tuple[float, float]:
    return (
        -(row.underflow_percent + row.saturated_percent),
        1000.0 if row.sqnr_db is None else row.sqnr_db,
    )


def _decibels(row: TensorAdvice) -> str:
    return NOTHING if row.sqnr_db is None else f"{row.sqnr_db:.1f}"


def _updates(advice: Advice, console: Console, limit: int) -> None:
    worst = sorted(advice.updates, key=lambda row: (row.format, -row.lost_percent))
    columns = [
        Column("weight", lambda r: Text(shorten(plain(r.name)))),
        Column("held in", lambda r: Text(r.format)),
        Column("lost>", lambda r: share(r.lost_percent)),
        Column("stochastic>", lambda r: share(r.lost_stochastic_percent)),
        Column("advice", lambda r: Text(r.advice), 90),
    ]
    print_rows(console, worst, columns, limit)
    estimated = any(row.estimated for row in worst)
    note(console, "Updates that change nothing, of those that are not 0, by rounding to nearest "
                  "and by stochastic rounding." + " Estimated from histograms." * estimated
                  + left_out(len(worst), limit))  # fmt: skip


def _memory(advice: Advice, console: Console, limit: int) -> None:
    columns = [
        Column("kind", lambda r: Text(r.label)),
        Column("format", lambda r: Text(plain(r.format))),
        Column("bytes>", lambda r: count(r.bytes)),
        Column("in float32>", lambda r: count(r.float32_bytes)),
        Column("of it>", lambda r: _share(r)),
    ]
    print_rows(console, advice.memory, columns, max(limit, len(advice.memory)))
    note(console, "Each recorded tensor once, as if all were kept; recipes with their scales, "
                  "formats without.")


def _share(row: MemoryRow) -> str:
    return share(percent(row.bytes, row.float32_bytes)) if row.float32_bytes else NOTHING


def _pareto(advice: Advice, console: Console, limit: int) -> None:
    measured = any(choice.measured is not None for choice in advice.pareto)
    columns = [
        Column("", lambda c: "→" if c.chosen else ""),
        Column("bytes>", lambda c: count(c.memory_bytes)),
        Column("damage>", lambda c: number(float(f"{c.damage:.2g}"))),
        *([Column("measured>", lambda c: number(c.measured))] if measured else []),
        Column("layers in each format", lambda c: Text(_shape(c))),
    ]
    print_rows(console, advice.pareto, columns, max(limit, len(advice.pareto)))
    master = any(row.kind == "master_weight" for row in advice.memory)
    note(console, "Assignments of formats to layers that no other beats in both; → is advised."
                  + " Without float32 master weights." * master)  # fmt: skip


def _shape(choice: Choice) -> str:
    formats = [form for _, form in choice.formats]
    return ", ".join(f"{formats.count(form)} {plain(form)}" for form in dict.fromkeys(formats))
