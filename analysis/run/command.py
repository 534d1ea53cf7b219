"""The command `fpemu run`."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fpemu.analysis.report.options import names_of_casts
from fpemu.analysis.typed import HELP
from fpemu.errors import FpemuError

if TYPE_CHECKING:
    from fpemu.analysis.run.outcome import Files
    from fpemu.analysis.run.script import Ended

__all__ = ["run"]

_EVERY = 10
_STOP = click.Choice(["overflow", "nan"])


@click.command(context_settings={**HELP, "allow_interspersed_args": False})
@click.argument("script", type=click.Path(path_type=str), metavar="SCRIPT.py")
@click.argument("args", nargs=-1, type=click.UNPROCESSED, metavar="[ARGS]...")
@click.option("--every", type=click.IntRange(min=1), metavar="N",
              help=f"Record every N-th step. [{_EVERY}; 1 with --fail-on or --stop-on]")
@click.option("--to", metavar="CAST",
              help="The format judged, and watched for overflows: float16, e4m3fn, ...")
@click.option("--emulate", "policy", metavar="POLICY",
              help="Run in a policy's precisions: torch.autocast.cuda.float16, keras.float8, ...")
@click.option("--fail-on", multiple=True, type=_STOP,
              help="Exit with 1 if a value overflowed, or NaN appeared (repeatable).")
@click.option("--stop-on", multiple=True, type=_STOP, help="Stop the script there (repeatable).")
@click.option("--tensors", type=click.Choice(["all", "matmul"]), default="all", show_default=True,
              help="Watch all tensors, or those of matrix products and convolutions.")
@click.option("--blocks", type=click.IntRange(min=1), metavar="N",
              help="Count blocks of N numbers too: 32 for MX formats, 16 for NVFP4.")
@click.option("--recipes", multiple=True, callback=names_of_casts, metavar="RECIPES",
              help="Count what these make of each tensor too: mxfp8,nvfp4 (repeatable).")
@click.option("--out", type=click.Path(path_type=Path), default="fpemu-run", show_default=True,
              metavar="FOLDER", help="Where the trace and the report are written.")  # fmt: skip
def run(
    script: str,
    args: tuple[str, ...],
    every: int | None,
    to: str | None,
    policy: str | None,
    fail_on: tuple[str, ...],
    stop_on: tuple[str, ...],
    tensors: str,
    blocks: int | None,
    recipes: tuple[str, ...],
    out: Path,
) -> None:
    """Run a PyTorch training script unmodified, watch its numbers and report.

    Models and optimizers are found when the script calls them. The report is written however the
    script ends, and its exit code is passed on. fpemu's own options stand before SCRIPT.py, the
    script's after it.
    """
    from fpemu.analysis.run import outcome
    from fpemu.analysis.run.script import check_script

    check_script(script)
    files = outcome.prepare(out)
    options = {
        "path": files.trace, "overwrite": True, "to": to, "stop_on": stop_on, "tensors": tensors,
        "every": every or (1 if fail_on or stop_on else _EVERY), "unsupported": "skip",
        "blocks": blocks, "recipes": recipes,
        "metadata": {"script": script, **({"policy": policy} if policy else {})},
    }  # fmt: skip
    ended = _watched(script, args, options, policy)
    if ended.message:
        click.echo(ended.message, nl=False, err=True)
    code = _report(files, out, to, fail_on)
    sys.exit(ended.code or code)


def _watched(
    script: str, args: tuple[str, ...], options: dict[str, Any], policy: str | None
) -> Ended:
    """Run the script under a watch, inside the policy's emulation if there is one."""
    from fpemu.analysis.collect.torch import watch
    from fpemu.analysis.run.script import run_script

    run = watch(None, **options)
    with _emulated(policy), run:
        return run_script(script, args)


@contextlib.contextmanager
def _emulated(policy: str | None) -> Iterator[None]:
    if policy is None:
        yield
        return
    from fpemu.torch import emulate

    with emulate(policy):
        yield


def _report(files: Files, out: Path, to: str | None, fail_on: tuple[str, ...]) -> int:
    """Write the report, print its verdict, and return 1 if it holds what --fail-on names.

    Files are told of as in the folder `out`: the script may have left the one it is seen from.
    """
    from rich.console import Console

    from fpemu.analysis.report.sections.first_cause import render_causes
    from fpemu.analysis.report.text import render_verdict
    from fpemu.analysis.run import outcome
    from fpemu.analysis.trace import Trace

    console = Console(stderr=True)  # stdout is the script's
    try:
        found = outcome.write_report(files, to)
    except FpemuError as error:  # the script's own end must not be hidden by it
        click.echo(f"fpemu: no report: {error}", err=True)
        return 2
    if not found.tensors:
        click.echo(
            "fpemu: nothing was recorded: the script called no torch.nn.Module with parameters "
            "in a forward pass that takes gradients", err=True,
        )  # fmt: skip
    render_verdict(found.verdict, console)
    render_causes(found.first_causes, console, limit=8)
    shown = [out / file.name for file in (files.page, files.facts, files.trace)]
    click.echo("wrote {}, {} and {}".format(*shown), err=True)
    if cause := outcome.failing(Trace.load(files.trace), fail_on):
        click.echo(f"fpemu: --fail-on: {cause.headline}", err=True)
        return 1
    return 0
