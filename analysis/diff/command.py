"""The command `fpemu diff`."""

from __future__ import annotations

import json
import sys

import click

from fpemu.analysis.diff.checks import FAIL_ON
from fpemu.analysis.report.options import (
    JSON,
    KINDS,
    ROWS,
    TOLERANCE,
    deliver,
    out_option,
    show,
    view_of,
)
from fpemu.analysis.typed import HELP

__all__ = ["diff"]


@click.command(context_settings=HELP)
@click.argument("before", type=click.Path(path_type=str))
@click.argument("after", type=click.Path(path_type=str))
@click.option(
    "--to", metavar="CAST",
    help="The format, or recipe counted in both, that they are judged in. Unless given, each in "
    "its own, else float16.",
)  # fmt: skip
@KINDS
@TOLERANCE
@click.option(
    "--points", type=click.FloatRange(min=0), default=0.1, show_default=True, metavar="PERCENT",
    help="Percentage points lost more or less that count.",
)  # fmt: skip
@click.option(
    "--fail-on", type=click.Choice(list(FAIL_ON)), multiple=True,
    help="Exit with code 1 if " + "; ".join(f"({k}) {v}" for k, v in FAIL_ON.items()) + ".",
)  # fmt: skip
@ROWS
@JSON
@out_option(".json", ".txt")
def diff(
    before: str,
    after: str,
    to: str | None,
    kinds: tuple[str, ...],
    tolerance: float,
    points: float,
    fail_on: tuple[str, ...],
    rows: int,
    as_json: bool,
    out: str | None,
) -> None:
    """Say what got better and what worse from run BEFORE to run AFTER.

    Exit code 0: fine; 1: something that --fail-on names; 2: bad usage or input.
    """
    from fpemu.analysis.diff.compare import diff as compared
    from fpemu.analysis.diff.rows import Thresholds
    from fpemu.analysis.report.progress import shown
    from fpemu.analysis.trace import Trace

    view = view_of(out, as_json, (".json", ".txt"))
    with shown() as progress:
        found = compared(
            Trace.load(before), Trace.load(after), to=to, tolerance=tolerance / 100,
            kinds=kinds or None, thresholds=Thresholds(points), progress=progress,
        )  # fmt: skip
    if view == "json":
        deliver(json.dumps(found.to_json(), indent=1, allow_nan=False) + "\n", out)
    else:
        from fpemu.analysis.diff.text import render

        show(lambda console: render(found, console, limit=rows), out)
    failed = [name for name in fail_on if found.fails(name)]
    for name in failed:
        click.echo(f"fpemu: --fail-on {name}: {found.headline}", err=True)
    if failed:
        sys.exit(1)
