"""Section "Advice": the formats and scales to use, the layers to keep, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.text import Text

from fpemu.analysis.report.numbers import (
    bits,
    decibels,
    file_size,
    number,
    plain,
    power,
    share,
    shorten,
)
from fpemu.analysis.report.section import Section
from fpemu.analysis.report.terminal import Column, item, left_out, note, print_rows, tensor

if TYPE_CHECKING:
    from rich.console import Console

    from fpemu.analysis.advice import Advice, TensorAdvice
    from fpemu.analysis.report.question import Question
    from fpemu.analysis.report.summary import Report
    from fpemu.analysis.trace import Trace

__all__ = ["SECTION", "advice_of"]


def advice_of(trace: Trace, question: Question) -> Advice | None:
    """Return the advice for the judged cast, its partner for gradients and bfloat16.

    There is none for formats of scales, which have no sign or no zero.
    """
    from fpemu.analysis.advice.advisor import advise, can_advise, usual_formats

    if not can_advise(question.to):
        return None
    found = advise(trace, formats=usual_formats(question.to), tolerance=question.tolerance)
    return None if found.status == "no_data" else found


_MARGIN = 110  # columns, from which margins are shown

_KEEP = (
    Column("keep", lambda r: Text(shorten(plain(r.layer)))),
    Column("in", lambda r: r.to),
    Column("not", lambda r: r.wanted, 90),
    Column("damage>", lambda r: number(r.damage), 70),
    Column("why", lambda r: Text(plain(r.reason))),
)

_TENSORS = (
    Column("tensor", lambda r: tensor(r.name, r.kind)),
    Column("format", lambda r: r.to),
    Column("scale>", lambda r: power(r.scale)),
    Column("safe", lambda r: r.safe, 100),
    Column("margin>", lambda r: bits(r.margin_bits), _MARGIN),
    Column("underflow>", lambda r: share(r.underflow_percent)),
    Column("beyond>", lambda r: share(r.saturated_percent), 90),
    Column("SQNR>", lambda r: decibels(r.sqnr_db), 80),
    Column("bits>", lambda r: f"{r.bits_per_value:.3g}", 120),
    Column("why", lambda r: Text(plain(r.reason)), 130),
)

_MEMORY = (
    Column("memory", lambda r: r.label),
    Column("format", lambda r: r.format),
    Column("size>", lambda r: file_size(r.bytes)),
    Column("in float32>", lambda r: file_size(r.float32_bytes)),
)


def _show(report: Report, console: Console, limit: int) -> None:
    advice = report.advice
    if advice is None:
        return
    console.print(Text(advice.headline, "bold"))
    for line in sorted(advice.lines, key=lambda line: line.rank):
        console.print(item(f"{line.text} Why: {line.why}."))
    if advice.keep:
        print_rows(console, advice.keep, _KEEP, limit)
        note(console, left_out(len(advice.keep), limit))
    print_rows(console, tensors_of(advice), _TENSORS, limit)
    said = "Most lost first; underflow and SQNR are what is expected at the scale named."
    if console.width >= _MARGIN:
        said += " Margin: binades to the nearer end of the safe scales."
    note(console, said + left_out(len(advice.tensors), limit))
    if advice.memory:
        print_rows(console, advice.memory, _MEMORY, limit)


def tensors_of(advice: Advice) -> list[TensorAdvice]:
    """Return the tensors of an advice, those that lose most at their scale first."""
    return sorted(
        advice.tensors, key=lambda row: -(row.underflow_percent + row.saturated_percent)
    )


def _page(report: Report) -> dict[str, Any]:
    advice = report.advice
    if advice is None:
        return {}
    return {
        "advice": advice,
        "lines": sorted(advice.lines, key=lambda line: line.rank),
        "rows": [(row, row.safe) for row in tensors_of(advice)],
    }


SECTION = Section(
    "advice",
    lambda report: "Advice",
    lambda report: report.advice is not None,
    _show,
    lambda report: {"advice": report.advice.to_json() if report.advice else None},
    _page,
)
