"""From a Trace to a Report: one pass over the records, then only rows."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fpemu.analysis.asked import casts as asked_casts
from fpemu.analysis.asked import known, several
from fpemu.analysis.first_cause import EVENT, FirstCause
from fpemu.analysis.report.causes import first_causes
from fpemu.analysis.report.definitions import (
    Definition,
    definitions,
    describe_cast,
    describe_format,
)
from fpemu.analysis.report.gather import gather
from fpemu.analysis.report.rows import (
    GRADIENTS,
    JUDGED,
    Incident,
    LogRow,
    ScalarRow,
    TensorRow,
    json_value,
    tensor_row,
)
from fpemu.analysis.report.scale_rows import Curve, ScaleRow, curve
from fpemu.analysis.report.verdict import Verdict, judge
from fpemu.analysis.scales import SCALES, TOLERANCE, check_tolerance, powers_of_two, safe_of
from fpemu.analysis.totals import Total
from fpemu.analysis.what_if import FORMATS
from fpemu.cast import Cast, make_cast
from fpemu.errors import InputError
from fpemu.format import Format
from fpemu.tallies import Outcome, Tally

if TYPE_CHECKING:
    from fpemu.analysis.plots.compute import UnderflowHeatmap
    from fpemu.analysis.trace import Trace

__all__ = ["SCHEMA", "Report", "build"]

#: Version of the JSON form; docs/report.schema.md describes it.
SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Report:
    """Everything a report says, as rows; text, HTML and JSON are three views of it."""

    to: Cast
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
    definitions: tuple[Definition, ...]
    totals: tuple[Total, ...] = field(repr=False, compare=False)  #: all steps added; for plots
    underflow: UnderflowHeatmap = field(repr=False, compare=False)  #: for the plot over steps

    def to_json(self) -> dict[str, Any]:
        """Return the report as a JSON-ready dict, described in docs/report.schema.md."""
        return {
            "schema": SCHEMA,
            "to": self.to.to_json(),
            "to_text": str(self.to),
            "tolerance": self.tolerance,
            "scales": list(self.scales),
            "formats": list(self.formats),
            "verdict": self.verdict.to_json(),
            "first_causes": [json_value(cause.to_json()) for cause in self.first_causes],
            "provenance": json_value(dict(self.provenance)),
            "runs": [json_value(run) for run in self.runs],
            "scalars": [row.to_json() for row in self.scalars],
            "tensors": [row.to_json() for row in self.tensors],
            "what_if": {
                "kinds": [row.to_json() for row in self.kind_scales],
                "tensors": [row.to_json() for row in self.tensor_scales],
                "curves": [row.to_json() for row in self.curves],
            },
            "events": [event.to_json() for event in self.events],
            "log": [row.to_json() for row in self.log],
            "definitions": [word.to_json() for word in self.definitions],
        }


def build(
    trace: Trace,
    *,
    to: str | Format | Cast | None = None,
    formats: str | Format | Cast | Iterable[str | Format | Cast] = FORMATS,
    scales: float | Iterable[float] = SCALES,
    tolerance: float = TOLERANCE,
    kinds: str | Iterable[str] | None = None,
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

    to: the cast that is judged; unless given, the trace's own (metadata "to"), else float16.
    formats: the others of the what-if section. scales: powers of two. tolerance: the fraction of
    its non-zero values that a tensor may lose. kinds: those that the verdict is about; unless
    given, what mixed-precision training casts (activations, weights and gradients; it keeps
    optimizer states and updates in float32), or all if the trace holds none of these.
    Gradients that were recorded times a loss scale are judged as they are, and the trace's metadata
    says so: "recorded_loss_scale".
    An empty trace gives a report that says so.
    """
    judged = make_cast(to if to is not None else _asked(trace))
    casts = asked_casts([judged, *several("formats", formats, str, Format, Cast)])
    factors = sorted({1.0, 2.0, *powers_of_two(scales)})
    check_tolerance(tolerance)
    verdict_kinds = _judged(trace, kinds)
    found = gather(trace, judged, tolerance)
    tensors = found.totals
    grid = [[t.tally.outcomes(cast, factors) for cast in casts] for t in tensors]
    rows = tuple(
        tensor_row(
            tensor,
            outcomes[0][factors.index(1.0)],
            outcomes[0][factors.index(2.0)],
            judged.format,
            tolerance=tolerance,
            judged=tensor.kind in verdict_kinds,
        )
        for tensor, outcomes in zip(tensors, grid, strict=True)
    )
    tensor_scales = tuple(
        ScaleRow(t.name, t.kind, str(cast), counted[factors.index(1.0)],
                 safe_of([counted], str(cast), factors, tolerance))
        for t, outcomes in zip(tensors, grid, strict=True)
        for cast, counted in zip(casts, outcomes, strict=True)
    )  # fmt: skip
    kind_scales, curves = _kinds(tensors, grid, casts, factors, tolerance)
    gradients = [o[0] for t, o in zip(tensors, grid, strict=True) if t.kind in GRADIENTS]
    carried = _carried(trace)
    loss_scale = safe_of(gradients, str(judged), factors, tolerance) if gradients else None
    return Report(
        to=judged,
        tolerance=tolerance,
        scales=tuple(factors),
        formats=tuple(map(str, casts)),
        verdict=judge(
            rows,
            found.incidents,
            loss_scale,
            tensor_scales,
            judged,
            tolerance,
            loss_scale_recorded=carried,
        ),
        first_causes=first_causes(trace),
        provenance=_provenance(trace, judged, tolerance, len(rows), found.underflow.steps),
        runs=_runs(trace.metadata.get("runs")),
        tensors=rows,
        kind_scales=kind_scales,
        tensor_scales=tensor_scales,
        curves=curves,
        events=found.incidents,
        log=tuple(
            LogRow(e.step, e.name, e.kind, e.message, e.facts)
            for e in trace.events()
            if e.kind != EVENT
        ),
        scalars=_scalars(trace),
        definitions=definitions(judged, tolerance),
        totals=tensors,
        underflow=found.underflow,
    )


def _asked(trace: Trace) -> str | Cast:
    """The cast that the trace was recorded for."""
    to = trace.metadata.get("to") or "float16"
    return Cast.from_json(to) if isinstance(to, Mapping) else str(to)


def _carried(trace: Trace) -> float:
    """The loss scale that the recorded gradients carry already: metadata, else 1."""
    carried = trace.metadata.get("recorded_loss_scale") or 1.0
    top = sys.float_info.max  # JSON holds integers beyond it
    if isinstance(carried, int | float) and 0 < carried <= top:
        return float(carried)
    raise InputError(
        f"metadata recorded_loss_scale={carried!r:.40}: must be the positive number that the "
        "recorded gradients were multiplied by"
    )


def _judged(trace: Trace, kinds: str | Iterable[str] | None) -> set[str]:
    """The kinds that the verdict is about."""
    there = trace.kinds()
    if kinds is not None:
        return known("kind", kinds, there, trace.path)
    return {kind for kind in there if kind in JUDGED} or set(there)


# --- rows --------------------------------------------------------------------------------------


def _kinds(
    tensors: Sequence[Total],
    grid: Sequence[Sequence[list[Outcome]]],
    casts: Sequence[Cast],
    factors: list[float],
    tolerance: float,
) -> tuple[tuple[ScaleRow, ...], tuple[Curve, ...]]:
    """What-if for each kind as a whole: its values together, its scales tensor by tensor."""
    rows, curves = [], []
    for kind in dict.fromkeys(tensor.kind for tensor in tensors):
        members = [k for k, tensor in enumerate(tensors) if tensor.kind == kind]
        total = sum((tensors[k].tally for k in members), Tally())
        for c, cast in enumerate(casts):
            outcomes = total.outcomes(cast, factors)
            safe = safe_of([grid[k][c] for k in members], str(cast), factors, tolerance)
            rows.append(ScaleRow(None, kind, str(cast), outcomes[factors.index(1.0)], safe))
            curves.append(curve(kind, str(cast), factors, outcomes))
    return tuple(rows), tuple(curves)


def _runs(runs: Any) -> tuple[Mapping[str, Any], ...]:
    """The runs to set side by side, if the trace holds any."""
    return tuple(run for run in runs if isinstance(run, Mapping)) if isinstance(runs, list) else ()


def _scalars(trace: Trace) -> tuple[ScalarRow, ...]:
    values: dict[str, list[float]] = {}
    for scalar in trace.scalars():
        values.setdefault(scalar.name, []).append(scalar.value)
    return tuple(ScalarRow.of(name, numbers) for name, numbers in values.items())


def _provenance(
    trace: Trace, cast: Cast, tolerance: float, tensors: int, steps: Sequence[int]
) -> tuple[tuple[str, Any], ...]:
    """What the report stands on: the judged cast, the recorded steps, the trace's metadata."""
    first: dict[str, Any] = {
        "cast": f"{cast}, {describe_format(cast.format)}; {describe_cast(cast)}",
        "tolerance_percent": 100 * tolerance,
        "tensors": tensors,
        "recorded_steps": len(steps),
        "first_step": steps[0] if steps else None,
        "last_step": steps[-1] if steps else None,
    }
    rest = {key: value for key, value in trace.metadata.items() if key != "runs"}
    return tuple((first | {key: rest[key] for key in rest if key not in first}).items())
