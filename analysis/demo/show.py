"""Show: what a demo found, for a terminal and as JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fpemu.analysis.digits import ATTRIBUTION
from fpemu.analysis.report.numbers import NOTHING, count, kind_words, number, power, share
from fpemu.analysis.report.text import render_verdict

if TYPE_CHECKING:
    from fpemu.analysis.demo.experiment import Experiment
    from fpemu.analysis.demo.training import Run
    from fpemu.analysis.report import Report
    from fpemu.tallies import Outcome

__all__ = ["lost_by_layer", "show", "to_json"]

#: A loss scale reaches the first two; of the others the layer that loses most is shown.
_SCALED, _UNSCALED = ("activation_gradient", "weight_gradient"), ("activation", "weight")


def lost_by_layer(
    experiment: Experiment,
) -> tuple[list[float], dict[tuple[str, str], list[Outcome]]]:
    """Return some loss scales, and what each tensor would lose at them, exactly.

    The scales are 1, the one used or advised, two between and one beyond.
    """
    k = math.frexp(experiment.loss_scale)[1] - 1
    exponents = {0, k // 3, 2 * k // 3, k, k + math.ceil(k / 3)} if k else {0}
    scales = [2.0**exponent for exponent in sorted(exponents)]
    trace, to = experiment.trace, experiment.setup.to
    return scales, {
        (name, kind): trace.total(name, kind).outcomes(to, scales)
        for name, kind in trace.tensors()
        if kind in _SCALED + _UNSCALED
    }


def show(experiment: Experiment, report: Report, files: Sequence[Path], console: Console) -> None:
    """Print the runs side by side, what each layer loses, the verdict and the files."""
    recipe = experiment.setup.recipe
    console.print(Text.assemble(
        ("Handwritten digits", "bold"),
        f": {len(recipe.widths) - 1} layers ({'-'.join(map(str, recipe.widths))}), "
        f"{count(recipe.steps)} steps, seed {recipe.seed}\n",
    ))  # fmt: skip
    console.print(_runs(experiment.runs))
    for note in _notes(experiment):
        console.print(Text(note, "dim"))
    console.print()
    lost = ("Lost in ", str(experiment.setup.to), ", % of the non-zero values")
    console.print(Text("".join(lost), "bold"))
    console.print(_lost(experiment, report.tolerance))
    console.print()
    render_verdict(report.verdict, console)
    console.print()
    folder = files[0].parent
    names = ", ".join(file.name for file in files[1:])
    console.print(Text.assemble(
        "Open ", (str(files[0]), "bold"), f" in a browser. Also in {folder}: {names}"
    ))  # fmt: skip
    trace = next(file for file in files if file.suffix == ".fpemu")
    console.print(Text(f"Next: fpemu advise {trace}; runs of your own: docs/report.md"))
    console.print(Text(f"Data: {ATTRIBUTION}", "dim"))


def _notes(experiment: Experiment) -> list[str]:
    """What the table of runs does not say by itself."""
    notes = []
    if len(experiment.runs) < 3:
        notes.append("No run with a loss scale: none keeps more of the gradients than 1 does.")
    if any(run.skipped for run in experiment.runs):
        notes.append(
            "A step whose gradients are not finite is skipped and the loss scale halved, as every "
            "framework does."
        )
    notes.append(
        "Accuracy says whether this small network still learns; the verdict below judges what "
        "its numbers lose."
    )
    return notes


def _runs(runs: Sequence[Run]) -> Table:
    table = _table("run", "loss scale", "test accuracy>", "train loss>", "skipped>", "")
    for run in runs:
        scale = power(run.loss_scale)
        if run.final_loss_scale != run.loss_scale:
            scale += f" to {power(run.final_loss_scale)}"
        skipped = NOTHING if run.loss_scale is None else str(run.skipped)
        broken = "" if run.diverged_at is None else f"diverged at {run.diverged_at}"
        accuracy = NOTHING if broken else f"{100 * run.test_accuracy:.2f} %"
        table.add_row(
            run.format, scale, accuracy, number(run.train_loss), skipped,
            Text(broken, "bold red"),
        )  # fmt: skip
    return table


def _lost(experiment: Experiment, tolerance: float) -> Table:
    scales, outcomes = lost_by_layer(experiment)
    names = experiment.trace.names()
    powers = [f"{power(scale)}>" for scale in scales]
    table = _table("  at a loss scale of", *powers)
    for kind in _SCALED:
        table.add_row(Text(f"{kind_words(kind)}s", "bold"))
        for name in names:
            cells = [_cell(outcome, tolerance) for outcome in outcomes[name, kind]]
            table.add_row(f"  {name}", *cells)
    table.add_row(Text.assemble(("forward", "bold"), (", which no loss scale reaches", "dim")))
    for kind in _UNSCALED:
        name = max(names, key=lambda name: _damage(outcomes[name, kind][0]))
        cell = _cell(outcomes[name, kind][0], tolerance)
        table.add_row(f"  {kind_words(kind)}s, worst: {name}", cell)
    return table


def _damage(outcome: Outcome) -> tuple[int, float]:
    """How bad it is: values that are not finite come before all others, then what is lost."""
    return outcome.nan + outcome.inf + outcome.overflow, outcome.lost_fraction


def _cell(outcome: Outcome, tolerance: float) -> Text:
    """A tensor's loss in percent, coloured; one value that is not finite spoils a step."""
    if outcome.nan or outcome.inf:
        return Text("not finite", "bold red")
    if outcome.overflow:
        return Text("overflow", "bold red")
    lost = outcome.lost_fraction
    good = "dim" if not lost else "green"
    style = good if lost <= tolerance else "yellow" if lost < 0.01 else "red"
    return Text(share(100 * lost).removesuffix(" %"), style)


def _table(*titles: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1))
    for title in titles:
        right = title.endswith(">")
        table.add_column(title.rstrip(">"), justify="right" if right else "left")
    return table


def to_json(experiment: Experiment, report: Report, files: Sequence[Path]) -> dict[str, Any]:
    """Return what a demo found as a JSON-ready dict."""
    scales, outcomes = lost_by_layer(experiment)
    recipe = experiment.setup.recipe
    found = report.to_json()
    return {
        "schema": 1,
        "to": found["to_text"],
        "seed": recipe.seed,
        "steps": recipe.steps,
        "loss_scale": experiment.loss_scale,
        "verdict": found["verdict"],
        "runs": found["runs"],
        "lost": [
            {"name": name, "kind": kind, "scale": scale, "outcome": outcome.to_json()}
            for (name, kind), row in outcomes.items()
            for scale, outcome in zip(scales, row, strict=True)
        ],
        "files": [str(file) for file in files],
        "data": ATTRIBUTION,
    }
