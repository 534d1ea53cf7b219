"""Section: one part of a report, as a table of the views that text, HTML and JSON have of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from fpemu.analysis.report.summary import Report

__all__ = ["Section"]


def _nothing(report: Report) -> dict[str, Any]:
    return {}


@dataclass(frozen=True, slots=True)
class Section:
    """One part of a report; it is left out of text and page where it has no data."""

    name: str  #: that of its module and of its template: templates/sections/NAME.html.j2
    title: Callable[[Report], str]
    there: Callable[[Report], bool]  #: whether there are data for it
    show: Callable[[Report, Console, int], None]  #: print it, of long tables so many rows
    json: Callable[[Report], dict[str, Any]]  #: its keys of the JSON report
    page: Callable[[Report], dict[str, Any]] = _nothing  #: what its template is given

    @property
    def anchor(self) -> str:
        """Its id on the page."""
        return self.name.replace("_", "-")
