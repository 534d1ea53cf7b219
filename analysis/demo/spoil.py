"""Spoil: a fault put into one layer at one step, to see that it is found and named."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fpemu.cast import Cast
from fpemu.errors import InputError, did_you_mean

__all__ = ["Spoil"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Spoil:
    """Which layer's output leaves the format's range, and when."""

    layer: str
    step: int

    @classmethod
    def read(cls, text: str, layers: Sequence[str], steps: int) -> Spoil:
        """Read 'STEP' (the last layer's output) or 'LAYER:STEP'.

        >>> Spoil.read("hidden2:30", ["hidden1", "hidden2", "output"], steps=100)
        Spoil(layer='hidden2', step=30)
        """
        name, _, number = text.rpartition(":")
        layer = name or layers[-1]
        if layer not in layers:
            raise InputError(
                f"--inject {text!r}: no layer is called {layer!r}; {did_you_mean(layer, layers)}"
                f"layers: {', '.join(layers)}"
            )
        if not (number.isascii() and number.isdigit() and int(number) < steps):
            raise InputError(
                f"--inject {text!r}: {number!r} is no step of this run; give STEP or LAYER:STEP "
                f"with a step from 0 to {steps - 1}"
            )
        return cls(layer, int(number))

    def change(self, to: Cast) -> Callable[[int], Callable[[str, Array], Array]]:
        """Return, for each step, what changes a layer's output: a power of two times it.

        The power brings the largest magnitude to four to eight times the format's largest value,
        which for formats of float32's range is infinite in float32 too.
        """

        def at(step: int) -> Callable[[str, Array], Array]:
            return lambda name, output: (
                _beyond(output, to.format.emax) if (name, step) == (self.layer, self.step)
                else output
            )  # fmt: skip

        return at


def _beyond(output: Array, emax: int) -> Array:
    _, exponent = math.frexp(float(np.max(np.abs(output))))
    return np.asarray(np.ldexp(output, emax + 4 - exponent), output.dtype)
