"""The command `fpemu convert`."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from fpemu.analysis.checkpoints.bar import bar
from fpemu.analysis.report.options import JSON, ROWS, deliver, show, view_of
from fpemu.analysis.typed import HELP
from fpemu.errors import InputError

if TYPE_CHECKING:
    from fpemu.analysis.conversion.result import Converted

__all__ = ["convert"]

_F = TypeVar("_F", bound=Callable[..., Any])

_FORMS = (".html", ".json", ".txt")


def _patterns(option: str, text: str) -> Callable[[_F], _F]:
    return click.option(option, multiple=True, metavar="PATTERN", help=f"{text} (repeatable).")


@click.command(context_settings=HELP)
@click.argument("checkpoint", type=click.Path(path_type=str))
@click.option("--to", metavar="RECIPE",
              help="A recipe ('mxfp8', 'nvfp4', '1x16 exponent fp4') or a format or cast ('bf16').")
@click.option("--out", type=click.Path(path_type=str), metavar="PATH",
              help="A file NAME.safetensors, or a folder for several shards. [in this folder, "
              "called after checkpoint and recipe]")
@click.option("--codes", is_flag=True,
              help="Write codes and scales (NAME, NAME_scale) instead of rounded values.")
@click.option("--decode", "back", is_flag=True,
              help="Write the values of a checkpoint of --codes, instead of --to.")
@_patterns("--only", "Convert tensors of such a name, '*' for all, and not weights of two or more "
           "dimensions alone")
@_patterns("--skip", "Keep tensors of such a name as they are")
@_patterns("--drop", "Leave tensors of such a name out")
@click.option("--axis", type=int, default=-1, show_default=True,
              help="The dimension along which blocks lie.")
@click.option("--seed", type=click.IntRange(0, 2**64 - 1), help="For stochastic casts.")
@click.option("--inexact", type=click.Choice(["float32", "refuse", "round"]), default="float32",
              show_default=True,
              help="Where a tensor's dtype does not hold every result exactly: make it float32, "
              "refuse, or round once more.")
@click.option("--force", is_flag=True, help="Write over what is there.")
@click.option("--fail-on", multiple=True, metavar="CONDITION",
              help="Exit with 1 if a tensor is so: 'sqnr<20' (dB), 'lost>0.1', 'clipped>1' "
              "(percent), 'broken>0' (repeatable).")
@click.option("--threads", type=click.IntRange(min=1), help="Threads. [all processors]")
@ROWS
@JSON
@click.option("--report", type=click.Path(path_type=str, dir_okay=False), metavar="FILE",
              help="Write the report to a file instead of printing: .html, .json or .txt.")
def convert(
    checkpoint: str,
    to: str | None,
    out: str | None,
    codes: bool,
    back: bool,
    only: tuple[str, ...],
    skip: tuple[str, ...],
    drop: tuple[str, ...],
    axis: int,
    seed: int | None,
    inexact: str,
    force: bool,
    fail_on: tuple[str, ...],
    threads: int | None,
    rows: int,
    as_json: bool,
    report: str | None,
) -> None:
    """Write a checkpoint rounded to a recipe or format, as safetensors, and say what is left.

    CHECKPOINT is what `fpemu scan` reads. Tensors keep name, shape and dtype, so that the new file
    loads where the old one did; with --codes it holds codes and scales, and is as small as that.
    """
    if (to is None) is not back:
        raise InputError("convert: give --to RECIPE, or --decode for a checkpoint of --codes")
    if back:
        _check_alone(codes=codes, only=only, skip=skip, drop=drop, fail_on=fail_on, report=report)
        _decode(checkpoint, out, inexact, force, threads, as_json)
        return
    assert to is not None
    view = view_of(report, as_json, _FORMS, "--report")
    from fpemu.analysis.conversion.fail_on import read_condition
    from fpemu.analysis.conversion.run import convert as write

    conditions = [read_condition(text) for text in fail_on]
    where = _default(checkpoint, to, codes) if out is None else out
    started = time.perf_counter()
    with bar("convert") as progress:
        done = write(
            checkpoint, to, where, codes=codes, only=only or None, skip=skip or None,
            drop=drop or None, axis=axis, seed=seed, inexact=inexact, force=force,
            threads=threads, progress=progress,
        )  # fmt: skip
    _tell(len(done.tensors), done.octets, time.perf_counter() - started, done.out)
    _put(done, view, report, rows)
    sys.exit(_check(done, conditions))


def _check_alone(**given: object) -> None:
    """Refuse what --decode has no use for: it does what the file says."""
    for name, value in given.items():
        if value:
            option = f"--{name.replace('_', '-')}"
            raise InputError(f"{option} with --decode: that takes no choice; leave it out")


def _decode(
    checkpoint: str, out: str | None, inexact: str, force: bool, threads: int | None, as_json: bool
) -> None:
    from fpemu.analysis.conversion.decode import decode

    started = time.perf_counter()
    with bar("decode") as progress:
        done = decode(
            checkpoint, _named(checkpoint, "values", False) if out is None else out,
            inexact=inexact, force=force, threads=threads, progress=progress,
        )  # fmt: skip
    _tell(done.tensors, done.octets, time.perf_counter() - started, done.out)
    if as_json:
        deliver(json.dumps(done.to_json(), indent=1) + "\n", None)


def _default(checkpoint: str, to: str, codes: bool) -> str:
    from fpemu.analysis.conversion.targets import find_target

    return _named(checkpoint, find_target(to).name, codes)


def _named(checkpoint: str, name: str, codes: bool) -> str:
    from fpemu.analysis.checkpoints.checkpoint import find
    from fpemu.analysis.conversion.places import default_out

    return default_out(checkpoint, len(find(checkpoint).files), name, codes)


def _tell(tensors: int, octets: int, seconds: float, out: str) -> None:
    """Say on stderr what was read, how fast, and where the result is."""
    from fpemu.analysis.checkpoints.sizes import size
    from fpemu.analysis.shown import plain

    click.echo(
        f"converted {tensors:,} tensor{'s' * (tensors != 1)} of {size(octets)} in {seconds:.1f} s "
        f"({size(octets / seconds)}/s)", err=True,
    )  # fmt: skip
    click.echo(f"wrote {plain(out)}", err=True)


def _put(done: Converted, view: str, report: str | None, rows: int) -> None:
    """Print a conversion, or write it to a file and say where."""
    if view == "json":
        deliver(json.dumps(done.to_json(), indent=1, allow_nan=False) + "\n", report)
    elif view == "html":
        from fpemu.analysis.conversion import html

        deliver(html.render(done), report)
    else:
        from fpemu.analysis.conversion import text

        show(lambda console: text.render(done, console, limit=rows), report)


def _check(done: Converted, conditions: Sequence[object]) -> int:
    """Say which conditions hold, and return the exit code."""
    from fpemu.analysis.conversion.fail_on import Condition
    from fpemu.analysis.shown import plain, shorten

    code = 0
    for condition in conditions:
        assert isinstance(condition, Condition)
        if held := [row for row in done.worst if condition.holds(row)]:
            code = 1
            click.echo(
                f"fpemu: --fail-on {condition}: {len(held):,} of {len(done.tensors):,} tensors, "
                f"{shorten(plain(held[0].name))} first", err=True,
            )  # fmt: skip
    return code
