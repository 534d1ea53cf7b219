"""Findings: what a trace answers to a question: its tensors, each outcome, and the verdict.

A report is made of them, and so is the comparison of two runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from fpemu.analysis.by_recipe import ByRecipe
from fpemu.analysis.records import GRADIENTS
from fpemu.analysis.report.gather import Gathered, gather
from fpemu.analysis.report.progress import Progress, Silent
from fpemu.analysis.report.sections.events import SKIPPED
from fpemu.analysis.report.sections.tensors import TensorRow, tensor_row
from fpemu.analysis.report.sections.verdict import Verdict, judge
from fpemu.analysis.report.sections.what_if import ScaleRow, tensor_rows
from fpemu.analysis.report.sentences import Recorded
from fpemu.analysis.scales import SafeScales, safe_of
from fpemu.tallies import Outcome

if TYPE_CHECKING:
    from fpemu.analysis.report.question import Question
    from fpemu.analysis.totals import Total
    from fpemu.analysis.trace import Trace

__all__ = ["Findings", "Grid", "find"]

#: By tensor, cast and scale.
Grid: TypeAlias = Sequence[Sequence[list[Outcome]]]


@dataclass(frozen=True, slots=True)
class Findings:
    """A trace's answers."""

    question: Question
    gathered: Gathered
    grid: Grid
    tensors: tuple[TensorRow, ...]
    tensor_scales: tuple[ScaleRow, ...]
    verdict: Verdict


def find(trace: Trace, question: Question, progress: Progress | None = None) -> Findings:
    """Return what a trace answers to a question."""
    progress = progress or Silent()
    gathered = gather(trace, question, progress)
    progress.phase("what each format would do")
    totals = gathered.totals
    grid = [[t.outcomes(cast, question.scales) for cast in question.casts] for t in totals]
    rows = tuple(_row(t, cells[0], question) for t, cells in zip(totals, grid, strict=True))
    scale_rows = tensor_rows(totals, grid, question)
    verdict = judge(
        question,
        rows,
        gathered.incidents,
        _loss_scale(totals, grid, question),
        scale_rows,
        _recorded(gathered),
    )
    return Findings(question, gathered, grid, rows, scale_rows, verdict)


def _row(total: Total, outcomes: list[Outcome], question: Question) -> TensorRow:
    return tensor_row(
        total,
        outcomes[question.one],
        outcomes[question.two],
        None if isinstance(question.to, ByRecipe) else question.to.format,
        tolerance=question.tolerance,
        judged=total.kind in question.kinds,
        scored=total.parts.scored(question.to) if isinstance(question.to, ByRecipe) else None,
    )


def _loss_scale(totals: Sequence[Total], grid: Grid, question: Question) -> SafeScales | None:
    """The scales at which every gradient is safe; None without gradients, and of a recipe."""
    if isinstance(question.to, ByRecipe):
        return None  # which has scales of its own, and takes any other as it comes
    every = [(t, o[0]) for t, o in zip(totals, grid, strict=True) if t.kind in GRADIENTS]
    if not every:
        return None
    gradients = [o for t, o in every if not t.stays_wide] or [o for _, o in every]
    return safe_of(gradients, str(question.to), question.scales, question.tolerance)


def _recorded(gathered: Gathered) -> Recorded:
    """Under which loss scales the gradients were recorded, and what the scaler skipped."""
    steps = gathered.underflow.steps
    gradients = any(total.kind in GRADIENTS for total in gathered.totals)
    caught = [incident for incident in gathered.incidents if incident.what == SKIPPED]
    return Recorded(
        tuple(sorted({gathered.carried.at(step) for step in steps})) if gradients else (),
        len(steps),
        len(gathered.skipped.intersection(steps)),
        max(caught, key=lambda incident: incident.steps, default=None),
    )
