"""Section "Ranks": where the processes of one distributed run differ."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.text import Text

from fpemu.analysis.answers import answers
from fpemu.analysis.carried import Carried, carried
from fpemu.analysis.records import GRADIENTS
from fpemu.analysis.report.numbers import bits, count, number, share
from fpemu.analysis.report.rows import record_json
from fpemu.analysis.report.section import Section
from fpemu.analysis.report.terminal import Column, left_out, note, print_rows, tensor
from fpemu.analysis.skipped import is_caught, skipped_steps
from fpemu.analysis.totals import Total, add_to
from fpemu.analysis.trace import Trace, check_trace
from fpemu.analysis.what_if import percent
from fpemu.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from fpemu.analysis.report.question import Question
    from fpemu.analysis.report.summary import Report
    from fpemu.tallies import Tally

__all__ = ["SECTION", "RankRow", "alike", "differing", "merged", "rank_rows"]

#: The kinds that data-parallel training keeps alike on all ranks.
_REPLICATED = ("weight", "optimizer_state", "update")


@dataclass(frozen=True, slots=True)
class RankRow:
    """One tensor on the ranks that recorded it; the lists are as long as `ranks`."""

    name: str
    kind: str
    ranks: tuple[int, ...]
    identical: bool  #: every value was counted alike on all of them, step by step
    first_step_apart: int | None  #: the first step at which they differ
    amax: tuple[float | None, ...]
    rms: tuple[float | None, ...]
    lost_percent: tuple[float, ...]  #: in the judged cast, unscaled
    broken: tuple[int, ...]  #: NaN and infinite values that no loss scaler caught

    @property
    def spread_bits(self) -> float | None:
        """Binades between the largest amax of a rank and the smallest."""
        sizes = [amax for amax in self.amax if amax]
        return math.log2(max(sizes) / min(sizes)) if len(sizes) > 1 else None

    @property
    def odd(self) -> int:
        """The rank to look at: with NaN or infinities, else losing most, else the largest."""
        worst = max(
            range(len(self.ranks)),
            key=lambda k: (self.broken[k], self.lost_percent[k], self.amax[k] or 0.0),
        )
        return self.ranks[worst]

    @property
    def alarming(self) -> bool:
        """Whether ranks differ that should not: broken on some alone, or replicated and apart."""
        some = 0 < sum(map(bool, self.broken)) < len(self.ranks)
        return some or (self.kind in _REPLICATED and not self.identical)

    @property
    def rank(self) -> tuple[bool, bool, float]:
        """Sorts what should not be first, then the widest apart; the same come last."""
        return not self.alarming, self.identical, -(self.spread_bits or 0.0)

    def to_json(self) -> dict[str, Any]:
        return record_json(self) | {"odd": self.odd, "alarming": self.alarming}


def merged(traces: Sequence[Trace]) -> Trace:
    """Return all ranks' traces as one; the first one's metadata and scalars count.

    Errors: InputError for what is no Trace, or loss scales that differ between ranks at a step.
    """
    scales = [carried(check_trace(trace)) for trace in traces]
    for rank, trace in enumerate(traces):
        _check_scales(scales[0], scales[rank], trace, rank)
    together = Trace()
    for trace in traces:
        together.merge(trace)
    return together


def _check_scales(first: Carried, other: Carried, trace: Trace, rank: int) -> None:
    if not set(GRADIENTS).intersection(trace.kinds()):
        return
    step = next((step for step in trace.steps() if first.at(step) != other.at(step)), None)
    if step is not None:
        raise InputError(
            f"rank {rank} has loss scale {other.at(step):g} at step {step}, rank 0 has "
            f"{first.at(step):g}: their gradients do not add up; report on each rank by itself"
        )


def rank_rows(traces: Sequence[Trace], question: Question) -> tuple[RankRow, ...]:
    """Return how each tensor differs between the ranks, in the order of the traces."""
    seen = [_seen(trace, question) for trace in traces]
    keys = dict.fromkeys(key for totals, _ in seen for key in totals)
    rows = (_row(key, seen, question) for key in keys)
    return tuple(sorted(rows, key=lambda row: row.rank))


_Key = tuple[str, str]
_Seen = tuple[Mapping[_Key, Total], Mapping[_Key, Mapping[int, "Tally"]]]


def _seen(trace: Trace, question: Question) -> _Seen:
    """A rank's tensors, all steps added, and step by step."""
    scales, skips = carried(trace), skipped_steps(trace)
    answered = answers(trace, [question.to])
    totals: dict[_Key, Total] = {}
    by_step: dict[_Key, dict[int, Tally]] = {}
    for record in trace.records():
        key = record.name, record.kind
        factor, caught = scales.factor(record), is_caught(record, skips)
        parts = answered.parts(record, factor)
        total = Total.of(record, factor, skipped=caught, parts=parts)
        add_to(totals, key, total)
        by_step.setdefault(key, {})[record.step] = record.tally
    return totals, by_step


def _row(key: _Key, seen: Sequence[_Seen], question: Question) -> RankRow:
    ranks = [rank for rank, (totals, _) in enumerate(seen) if key in totals]
    totals = [seen[rank][0][key] for rank in ranks]
    outcomes = [total.outcomes(question.to, [1.0])[0] for total in totals]
    apart = _first_apart([seen[rank][1][key] for rank in ranks])
    some = [total.moments if total.moments.count else None for total in totals]
    return RankRow(
        *key,
        tuple(ranks),
        apart is None,
        apart,
        tuple(moments.amax if moments else None for moments in some),
        tuple(moments.rms if moments else None for moments in some),
        tuple(percent(outcome.lost, outcome.nonzero) for outcome in outcomes),
        tuple(
            outcome.nan + outcome.inf - total.skipped
            for outcome, total in zip(outcomes, totals, strict=True)
        ),
    )


def _first_apart(ranks: Sequence[Mapping[int, Tally]]) -> int | None:
    """The first step at which the ranks' counts are not the same."""
    steps = sorted({step for rank in ranks for step in rank})
    return next((s for s in steps if _differ([rank.get(s) for rank in ranks])), None)


def _differ(tallies: Iterable[Tally | None]) -> bool:
    first, *others = tallies
    return any(other != first for other in others)


# --- text --------------------------------------------------------------------------------------

_COLUMNS = (
    Column("", lambda r: Text("!!", "bold red") if r.alarming else Text("")),
    Column("tensor", lambda r: tensor(r.name, r.kind)),
    Column("ranks>", lambda r: count(len(r.ranks)), 100),
    Column("apart from step>", lambda r: "" if r.first_step_apart is None else
           str(r.first_step_apart)),
    Column("amax, least>", lambda r: number(min(filter(None, r.amax), default=None)), 90),
    Column("most>", lambda r: number(max(filter(None, r.amax), default=None)), 90),
    Column("binades apart>", lambda r: bits(r.spread_bits), 120),
    Column("lost, least>", lambda r: share(min(r.lost_percent))),
    Column("most>", lambda r: share(max(r.lost_percent))),
    Column("look at rank>", lambda r: str(r.odd), 75),
)  # fmt: skip


def differing(report: Report) -> list[RankRow]:
    """Return the tensors that are not the same on all ranks that recorded them."""
    return [row for row in report.ranks if not row.identical]


def _show(report: Report, console: Console, limit: int) -> None:
    rows = differing(report)
    if rows:
        print_rows(console, rows, _COLUMNS, limit)
    said = "!! NaN or infinity on some ranks alone, or a weight that is not the same on all. "
    note(console, f"{alike(report)} {said * bool(rows)}" + left_out(len(rows), limit))


def alike(report: Report) -> str:
    """Return how many tensors are the same on all ranks, in words."""
    same = [row for row in report.ranks if row.identical and len(row.ranks) > 1]
    once = sum(len(row.ranks) == 1 for row in report.ranks)
    many = "1 tensor is" if len(same) == 1 else f"{count(len(same)) if same else 'No'} tensors are"
    said = f"{many} the same on all ranks, value by value."
    return said + f" {count(once)} were recorded on one rank alone." * bool(once)


SECTION = Section(
    "ranks",
    lambda report: "Ranks",
    lambda report: bool(report.ranks),
    _show,
    lambda report: {"ranks": [row.to_json() for row in report.ranks]},
    lambda report: {"rows": differing(report), "alike": alike(report)},
)
