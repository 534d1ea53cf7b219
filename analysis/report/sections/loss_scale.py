"""Section "Loss scale": what each framework's loss scaler would have done on these gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.text import Text

from fpemu.analysis.by_recipe import ByRecipe
from fpemu.analysis.records import GRADIENTS
from fpemu.analysis.report.numbers import count, plain, power, share
from fpemu.analysis.report.rows import record_json
from fpemu.analysis.report.section import Section
from fpemu.analysis.report.terminal import Column, left_out, note, print_rows

if TYPE_CHECKING:
    from rich.console import Console

    from fpemu.analysis.lossscale import Replay
    from fpemu.analysis.report.question import Question
    from fpemu.analysis.report.summary import Report
    from fpemu.analysis.trace import Trace

__all__ = ["SECTION", "ReplayRow", "replay_rows", "replays_of"]

_DENSE = 100  # steps to each recorded one, up to which those between are replayed


@dataclass(frozen=True, slots=True)
class ReplayRow:
    """What one loss scaler would have done on a recorded run."""

    scaler: str  #: its text form
    steps: int
    lost_percent: float  #: of the non-zero gradients of all steps; all of those of skipped steps
    underflow_percent: float
    overflow_steps: int
    skipped_steps: int
    spoiled_steps: int  #: overflows that are not skipped: infinity or NaN reaches the weights
    final_scale: float | None  #: after the last step; None: infinite
    stopped: int | None  #: the step at which the framework ends the run
    open_loop: bool  #: an estimate: the recorded run went another way
    note: str

    @classmethod
    def of(cls, replay: Replay) -> ReplayRow:
        """Return the row of a replay."""
        final = replay.final_scale
        return cls(
            replay.scaler,
            len(replay.steps),
            replay.lost_percent,
            replay.underflow_percent,
            replay.overflow_steps,
            replay.skipped_steps,
            replay.spoiled_steps,
            final if math.isfinite(final) else None,
            replay.stopped,
            replay.open_loop,
            replay.note,
        )

    @property
    def fine(self) -> bool:
        """Whether nothing reaches the weights that is not finite, and the run goes on."""
        return not self.spoiled_steps and self.stopped is None

    def to_json(self) -> dict[str, Any]:
        return record_json(self)


def replays_of(trace: Trace, question: Question, advised: float | None) -> tuple[Replay, ...]:
    """Replay the scalers worth it, if the trace has gradients; the static scale is the one advised.

    Steps between the recorded ones are taken to have the gradients of the last recorded one, and
    left out where they are far more than those.
    """
    from fpemu.analysis.lossscale import replays, scaler, standard

    if isinstance(question.to, ByRecipe) or not any(k in GRADIENTS for k in trace.kinds()):
        return ()  # a recipe's scales do what a loss scale is for
    steps = trace.steps()
    gaps = "hold" if steps[-1] - steps[0] < _DENSE * len(steps) else "skip"
    scalers = standard(trace, to=question.to)
    if advised not in (None, 1.0):
        static = scaler("static"), scaler("static", scale=advised)
        scalers = *static, *(one for one in scalers if one.name != "static")
    return replays(trace, scalers, to=question.to, gaps=gaps)


def replay_rows(replays: Sequence[Replay]) -> tuple[ReplayRow, ...]:
    """Return the rows of replays: what spoils the run last, then by what is lost."""
    rows = (ReplayRow.of(replay) for replay in replays)
    return tuple(sorted(rows, key=lambda row: (not row.fine, row.lost_percent)))


# --- text --------------------------------------------------------------------------------------

_COLUMNS = (
    Column("", lambda r: Text("" if r.fine else "!!", "bold red")),
    Column("scaler", lambda r: Text(plain(r.scaler))),
    Column("lost>", lambda r: share(r.lost_percent)),
    Column("underflow>", lambda r: share(r.underflow_percent), 70),
    Column("overflow steps>", lambda r: count(r.overflow_steps), 90),
    Column("skipped steps>", lambda r: count(r.skipped_steps)),
    Column("not skipped>", lambda r: count(r.spoiled_steps), 100),
    Column("last scale>", lambda r: power(r.final_scale)),
    Column("stopped at>", lambda r: "" if r.stopped is None else str(r.stopped), 120),
    Column("estimate", lambda r: "yes" if r.open_loop else "no", 90),
)


def _show(report: Report, console: Console, limit: int) -> None:
    rows = report.loss_scales
    print_rows(console, rows, _COLUMNS, limit)
    said = (
        f"{report.to}, gradients of {count(rows[0].steps)} steps; lost: also those of skipped "
        "steps; !! lets NaN or infinity reach the weights, or stops the run. "
        + _static(report)
        + "An estimate takes the recorded gradients, which another scale would have changed"
        + ("; all of these are." if all(row.open_loop for row in rows) else ".")
    )
    note(console, said + left_out(len(rows), limit))


def _static(report: Report) -> str:
    """Which static scale is among the scalers."""
    scale = report.advice.loss_scale_advised if report.advice else 1.0
    return "" if scale == 1.0 else f"Static at {power(scale)} is the scale advised. "


def _notes(rows: Sequence[ReplayRow]) -> dict[str, list[str]]:
    """What the figures stand on, with the scalers of which it is said."""
    said: dict[str, list[str]] = {}
    for row in rows:
        said.setdefault(row.note, []).append(row.scaler)
    return said


SECTION = Section(
    "loss_scale",
    lambda report: "Loss scale",
    lambda report: bool(report.loss_scales),
    _show,
    lambda report: {"loss_scales": [row.to_json() for row in report.loss_scales]},
    lambda report: {"notes": _notes(report.loss_scales), "static": _static(report)},
)
