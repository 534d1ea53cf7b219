"""The command `fpemu scan`."""

from __future__ import annotations

import contextlib
import io
import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fpemu.analysis.files import check_folder
from fpemu.analysis.typed import HELP, read_casts, read_scales
from fpemu.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from fpemu.analysis.checkpoints.result import Scan
    from fpemu.analysis.checkpoints.run import Progress

__all__ = ["scan"]

_FORMS = (".html", ".json", ".txt", ".fpemu")


@click.command(context_settings=HELP)
@click.argument("checkpoints", nargs=-1, required=True, metavar="CHECKPOINT...",
                type=click.Path(path_type=str))
@click.option("--formats", multiple=True, metavar="CASTS",
              help="Formats tried: 'bf16,e4m3fn' (repeatable).")
@click.option("--scales", default="-24:39", show_default=True, metavar="LOW:HIGH",
              help="Scales tried, as exponents of two: a range or a list.")
@click.option("--name", "names", multiple=True, metavar="PATTERN",
              help="Only tensors of such a name, as in a shell: '*.weight' (repeatable).")
@click.option("--tolerance", type=float, default=0.1, show_default=True, metavar="PERCENT",
              help="Share of its non-zero values that a tensor may lose.")
@click.option("--fail-on", multiple=True, metavar="CONDITION",
              help="Exit with 1 if a tensor is so in any of the formats, in percent of its values: "
              "'lost>0.1', 'lost_scaled>0.1', 'overflow>0', 'nan>0' (repeatable).")
@click.option("--threads", type=click.IntRange(min=1), help="Threads. [all processors]")
@click.option("--rows", type=click.IntRange(min=1), default=20, show_default=True,
              help="Tensors that are printed.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
@click.option("--out", type=click.Path(path_type=str, dir_okay=False), metavar="FILE",
              help="Write a file instead of printing: .html, .json or .txt, or a trace for the "
              "other commands, .fpemu.")  # fmt: skip
def scan(
    checkpoints: tuple[str, ...],
    formats: tuple[str, ...],
    scales: str,
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
    form = _form(out, as_json)
    from fpemu.analysis.checkpoints.fail_on import read_condition
    from fpemu.analysis.checkpoints.run import scan as count
    from fpemu.analysis.what_if import FORMATS

    conditions = [read_condition(text) for text in fail_on]
    started = time.perf_counter()
    with _bar() as progress:
        found = count(
            checkpoints, formats=read_casts(formats) or FORMATS, scales=read_scales(scales),
            tolerance=tolerance / 100, names=names or None, threads=threads, progress=progress,
        )  # fmt: skip
    _tell(found, time.perf_counter() - started)
    _put(found, form, out, rows)
    sys.exit(_check(found, conditions))


def _form(out: str | None, as_json: bool) -> str:
    """Which form was asked for, by --json or the suffix of --out."""
    if out is None:
        return ".json" if as_json else ".txt"
    suffix = Path(out).suffix.lower()
    if suffix not in _FORMS:
        raise InputError(f"--out {out!r}: the suffix says the form: use {', '.join(_FORMS)}")
    if as_json and suffix != ".json":
        raise InputError(f"--out {out!r} with --json: name the file .json, or leave --json out")
    check_folder(out)
    return suffix


@contextlib.contextmanager
def _bar() -> Iterator[Progress | None]:
    """Yield a progress callback that draws on a terminal, or None where stderr is none."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    from fpemu.analysis.shown import plain, shorten

    columns = (
        TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(),
        TransferSpeedColumn(), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("scan", total=None)

        def told(done: int, total: int, file: str) -> None:
            what = shorten(plain(Path(file).name), 32)
            bar.update(task, completed=done, total=total, description=what)

        yield told


def _tell(found: Scan, seconds: float) -> None:
    """Say on stderr what was read, and how fast."""
    from fpemu.analysis.checkpoints.sizes import size

    rate = size(found.octets / seconds)
    click.echo(
        f"scanned {len(found.tensors):,} tensors, {size(found.octets)}, in {seconds:.1f} s "
        f"({rate}/s)", err=True,
    )  # fmt: skip


def _put(found: Scan, form: str, out: str | None, rows: int) -> None:
    """Print a scan, or write it to a file and say where."""
    from fpemu.analysis.files import write_text

    if form == ".fpemu" and out:
        found.save(out)
    elif out is None and form == ".txt":
        from rich.console import Console

        _print(found, Console(), rows)
    else:
        body = _body(found, form, rows)
        if out is None:
            click.echo(body, nl=False)
        else:
            write_text(out, body)
    if out is not None:
        click.echo(f"wrote {out}", err=True)


def _body(found: Scan, form: str, rows: int) -> str:
    """A scan as the text of a file."""
    if form == ".json":
        return json.dumps(found.to_json(), indent=1, allow_nan=False) + "\n"
    if form == ".html":
        from fpemu.analysis.checkpoints import html

        return html.render(found)
    from rich.console import Console

    page = io.StringIO()
    _print(found, Console(file=page, width=120, no_color=True, highlight=False), rows)
    return page.getvalue()


def _print(found: Scan, console: Console, rows: int) -> None:
    from fpemu.analysis.checkpoints import text

    text.render(found, console, limit=rows)


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
