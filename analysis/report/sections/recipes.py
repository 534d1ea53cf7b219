"""Section "Recipes": what each recipe that was counted made of each tensor and its blocks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.text import Text

from fpemu.analysis.carried import carried
from fpemu.analysis.report.numbers import count, decibels, number, plain, power, share
from fpemu.analysis.report.quantiles import quantiles
from fpemu.analysis.report.rows import record_json
from fpemu.analysis.report.section import Section
from fpemu.analysis.report.sections.blocks import QUANTILES
from fpemu.analysis.report.terminal import Column, left_out, note, print_rows, tensor
from fpemu.analysis.totals import add_to
from fpemu.analysis.what_if import percent
from fpemu.blocks import CREST_STEPS
from fpemu.scaling.tally import RecipeTally, is_scale_free

if TYPE_CHECKING:
    from rich.console import Console

    from fpemu.analysis.report.summary import Report
    from fpemu.analysis.trace import Trace

__all__ = ["SECTION", "RecipeRow", "recipe_rows"]


@dataclass(frozen=True, slots=True)
class RecipeRow:
    """One tensor, all steps together, in one recipe, as it was counted on the values.

    Gradients are taken without their loss scale, unless `as_recorded`.
    """

    name: str
    kind: str
    to: str  #: the recipe's name
    recipe: str  #: its text
    axis: int  #: along which blocks lie, from the end
    values: int
    bits_per_value: float  #: with its share of the scales
    blocks: int
    zero_blocks: int  #: of nothing but zeros
    nan_blocks: int  #: in which anything came out NaN or infinite
    clipped_blocks: int  #: with values beyond the largest element at their scale
    scales: tuple[float, ...]  #: at QUANTILES, rounded down to powers of two; empty: none
    clipped_percent: float  #: values beyond the largest element, of the finite non-zero ones
    lost_percent: float  #: values that came out 0, likewise
    overflow: int  #: finite values that came out NaN or infinite
    sqnr_db: float | None  #: measured; None: no error, or nothing there
    crest_median: float | None  #: largest magnitude over rms, of the median block
    as_recorded: bool  #: times the loss scale, as the recipe's scales do not go with the numbers

    @property
    def clipped_blocks_percent(self) -> float:
        """Clipped blocks, of those that are not all zeros."""
        return percent(self.clipped_blocks, self.blocks - self.zero_blocks)

    def to_json(self) -> dict[str, Any]:
        return record_json(self) | {"clipped_blocks_percent": self.clipped_blocks_percent}


def recipe_rows(trace: Trace) -> tuple[RecipeRow, ...]:
    """Return what a trace counted of recipes, by tensor and recipe."""
    scales = carried(trace)
    totals: dict[tuple[str, str, str], RecipeTally] = {}
    kept: set[tuple[str, str, str]] = set()
    for counted in trace.counted(RecipeTally.topic):
        key, tally = (counted.name, counted.kind, counted.value.part), counted.value
        factor = scales.factor(counted)
        if factor != 1.0 and not is_scale_free(tally.recipe):
            kept.add(key)
        else:
            tally = tally.times(factor)
        add_to(totals, key, tally)
    return tuple(_row(*key[:2], tally, key in kept) for key, tally in totals.items())


def _row(name: str, kind: str, tally: RecipeTally, as_recorded: bool) -> RecipeRow:
    nonzero = tally.outcome.nonzero
    places = quantiles(tally.scale_histogram, QUANTILES)
    crest = next(iter(quantiles(dict(enumerate(tally.crest)), (0.5,))), None)
    return RecipeRow(
        name=name,
        kind=kind,
        to=tally.name,
        recipe=tally.part,
        axis=tally.axis,
        values=tally.total,
        bits_per_value=tally.bits_per_value,
        blocks=tally.blocks,
        zero_blocks=tally.zero_blocks,
        nan_blocks=tally.nan_blocks,
        clipped_blocks=tally.clipped_blocks,
        scales=tuple(math.ldexp(1.0, place) for place in places),
        clipped_percent=percent(tally.clipped, nonzero),
        lost_percent=percent(tally.lost, nonzero),
        overflow=tally.overflow,
        sqnr_db=tally.sqnr_db if math.isfinite(tally.sqnr_db) else None,
        crest_median=None if crest is None else 2.0 ** ((crest + 0.5) / CREST_STEPS),
        as_recorded=as_recorded,
    )


# --- text --------------------------------------------------------------------------------------


def _scale(place: int) -> Any:
    return lambda row: power(row.scales[place]) if row.scales else number(None)


def _recipe(row: RecipeRow) -> Text:
    return Text(plain(row.to) + "*" * row.as_recorded)


_COLUMNS = (
    Column("tensor", lambda r: tensor(r.name, r.kind)),
    Column("recipe", _recipe),
    Column("SQNR>", lambda r: decibels(r.sqnr_db)),
    Column("lost>", lambda r: share(r.lost_percent)),
    Column("clipped>", lambda r: share(r.clipped_percent)),
    Column("bits>", lambda r: f"{r.bits_per_value:.3g}", 90),
    Column("blocks>", lambda r: count(r.blocks), 100),
    Column("all zero>", lambda r: count(r.zero_blocks), 110),
    Column("NaN>", lambda r: count(r.nan_blocks), 130),
    Column("clipped>", lambda r: share(r.clipped_blocks_percent), 130),
    Column("scale min>", _scale(0), 120),
    Column("p1>", _scale(1), 160),
    Column("median>", _scale(2), 80),
    Column("p99>", _scale(3), 160),
    Column("max>", _scale(4), 120),
    Column("crest>", lambda r: number(r.crest_median), 140),
)


def _show(report: Report, console: Console, limit: int) -> None:
    print_rows(console, report.recipes, _COLUMNS, limit)
    said = "Counted on the values. Lost: came out 0; clipped: beyond the largest element at their "
    said += "scale. Scales multiply elements, here rounded down to powers of two."
    if console.width >= 130:
        said += " The second clipped: blocks with such values."
    note(console, said + _STARRED * _starred(report) + left_out(len(report.recipes), limit))


_STARRED = " * as recorded, times the loss scale, with which this recipe's scales do not go."


def _starred(report: Report) -> bool:
    return any(row.as_recorded for row in report.recipes)


SECTION = Section(
    "recipes",
    lambda report: "Recipes",
    lambda report: bool(report.recipes),
    _show,
    lambda report: {"recipes": [row.to_json() for row in report.recipes]},
    lambda report: {"starred": _STARRED if _starred(report) else ""},
)
