"""The commands `fpemu report` and `fpemu whatif`; heavy imports wait until one of them runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fpemu.analysis.report.options import (
    JSON,
    KINDS,
    ROWS,
    SCALES,
    TOLERANCE,
    deliver,
    names_of_casts,
    out_option,
    show,
    view_of,
)
from fpemu.analysis.typed import HELP

if TYPE_CHECKING:
    from fpemu.analysis.report.summary import Report

__all__ = ["report", "whatif"]

_FORMS = ".html", ".json", ".txt", ".parquet"


@click.command(context_settings=HELP)
@click.argument("traces", type=click.Path(path_type=str), metavar="TRACE...", nargs=-1,
                required=True)  # fmt: skip
@click.option(
    "--to", metavar="CAST",
    help="The format judged, with rules if any ('e4m3fn:overflow=saturate'), or a recipe that the "
    "run counted ('mxfp8'). Unless given, the trace's own, else float16.",
)  # fmt: skip
@click.option(
    "--formats", multiple=True, callback=names_of_casts, metavar="CASTS",
    help="The other formats and recipes of the what-if section: 'bf16,e5m2' (repeatable).",
)  # fmt: skip
@click.option("--against", type=click.Path(path_type=str), metavar="TRACE",
              help="An earlier run, to say what got better and what worse.")  # fmt: skip
@KINDS
@SCALES
@TOLERANCE
@ROWS
@click.option("--tensorboard", type=click.Path(path_type=str, file_okay=False), metavar="FOLDER",
              help="Write the run's tensors, step by step, for TensorBoard.")  # fmt: skip
@JSON
@out_option(*_FORMS)
def report(
    traces: tuple[str, ...],
    to: str | None,
    formats: tuple[str, ...],
    against: str | None,
    kinds: tuple[str, ...],
    scales: tuple[float, ...],
    tolerance: float,
    rows: int,
    tensorboard: str | None,
    as_json: bool,
    out: str | None,
) -> None:
    """Say whether a format is ready for the numbers of a recorded run, and why not.

    Prints the report of TRACE; --out report.html writes one file that any browser opens. Several
    traces are the ranks of one distributed run: they are judged together, and compared.
    """
    from fpemu.analysis.report.progress import shown
    from fpemu.analysis.report.summary import build
    from fpemu.analysis.trace import Trace
    from fpemu.analysis.what_if import FORMATS

    view = view_of(out, as_json, _FORMS)
    first, *others = map(Trace.load, traces)
    with shown() as progress:
        found = build(
            first, to=to, formats=formats or FORMATS, scales=scales, tolerance=tolerance / 100,
            kinds=kinds or None, ranks=others, progress=progress,
            against=None if against is None else Trace.load(against),
        )  # fmt: skip
    if tensorboard is not None:
        from fpemu.analysis.export import write_tensorboard
        from fpemu.analysis.report.sections.ranks import merged

        whole = merged([first, *others]) if others else first
        write_tensorboard(whole, tensorboard, report=found)
        click.echo(f"wrote {tensorboard}", err=True)
    if tensorboard is None or out is not None or as_json:
        _deliver(found, view, rows, out)


def _deliver(found: Report, view: str, rows: int, out: str | None) -> None:
    """Give a report in the form asked for."""
    if view == "html":
        from fpemu.analysis.report import html

        deliver(html.render(found), out)
    elif view == "json":
        deliver(json.dumps(found.to_json(), indent=1, allow_nan=False) + "\n", out)
    elif view == "parquet" and out is not None:
        from fpemu.analysis.export import write_parquet

        write_parquet(found, Path(out))
        click.echo(f"wrote {out}", err=True)
    else:
        from fpemu.analysis.report import text

        show(lambda console: text.render(found, console, limit=rows), out)


@click.command(context_settings=HELP)
@click.argument("trace", type=click.Path(path_type=str), metavar="TRACE")
@click.option("--to", "formats", multiple=True, callback=names_of_casts, metavar="CASTS",
              help="Formats and counted recipes tried: 'float16,mxfp8' (repeatable).")  # fmt: skip
@SCALES
@click.option("--kind", "kinds", multiple=True, help="Only this kind of tensor (repeatable).")
@click.option("--name", "names", multiple=True, help="Only this tensor (repeatable).")
@click.option("--per-step", is_flag=True, help="A row for each step, not all steps together.")
@TOLERANCE
@JSON
@out_option(".json", ".txt")
def whatif(
    trace: str,
    formats: tuple[str, ...],
    scales: tuple[float, ...],
    kinds: tuple[str, ...],
    names: tuple[str, ...],
    per_step: bool,
    tolerance: float,
    as_json: bool,
    out: str | None,
) -> None:
    """Count what each format would lose of each tensor, at each power-of-two scale.

    Prints one line for each tensor and format: what is lost unscaled, and the safe scales.
    --json has every scale.
    """
    from fpemu.analysis.report.sections.what_if import scale_rows
    from fpemu.analysis.trace import Trace
    from fpemu.analysis.what_if import FORMATS
    from fpemu.analysis.what_if import whatif as count

    view = view_of(out, as_json, (".json", ".txt"))
    counted = count(
        Trace.load(trace), formats=formats or FORMATS, scales=sorted({1.0, *scales}),
        names=names or None, kinds=kinds or None, per_step=per_step,
    )  # fmt: skip
    safe = scale_rows(counted, tolerance / 100)
    if view == "json":
        parts = {
            "schema": 1,
            "safe_scales": [row.to_json() for row in safe],
            "rows": [row.to_json() for row in counted],
        }
        deliver(json.dumps(parts, allow_nan=False) + "\n", out)
    else:
        from fpemu.analysis.report import text

        show(lambda console: text.render_scales(safe, console), out)
