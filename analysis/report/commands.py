"""The commands `fpemu report` and `fpemu whatif`; heavy imports wait until one of them runs."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from fpemu.analysis.files import check_folder
from fpemu.analysis.typed import HELP
from fpemu.errors import FpemuError, InputError

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["report", "whatif"]

_F = TypeVar("_F", bound=Callable[..., Any])


class _Refusal(click.ClickException):
    """Bad input: one line, exit code 2."""

    exit_code = 2


def _one_line(command: _F) -> _F:
    """Turn what fpemu refuses into one line on stderr and exit code 2."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except FpemuError as error:
            raise _Refusal(str(error)) from None

    return run  # type: ignore[return-value]


def _casts(
    context: click.Context, parameter: click.Parameter, value: tuple[str, ...]
) -> tuple[str, ...]:
    """Split lists of names at commas; a cast with rules has commas of its own and stands alone."""
    split = (text.split(",") if ":" not in text else [text] for text in value)
    return tuple(name.strip() for names in split for name in names if name.strip())


def _scales(context: click.Context, parameter: click.Parameter, value: str) -> tuple[float, ...]:
    """Read 'LOW:HIGH' or a list of exponents of two."""
    from fpemu.tallies import SCALE_LIMIT

    exponents: Sequence[int] = ()
    with contextlib.suppress(ValueError):
        if ":" in value:
            low, high = (int(part) for part in value.split(":"))
            exponents = range(low, high + 1)
        else:
            exponents = sorted(int(part) for part in value.replace(",", " ").split())
    if not exponents or max(-exponents[0], exponents[-1]) > SCALE_LIMIT:
        raise click.BadParameter(
            f"{value!r}: give exponents of two from -{SCALE_LIMIT} to {SCALE_LIMIT}, "
            "as '-8:24' or '0,3,7,10'"
        )
    return tuple(math.ldexp(1.0, k) for k in exponents)


_TRACE = click.argument("trace", type=click.Path(path_type=str), metavar="TRACE")
_SCALES = click.option(
    "--scales", default="-24:39", show_default=True, callback=_scales, metavar="LOW:HIGH",
    help="Scales tried, as exponents of two: a range or a list.",
)  # fmt: skip
_OUT = click.option(
    "--out", type=click.Path(path_type=str, dir_okay=False), metavar="FILE",
    help="Write a file instead of printing: .html, .json or .txt, by its suffix.",
)  # fmt: skip
_TOLERANCE = click.option(
    "--tolerance", type=float, default=0.1, show_default=True, metavar="PERCENT",
    help="Share of its non-zero values that a tensor may lose.",
)  # fmt: skip
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")


@click.command(context_settings=HELP)
@_TRACE
@click.option(
    "--to", metavar="CAST",
    help="The format judged, with rules if any ('e4m3fn:overflow=saturate'). Unless given, the "
    "trace's own, else float16.",
)  # fmt: skip
@click.option(
    "--formats", multiple=True, callback=_casts, metavar="CASTS",
    help="The other formats of the what-if section: 'bf16,e5m2' (repeatable).",
)  # fmt: skip
@click.option(
    "--kind", "kinds", multiple=True,
    help="A kind that the verdict is about (repeatable); unless given, activations, weights and "
    "gradients.",
)  # fmt: skip
@_SCALES
@_TOLERANCE
@click.option("--rows", type=click.IntRange(min=1), default=20, show_default=True,
              help="Rows of each table in the printed report.")  # fmt: skip
@_JSON
@_OUT
@_one_line
def report(
    trace: str,
    to: str | None,
    formats: tuple[str, ...],
    kinds: tuple[str, ...],
    scales: tuple[float, ...],
    tolerance: float,
    rows: int,
    as_json: bool,
    out: str | None,
) -> None:
    """Say whether a format is ready for the numbers of a recorded run, and why not.

    Prints the report of TRACE; --out report.html writes one file that any browser opens.
    """
    from fpemu.analysis.report.summary import build
    from fpemu.analysis.trace import Trace
    from fpemu.analysis.what_if import FORMATS

    view = _view(out, as_json)
    found = build(
        Trace.load(trace), to=to, formats=formats or FORMATS, scales=scales,
        tolerance=tolerance / 100, kinds=kinds or None,
    )  # fmt: skip
    if view == "html":
        from fpemu.analysis.report import html

        _deliver(html.render(found), out)
    elif view == "json":
        _deliver(json.dumps(found.to_json(), indent=1, allow_nan=False) + "\n", out)
    else:
        from fpemu.analysis.report import text

        _show(lambda console: text.render(found, console, limit=rows), out)


def _view(out: str | None, as_json: bool) -> str:
    """Which form was asked for, by --json or the suffix of --out."""
    if out is None:
        return "json" if as_json else "txt"
    suffix = Path(out).suffix.lower()
    if suffix not in (".html", ".json", ".txt"):
        raise InputError(f"--out {out!r}: the suffix says the form: use .html, .json or .txt")
    check_folder(out)
    if as_json and suffix != ".json":
        raise InputError(f"--out {out!r} with --json: name the file .json, or leave --json out")
    return suffix[1:]


def _show(print_to: Callable[[Console], None], out: str | None) -> None:
    """Print to the terminal, or to a file as a terminal of 120 columns would show it."""
    from rich.console import Console

    if out is None:
        print_to(Console())
        return
    page = io.StringIO()
    print_to(Console(file=page, width=120, no_color=True, highlight=False))
    _deliver(page.getvalue(), out)


def _deliver(body: str, out: str | None) -> None:
    """Write a text to its file and say where, or print it."""
    if out is None:
        click.echo(body, nl=False)
        return
    from fpemu.analysis.files import write_text

    write_text(out, body)
    click.echo(f"wrote {out}", err=True)


@click.command(context_settings=HELP)
@_TRACE
@click.option("--to", "formats", multiple=True, callback=_casts, metavar="CASTS",
              help="Formats tried: 'float16,e4m3fn' (repeatable).")  # fmt: skip
@_SCALES
@click.option("--kind", "kinds", multiple=True, help="Only this kind of tensor (repeatable).")
@click.option("--name", "names", multiple=True, help="Only this tensor (repeatable).")
@click.option("--per-step", is_flag=True, help="A row for each step, not all steps together.")
@_TOLERANCE
@_JSON
@_OUT
@_one_line
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
    from fpemu.analysis.report.scale_rows import scale_rows
    from fpemu.analysis.trace import Trace
    from fpemu.analysis.what_if import FORMATS
    from fpemu.analysis.what_if import whatif as count

    view = _view(out, as_json)
    if view == "html":
        raise InputError("whatif writes .json or .txt; for a page use fpemu report --out FILE.html")
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
        _deliver(json.dumps(parts, allow_nan=False) + "\n", out)
    else:
        from fpemu.analysis.report import text

        _show(lambda console: text.render_scales(safe, console), out)
