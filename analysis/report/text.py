"""The report for a terminal: its sections one after another, as wide as there is room."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from fpemu.analysis.report.layout import present
from fpemu.analysis.report.sections.verdict import render_verdict
from fpemu.analysis.report.sections.what_if import render_scales
from fpemu.analysis.report.summary import Report

__all__ = ["render", "render_scales", "render_verdict"]


def render(report: Report, console: Console, *, limit: int = 20) -> None:
    """Print a report; of long tables the `limit` worst rows, and how many are left out.

    A section without data is left out. Names are printed as text, never as markup or control
    codes.
    """
    for place, section in enumerate(present(report), 1):
        title = Text(f"{place} {section.title(report)}", style="bold")
        console.rule(title, align="left", style="dim")
        section.show(report, console, limit)
        console.print()
