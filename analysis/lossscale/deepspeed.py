"""DeepSpeed: its loss scaler with hysteresis, and the rules of its fused and unfused optimizers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from fpemu.analysis.lossscale.state import Scaler, setting, state
from fpemu.errors import InputError

__all__ = ["CONFIG", "DeepSpeed", "DeepSpeedFused", "DeepSpeedUnfused"]

#: The keys of a DeepSpeed config's "fp16" section -> the classes' own names for them.
CONFIG = {
    "hysteresis": "delayed_shift",
    "loss_scale_window": "scale_window",
    "min_loss_scale": "min_scale",
}


@dataclass(frozen=True, kw_only=True, repr=False)
class _Windowed(Scaler):
    """What DeepSpeed's share: growth after each full window since the last overflow.

    Python floats, no cap. The step after an overflow does not count, so a scale grows one step
    later than elsewhere; before any overflow the window begins with the first step.
    """

    FIRST = "init_scale"

    init_scale: float = setting(2.0**16, "scale")
    scale_window: int = setting(1000, "count")
    min_scale: float = setting(1.0, "scale")
    cur_iter: int = state()
    last_overflow_iter: int = state(-1)

    @property
    def _grows(self) -> bool:
        stable = self.cur_iter - self.last_overflow_iter - 1
        return stable > 0 and stable % self.scale_window == 0

    @property
    def _lower(self) -> float:
        return max(self.scale / 2.0, self.min_scale)

    def _good(self) -> Self:
        scale = self.scale * 2.0 if self._grows else self.scale
        return replace(self, scale=scale, cur_iter=self.cur_iter + 1)

    def _overflowed(self) -> Self:
        return replace(
            self, scale=self._lower, last_overflow_iter=self.cur_iter, cur_iter=self.cur_iter + 1
        )


@dataclass(frozen=True, kw_only=True, repr=False)
class DeepSpeed(_Windowed):
    """DeepSpeed's `DynamicLossScaler`, which ZeRO uses; the defaults are its config's.

    Source: `deepspeed/runtime/fp16/loss_scaler.py`. Hysteresis: of the first `delayed_shift` - 1
    overflows since the last growth, none lowers the scale; with consecutive_hysteresis each good
    step refills them. An overflow at the floor ends the run, unless raise_error_at_min_scale is
    False. A config's names (hysteresis, loss_scale_window, min_loss_scale) are taken too.
    """

    NAME = "deepspeed"

    delayed_shift: int = setting(2, "count")
    consecutive_hysteresis: bool = setting(False, "flag")
    raise_error_at_min_scale: bool = setting(True, "flag")
    cur_hysteresis: int = state(-1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.cur_hysteresis < 0:
            object.__setattr__(self, "cur_hysteresis", self.delayed_shift)

    def stops(self, overflow: bool) -> bool:
        at_floor = self.scale == self.min_scale and self.raise_error_at_min_scale
        return overflow and at_floor and self._shifts

    @property
    def _shifts(self) -> bool:
        return self.delayed_shift == 1 or self.cur_hysteresis == 1

    def _good(self) -> Self:
        refilled = self.consecutive_hysteresis or self._grows
        left = self.delayed_shift if refilled else self.cur_hysteresis
        return replace(super()._good(), cur_hysteresis=left)

    def _overflowed(self) -> Self:
        if self.stops(True):
            raise InputError(
                f"loss scale {self.scale:g}: DeepSpeed ends the run at an overflow at its floor, "
                "min_scale; raise_error_at_min_scale=False goes on"
            )
        lowered = super()._overflowed()
        if self._shifts:
            return lowered
        return replace(lowered, scale=self.scale, cur_hysteresis=self.cur_hysteresis - 1)


@dataclass(frozen=True, kw_only=True, repr=False)
class DeepSpeedFused(_Windowed):
    """The rule of DeepSpeed's `FP16_Optimizer`, without arguments; a config starts at 2^16.

    Source: `deepspeed/runtime/fp16/fused_optimizer.py`. Hysteresis plays no part, and at the
    floor it goes on.
    """

    NAME = "deepspeed_fused"

    init_scale: float = setting(2.0**32, "scale")


@dataclass(frozen=True, kw_only=True, repr=False)
class DeepSpeedUnfused(_Windowed):
    """The rule of DeepSpeed's `FP16_UnfusedOptimizer`, without arguments; a config's floor is 1.

    Source: `deepspeed/runtime/fp16/unfused_optimizer.py`.
    """

    NAME = "deepspeed_unfused"

    min_scale: float = setting(0.25, "scale")
