"""Section "Advice": the formats and scales to use, the layers to keep, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.text import Text

from fpemu.analysis.report.numbers import (
    bits,
    decibels,
    file_size,
    kind_words,
    number,
    plain,
    power,
    share,
    shorten,
)
from fpemu.analysis.report.section import Section
from fpemu.analysis.report.terminal import Column, item, left_out, note, print_rows, tensor
from fpemu.cast import make_cast

if TYPE_CHECKING:
    from rich.console import Console

    from fpemu.analysis.advice import Advice, TensorAdvice
    from fpemu.analysis.report.question import Question
    from fpemu.analysis.report.summary import Report
    from fpemu.analysis.trace import Trace

__all__ = ["SECTION", "advice_of"]

#: What a format is used with: E4M3 forward, E5M2 for gradients.
_PARTNERS = {"float8_e4m3fn": "float8_e5m2", "float8_e4m3fnuz": "float8_e5m2fnuz"}


def advice_of(trace: Trace, question: Question) -> Advice | None:
    """Return the advice for the judged cast, its partner for gradients and bfloat16."""
    from fpemu.analysis.advice import advise

    partner = _PARTNERS.get(question.to.format.name)
    formats = [question.to, *map(make_cast, filter(None, (partner, "bfloat16")))]
    found = advise(trace, formats=list(dict.fromkeys(formats)), tolerance=question.tolerance)
    return None if found.status == "no_data" else found


def _range(row: TensorAdvice) -> str:
    if row.low is None or row.high is None:
        return "none"
    return power(row.low) if row.low == row.high else f"{power(row.low)} to {power(row.high)}"


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
    Column("safe", _range, 100),
    Column("margin>", lambda r: bits(r.margin_bits), 110),
    Column("underflow>", lambda r: share(r.underflow_percent)),
    Column("beyond>", lambda r: share(r.saturated_percent), 90),
    Column("SQNR>", lambda r: decibels(r.sqnr_db), 80),
    Column("why", lambda r: Text(plain(r.reason)), 130),
)

_MEMORY = (
    Column("memory", lambda r: kind_words(r.kind)),
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
    said = "Expected at the scale named; margin: binades to the nearer end of the safe scales."
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
        "rows": [(row, _range(row)) for row in tensors_of(advice)],
    }


SECTION = Section(
    "advice",
    lambda report: "Advice",
    lambda report: report.advice is not None,
    _show,
    lambda report: {"advice": report.advice.to_json() if report.advice else None},
    _page,
)
