"""The report of a recorded run: rows first, then text, HTML and JSON as views of them.

    found = report.build(trace, to="float16")
    report.text.render(found, rich.console.Console())
    report.html.render(found)            # one page that needs nothing else
    found.to_json()                      # docs/report.schema.md
"""

from __future__ import annotations

from fpemu.analysis.report import html, text
from fpemu.analysis.report.build import SCHEMA, Report, build
from fpemu.analysis.report.files import write_text
from fpemu.analysis.report.verdict import Status, Verdict

__all__ = ["SCHEMA", "Report", "Status", "Verdict", "build", "html", "text", "write_text"]
