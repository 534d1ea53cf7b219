"""The command `fpemu scan`."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import click

from fpemu.analysis.checkpoints.bar import bar
from fpemu.analysis.report.options import (
    JSON,
    ROWS,
    SCALES,
    TOLERANCE,
    deliver,
    names_of_casts,
    show,
    view_of,
)
from fpemu.analysis.typed import HELP
from fpemu.errors import InputError

if TYPE_CHECKING:
    from fpemu.analysis.checkpoints.result import Scan

__all__ = ["scan"]

_FORMS = (".html", ".json", ".txt", ".fpemu")


@click.command(context_settings=HELP)
@click.argument("checkpoints", nargs=-1, required=True, metavar="CHECKPOINT...",
                type=click.Path(path_type=str))
@click.option("--formats", multiple=True, callback=names_of_casts, metavar="CASTS",
              help="Formats tried: 'bf16,e4m3fn' (repeatable).")
@SCALES
@click.option("--name", "names", multiple=True, metavar="PATTERN",
              help="Only tensors of such a name, as in a shell: '*.weight' (repeatable).")
@TOLERANCE
@click.option("--fail-on", multiple=True, metavar="CONDITION",
              help="Exit with 1 if a tensor is so in any of the formats, in percent of its values: "
              "'lost>0.1', 'lost_scaled>0.1', 'overflow>0', 'nan>0' (repeatable).")
@click.option("--threads", type=click.IntRange(min=1), help="Threads. [all processors]")
@ROWS
@JSON
@click.option("--out", type=click.Path(path_type=str, dir_okay=False), metavar="FILE",
              help="Write a file instead of printing: .html, .json or .txt, or a trace for the "
              "other commands, .fpemu.")  # fmt: skip
def scan(
    checkpoints: tuple[str, ...],
    formats: tuple[str, ...],
    scales: tuple[float, ...],
    names: tuple[str, ...],
    tolerance: float,
    fail_on: tuple[str, ...],
    threads: int | None,
    rows: int,
    as_json: bool,
    out: str | None,
) -> None:
    """Count every tensor of a checkpoint: what would each format lose of it.

    CHECKPOINT is a safetensors file, an index of shards, a folder, .npz, .npy or PyTorch's zip
    file. It is read in pieces; no pickle is run.
    """
    if not 0.0 <= tolerance <= 100.0:
        raise InputError(f"--tolerance {tolerance:g}: must be a percentage, from 0 to 100")
    view = view_of(out, as_json, _FORMS)
    if out is not None:
        _check_other(out, checkpoints)
    from fpemu.analysis.checkpoints.fail_on import read_condition
    from fpemu.analysis.checkpoints.run import scan as count
    from fpemu.analysis.what_if import FORMATS

    conditions = [read_condition(text) for text in fail_on]
    started = time.perf_counter()
    with bar("scan") as progress:
        found = count(
            checkpoints, formats=formats or FORMATS, scales=scales,
            tolerance=tolerance / 100, names=names or None, threads=threads, progress=progress,
        )  # fmt: skip
    _tell(found, time.perf_counter() - started)
    _put(found, view, out, rows)
    sys.exit(_check(found, conditions))


def _check_other(out: str, checkpoints: Iterable[str]) -> None:
    """Refuse to write over what is scanned."""
    from fpemu.analysis.checkpoints.checkpoint import INDEX, find

    read = [file for path in checkpoints for file in (path, *find(path).files)]
    same = (os.path.samefile(out, file) for file in read if os.path.exists(file))
    if out.endswith(INDEX) or (os.path.exists(out) and any(same)):
        raise InputError(f"--out {out!r}: is a file of the checkpoint; name another file")


def _tell(found: Scan, seconds: float) -> None:
    """Say on stderr what was read, and how fast."""
    from fpemu.analysis.checkpoints.sizes import size

    rate = size(found.octets / seconds)
    click.echo(
        f"scanned {len(found.tensors):,} tensors, {size(found.octets)}, in {seconds:.1f} s "
        f"({rate}/s)", err=True,
    )  # fmt: skip


def _put(found: Scan, view: str, out: str | None, rows: int) -> None:
    """Print a scan, or write it to a file and say where."""
    if view == "fpemu" and out:
        found.save(out)
        click.echo(f"wrote {out}", err=True)
    elif view == "json":
        deliver(json.dumps(found.to_json(), indent=1, allow_nan=False) + "\n", out)
    elif view == "html":
        from fpemu.analysis.checkpoints import html

        deliver(html.render(found), out)
    else:
        from fpemu.analysis.checkpoints import text

        show(lambda console: text.render(found, console, limit=rows), out)


def _check(found: Scan, conditions: Sequence[object]) -> int:
    """Say which conditions hold, and return the exit code."""
    from fpemu.analysis.checkpoints.fail_on import Condition, failures
    from fpemu.analysis.report.numbers import share
    from fpemu.analysis.shown import plain, shorten

    code = 0
    for condition in conditions:
        assert isinstance(condition, Condition)
        held = list(failures(found.worst, [condition]))
        if held:
            code, worst = 1, max(held, key=lambda one: one.percent)
            tensors = len({(one.tensor.name, one.tensor.step) for one in held})
            click.echo(
                f"fpemu: --fail-on {condition}: {tensors:,} of {len(found.tensors):,} tensors, "
                f"{shorten(plain(worst.tensor.name))} most: {share(worst.percent)} in "
                f"{worst.row.to}", err=True,
            )  # fmt: skip
    return code
