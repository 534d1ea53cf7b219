"""From a Trace to a Report: one pass over the records, then only rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fpemu.analysis.asked import Asked
from fpemu.analysis.by_recipe import Target
from fpemu.analysis.diff.compare import compare
from fpemu.analysis.diff.rows import Diff, Thresholds
from fpemu.analysis.first_cause import FirstCause, causes_in
from fpemu.analysis.report.definitions import Definition, definitions
from fpemu.analysis.report.findings import Findings, find
from fpemu.analysis.report.layout import SECTIONS
from fpemu.analysis.report.progress import Progress, Silent
from fpemu.analysis.report.question import ask
from fpemu.analysis.report.sections.advice import advice_of
from fpemu.analysis.report.sections.blocks import BlockRow, block_rows
from fpemu.analysis.report.sections.events import Incident, LogRow, log_rows
from fpemu.analysis.report.sections.loss_scale import ReplayRow, replay_rows, replays_of
from fpemu.analysis.report.sections.ranks import RankRow, merged, rank_rows
from fpemu.analysis.report.sections.recipes import RecipeRow, recipe_rows
from fpemu.analysis.report.sections.runs import ScalarRow, runs_of, scalar_rows
from fpemu.analysis.report.sections.tensors import TensorRow
from fpemu.analysis.report.sections.updates import (
    StateRow,
    UpdateRow,
    state_rows,
    update_rows,
    update_total,
)
from fpemu.analysis.report.sections.verdict import Verdict, provenance
from fpemu.analysis.report.sections.what_if import Curve, ScaleRow, kind_rows
from fpemu.analysis.report.status import Status
from fpemu.analysis.scales import SCALES, TOLERANCE
from fpemu.analysis.what_if import FORMATS

if TYPE_CHECKING:
    import pandas

    from fpemu.analysis.advice import Advice
    from fpemu.analysis.lossscale.replayed import Replay
    from fpemu.analysis.plots.compute import AmaxByStep, UnderflowHeatmap
    from fpemu.analysis.totals import Total
    from fpemu.analysis.trace import Trace
    from fpemu.analysis.updates import UpdateTally

__all__ = ["SCHEMA", "Report", "build"]

#: Version of the JSON form; docs/report.schema.md describes it.
SCHEMA = 2


@dataclass(frozen=True, slots=True)
class Report:
    """Everything a report says, as rows; text, HTML and JSON are three views of it."""

    to: Target
    tolerance: float
    scales: tuple[float, ...]
    formats: tuple[str, ...]
    verdict: Verdict
    first_causes: tuple[FirstCause, ...]
    provenance: tuple[tuple[str, Any], ...]
    runs: tuple[Mapping[str, Any], ...]
    tensors: tuple[TensorRow, ...]
    kind_scales: tuple[ScaleRow, ...]
    tensor_scales: tuple[ScaleRow, ...]
    curves: tuple[Curve, ...]
    events: tuple[Incident, ...]
    log: tuple[LogRow, ...]
    scalars: tuple[ScalarRow, ...]
    advice: Advice | None
    loss_scales: tuple[ReplayRow, ...]
    updates: tuple[UpdateRow, ...]
    optimizer: tuple[StateRow, ...]
    blocks: tuple[BlockRow, ...]
    recipes: tuple[RecipeRow, ...]
    ranks: tuple[RankRow, ...]
    against: Diff | None  #: from the run given to this one
    definitions: tuple[Definition, ...]
    totals: tuple[Total, ...] = field(repr=False, compare=False)  #: all steps added; for plots
    underflow: UnderflowHeatmap = field(repr=False, compare=False)  #: for the plot over steps
    amax: AmaxByStep = field(repr=False, compare=False)  #: likewise
    replays: tuple[Replay, ...] = field(repr=False, compare=False)  #: for the plot of trajectories
    update_total: UpdateTally | None = field(repr=False, compare=False)  #: for the plot of ratios
    samples: Mapping[str, Any] = field(repr=False, compare=False)  #: for plots of values

    def to_json(self) -> dict[str, Any]:
        """Return the report as a JSON-ready dict, described in docs/report.schema.md."""
        head = {
            "schema": SCHEMA,
            "to": self.to.to_json(),
            "to_text": str(self.to),
            "tolerance": self.tolerance,
            "scales": list(self.scales),
            "formats": list(self.formats),
        }
        for section in SECTIONS:
            head |= section.json(self)
        return head

    def to_frame(self) -> pandas.DataFrame:
        """Return the tensors as a pandas DataFrame, see `fpemu.analysis.export.to_frame`."""
        from fpemu.analysis.export.frames import to_frame

        return to_frame(self)


def build(
    trace: Trace,
    *,
    to: Asked | None = None,
    formats: Asked | Iterable[Asked] = FORMATS,
    scales: float | Iterable[float] = SCALES,
    tolerance: float = TOLERANCE,
    kinds: str | Iterable[str] | None = None,
    ranks: Iterable[Trace] = (),
    against: Trace | None = None,
    samples: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> Report:
    """Return the report of a trace: is the format `to` ready for these numbers, and why not.

    >>> import numpy as np
    >>> from fpemu.analysis.trace import Trace
    >>> from fpemu.analysis.report import build
    >>> trace = Trace()
    >>> trace.record("dense", "weight_gradient", np.float32([1e-8, 1e-4]), step=7)
    >>> report = build(trace, to="float16")
    >>> report.verdict.status.value, report.verdict.worst.name, report.verdict.first_event.step
    ('safe_with_loss_scale', 'dense', 7)

    to: the cast that is judged, or a recipe that the run counted (`watch(..., recipes=)`); unless
    given, the trace's own (metadata "to"), else float16. formats: the others of the what-if
    section, casts or recipes. scales: powers of two. tolerance: the fraction of
    its non-zero values that a tensor may lose. kinds: those that the verdict is about; unless
    given, what mixed-precision training casts (activations, weights and gradients; it keeps
    optimizer states and updates in float32), or all if the trace holds none of these.
    Gradients that were recorded times a loss scale (`fpemu.analysis.carried`) are judged without
    it; those that were not finite at a step that a loss scaler skipped are told apart.
    ranks: the traces of the run's other processes; the report is about all of them together, and
    tells where they differ. against: an earlier run, compared with this one in the same cast.
    samples: arrays of the run by name, for the plots that need values and not counts: rounding
    errors, and blocks by their crest factor.
    progress: wraps the records as they are read, to show how far it is.
    An empty trace gives a report that says so.
    """
    traces, progress = [trace, *ranks], progress or Silent()
    whole = merged(traces) if len(traces) > 1 else trace
    question = ask(whole, to=to, formats=formats, scales=scales, tolerance=tolerance, kinds=kinds)
    found = find(whole, question, progress)
    some = found.verdict.status is not Status.NO_DATA
    progress.phase("what to do about it")
    advice = advice_of(whole, question) if some else None
    progress.phase("what loss scalers would have done")
    advised = advice.loss_scale_advised if advice else None
    replays = replays_of(whole, question, advised) if some else ()
    progress.phase("updates, blocks, ranks, other runs")
    return Report(
        **_found(found),
        **_recorded(whole, found),
        advice=advice,
        loss_scales=replay_rows(replays),
        optimizer=state_rows(found.tensors, found.tensor_scales),
        ranks=rank_rows(traces, question) if len(traces) > 1 else (),
        against=None if against is None else _against(against, whole, found, kinds),
        definitions=definitions(question.to, tolerance),
        replays=replays,
        samples=dict(samples or {}),
    )


def _found(found: Findings) -> dict[str, Any]:
    """What follows from the tensors."""
    question, gathered = found.question, found.gathered
    kind_scales, curves = kind_rows(gathered.totals, found.grid, question)
    return {
        "to": question.to,
        "tolerance": question.tolerance,
        "scales": question.scales,
        "formats": tuple(map(str, question.casts)),
        "verdict": found.verdict,
        "tensors": found.tensors,
        "kind_scales": kind_scales,
        "tensor_scales": found.tensor_scales,
        "curves": curves,
        "events": gathered.incidents,
        "totals": gathered.totals,
        "underflow": gathered.underflow,
        "amax": gathered.amax,
    }


def _recorded(trace: Trace, found: Findings) -> dict[str, Any]:
    """What a trace holds beside its tensors."""
    steps = found.gathered.underflow.steps
    return {
        "first_causes": causes_in(trace.events()),
        "provenance": provenance(found.question, trace.metadata, len(found.tensors), steps),
        "runs": runs_of(trace),
        "log": log_rows(trace),
        "scalars": scalar_rows(trace),
        "updates": update_rows(trace),
        "update_total": update_total(trace),
        "blocks": block_rows(trace),
        "recipes": recipe_rows(trace),
    }


def _against(
    before: Trace, after: Trace, found: Findings, kinds: str | Iterable[str] | None
) -> Diff:
    """The comparison with an earlier run, judged in the same cast."""
    question = found.question
    asked = ask(before, to=question.to, formats=(), tolerance=question.tolerance, kinds=kinds)
    return compare(before, find(before, asked), after, found, Thresholds())
