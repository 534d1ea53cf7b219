"""The command `fpemu demo`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fpemu.analysis.typed import HELP

if TYPE_CHECKING:
    from fpemu.analysis.demo.experiment import Setup

__all__ = ["demo"]

_STEPS, _QUICK_STEPS = 720, 180
_RECORDED, _QUICK_RECORDED = 40, 20


@click.command(context_settings=HELP)
@click.option("--to", default="float16", show_default=True, metavar="CAST",
              help="A format, 'format:rules' or a preset: bf16, e4m3fn, e5m2:overflow=saturate, "
              "cublas.tf32.")
@click.option("--steps", type=click.IntRange(1, 100_000), help=f"Steps of each run. [{_STEPS}]")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True,
              help="Seed of the weights and of the order of the images.")
@click.option("--loss-scale", metavar="SCALE",
              help="A power of two: 1024 or 2^10. Unless given, what the float32 run advises.")
@click.option("--out", type=click.Path(path_type=Path), default="fpemu-demo", show_default=True,
              metavar="FOLDER", help="Where report, plots and trace are written.")
@click.option("--inject", metavar="[LAYER:]STEP",
              help="Make a layer's output overflow at a step: 300 (layer output) or hidden2:300.")
@click.option("--quick", is_flag=True, help=f"{_QUICK_STEPS} steps instead of {_STEPS}.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")  # fmt: skip
def demo(
    to: str,
    steps: int | None,
    seed: int,
    loss_scale: str | None,
    out: Path,
    inject: str | None,
    quick: bool,
    as_json: bool,
) -> None:
    """Train on real digits and see what a small format would lose.

    The same network is trained in float32, with every matrix product rounded to the format, and
    so with a loss scale. The float32 run says which layers lose how much; the others, what came
    of it.
    """
    from fpemu.analysis.demo import files

    setup = _setup(to, steps, seed, loss_scale, inject, quick)
    files.prepare(out)
    with _progress(setup.recipe.steps) as progress:
        from fpemu.analysis import report
        from fpemu.analysis.demo.experiment import run

        experiment = run(setup, progress)
        progress("report and plots", 0, 0.0)
        found = report.build(experiment.trace, to=setup.to)
        written = files.write(experiment, found, out)
    from fpemu.analysis.demo import show

    if as_json:
        import json

        facts = show.to_json(experiment, found, written)
        click.echo(json.dumps(facts, indent=1, allow_nan=False))
    else:
        from rich.console import Console

        show.show(experiment, found, written, Console())


def _setup(
    to: str, steps: int | None, seed: int, loss_scale: str | None, inject: str | None, quick: bool
) -> Setup:
    from fpemu.analysis.demo.experiment import Setup
    from fpemu.analysis.demo.network import layer_names
    from fpemu.analysis.demo.spoil import Spoil
    from fpemu.analysis.demo.training import Recipe
    from fpemu.analysis.typed import read_scale
    from fpemu.cast import make_cast

    recipe = Recipe(steps=steps or (_QUICK_STEPS if quick else _STEPS), seed=seed)
    layers = layer_names(len(recipe.widths) - 1)
    return Setup(
        to=make_cast(to),
        recipe=recipe,
        loss_scale=read_scale(loss_scale) if loss_scale else None,
        spoil=Spoil.read(inject, layers, recipe.steps) if inject else None,
        recorded=_QUICK_RECORDED if quick else _RECORDED,
    )


@contextmanager
def _progress(steps: int) -> Iterator[Callable[[str, int, float], None]]:
    """Yield a callback that draws a bar for each run where stderr is a terminal, else nothing."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[note]}"),
               TimeElapsedColumn())  # fmt: skip
    console = Console(stderr=True)
    tasks: dict[str, TaskID] = {}
    quiet = not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=quiet) as bar:

        def update(what: str, step: int, loss: float) -> None:
            if what not in tasks:
                whole = steps if loss else None  # None: it only moves to and fro
                tasks[what] = bar.add_task(what, total=whole, note="")
            note = f"loss {loss:.4f}" if loss else ""
            bar.update(tasks[what], completed=step + 1, note=note)

        yield update
