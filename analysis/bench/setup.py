"""Setup: what to measure, and the arrays that all cases share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fpemu.analysis.bench.sample import sample

__all__ = ["CALL_SIZES", "FORMATS", "MODES", "Arrays", "Setup"]

FORMATS = ("float16", "bfloat16", "tf32", "float8_e4m3fn", "float8_e5m2")
MODES = ("toward_zero", "up", "nearest_away", "to_odd", "stochastic")
#: Elements of the small calls.
CALL_SIZES = (1, 1024)

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Setup:
    """What to measure."""

    to: tuple[str, ...] = FORMATS  #: names of formats
    size: int = 1 << 24  #: elements
    repeats: int = 15  #: pairs at most
    threads: int = 1
    seed: int = 0
    modes: bool = False  #: the other rounding modes too
    float64: bool = False  #: float64 input too
    scaled: bool = False  #: scaled formats too; size: a multiple of 1,024
    peers: bool = True  #: other libraries beside
    cpu_time: bool = False  #: the thread's CPU time in place of time on the wall


class Arrays:
    """A setup's arrays, each made when first asked for."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup

    @cached_property
    def x(self) -> Array:
        return sample(self.setup.size, self.setup.seed)

    @cached_property
    def out(self) -> Array:
        return np.zeros_like(self.x)

    @cached_property
    def x64(self) -> Array:
        # widened float32 values alone would leave the low bits zero
        return self.x.astype(np.float64) * (1 + 2.0**-40)

    @cached_property
    def out64(self) -> Array:
        return np.zeros_like(self.x64)
