"""Section "Against": this run compared with another, tensor by tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fpemu.analysis.diff.text import render
from fpemu.analysis.report.section import Section

if TYPE_CHECKING:
    from rich.console import Console

    from fpemu.analysis.report.summary import Report

__all__ = ["SECTION"]


def _show(report: Report, console: Console, limit: int) -> None:
    if report.against is not None:
        render(report.against, console, limit=limit)


def _json(report: Report) -> dict[str, Any]:
    return {"against": None if report.against is None else report.against.to_json()}


def _page(report: Report) -> dict[str, Any]:
    rows = report.against.rows if report.against else ()
    return {
        "changed": [row for row in rows if row.change != "same"],
        "same": sum(row.change == "same" for row in rows),
        "alike": sum(row.identical for row in rows),
    }


SECTION = Section(
    "against",
    lambda report: "Against another run",
    lambda report: report.against is not None,
    _show,
    _json,
    _page,
)
