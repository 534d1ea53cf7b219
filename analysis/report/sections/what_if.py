"""Section "What if": each format at scale 1, at its safe scales, and at every scale tried."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any

from rich.text import Text

from fpemu.analysis.by_recipe import ByRecipe
from fpemu.analysis.parts import rule_of_recipes
from fpemu.analysis.report.numbers import (
    NOTHING,
    cosine,
    decibels,
    interval,
    kind_words,
    plain,
    power,
    share,
)
from fpemu.analysis.report.quality import UNKNOWN, Quality, expected
from fpemu.analysis.report.rows import record_json
from fpemu.analysis.report.section import Section
from fpemu.analysis.report.sections.tensors import worst_first
from fpemu.analysis.report.terminal import add_columns, new_table, note, tensor
from fpemu.analysis.scales import SafeScales, safe_of
from fpemu.analysis.what_if import Row, percent
from fpemu.tallies import Outcome

if TYPE_CHECKING:
    from rich.console import Console

    from fpemu.analysis.by_recipe import Target
    from fpemu.analysis.parts import Parts
    from fpemu.analysis.report.findings import Grid
    from fpemu.analysis.report.question import Question
    from fpemu.analysis.report.summary import Report
    from fpemu.analysis.totals import Total

__all__ = [
    "SECTION",
    "Curve",
    "ScaleRow",
    "curve",
    "kind_rows",
    "render_scales",
    "scale_rows",
    "tensor_rows",
]


@dataclass(frozen=True, slots=True)
class ScaleRow:
    """What one format does to a tensor, or to a whole kind, unscaled and at its safe scales."""

    name: str | None  #: None: all tensors of the kind
    kind: str
    to: str
    unscaled: Outcome  #: at scale 1, exact counts
    safe: SafeScales  #: for a kind: the scales at which every tensor of it is safe
    step: int | None = None  #: None: all recorded steps together
    quality: Quality = UNKNOWN  #: expected unscaled
    quality_advised: Quality = UNKNOWN  #: expected at the scale advised, of a tensor
    bits_per_value: float | None = None  #: of a recipe, whose scales are its own; None: a cast

    @property
    def lost_percent(self) -> float:
        """Values lost at scale 1, in percent of the finite non-zero ones."""
        return percent(self.unscaled.lost, self.unscaled.nonzero)

    def to_json(self) -> dict[str, Any]:
        row = record_json(self)
        for when, quality in (("", row.pop("quality")), ("_advised", row.pop("quality_advised"))):
            row |= {f"{key}{when}": value for key, value in quality.items()}
        return row | {"lost_percent": self.lost_percent}


@dataclass(frozen=True, slots=True)
class Curve:
    """Values of one kind lost in one format, at every scale tried."""

    kind: str
    to: str
    scales: tuple[float, ...]
    lost_percent: tuple[float, ...]
    underflow_percent: tuple[float, ...]
    beyond_percent: tuple[float, ...]  #: overflow and saturated

    def to_json(self) -> dict[str, Any]:
        return record_json(self)


def scale_rows(rows: Iterable[Row], tolerance: float) -> list[ScaleRow]:
    """Return the safe scales of `whatif` rows, which hold scale 1 and stand in its order."""
    found = []
    for key, run in itertools.groupby(rows, key=lambda r: (r.name, r.kind, r.step, r.to)):
        name, kind, step, to = key
        counted = sorted(run, key=lambda row: row.scale)
        outcomes, factors = [r.outcome for r in counted], [r.scale for r in counted]
        [one] = [row for row in counted if row.scale == 1.0]
        safe = (
            safe_of([outcomes], to, factors, tolerance)
            if one.scored is None else one.scored.safe_scales(to)
        )
        quality = UNKNOWN if one.scored is None else Quality(one.sqnr_db)
        found.append(
            ScaleRow(name, kind, to, one.outcome, safe, step, quality, quality, one.bits_per_value)
        )
    return found


def tensor_rows(totals: Sequence[Total], grid: Grid, question: Question) -> tuple[ScaleRow, ...]:
    """Return what each format does to each tensor."""
    return tuple(
        _tensor_row(total, cast, counted, question)
        for total, outcomes in zip(totals, grid, strict=True)
        for cast, counted in zip(question.casts, outcomes, strict=True)
    )


def _tensor_row(
    total: Total, cast: Target, counted: list[Outcome], question: Question
) -> ScaleRow:
    safe = (
        total.parts.scored(cast).safe_scales(cast) if isinstance(cast, ByRecipe) else
        safe_of([counted], str(cast), question.scales, question.tolerance)
    )  # fmt: skip
    one, best = counted[question.one], counted[question.scales.index(safe.best)]
    unscaled, *advised = expected(total.parts, cast, {1.0: one, safe.best: best})
    return ScaleRow(
        total.name, total.kind, str(cast), one, safe, None, unscaled,
        advised[0] if advised else unscaled, _bits(total.parts, cast),
    )  # fmt: skip


def _worst(recipe: ByRecipe, each: Iterable[Parts]) -> SafeScales:
    """Of what a recipe makes of tensors, the verdict on the worst."""
    found = [parts.scored(recipe).safe_scales(recipe) for parts in each]
    return min(found, key=lambda one: (one.safe, -one.lost_percent))


def _bits(parts: Parts, to: Target) -> float | None:
    return parts.scored(to).bits_per_value if isinstance(to, ByRecipe) else None


def kind_rows(
    totals: Sequence[Total], grid: Grid, question: Question
) -> tuple[tuple[ScaleRow, ...], tuple[Curve, ...]]:
    """Return what-if for each kind as a whole: its values together, its scales tensor by tensor."""
    rows, curves = [], []
    for kind in dict.fromkeys(total.kind for total in totals):
        members = [k for k, total in enumerate(totals) if total.kind == kind]
        together = reduce(add, (totals[k].parts for k in members))
        for c, cast in enumerate(question.casts):
            outcomes = together.outcomes(cast, question.scales)
            narrow = [k for k in members if not totals[k].stays_wide]
            safe = (
                _worst(cast, [totals[k].parts for k in narrow] or [together])
                if isinstance(cast, ByRecipe) else
                safe_of([grid[k][c] for k in narrow] or [outcomes], str(cast), question.scales,
                        question.tolerance)
            )  # fmt: skip
            one = outcomes[question.one]
            [quality] = expected(together, cast, {1.0: one})
            bits = _bits(together, cast)
            rows.append(
                ScaleRow(None, kind, str(cast), one, safe, None, quality, bits_per_value=bits)
            )
            if bits is not None:
                continue  # a recipe's scales are its own: there is no curve
            curves.append(curve(kind, str(cast), question.scales, outcomes))
    return tuple(rows), tuple(curves)


def curve(kind: str, to: str, scales: Sequence[float], outcomes: list[Outcome]) -> Curve:
    """Return the curve of outcomes counted at `scales`."""
    return Curve(
        kind,
        to,
        tuple(scales),
        tuple(percent(o.lost, o.nonzero) for o in outcomes),
        tuple(percent(o.underflow, o.nonzero) for o in outcomes),
        tuple(percent(o.overflow + o.saturated, o.nonzero) for o in outcomes),
    )


# --- text --------------------------------------------------------------------------------------


def _show(report: Report, console: Console, limit: int) -> None:
    found = report.verdict.loss_scale
    if found is not None:
        say = f"{power(found.best)}; safe: {interval(found)}" if found.safe else (
            f"none is safe; the best, {power(found.best)}, still loses {share(found.lost_percent)}"
            " of one tensor"
        )
        console.print(Text(f"Loss scale for {found.to}, all gradient tensors: {say}."))
    table = new_table()
    wide = console.width >= 110
    add_columns(table, "kind", "format", *_titles(wide))
    last = None
    for row in report.kind_scales:
        first = Text(kind_words(row.kind) if row.kind != last else "")
        table.add_row(*_cells(row, first, wide))
        last = row.kind
    console.print(table)
    shared = " Gradients share one loss scale, the one above." if found is not None else ""
    note(console, "Lost at 1: unscaled, of the kind's values together. Safe scales, and lost then:"
                  f" tensor by tensor, the worst one. Advised: for this kind alone{_NONE_SAFE}"
                  + shared)  # fmt: skip


_NONE_SAFE = "; in brackets the best of those tried, where none is safe."


def render_scales(rows: Sequence[ScaleRow], console: Console) -> None:
    """Print safe scales, one line for each tensor and format."""
    table = new_table()
    dated = any(row.step is not None for row in rows)
    recipes = any(row.bits_per_value is not None for row in rows)
    more = ["SQNR>", "bits>"] * recipes
    add_columns(table, "tensor", *(["step>"] * dated), "format", *_titles(False), *more)
    last = None
    for row in rows:
        here = (row.name, row.kind, row.step)
        first = tensor(row.name or "", row.kind) if here != last else Text()
        cells = list(_cells(row, first, False))
        last_cells = [decibels(row.quality.sqnr_db), _width(row.bits_per_value)] * recipes
        table.add_row(cells[0], *([str(row.step)] * dated), *cells[1:], *last_cells)
        last = here
    console.print(table)
    said = f" Recipes bring their own scales, and are safe with {rule_of_recipes()}; bits are "
    said += "those of a value with its share of the scales."
    note(console, f"Lost at 1: unscaled. Advised: for this tensor alone{_NONE_SAFE}"
                  + said * recipes)  # fmt: skip


def _width(bits: float | None) -> str:
    return NOTHING if bits is None else f"{bits:.3g}"


def _titles(wide: bool) -> tuple[str, ...]:
    quality = ("SQNR>", "cosine>") if wide else ()
    return ("lost at 1>", *quality, "safe scales", "advised>", "lost then>")


def _cells(row: ScaleRow, first: Text, wide: bool) -> Iterable[str | Text]:
    safe = row.safe
    style = "green" if safe.unscaled else "yellow" if safe.safe else "bold red"
    quality = (decibels(row.quality.sqnr_db), cosine(row.quality.cosine)) if wide else ()
    head = first, Text(plain(row.to)), share(row.lost_percent), *quality
    if row.bits_per_value is not None:
        return (*head, Text("its own", style), NOTHING, NOTHING)
    return (
        *head,
        Text(interval(safe), style),
        power(safe.best) if safe.safe else f"({power(safe.best)})",
        share(safe.lost_percent),
    )


# --- page and JSON -----------------------------------------------------------------------------


def _page(report: Report) -> dict[str, Any]:
    by_tensor: dict[tuple[str | None, str], list[ScaleRow]] = {}
    for row in report.tensor_scales:
        by_tensor.setdefault((row.name, row.kind), []).append(row)
    curves = itertools.groupby(report.curves, key=lambda curve: curve.kind)
    return {
        "tensor_scales": [
            (row, by_tensor[row.name, row.kind]) for row in worst_first(report.tensors)
        ],
        "curves": [(kind, list(rows)) for kind, rows in curves],
        "shown_scales": _shown(report.scales),
    }


def _shown(scales: tuple[float, ...]) -> list[int]:
    """Indices of the scales that fit a table: 1 and every so many binades around it."""
    one = scales.index(1.0)
    step = max(1, math.ceil(len(scales) / 16))
    return list(range(one % step, len(scales), step))


def _json(report: Report) -> dict[str, Any]:
    return {
        "what_if": {
            "kinds": [row.to_json() for row in report.kind_scales],
            "tensors": [row.to_json() for row in report.tensor_scales],
            "curves": [row.to_json() for row in report.curves],
        }
    }


SECTION = Section(
    "what_if", lambda report: "What if", lambda report: bool(report.tensors), _show, _json, _page
)
