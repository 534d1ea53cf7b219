"""Section "Tensors": one row for each tensor, and what the report's cast does to it unscaled."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.text import Text

from fpemu.analysis.by_recipe import ByRecipe
from fpemu.analysis.parts import rule_of_recipes
from fpemu.analysis.report.numbers import bits, count, decibels, number, share
from fpemu.analysis.report.rows import label, record_json
from fpemu.analysis.report.section import Section
from fpemu.analysis.report.terminal import Column, left_out, note, print_rows, tensor
from fpemu.analysis.scales import is_safe
from fpemu.analysis.tensor_names import layer_of
from fpemu.analysis.what_if import percent

if TYPE_CHECKING:
    from rich.console import Console

    from fpemu.analysis.parts import Scored
    from fpemu.analysis.report.summary import Report
    from fpemu.analysis.totals import Total
    from fpemu.format import Format
    from fpemu.tallies import Outcome

__all__ = ["SECTION", "Layer", "TensorRow", "layers", "tensor_row", "worst_first"]


@dataclass(frozen=True, slots=True)
class TensorRow:
    """One tensor over all recorded steps, and what the report's cast does to it unscaled.

    Gradients are taken without the loss scale that they were recorded times. Percentages are of
    the finite non-zero values, but zero_percent, nan and inf of all.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    steps: int  #: recorded steps
    count: int  #: values, over all steps
    nan: int
    inf: int
    skipped: int  #: those of nan and inf at steps that a loss scaler skipped
    zero_percent: float
    smallest_nonzero: float | None  #: magnitude; None: no non-zero value
    amax: float | None
    rms: float | None
    mean: float | None
    std: float | None
    kurtosis: float | None
    dynamic_range_bits: float | None
    headroom_max_bits: float | None
    headroom_normal_bits: float | None
    latent_percent: float
    underflow_percent: float
    subnormal_percent: float
    saturated_percent: float
    overflow_percent: float
    lost_percent: float
    safe: bool
    judged: bool  #: whether the verdict speaks of it
    sqnr_db: float | None = None  #: of a recipe; None: no error, or a cast

    @property
    def label(self) -> str:
        """Name and kind, as sentences name the tensor."""
        return label(self.name, self.kind)

    @property
    def broken(self) -> int:
        """NaN and infinite values that no loss scaler caught."""
        return self.nan + self.inf - self.skipped

    @property
    def rank(self) -> tuple[bool, bool, bool, float, float]:
        """Sorts the worst first: judged and unsafe, overflowing or broken, noisy, losing most."""
        hard = self.broken or self.overflow_percent
        noise = math.inf if self.sqnr_db is None else self.sqnr_db
        return not self.judged, self.safe, not hard, noise, -self.lost_percent

    def to_json(self) -> dict[str, Any]:
        return record_json(self)


def tensor_row(
    tensor: Total,
    outcome: Outcome,
    doubled: Outcome,
    form: Format | None,
    *,
    tolerance: float,
    judged: bool,
    scored: Scored | None = None,
) -> TensorRow:
    """Return the row of a tensor; `doubled` is its outcome at scale 2, for the latent share.

    form: whose range the headroom is to; None: there is none, scales go with the numbers.
    scored: what a recipe made of it, by which it is judged.
    """
    moments = tensor.moments
    some = outcome.nonzero > 0
    amax, smallest = (moments.amax, moments.smallest_nonzero) if some else (None, None)
    beyond = outcome.overflow + outcome.saturated
    finite = moments.count > 0
    keeps = scored.is_safe if scored else is_safe(outcome, tolerance)
    return TensorRow(
        name=tensor.name,
        kind=tensor.kind,
        shape=tensor.shape,
        steps=tensor.steps,
        count=outcome.total,
        nan=outcome.nan,
        inf=outcome.inf,
        skipped=tensor.skipped,
        zero_percent=percent(outcome.zero, outcome.total),
        smallest_nonzero=smallest,
        amax=moments.amax if finite else None,
        rms=moments.rms if finite else None,
        mean=moments.mean if finite else None,
        std=moments.std if finite else None,
        kurtosis=moments.kurtosis if finite and math.isfinite(moments.kurtosis) else None,
        dynamic_range_bits=_binades(amax, smallest),
        headroom_max_bits=_binades(form.max, amax) if form else None,
        headroom_normal_bits=_binades(smallest, form.smallest_normal) if form else None,
        latent_percent=percent(doubled.overflow + doubled.saturated - beyond, outcome.nonzero),
        underflow_percent=percent(outcome.underflow, outcome.nonzero),
        subnormal_percent=percent(outcome.subnormal, outcome.nonzero),
        saturated_percent=percent(outcome.saturated, outcome.nonzero),
        overflow_percent=percent(outcome.overflow, outcome.nonzero),
        lost_percent=percent(outcome.lost, outcome.nonzero),
        safe=outcome.nan + outcome.inf == tensor.skipped and keeps,
        judged=judged,
        sqnr_db=scored.sqnr_db if scored else None,
    )


def _binades(above: float | None, below: float | None) -> float | None:
    """The distance between two magnitudes in binades."""
    return math.log2(above) - math.log2(below) if above and below else None


# --- layers ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Layer:
    """The tensors of one layer, the worst first, as the page folds them together."""

    name: str
    rows: tuple[TensorRow, ...]

    @property
    def unsafe(self) -> int:
        """How many judged tensors are not safe."""
        return sum(row.judged and not row.safe for row in self.rows)

    @property
    def lost_percent(self) -> float:
        """What its worst tensor loses."""
        return max(row.lost_percent for row in self.rows)


def layers(rows: Iterable[TensorRow]) -> tuple[Layer, ...]:
    """Return the rows by layer, the layer of the worst tensor first."""
    found: dict[str, list[TensorRow]] = {}
    for row in sorted(rows, key=lambda row: row.rank):
        found.setdefault(layer_of(row.name, row.kind), []).append(row)
    return tuple(Layer(name, tuple(members)) for name, members in found.items())


# --- text --------------------------------------------------------------------------------------


def _mark(row: TensorRow) -> Text:
    if not row.judged:
        return Text("-", "dim")
    return Text("ok", "green") if row.safe else Text("!!", "bold red")


_COLUMNS = (
    Column("", _mark),
    Column("tensor", lambda r: tensor(r.name, r.kind)),
    Column("lost>", lambda r: share(r.lost_percent)),
    Column("underflow>", lambda r: share(r.underflow_percent)),
    Column("subnormal>", lambda r: share(r.subnormal_percent), 100),
    Column("overflow>", lambda r: share(r.overflow_percent + r.saturated_percent)),
    Column("latent>", lambda r: share(r.latent_percent), 150),
    Column("zero>", lambda r: share(r.zero_percent), 120),
    Column("count>", lambda r: count(r.count), 130),
    Column("shape>", lambda r: "x".join(map(str, r.shape)), 140),
    Column("smallest>", lambda r: number(r.smallest_nonzero), 130),
    Column("amax>", lambda r: number(r.amax)),
    Column("rms>", lambda r: number(r.rms), 160),
    Column("mean>", lambda r: number(r.mean), 180),
    Column("std>", lambda r: number(r.std), 180),
    Column("kurtosis>", lambda r: number(r.kurtosis), 180),
    Column("range>", lambda r: bits(r.dynamic_range_bits), 170),
    Column("to max>", lambda r: bits(r.headroom_max_bits), 90),
    Column("to normal>", lambda r: bits(r.headroom_normal_bits), 120),
)

_RECIPE_COLUMNS = (*_COLUMNS[:2], Column("SQNR>", lambda r: decibels(r.sqnr_db)), *_COLUMNS[2:])


def _show(report: Report, console: Console, limit: int) -> None:
    worst = worst_first(report.tensors)
    recipe = isinstance(report.to, ByRecipe)
    print_rows(console, worst, _RECIPE_COLUMNS if recipe else _COLUMNS, limit)
    scaled = "with its own scales" if recipe else "unscaled"
    said = f"{report.to}, {scaled}; worst first; !! not safe, - not judged."
    left = sum(console.width < column.width for column in _COLUMNS)
    if left:
        said += f" {left} more columns in a wider terminal, --json or an .html --out."
    note(console, said + left_out(len(worst), limit))


def worst_first(rows: Iterable[TensorRow]) -> list[TensorRow]:
    """Return tensors as tables list them."""
    return sorted(rows, key=lambda row: row.rank)


def _page(report: Report) -> dict[str, Any]:
    grouped = layers(report.tensors)
    return {
        "layers": grouped,
        "folds": len(grouped) < len(report.tensors),
        "folded": len(report.tensors) > 60,
        "recipe": isinstance(report.to, ByRecipe),
        "rule": rule_of_recipes(),
    }


def _json(report: Report) -> dict[str, Any]:
    return {"tensors": [row.to_json() for row in report.tensors]}


SECTION = Section(
    "tensors", lambda report: "Tensors", lambda report: bool(report.tensors), _show, _json, _page
)
