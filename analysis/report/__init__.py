"""The report of a recorded run: rows first, then text, HTML and JSON as views of them.

    found = report.build(trace, to="float16")
    report.text.render(found, rich.console.Console())
    report.html.render(found)            # one page that needs nothing else
    found.to_json()                      # docs/report.schema.md
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fpemu.analysis.files import write_text
    from fpemu.analysis.report import html, text
    from fpemu.analysis.report.sections.verdict import Status, Verdict
    from fpemu.analysis.report.summary import SCHEMA, Report, build

__all__ = ["SCHEMA", "Report", "Status", "Verdict", "build", "html", "text", "write_text"]

# Loaded on first use: `fpemu --help` imports the commands beside this file and nothing more.
_HOME = {
    "SCHEMA": f"{__name__}.summary",
    "Report": f"{__name__}.summary",
    "build": f"{__name__}.summary",
    "write_text": "fpemu.analysis.files",
    "Status": f"{__name__}.status",
    "Verdict": f"{__name__}.sections.verdict",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(_HOME.get(name, f"{__name__}.{name}"))
    value = getattr(module, name) if name in _HOME else module
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
