"""Frameworks: the dynamic loss scalers of PyTorch, Keras, MXNet, Apex and jmp, each by its rule.

Each keeps its scale in the arithmetic that the framework uses: float32 where it is a tensor, so
that it can become infinity or 0 there, float64 where it is a Python float.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Self

from fpemu.analysis.lossscale.state import Scaler, float32, setting, state

__all__ = ["Apex", "Jmp", "Keras", "MXNet", "TfKeras", "Torch"]


@dataclass(frozen=True, kw_only=True, repr=False)
class Torch(Scaler):
    """PyTorch's `torch.amp.GradScaler`.

    Source: torch 2.13, `torch/amp/grad_scaler.py` and its kernel `_amp_update_scale_`: the scale
    is a float32 tensor, multiplied in float64 and rounded. It has neither floor nor cap: halved
    often enough it is 0. A growth that would be infinite is not taken, and resets the count.
    (Unscaling multiplies by float32(1 / scale), which is infinite for scales below 2^-128: that
    overflow comes after the check, and is not seen.)
    """

    NAME = "torch"
    FIRST = "init_scale"

    init_scale: float = setting(2.0**16, "float32 scale")
    growth_factor: float = setting(2.0, "factor above 1")
    backoff_factor: float = setting(0.5, "factor below 1")
    growth_interval: int = setting(2000, "count")
    growth_tracker: int = state()

    def first_scale(self) -> float:
        return float32(self.init_scale)

    def _good(self) -> Self:
        # Equal, not beyond: where the interval was shortened below the count, it never grows.
        if self.growth_tracker + 1 != self.growth_interval:
            return replace(self, growth_tracker=self.growth_tracker + 1)
        grown = float32(self.scale * self.growth_factor)
        return replace(self, scale=_finite_or(self.scale, grown), growth_tracker=0)

    def _overflowed(self) -> Self:
        return replace(self, scale=float32(self.scale * self.backoff_factor), growth_tracker=0)


@dataclass(frozen=True, kw_only=True, repr=False)
class Keras(Scaler):
    """Keras 3's `LossScaleOptimizer`.

    Source: Keras 3.15, `keras/src/optimizers/loss_scale_optimizer.py`. The scale is a float32
    variable without floor or cap, and growth is not checked: at 2^128 it becomes infinite and,
    halved, stays so. (On JAX's CPU, scales below 2^-126 are flushed to 0; here they are kept, as
    on PyTorch.)
    """

    NAME = "keras"
    FIRST = "initial_scale"

    initial_scale: float = setting(2.0**15, "float32 scale")
    dynamic_growth_steps: int = setting(2000, "count")
    step_counter: int = state()

    def first_scale(self) -> float:
        return float32(self.initial_scale)

    def _good(self) -> Self:
        if self.step_counter != self.dynamic_growth_steps - 1:
            return replace(self, step_counter=self.step_counter + 1)
        return replace(self, scale=float32(self.scale * 2.0), step_counter=0)

    def _overflowed(self) -> Self:
        return replace(self, scale=float32(self.scale * 0.5), step_counter=0)


@dataclass(frozen=True, kw_only=True, repr=False)
class TfKeras(Scaler):
    """TensorFlow's `tf.keras.mixed_precision.LossScaleOptimizer`, before Keras 3.

    Source: TensorFlow 2.15. The scale is a float32 variable that never falls below 1 and grows
    only where that is finite; the count is compared with at-least, so it cannot be overrun.
    """

    NAME = "tf_keras"
    FIRST = "initial_scale"

    initial_scale: float = setting(2.0**15, "float32 scale")
    dynamic_growth_steps: int = setting(2000, "count")
    counter: int = state()

    def first_scale(self) -> float:
        return float32(self.initial_scale)

    def _good(self) -> Self:
        if self.counter + 1 < self.dynamic_growth_steps:
            return replace(self, counter=self.counter + 1)
        return replace(self, scale=_finite_or(self.scale, float32(self.scale * 2.0)), counter=0)

    def _overflowed(self) -> Self:
        return replace(self, scale=max(float32(self.scale / 2.0), 1.0), counter=0)


@dataclass(frozen=True, kw_only=True, repr=False)
class MXNet(Scaler):
    """MXNet's `amp.loss_scaler.LossScaler`; it takes no arguments, so these are its attributes.

    Source: MXNet 1.9.1 and 2.x, `python/mxnet/amp/loss_scaler.py`. A new scale waits for one
    step: the step after an overflow still uses the scale that overflowed. Python floats, cap
    2^24, no floor.
    """

    NAME = "mxnet"
    FIRST = "loss_scale"

    loss_scale: float = setting(2.0**16, "scale")
    max_loss_scale: float = setting(2.0**24, "scale")
    scale_seq_len: int = setting(2000, "count")
    next_scale: float = state(math.nan)
    unskipped: int = state()

    def __post_init__(self) -> None:
        super().__post_init__()
        if math.isnan(self.next_scale):
            object.__setattr__(self, "next_scale", self.scale)

    def _good(self) -> Self:
        now, unskipped = self.next_scale, self.unskipped + 1
        if unskipped != self.scale_seq_len:
            return replace(self, scale=now, unskipped=unskipped)
        return replace(self, scale=now, next_scale=min(self.max_loss_scale, now * 2.0), unskipped=0)

    def _overflowed(self) -> Self:
        now = self.next_scale
        return replace(self, scale=now, next_scale=now / 2.0, unskipped=0)


@dataclass(frozen=True, kw_only=True, repr=False)
class Apex(Scaler):
    """NVIDIA Apex's `amp.scaler.LossScaler` with `loss_scale="dynamic"`.

    Source: the last Apex with amp, `apex/amp/scaler.py`. Python floats. It starts no higher than
    its cap and has a floor only where one is given; a `scale_factor` is taken there and never
    used, so there is none here.
    """

    NAME = "apex"
    FIRST = "init_scale"

    init_scale: float = setting(2.0**16, "scale")
    scale_window: int = setting(2000, "count")
    min_loss_scale: float | None = setting(None, "scale or none")
    max_loss_scale: float = setting(2.0**24, "scale")
    unskipped: int = state()

    def first_scale(self) -> float:
        return min(self.max_loss_scale, self.init_scale)

    def _good(self) -> Self:
        if self.unskipped + 1 != self.scale_window:
            return replace(self, unskipped=self.unskipped + 1)
        return replace(self, scale=min(self.max_loss_scale, self.scale * 2.0), unskipped=0)

    def _overflowed(self) -> Self:
        return replace(self, scale=max(self.min_loss_scale or 0.0, self.scale / 2.0), unskipped=0)


@dataclass(frozen=True, kw_only=True, repr=False)
class Jmp(Scaler):
    """jmp's `DynamicLossScale`; its first scale has no default there, 2^15 is its documents'.

    Source: jmp, `jmp/_src/loss_scale.py`. The scale is taken to be a float32 array, as
    `jnp.asarray(2.0**15)` is. It grows where that is finite, and falls to min_loss_scale at most.
    (jmp's own state loses min_loss_scale on its way through `jax.jit`: it is 1 again there.)
    """

    NAME = "jmp"
    FIRST = "loss_scale"

    loss_scale: float = setting(2.0**15, "float32 scale")
    period: int = setting(2000, "count")
    factor: float = setting(2.0, "factor above 1")
    min_loss_scale: float = setting(1.0, "float32 scale")
    counter: int = state()

    def first_scale(self) -> float:
        return float32(self.loss_scale)

    def _good(self) -> Self:
        counter = (self.counter + 1) % self.period
        if self.counter != self.period - 1:
            return replace(self, counter=counter)
        grown = float32(self.scale * float32(self.factor))
        return replace(self, scale=_finite_or(self.scale, grown), counter=counter)

    def _overflowed(self) -> Self:
        smaller = float32(self.scale / float32(self.factor))
        return replace(self, scale=max(float32(self.min_loss_scale), smaller), counter=0)


def _finite_or(kept: float, grown: float) -> float:
    return grown if math.isfinite(grown) else kept
