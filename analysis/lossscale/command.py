"""The command `fpemu replay`; heavy imports wait until it runs."""

from __future__ import annotations

import json

import click

from fpemu.analysis.typed import HELP

__all__ = ["replay"]


@click.command(context_settings=HELP)
@click.argument("trace", type=click.Path(path_type=str), metavar="TRACE")
@click.option(
    "--scaler", "scalers", multiple=True, metavar="NAME:SETTING=VALUE,...",
    help="A loss scaler: 'torch:growth_interval=100', 'static:scale=2^10' (repeatable). Unless "
    "given, static ones, each framework's, and one that follows the gradients.",
)  # fmt: skip
@click.option(
    "--to", metavar="CAST",
    help="The format of the gradients. Unless given, the trace's own, else float16.",
)  # fmt: skip
@click.option("--accumulate", type=click.IntRange(min=1), default=1, show_default=True,
              metavar="N", help="Steps of the trace to one step of the optimizer.")  # fmt: skip
@click.option("--per-layer", is_flag=True, help="One scaler for each layer.")
@click.option("--kind", "kinds", multiple=True,
              help="The gradients that decide (repeatable); unless given, weight gradients; "
              "where there are none, activation gradients.")  # fmt: skip
@click.option("--unknown", type=click.Choice(["neighbours", "overflow", "fits"]),
              default="neighbours", show_default=True,
              help="What is assumed of gradients that were infinite at a larger scale: they are "
              "like the finite steps beside them, overflow, or fit.")  # fmt: skip
@click.option("--gaps", type=click.Choice(["hold", "skip"]), default="hold", show_default=True,
              help="Steps that were not recorded: hold the last recorded gradients, or leave "
              "them out.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs: every step.")
def replay(
    trace: str,
    scalers: tuple[str, ...],
    to: str | None,
    accumulate: int,
    per_layer: bool,
    kinds: tuple[str, ...],
    unknown: str,
    gaps: str,
    as_json: bool,
) -> None:
    """Say what loss scalers would have done on a recorded run.

    Which steps of TRACE overflow, which are skipped, what fraction of the gradients is lost, and
    where the loss scale ends. One --scaler is shown in full, several side by side.
    """
    from fpemu.analysis.lossscale.named import scaler
    from fpemu.analysis.lossscale.replay import replays
    from fpemu.analysis.lossscale.standard import standard
    from fpemu.analysis.trace import Trace

    asked = [scaler(text) for text in scalers]  # refused before the trace is read
    run = Trace.load(trace)
    found = replays(
        run, asked or standard(run, to=to), to=to, accumulate=accumulate, per_layer=per_layer,
        kinds=kinds or None, unknown=unknown, gaps=gaps,
    )  # fmt: skip
    if as_json:
        parts = {"schema": 1, "replays": [one.to_json() for one in found]}
        click.echo(json.dumps(parts, allow_nan=False))
        return
    from rich.console import Console

    from fpemu.analysis.lossscale.text import render

    render(found, Console(highlight=False))
