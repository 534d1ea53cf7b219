"""Outcome: what a watched run leaves, its report written and its exit code decided."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fpemu.analysis.collect.settings import STOPS
from fpemu.analysis.files import make_folder, write_text
from fpemu.analysis.first_cause import FirstCause, causes_in
from fpemu.analysis.report import Report, build, html
from fpemu.analysis.trace import Trace
from fpemu.errors import InputError

__all__ = ["Files", "failing", "prepare", "write_report"]


@dataclass(frozen=True, slots=True)
class Files:
    """Where a run leaves what it found, wherever the script goes meanwhile."""

    trace: Path
    page: Path
    facts: Path

    @classmethod
    def of(cls, folder: Path) -> Files:
        """Return the files in a folder; of several processes each has its own."""
        rank = f"-rank{os.environ['RANK']}" if _processes() > 1 and _rank() is not None else ""
        return cls(
            folder / f"run{rank}.fpemu", folder / f"report{rank}.html",
            folder / f"report{rank}.json",
        )  # fmt: skip


def _rank() -> int | None:
    text = os.environ.get("RANK", "")
    return int(text) if text.isdecimal() else None


def _processes() -> int:
    """How many processes torchrun has started, else 1."""
    text = os.environ.get("WORLD_SIZE", "")
    return int(text) if text.isdecimal() else 1


def prepare(folder: Path) -> Files:
    """Make the folder, and find out before the script runs whether files can be put there."""
    make_folder(folder)
    files = Files.of(folder.absolute())
    # only what an earlier run recorded is replaced
    if os.path.lexists(files.trace) and "watched" not in Trace.load(files.trace).metadata:
        raise InputError(
            f"{str(files.trace)!r} was not recorded by watching a run and would be replaced; "
            "give another folder with --out"
        )
    return files


def write_report(files: Files, to: str | None) -> Report:
    """Write the report of a run's trace, as a page and as JSON."""
    found = build(Trace.load(files.trace), to=to)
    write_text(files.page, html.render(found))
    write_text(files.facts, json.dumps(found.to_json(), indent=1, allow_nan=False) + "\n")
    return found


def failing(trace: Trace, fail_on: Sequence[str]) -> FirstCause | None:
    """Return the first cause that was asked to fail on, but for those a GradScaler catches."""
    whats = {what for stop in fail_on for what in STOPS[stop]}
    causes = causes_in(trace.events())
    return next((one for one in causes if one.what in whats and not one.caught), None)
