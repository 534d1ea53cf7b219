"""Training: stochastic gradient descent on the digits, through one rounding, watched."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fpemu.analysis.demo.network import (
    Gradients,
    Network,
    Rounding,
    Signals,
    backward,
    cross_entropy,
    forward,
)
from fpemu.analysis.digits import Digits

__all__ = ["Recipe", "Run", "Step", "train"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Recipe:
    """How the network is trained; one recipe for every run, so that only the rounding differs."""

    widths: tuple[int, ...] = (64, 32, 32, 32, 32, 10)
    steps: int = 720
    batch: int = 128
    rate: float = 0.2  #: learning rate of the first step; it falls linearly to 0
    momentum: float = 0.9
    decay: float = 1e-3  #: weight decay
    seed: int = 0


@dataclass(frozen=True)
class Step:
    """What happened in one step, for whoever watches."""

    number: int
    loss: float
    loss_scale: float
    signals: Signals
    gradients: Gradients  #: times the loss scale
    updates: tuple[Array, ...]  #: what is added to each weight; empty if the step is skipped
    network: Network  #: before the step

    @property
    def skipped(self) -> bool:
        """Whether the gradients were not finite and a loss scaler left the weights alone."""
        return not self.updates


@dataclass(frozen=True)
class Run:
    """One training run and, once trained, how it ended."""

    format: str  #: what it was rounded to
    loss_scale: float | None = None  #: at the start; None: no loss scaling
    final_loss_scale: float | None = None
    losses: tuple[float, ...] = ()  #: of each step
    skipped: int = 0  #: steps
    diverged_at: int | None = None  #: the step after which a weight was not finite
    train_accuracy: float = 0.0  #: fractions
    test_accuracy: float = 0.0
    train_loss: float = 0.0  #: mean over all training images, at the end

    @property
    def name(self) -> str:
        """The format, and the loss scale if there is one."""
        return self.format + (f", loss scale {self.loss_scale:g}" if self.loss_scale else "")


def train(
    run: Run,
    data: Digits,
    recipe: Recipe,
    round: Rounding,
    *,
    change: Callable[[int], Callable[[str, Array], Array]] | None = None,
    watch: Callable[[Step], None] = lambda step: None,
) -> Run:
    """Train one network from the start, and return the run with what came of it.

    round: what every matrix product's inputs, outputs and gradients go through.
    run.loss_scale multiplies the loss's gradient; a step whose gradients are not finite is then
    skipped and the scale halved, as every framework's loss scaler does. Without it such a step is
    taken, and the run ends at the first weight that is not finite.
    change: given a step, spoils that step's outputs (`fpemu.analysis.demo.spoil`).
    """
    rng = np.random.default_rng(recipe.seed)
    network = Network.start(recipe.widths, rng)
    optimizer = _Momentum(network, recipe)
    scale, losses, skipped, diverged_at = run.loss_scale or 1.0, [], 0, None
    with np.errstate(all="ignore"):  # NaN and infinity are what is looked for
        for number, chosen in enumerate(_batches(len(data.train_labels), recipe, rng)):
            spoil = {"change": change(number)} if change else {}
            signals = forward(network, data.train_images[chosen], round, **spoil)
            loss, slope = cross_entropy(signals.outputs[-1], data.train_labels[chosen])
            gradients = backward(signals, slope * slope.dtype.type(scale), round)
            losses.append(loss)
            skip = run.loss_scale is not None and not _finite(gradients)
            new, updates = optimizer.step(network, number, gradients, scale, skip=skip)
            watch(Step(number, loss, scale, signals, gradients, updates, network))
            network = new
            if skip:
                skipped, scale = skipped + 1, scale / 2
            elif not all(np.isfinite(weight).all() for weight in network.weights):
                diverged_at = number
                break
        run = _measured(run, network, data, round)
    return replace(
        run,
        final_loss_scale=None if run.loss_scale is None else scale,
        losses=tuple(losses),
        skipped=skipped,
        diverged_at=diverged_at,
    )


def _batches(images: int, recipe: Recipe, rng: np.random.Generator) -> Iterator[Array]:
    """Yield the image numbers of each step, in a new order each time all have been used."""
    order = rng.permutation(images)
    for _ in range(recipe.steps):
        if len(order) < recipe.batch:
            order = np.concatenate([order, rng.permutation(images)])
        yield order[: recipe.batch]
        order = order[recipe.batch :]


def _finite(gradients: Gradients) -> bool:
    return all(np.isfinite(g).all() for g in (*gradients.weights, *gradients.biases))


class _Momentum:
    """Stochastic gradient descent with momentum, in float32."""

    def __init__(self, network: Network, recipe: Recipe) -> None:
        self._recipe = recipe
        self._weights = [np.zeros_like(weight) for weight in network.weights]
        self._biases = [np.zeros_like(bias) for bias in network.biases]

    def step(
        self, network: Network, number: int, gradients: Gradients, scale: float, *, skip: bool
    ) -> tuple[Network, tuple[Array, ...]]:
        """Return the network after a step, and what was added to its weights, if anything."""
        if skip:
            return network, ()
        recipe = self._recipe
        rate = recipe.rate * (1 - number / recipe.steps)
        decays = [recipe.decay * weight for weight in network.weights]
        slopes = [g / scale + d for g, d in zip(gradients.weights, decays, strict=True)]
        self._weights = self._faster(self._weights, slopes)
        self._biases = self._faster(self._biases, [g / scale for g in gradients.biases])
        updates = tuple(-rate * speed for speed in self._weights)
        shifts = [-rate * speed for speed in self._biases]
        weights = tuple(w + u for w, u in zip(network.weights, updates, strict=True))
        biases = tuple(b + s for b, s in zip(network.biases, shifts, strict=True))
        return Network(network.names, weights, biases), updates

    def _faster(self, speeds: list[Array], slopes: list[Array]) -> list[Array]:
        return [self._recipe.momentum * v + s for v, s in zip(speeds, slopes, strict=True)]


def _measured(run: Run, network: Network, data: Digits, round: Rounding) -> Run:
    """Return the run with what its network, rounded as it was trained, does on all images."""
    logits = forward(network, data.train_images, round).outputs[-1]
    tests = forward(network, data.test_images, round).outputs[-1]
    return replace(
        run,
        train_accuracy=_accuracy(logits, data.train_labels),
        test_accuracy=_accuracy(tests, data.test_labels),
        train_loss=cross_entropy(logits, data.train_labels)[0],
    )


def _accuracy(logits: Array, labels: Array) -> float:
    """Share of the images whose largest logit is the label's; no NaN ever is."""
    return float(np.mean(~np.isnan(logits).any(1) & (logits.argmax(1) == labels)))
