"""Section "Verdict": is the format ready for these numbers, what is in the way, what would help.

It follows the rows and nothing else: what was recorded broken comes first, and a loss scale is
advised only for what it multiplies, the gradients.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.table import Table
from rich.text import Text

from fpemu.analysis.by_recipe import ByRecipe
from fpemu.analysis.metadata import READ_BY_PRODUCTS
from fpemu.analysis.parts import rule_of_recipes
from fpemu.analysis.records import GRADIENTS
from fpemu.analysis.report.definitions import describe_cast, describe_format, describe_recipe
from fpemu.analysis.report.numbers import cell, count, plain, share
from fpemu.analysis.report.rows import json_value
from fpemu.analysis.report.section import Section
from fpemu.analysis.report.sections.events import Incident
from fpemu.analysis.report.sections.tensors import TensorRow
from fpemu.analysis.report.sections.what_if import ScaleRow
from fpemu.analysis.report.sentences import Recorded, headline, reasons, worst_of
from fpemu.analysis.report.status import Status
from fpemu.analysis.report.terminal import item
from fpemu.analysis.scales import SafeScales

if TYPE_CHECKING:
    from rich.console import Console

    from fpemu.analysis.report.question import Question
    from fpemu.analysis.report.summary import Report

__all__ = ["BADGES", "SECTION", "Badge", "Status", "Verdict", "judge", "provenance",
           "render_verdict"]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer, its reasons, and the rows they rest on."""

    status: Status
    headline: str  #: one sentence
    reasons: tuple[str, ...] = ()  #: sentences: what fails and why, what would help
    worst: TensorRow | None = None  #: the judged tensor that loses most, of the unsafe if any
    first_event: Incident | None = None  #: the first NaN, infinity or overflow, else the first loss
    loss_scale: SafeScales | None = None  #: to train with, for all gradients; None: no gradients

    def to_json(self) -> dict[str, Any]:
        parts = {name: getattr(self, name) for name in ("worst", "first_event", "loss_scale")}
        return {
            "status": self.status.value,
            "headline": self.headline,
            "reasons": list(self.reasons),
            **{name: part.to_json() if part else None for name, part in parts.items()},
        }


def judge(
    question: Question,
    tensors: Sequence[TensorRow],
    events: Sequence[Incident],
    loss_scale: SafeScales | None,
    scale_rows: Sequence[ScaleRow],
    recorded: Recorded,
) -> Verdict:
    """Return the verdict on the cast in question.

    tensors: one row each, of this cast unscaled. events: in the order of time. loss_scale: the
    safe scales of all gradients together. scale_rows: each tensor in each format tried.
    recorded: the loss scales that the gradients were recorded times, and steps skipped for them.
    """
    cast = question.to
    judged = [row for row in tensors if row.judged]
    keys = {(row.name, row.kind) for row in judged}
    about = [event for event in events if (event.name, event.kind) in keys]
    hard = [event for event in about if event.hard]
    values = sum(row.count for row in judged)
    if not values:
        return Verdict(Status.NO_DATA, f"No verdict on {cast}: the trace holds no values.")
    if not hard and all(row.amax in (None, 0.0) for row in judged):
        nothing = f"No verdict on {cast}: all {count(values)} recorded values are zero."
        return Verdict(Status.NO_DATA, nothing)
    first = next(iter(hard or about), None)
    worst = worst_of(judged, cast)
    failing = [row for row in judged if not row.safe]
    status = _status(failing, loss_scale)
    relevant = [row for row in scale_rows if (row.name, row.kind) in keys]
    others = [row for row in tensors if not row.judged]
    limit = rule_of_recipes() if isinstance(cast, ByRecipe) else share(100 * question.tolerance)
    said = reasons(failing, hard, loss_scale, relevant, others, cast, limit, recorded)
    return Verdict(
        status,
        headline(status, worst, first, loss_scale, cast, limit),
        tuple(said),
        worst,
        first,
        loss_scale,
    )


def _status(failing: Sequence[TensorRow], loss_scale: SafeScales | None) -> Status:
    if not failing:
        return Status.SAFE
    if any(row.broken for row in failing):
        return Status.BROKEN
    if loss_scale and loss_scale.safe and all(row.kind in GRADIENTS for row in failing):
        return Status.SAFE_WITH_LOSS_SCALE
    return Status.NOT_SAFE


def provenance(
    question: Question, metadata: Mapping[str, Any], tensors: int, steps: Sequence[int]
) -> tuple[tuple[str, Any], ...]:
    """Return what the report stands on: the cast, the recorded steps, the trace's metadata."""
    cast = question.to
    about = (
        {"recipe": f"{cast}, {describe_recipe(cast.recipe)}"} if isinstance(cast, ByRecipe) else
        {"cast": f"{cast}, {describe_format(cast.format)}; {describe_cast(cast)}"}
    )  # fmt: skip
    first: dict[str, Any] = {
        **about,
        **({} if isinstance(cast, ByRecipe) else {"tolerance_percent": 100 * question.tolerance}),
        "tensors": tensors,
        "recorded_steps": len(steps),
        "first_step": steps[0] if steps else None,
        "last_step": steps[-1] if steps else None,
    }
    rest = {key: value for key, value in metadata.items() if key not in ("runs", READ_BY_PRODUCTS)}
    return tuple((first | {key: rest[key] for key in rest if key not in first}).items())


# --- views -------------------------------------------------------------------------------------


class Badge(NamedTuple):
    """The verdict in a word, a sign and a colour, so that none of them stands alone."""

    word: str
    sign: str
    tone: str  #: on the page: ok, warn, bad or none
    style: str  #: in a terminal


BADGES = {
    Status.SAFE: Badge("Safe", "✓", "ok", "bold green"),
    Status.SAFE_WITH_LOSS_SCALE: Badge("Safe with a loss scale", "!", "warn", "bold yellow"),
    Status.NOT_SAFE: Badge("Not safe", "✕", "bad", "bold red"),
    Status.BROKEN: Badge("Broken as recorded", "✕", "bad", "bold red"),
    Status.NO_DATA: Badge("No data", "–", "none", "bold"),
}


def render_verdict(verdict: Verdict, console: Console) -> None:
    """Print the verdict alone: the headline and its reasons."""
    badge = BADGES[verdict.status]
    word = (f" {badge.word.upper()} ", f"reverse {badge.style}")
    console.print(Text.assemble(word, " ", (verdict.headline, "bold")))
    for reason in verdict.reasons:
        console.print(item(reason))


def _show(report: Report, console: Console, limit: int) -> None:
    render_verdict(report.verdict, console)
    console.print()
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for key, value in report.provenance:
        grid.add_row(Text(plain(key.replace("_", " "))), Text(cell(value)))
    console.print(grid)


def _json(report: Report) -> dict[str, Any]:
    return {
        "verdict": report.verdict.to_json(),
        "provenance": json_value(dict(report.provenance)),
    }


SECTION = Section(
    "verdict",
    lambda report: "Verdict",
    lambda report: True,
    _show,
    _json,
    lambda report: {
        "badge": BADGES[report.verdict.status],
        "judged": [row for row in report.tensors if row.judged],
        "recipe": isinstance(report.to, ByRecipe),
    },
)
