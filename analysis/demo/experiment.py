"""Experiment: the same network trained three times, and what float16 or FP8 would have lost.

Once in float32, which is recorded; once rounded to the format; once rounded with a loss scale.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import fpemu
from fpemu.analysis.demo.network import Array, Rounding
from fpemu.analysis.demo.training import Recipe, Run, Step, train
from fpemu.analysis.demo.watch import Recorder, Reporter
from fpemu.analysis.digits import ATTRIBUTION, digits
from fpemu.analysis.scales import safe_scales
from fpemu.analysis.trace import Trace
from fpemu.cast import Cast, make_cast

if TYPE_CHECKING:
    from fpemu.analysis.demo.spoil import Spoil

__all__ = ["Experiment", "Setup", "run"]

Progress = Callable[[str, int, float], None]


@dataclass(frozen=True)
class Setup:
    """What is asked for."""

    to: Cast = field(default_factory=lambda: make_cast("float16"))
    recipe: Recipe = field(default_factory=Recipe)
    loss_scale: float | None = None  #: None: the one that the float32 run advises
    spoil: Spoil | None = None
    recorded: int = 40  #: steps, about; each step that leaves the range comes on top


@dataclass(frozen=True)
class Experiment:
    """What came out."""

    setup: Setup
    trace: Trace  #: of the float32 run, with the losses and events of all
    runs: tuple[Run, ...]
    loss_scale: float  #: of the last run, or advised and 1: then there is no such run


def run(setup: Setup, progress: Progress = lambda run, step, loss: None) -> Experiment:
    """Train in float32, rounded, and rounded with a loss scale; return runs and trace.

    >>> from fpemu.analysis.demo import Recipe, Setup, run
    >>> found = run(Setup(recipe=Recipe(steps=20)))
    >>> [run.name for run in found.runs][:2], found.trace.names()[0]
    (['float32', 'float16'], 'hidden1')

    progress: called with the run's name, the step and the loss after each step.
    Refused with an InputError: casts that a tally cannot count (stochastic ones, some P3109).
    """
    cast, to = setup.to, str(setup.to)
    fpemu.Tally().outcome(cast)  # refused now rather than after the training
    trace = Trace(metadata=_facts(setup))

    def rounded(x: Array) -> Array:
        return fpemu.round(x, cast, threads=1)  # type: ignore[no-any-return]

    recorder = Recorder(trace, cast, setup.recipe, setup.recorded)
    runs = [_train(setup, Run("float32"), lambda x: x, recorder, progress)]
    scale = setup.loss_scale or _advised(trace, cast)
    for run in (Run(to), Run(to, scale)):
        if run.loss_scale != 1.0 or setup.loss_scale:
            watch = Reporter(trace, run.name)
            runs.append(_train(setup, run, rounded, watch, progress))
    trace.metadata["recorded"] = f"every {recorder.every} steps, and each that leaves the range"
    trace.metadata["runs"] = [_row(run) for run in runs]
    return Experiment(setup, trace, tuple(runs), scale)


def _train(
    setup: Setup, run: Run, round: Rounding, watch: Callable[[Step], None], progress: Progress
) -> Run:
    """Train one network from the start, watched, and return its run."""

    def each(step: Step) -> None:
        watch(step)
        progress(run.name, step.number, step.loss)

    change = setup.spoil.change(setup.to) if setup.spoil else None
    return train(run, digits(), setup.recipe, round, change=change, watch=each)


def _advised(trace: Trace, cast: Cast) -> float:
    """The loss scale that serves all gradients of the float32 run."""
    gradients = [
        trace.total(name, kind)
        for name, kind in trace.tensors()
        if kind in ("activation_gradient", "weight_gradient")
    ]
    return safe_scales(gradients, cast).best


def _facts(setup: Setup) -> dict[str, Any]:
    recipe = setup.recipe
    facts: dict[str, Any] = {
        "to": str(setup.to),
        "seed": recipe.seed,
        "steps": recipe.steps,
        "network": f"{'-'.join(map(str, recipe.widths))}, tanh, batches of {recipe.batch}",
        "optimizer": f"SGD, rate {recipe.rate} falling to 0, momentum {recipe.momentum}, "
        f"weight decay {recipe.decay}",
        "data": ATTRIBUTION,
    }
    if setup.spoil:
        facts["injected"] = f"{setup.spoil.layer}:{setup.spoil.step}"
    return facts


def _row(run: Run) -> dict[str, Any]:
    return {
        "run": run.format,
        "test_accuracy_percent": 100 * run.test_accuracy,
        "train_loss": run.train_loss,
        "loss_scale": run.loss_scale,
        "final_loss_scale": run.final_loss_scale,
        "skipped_steps": run.skipped,
        "diverged_at_step": run.diverged_at,
    }
