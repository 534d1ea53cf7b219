"""Section "Updates and optimizer": updates that a weight's format loses, and states that vanish."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any

from rich.text import Text

from fpemu.analysis.report.numbers import count, exponent, number, plain, share
from fpemu.analysis.report.quantiles import quantiles
from fpemu.analysis.report.rows import record_json
from fpemu.analysis.report.section import Section
from fpemu.analysis.report.terminal import Column, left_out, note, print_rows, tensor
from fpemu.analysis.totals import add_to
from fpemu.analysis.updates import FORMATS
from fpemu.analysis.what_if import percent

if TYPE_CHECKING:
    from rich.console import Console

    from fpemu.analysis.report.sections.tensors import TensorRow
    from fpemu.analysis.report.sections.what_if import ScaleRow
    from fpemu.analysis.report.summary import Report
    from fpemu.analysis.trace import Trace
    from fpemu.analysis.updates import UpdateTally

__all__ = ["SECTION", "StateRow", "UpdateRow", "state_rows", "update_rows", "update_total"]

_STATE = "optimizer_state"


@dataclass(frozen=True, slots=True)
class UpdateRow:
    """One weight's updates, all steps together: what is lost if the weight is held in a format."""

    name: str
    total: int
    changed: int  #: finite updates that are not 0
    nonfinite: int
    lost_percent: Mapping[str, float]  #: by format, of `changed`; rounded to nearest
    lost_stochastic_percent: Mapping[str, float]  #: expected, likewise
    ratio_low: float | None  #: log2(|update| / |weight|): that of 1 % of the updates is below
    ratio_median: float | None
    ratio_high: float | None  #: 99 % are below

    @classmethod
    def of(cls, name: str, tally: UpdateTally) -> UpdateRow:
        """Return the row of a weight's updates."""
        places = quantiles(tally.ratio_histogram, (0.01, 0.5, 0.99))
        low, median, high = (place + 0.5 for place in places) if places else (None, None, None)
        return cls(
            name,
            tally.total,
            tally.changed,
            tally.nonfinite,
            {form: tally.lost_percent(form) for form in tally.formats},
            {form: tally.lost_stochastic_percent(form) for form in tally.formats},
            low,
            median,
            high,
        )

    @property
    def worst_percent(self) -> float:
        """What the format loses that loses most."""
        return max(self.lost_percent.values(), default=0.0)

    def to_json(self) -> dict[str, Any]:
        return record_json(self)


@dataclass(frozen=True, slots=True)
class StateRow:
    """One tensor of an optimizer's state, such as Adam's m and v, and what formats make zero."""

    name: str
    amax: float | None
    rms: float | None
    smallest_nonzero: float | None
    underflow_percent: Mapping[str, float]  #: by cast, unscaled, of the finite non-zero values
    overflow_percent: Mapping[str, float]  #: with saturated values

    def to_json(self) -> dict[str, Any]:
        return record_json(self)


def update_rows(trace: Trace) -> tuple[UpdateRow, ...]:
    """Return the updates that a trace counted, the weight that loses most first."""
    totals: dict[str, UpdateTally] = {}
    for counted in trace.counted("updates"):
        add_to(totals, counted.name, counted.value)
    rows = (UpdateRow.of(name, tally) for name, tally in totals.items())
    return tuple(sorted(rows, key=lambda row: -row.worst_percent))


def update_total(trace: Trace) -> UpdateTally | None:
    """Return the updates of all weights together; None: none were counted."""
    found = [counted.value for counted in trace.counted("updates")]
    return reduce(add, found) if found else None


def state_rows(
    tensors: Sequence[TensorRow], scale_rows: Sequence[ScaleRow]
) -> tuple[StateRow, ...]:
    """Return the optimizer's state, the tensor that loses most to underflow first."""
    outcomes: dict[str | None, dict[str, Any]] = {}
    for row in scale_rows:
        if row.kind == _STATE:
            outcomes.setdefault(row.name, {})[row.to] = row.unscaled
    found = (
        StateRow(
            tensor.name,
            tensor.amax,
            tensor.rms,
            tensor.smallest_nonzero,
            {to: percent(o.underflow, o.nonzero) for to, o in outcomes[tensor.name].items()},
            {to: percent(o.overflow + o.saturated, o.nonzero)
             for to, o in outcomes[tensor.name].items()},
        )
        for tensor in tensors
        if tensor.kind == _STATE
    )  # fmt: skip
    return tuple(sorted(found, key=lambda row: -sum(row.underflow_percent.values())))


# --- views -------------------------------------------------------------------------------------


def _update_columns(formats: Sequence[str]) -> list[Column]:
    lost = [
        Column(f"{form}>", lambda r, form=form: share(r.lost_percent[form]), 60 + 14 * place)
        for place, form in enumerate(formats)
    ]
    return [
        Column("tensor", lambda r: tensor(r.name, "update")),
        Column("updates>", lambda r: count(r.changed), 110),
        *lost,
        Column("|dw|/|w|, median>", lambda r: exponent(r.ratio_median), 75),
    ]


def _state_columns(formats: Sequence[str]) -> list[Column]:
    return [
        Column("tensor", lambda r: tensor(r.name, _STATE)),
        Column("amax>", lambda r: number(r.amax)),
        Column("smallest>", lambda r: number(r.smallest_nonzero), 100),
        *(
            Column(f"{form}>", lambda r, form=form: share(r.underflow_percent[form]), 60 + 14 * k)
            for k, form in enumerate(formats)
        ),
    ]


def _show(report: Report, console: Console, limit: int) -> None:
    if updates := report.updates:
        console.print(Text("Updates lost, by the format in which the weight is held:"))
        print_rows(console, updates, _update_columns(list(updates[0].lost_percent)), limit)
        said = "Lost: round(w + dw) == w though dw is not 0; nearest rounding."
        note(console, said + _stochastic(report) + left_out(len(updates), limit))
    if states := report.optimizer:
        console.print(Text("Optimizer state that becomes zero, unscaled:"))
        print_rows(console, states, _state_columns(_state_formats(report)), limit)
        note(console, left_out(len(states), limit))


def _stochastic(report: Report) -> str:
    """What stochastic rounding would still lose of the tensor that loses most."""
    worst = report.updates[0]
    form = max(worst.lost_percent, key=lambda form: worst.lost_percent[form])
    if not worst.lost_percent[form]:
        return ""
    return (
        f" With stochastic rounding {share(worst.lost_stochastic_percent[form])} of "
        f"{plain(worst.name)}'s change nothing in {form}, and their mean is kept."
    )


def _state_formats(report: Report) -> list[str]:
    there = report.optimizer[0].underflow_percent if report.optimizer else {}
    return [to for to in there if to in (str(report.to), *FORMATS)]


def _page(report: Report) -> dict[str, Any]:
    return {
        "update_formats": list(report.updates[0].lost_percent) if report.updates else [],
        "state_formats": _state_formats(report),
    }


SECTION = Section(
    "updates",
    lambda report: "Updates and optimizer",
    lambda report: bool(report.updates or report.optimizer),
    _show,
    lambda report: {
        "updates": [row.to_json() for row in report.updates],
        "optimizer": [row.to_json() for row in report.optimizer],
    },
    _page,
)
