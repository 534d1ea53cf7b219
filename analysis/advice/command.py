"""The command `fpemu advise`; heavy imports wait until it runs."""

from __future__ import annotations

import json

import click

from fpemu.analysis.report.options import (
    JSON,
    ROWS,
    TOLERANCE,
    deliver,
    names_of_casts,
    out_option,
    show,
    view_of,
)
from fpemu.analysis.typed import HELP

__all__ = ["advise"]

_FORMS = ".json", ".txt"


@click.command(context_settings=HELP)
@click.argument("trace", type=click.Path(path_type=str), metavar="TRACE")
@click.option(
    "--formats", multiple=True, callback=names_of_casts, metavar="CASTS",
    help="The formats allowed, or recipes that the run counted, the one that is wanted first: "
    "'e4m3fn,e5m2,bf16' or 'mxfp8,bf16' (repeatable). "
    "Unless given, the trace's own, else float16, and bfloat16.",
)  # fmt: skip
@TOLERANCE
@click.option(
    "--memory", type=float, metavar="GOAL",
    help="Find the least damage within so many bytes, or below 1 a share of what float32 takes.",
)  # fmt: skip
@click.option("--seed", type=int, default=0, show_default=True, help="Of the search.")
@click.option("--policy", "as_policy", is_flag=True,
              help="Print the policy that does it, for fpemu.torch.emulate, as JSON.")  # fmt: skip
@ROWS
@JSON
@out_option(*_FORMS)
def advise(
    trace: str,
    formats: tuple[str, ...],
    tolerance: float,
    memory: float | None,
    seed: int,
    as_policy: bool,
    rows: int,
    as_json: bool,
    out: str | None,
) -> None:
    """Say which formats, scales and loss scale a recorded run needs, and why.

    Prints the advice on TRACE: the answer, the reasons, the tables.
    """
    from fpemu.analysis.advice import advise as ask
    from fpemu.analysis.advice.text import render
    from fpemu.analysis.trace import Trace

    view = view_of(out, as_json or as_policy, _FORMS)
    found = ask(Trace.load(trace), formats=formats or None, tolerance=tolerance / 100,
                memory=memory, seed=seed)  # fmt: skip
    if as_policy:
        deliver(json.dumps(found.policy().to_json(), indent=1) + "\n", out)
    elif view == "json":
        deliver(json.dumps(found.to_json(), indent=1, allow_nan=False) + "\n", out)
    else:
        show(lambda console: render(found, console, limit=rows), out)
