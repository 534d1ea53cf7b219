"""A run that fills every section of a report: three layers, Adam, a loss scale that changes."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fpemu.analysis.first_cause import EVENT, FirstCause
from fpemu.analysis.trace import Trace
from fpemu.analysis.updates import update_tally
from fpemu.blocks import block_tally
from fpemu.scaling.tally import recipe_tally

Array = np.ndarray[Any, Any]
Key = tuple[str, str]

LAYERS = ("block.0.fc1", "block.0.fc2", "head")
SHAPE = (16, 48)
STEPS = range(0, 40, 5)
SKIPPED = 20


@dataclass
class Run:
    """A recorded run, and the true arrays that were recorded, by tensor and step."""

    trace: Trace
    true: dict[Key, dict[int, Array]] = field(default_factory=dict)
    updates: dict[str, list[tuple[Array, Array]]] = field(default_factory=dict)

    def record(self, name: str, kind: str, values: Array, step: int, scale: float = 1.0) -> None:
        self.true.setdefault((name, kind), {})[step] = values
        with np.errstate(over="ignore"):
            recorded = (values * np.float32(scale)).astype(np.float32)
        self.trace.record(name, kind, recorded, step)
        self.trace.count(name, kind, step, block_tally(recorded, block=16))
        self.trace.count(name, kind, step, recipe_tally(recorded, "nvfp4"))

    def all(self, name: str, kind: str) -> Array:
        """All true values of a tensor."""
        return np.concatenate([values.ravel() for values in self.true[name, kind].values()])


def loss_scale(step: int) -> float:
    return 2.0**14 if step <= SKIPPED else 2.0**13


def full_run(seed: int = 1, gradient: float = 2.0**-18, weights: int = 0, **facts: Any) -> Run:
    """Return a run; `weights` is the seed of its weights, which ranks share."""
    runs = [{"name": "float32", "accuracy": 0.97}, {"name": "float16", "accuracy": 0.41}]
    run = Run(Trace(metadata={"seed": seed, "to": "float16", "runs": runs, **facts}))
    start = np.random.default_rng(weights)
    held = {layer: start.normal(0, 0.05, SHAPE).astype(np.float32) for layer in LAYERS}
    for step in STEPS:
        run.trace.scalar(step, "loss", 1 / (1 + step))
        run.trace.scalar(step, "loss_scale", loss_scale(step))
        for place, (layer, weight) in enumerate(held.items()):
            _step(run, layer, weight, step, gradient, np.random.default_rng((seed, step, place)))
    message = "gradients not finite: the scaler skipped the step"
    run.trace.event(SKIPPED, "", "skip", message, loss_scale=loss_scale(SKIPPED))
    cause = FirstCause("inf", None, SKIPPED, "block.0.fc1.weight", "weight_gradient", "block.0.fc1",
        "linear", "model.py:12", "y = self.fc1(x)", "backward", "producer", 60.0, 0.01, 0, 1, 1,
        768, loss_scale(SKIPPED), True)  # fmt: skip
    run.trace.event(SKIPPED, cause.name, EVENT, cause.headline, cause=cause.to_json())
    return run


def _step(
    run: Run, layer: str, weight: Array, step: int, size: float, rng: np.random.Generator
) -> None:
    name = f"{layer}.weight"
    activation = np.abs(rng.normal(0, 1, SHAPE)).astype(np.float32)
    if layer == "head" and step == 30:
        activation[0, 0] = 70000.0
    gradient = (np.exp2(rng.normal(0, 3, SHAPE)) * size * rng.choice([-1, 1], SHAPE)).astype(
        np.float32
    )
    finite = gradient.copy()
    if layer == "block.0.fc1" and step == SKIPPED:
        gradient[0, 0] = np.inf
        finite[0, 0] = 0
    scale, update = loss_scale(step), (-8 * finite).astype(np.float32)
    run.record(layer, "activation", activation, step)
    run.record(layer, "activation_gradient", finite / np.float32(2), step, scale)
    run.record(name, "weight_gradient", gradient, step, scale)
    run.record(name, "weight", weight.copy(), step)
    run.record(name, "update", update, step)
    run.trace.count(name, "update", step, update_tally(weight, update))
    run.updates.setdefault(name, []).append((weight.copy(), update))
    run.record(f"{name}.exp_avg", "optimizer_state", finite * np.float32(0.1), step)
    run.record(f"{name}.exp_avg_sq", "optimizer_state", finite * finite, step)
    if step != SKIPPED:
        weight += update


@functools.cache
def shared_run() -> Run:
    """The same run for every test that only reads it."""
    return full_run()
