"""Options: what the commands that read traces share: their options, and where their output goes."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from fpemu.analysis.files import check_folder
from fpemu.analysis.typed import read_casts, read_scales
from fpemu.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    "JSON",
    "KINDS",
    "ROWS",
    "SCALES",
    "TOLERANCE",
    "deliver",
    "names_of_casts",
    "out_option",
    "show",
    "view_of",
]

_F = TypeVar("_F", bound=Callable[..., Any])


def names_of_casts(
    context: click.Context, parameter: click.Parameter, value: tuple[str, ...]
) -> tuple[str, ...]:
    """Read an option that lists casts."""
    return read_casts(value)


def _scales(context: click.Context, parameter: click.Parameter, value: str) -> tuple[float, ...]:
    return read_scales(value)


SCALES = click.option(
    "--scales", default="-24:39", show_default=True, callback=_scales, metavar="LOW:HIGH",
    help="Scales tried, as exponents of two: a range or a list.",
)  # fmt: skip
TOLERANCE = click.option(
    "--tolerance", type=float, default=0.1, show_default=True, metavar="PERCENT",
    help="Share of its non-zero values that a tensor may lose.",
)  # fmt: skip
KINDS = click.option(
    "--kind", "kinds", multiple=True,
    help="A kind that the verdict is about (repeatable); unless given, activations, weights and "
    "gradients.",
)  # fmt: skip
ROWS = click.option(
    "--rows", type=click.IntRange(min=1), default=20, show_default=True,
    help="Rows of each table that is printed.",
)  # fmt: skip
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")


def out_option(*suffixes: str) -> Callable[[_F], _F]:
    """Return the option --out for files of these suffixes."""
    return click.option(
        "--out", type=click.Path(path_type=str, dir_okay=False), metavar="FILE",
        help=f"Write a file instead of printing: {_listed(suffixes)}, by its suffix.",
    )  # fmt: skip


def view_of(
    out: str | None, as_json: bool, suffixes: Sequence[str], option: str = "--out"
) -> str:
    """Return which form was asked for, by --json or the suffix of --out."""
    if out is None:
        return "json" if as_json else "txt"
    suffix = Path(out).suffix.lower()
    if suffix not in suffixes:
        raise InputError(f"{option} {out!r}: the suffix says the form: use {_listed(suffixes)}")
    check_folder(out)
    if as_json and suffix != ".json":
        raise InputError(f"--out {out!r} with --json: name the file .json, or leave --json out")
    return suffix[1:]


def show(print_to: Callable[[Console], None], out: str | None) -> None:
    """Print to the terminal, or to a file as a terminal of 120 columns would show it."""
    from rich.console import Console

    if out is None:
        print_to(Console())
        return
    page = io.StringIO()
    print_to(Console(file=page, width=120, no_color=True, highlight=False))
    deliver(page.getvalue(), out)


def deliver(body: str, out: str | None) -> None:
    """Write a text to its file and say where, or print it."""
    if out is None:
        click.echo(body, nl=False)
        return
    from fpemu.analysis.files import write_text

    write_text(out, body)
    click.echo(f"wrote {out}", err=True)


def _listed(suffixes: Sequence[str]) -> str:
    return f"{', '.join(suffixes[:-1])} or {suffixes[-1]}"
