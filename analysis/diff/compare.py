"""Compare: two traces, or what was found in them, set side by side tensor by tensor."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fpemu.analysis.asked import Asked
from fpemu.analysis.diff.rows import (
    CHANGES,
    Diff,
    DiffRow,
    ScalarDiff,
    Side,
    Thresholds,
    times_words,
)
from fpemu.analysis.report.findings import Findings, find
from fpemu.analysis.report.progress import Progress
from fpemu.analysis.report.question import ask
from fpemu.analysis.report.sections.runs import scalar_rows
from fpemu.analysis.report.status import Status
from fpemu.analysis.scales import TOLERANCE
from fpemu.analysis.trace import Trace, check_trace

if TYPE_CHECKING:
    from fpemu.analysis.report.sections.tensors import TensorRow

__all__ = ["compare", "diff"]

#: The better a verdict, the smaller; without data there is none.
_RANK = {Status.SAFE: 0, Status.SAFE_WITH_LOSS_SCALE: 1, Status.NOT_SAFE: 2, Status.BROKEN: 3}


def diff(
    before: Trace,
    after: Trace,
    *,
    to: Asked | None = None,
    tolerance: float = TOLERANCE,
    kinds: str | Iterable[str] | None = None,
    thresholds: Thresholds | None = None,
    progress: Progress | None = None,
) -> Diff:
    """Return what got better and what worse from one run to another.

    >>> import numpy as np
    >>> from fpemu.analysis.diff import diff
    >>> from fpemu.analysis.trace import Trace
    >>> before, after = Trace(), Trace()
    >>> before.record("fc1", "activation", np.float32([1.0, 2.0]), step=0)
    >>> after.record("fc1", "activation", np.float32([1.0, 1e6]), step=0)
    >>> found = diff(before, after, to="float16")
    >>> found.change, found.rows[0].why, found.fails("worse")
    ('worse', 'overflows, and did not', True)

    to: the cast, or the recipe counted in both, that they are judged in; unless given, each in the
    one it was recorded for (metadata "to", else float16). tolerance, kinds: as in `report.build`.
    thresholds: from where on a difference counts; what they are is part of the result.
    Tensors are matched by name and kind, all their steps together; gradients are compared without
    the loss scales that they were recorded times.
    Errors: InputError for what is no Trace, and as `report.build`.
    """
    found = [
        find(
            trace, ask(trace, to=to, formats=(), tolerance=tolerance, kinds=kinds), progress
        )
        for trace in map(check_trace, (before, after))
    ]
    return compare(before, found[0], after, found[1], thresholds or Thresholds())


def compare(
    before: Trace, old: Findings, after: Trace, new: Findings, thresholds: Thresholds
) -> Diff:
    """Return the comparison of two traces in which everything was found already."""
    rows = sorted(_rows(old, new, thresholds), key=_order)
    ends = [{row.name: row.last for row in scalar_rows(trace)} for trace in (before, after)]
    both = [name for name in ends[0] if name in ends[1]]
    return Diff(
        _side(before, old, "before"),
        _side(after, new, "after"),
        _verdict_change(old, new),
        tuple(rows),
        tuple(ScalarDiff(name, ends[0][name], ends[1][name]) for name in both),
        thresholds,
    )


def _rows(old: Findings, new: Findings, thresholds: Thresholds) -> Iterable[DiffRow]:
    olds, news = ({(row.name, row.kind): row for row in side.tensors} for side in (old, new))
    counts = [{(t.name, t.kind): t.parts for t in side.gathered.totals} for side in (old, new)]
    for key in dict.fromkeys([*olds, *news]):
        a, b = olds.get(key), news.get(key)
        change, why = _change(a, b, thresholds)
        identical = counts[0].get(key) == counts[1].get(key)
        yield DiffRow(
            *key,
            change,
            why,
            any(row.judged for row in (a, b) if row),
            identical,
            *(getattr(row, part) if row else None
              for part in ("safe", "lost_percent", "broken", "amax", "rms") for row in (a, b)),
        )  # fmt: skip


def _change(
    a: TensorRow | None, b: TensorRow | None, thresholds: Thresholds
) -> tuple[str, str]:
    """What became of a tensor, and why it is said so."""
    if a is None or b is None:
        return ("new", "not in the run before") if a is None else ("gone", "not in the run after")
    if bool(a.broken) != bool(b.broken):
        return ("worse", "now holds NaN or infinite values") if b.broken else (
            "better", "holds no NaN or infinite values any more"
        )
    if bool(a.overflow_percent) != bool(b.overflow_percent):
        return ("worse", "overflows, and did not") if b.overflow_percent else (
            "better", "does not overflow any more"
        )
    if a.safe != b.safe:
        return ("worse", "was safe") if a.safe else ("better", "is safe now")
    change = thresholds.change(a.lost_percent, b.lost_percent)
    return change, "" if change == "same" else times_words(a.lost_percent, b.lost_percent)


def _order(row: DiffRow) -> tuple[int, bool, float]:
    return CHANGES.index(row.change) + 9 * (row.change == "same"), not row.judged, -abs(row.moved)


def _verdict_change(old: Findings, new: Findings) -> str:
    ranks = [_RANK.get(side.verdict.status) for side in (old, new)]
    if None in ranks or ranks[0] == ranks[1]:
        return "same"
    return "worse" if ranks[1] > ranks[0] else "better"  # type: ignore[operator]


def _side(trace: Trace, found: Findings, name: str) -> Side:
    return Side(
        trace.path or name,
        str(found.question.to),
        found.verdict,
        len(found.tensors),
        len(found.gathered.underflow.steps),
    )
