"""Network: a small classifier in plain numpy that rounds whatever a matrix product touches.

Mixed-precision hardware reads narrow numbers, adds the products in float32 and writes narrow
numbers; the weights that are trained stay in float32. `round` stands for the narrow format: the
identity, or any `fpemu.Cast`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

__all__ = [
    "Array",
    "Gradients",
    "Network",
    "Rounding",
    "Signals",
    "backward",
    "cross_entropy",
    "forward",
    "layer_names",
]

Array: TypeAlias = np.ndarray[Any, Any]
Rounding: TypeAlias = Callable[[Array], Array]


def layer_names(layers: int) -> tuple[str, ...]:
    """Return what the layers are called."""
    return (*(f"hidden{i}" for i in range(1, layers)), "output")


@dataclass(frozen=True)
class Network:
    """Layers of weights and biases, with tanh between them."""

    names: tuple[str, ...]
    weights: tuple[Array, ...]  #: one (inputs, outputs) each
    biases: tuple[Array, ...]

    @classmethod
    def start(
        cls, widths: Sequence[int], rng: np.random.Generator, dtype: Any = np.float32
    ) -> Network:
        """Return a network with random weights, uniform in +-1/sqrt(inputs) (PyTorch's default)."""
        pairs = list(itertools.pairwise(widths))
        weights = [rng.uniform(-1, 1, pair) / np.sqrt(pair[0]) for pair in pairs]
        return cls(
            layer_names(len(pairs)),
            tuple(weight.astype(dtype) for weight in weights),
            tuple(np.zeros(outputs, dtype) for _, outputs in pairs),
        )


@dataclass(frozen=True)
class Signals:
    """What a forward pass leaves for the backward pass."""

    inputs: tuple[Array, ...]  #: of each layer, rounded
    weights: tuple[Array, ...]  #: of each layer, rounded
    outputs: tuple[Array, ...]  #: of each layer, rounded, before tanh; the last are the logits


@dataclass(frozen=True)
class Gradients:
    """The gradients of a loss, times its loss scale."""

    outputs: tuple[Array, ...]  #: with respect to each layer's output, not yet rounded
    weights: tuple[Array, ...]  #: rounded
    biases: tuple[Array, ...]


def _as_it_is(name: str, output: Array) -> Array:
    return output


def forward(
    network: Network,
    images: Array,
    round: Rounding,
    change: Callable[[str, Array], Array] = _as_it_is,
) -> Signals:
    """Return the signals of a batch of images; `change(layer, output)` may spoil an output."""
    inputs = [round(images)]
    outputs: list[Array] = []
    weights = [round(weight) for weight in network.weights]
    for name, weight, bias in zip(network.names, weights, network.biases, strict=True):
        if outputs:
            inputs.append(round(np.tanh(outputs[-1])))
        outputs.append(round(change(name, inputs[-1] @ weight + bias)))
    return Signals(tuple(inputs), tuple(weights), tuple(outputs))


def backward(signals: Signals, logit_gradient: Array, round: Rounding) -> Gradients:
    """Return the gradients of all layers, given the loss's with respect to the logits."""
    outputs, weights, biases = [], [], []
    gradient = logit_gradient
    for layer in reversed(range(len(signals.outputs))):
        outputs.append(gradient)
        narrow = round(gradient)
        weights.append(round(signals.inputs[layer].T @ narrow))
        biases.append(narrow.sum(0))
        if layer:
            slope = 1 - signals.inputs[layer] ** 2  # of tanh, whose value the layer's input is
            gradient = round(narrow @ signals.weights[layer].T) * slope
    return Gradients(tuple(outputs[::-1]), tuple(weights[::-1]), tuple(biases[::-1]))


def cross_entropy(logits: Array, labels: Array) -> tuple[float, Array]:
    """Return the mean cross entropy of a batch and its gradient with respect to the logits."""
    shifted = logits - logits.max(1, keepdims=True)
    exponentials = np.exp(shifted)
    sums = exponentials.sum(1, keepdims=True)
    rows = np.arange(len(labels))
    loss = float(np.mean(np.log(sums[:, 0]) - shifted[rows, labels]))
    gradient = exponentials / sums
    gradient[rows, labels] -= 1
    return loss, gradient / np.asarray(len(labels), logits.dtype)
