"""Columns: the rows of a report and of a trace with the same names and types in every form."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from fpemu.analysis.answers import answers
from fpemu.analysis.carried import carried
from fpemu.analysis.report.question import ask
from fpemu.analysis.report.sections.tensors import TensorRow
from fpemu.analysis.skipped import is_caught, skipped_steps
from fpemu.analysis.totals import times
from fpemu.analysis.what_if import percent

if TYPE_CHECKING:
    from fpemu.analysis.asked import Asked
    from fpemu.analysis.records import Record
    from fpemu.analysis.report.summary import Report
    from fpemu.analysis.trace import Trace
    from fpemu.tallies import Outcome

__all__ = ["STEPS", "TENSORS", "step_rows", "tensor_rows"]

_TYPES = {"str": "text", "int": "int", "float": "float", "float | None": "float", "bool": "bool",
          "tuple[int, ...]": "shape"}  # fmt: skip

#: Columns of a report's tensors: name -> text, int, float, bool or shape; a missing float is null.
TENSORS = {field.name: _TYPES[str(field.type)] for field in fields(TensorRow)}

#: Columns of a trace's records.
STEPS = {
    "step": "int", "name": "text", "kind": "text", "shape": "shape", "recordings": "int",
    "count": "int", "nan": "int", "inf": "int", "zero_percent": "float",
    "loss_scale": "float", "skipped": "bool",
    "smallest_nonzero": "float", "amax": "float", "rms": "float", "mean": "float", "std": "float",
    "underflow_percent": "float", "subnormal_percent": "float", "saturated_percent": "float",
    "overflow_percent": "float", "lost_percent": "float",
}  # fmt: skip


def tensor_rows(report: Report) -> Iterator[dict[str, Any]]:
    """Yield the tensors of a report."""
    for row in report.tensors:
        yield {name: getattr(row, name) for name in TENSORS}


def step_rows(
    trace: Trace, to: Asked | None = None
) -> Iterator[dict[str, Any]]:
    """Yield each tensor at each recorded step, and what a cast does to it unscaled.

    to: unless given, the cast that the trace was recorded for, else float16. Gradients are taken
    without `loss_scale`, which they were recorded times; `skipped`: a loss scaler skipped the step.
    """
    cast, scales, skips = ask(trace, to=to, formats=()).to, carried(trace), skipped_steps(trace)
    answered = answers(trace, [cast])
    for record in trace.records():
        factor = scales.factor(record)
        row = _row(record, answered.outcome(record, cast, factor), factor)
        yield row | {
            "loss_scale": scales.of(record),
            "skipped": is_caught(record, skips),
        }


def _row(record: Record, outcome: Outcome, factor: float) -> dict[str, Any]:
    moments = times(record.moments, factor)
    some, finite = outcome.nonzero > 0, moments.count > 0
    shares = ("underflow", "subnormal", "saturated", "overflow", "lost")
    return {
        "step": record.step,
        "name": record.name,
        "kind": record.kind,
        "shape": record.shape,
        "recordings": record.recordings,
        "count": outcome.total,
        "nan": outcome.nan,
        "inf": outcome.inf,
        "zero_percent": percent(outcome.zero, outcome.total),
        "smallest_nonzero": moments.smallest_nonzero if some else None,
        "amax": moments.amax if some else None,
        **{name: getattr(moments, name) if finite else None for name in ("rms", "mean", "std")},
        **{f"{name}_percent": percent(getattr(outcome, name), outcome.nonzero) for name in shares},
    }
