"""Fixed: scales that never change, and what each framework does when a step overflows at one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from fpemu.analysis.lossscale.state import Scaler, float32, setting

__all__ = [
    "ApexStatic",
    "Caffe2Static",
    "DeepSpeedStatic",
    "JmpNoOp",
    "JmpStatic",
    "NoScale",
    "Static",
]


@dataclass(frozen=True, kw_only=True, repr=False)
class _Fixed(Scaler):
    """A state that stays as it is."""

    SKIPS = False

    def _good(self) -> Self:
        return self

    def _overflowed(self) -> Self:
        return self


@dataclass(frozen=True, kw_only=True, repr=False)
class Static(_Fixed):
    """One scale for the whole run. skip: whether a step that overflows is left out."""

    NAME = "static"
    FIRST = "scale"

    scale: float = setting(1.0, "scale")
    skip: bool = setting(False, "flag")

    @property
    def skips(self) -> bool:
        return self.skip


@dataclass(frozen=True, kw_only=True, repr=False)
class _LossScale(_Fixed):
    """A fixed scale that the framework calls loss_scale."""

    FIRST = "loss_scale"

    loss_scale: float = setting(1.0, "scale")


@dataclass(frozen=True, kw_only=True, repr=False)
class Caffe2Static(_LossScale):
    """Caffe2 has no scaler: the graph multiplies the loss by a constant, `Scale(loss, ...)`."""

    NAME = "caffe2_static"


@dataclass(frozen=True, kw_only=True, repr=False)
class ApexStatic(_LossScale):
    """Apex with a number as loss_scale: gradients are not checked, and no step is skipped."""

    NAME = "apex_static"


@dataclass(frozen=True, kw_only=True, repr=False)
class DeepSpeedStatic(_LossScale):
    """DeepSpeed with a loss_scale other than 0: overflows are found and skipped all the same."""

    NAME = "deepspeed_static"
    SKIPS = True


@dataclass(frozen=True, kw_only=True, repr=False)
class JmpStatic(_Fixed):
    """jmp's `StaticLossScale`, a float32 array; skipping is left to the user."""

    NAME = "jmp_static"
    FIRST = "loss_scale"

    loss_scale: float = setting(2.0**15, "float32 scale")

    def first_scale(self) -> float:
        return float32(self.loss_scale)


@dataclass(frozen=True, kw_only=True, repr=False)
class NoScale(_Fixed):
    """No loss scaling: float32 and bfloat16 runs, or a float16 run that goes without."""

    NAME = "none"

    def first_scale(self) -> float:
        return 1.0


@dataclass(frozen=True, kw_only=True, repr=False)
class JmpNoOp(NoScale):
    """jmp's `NoOpLossScale`."""

    NAME = "jmp_noop"
