"""Delayed: a tensor's scale from the largest magnitudes of steps before, as a frozen state."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

import numpy as np

from fpemu.errors import InputError, did_you_mean
from fpemu.libraries.library import Place, library_of
from fpemu.moments import moments
from fpemu.scaling.elements import Element, make_element
from fpemu.scaling.layout import Block
from fpemu.scaling.recipe import Recipe, Scaled, float32_of
from fpemu.scaling.rules import FixedRule

__all__ = ["Delayed", "Variant"]

Array = np.ndarray[Any, Any]

_MARGIN = 64
_FLT_MAX = float(np.finfo(np.float32).max)


class Variant(Enum):
    """Whose delayed scaling it is."""

    ENGINE = "te"  #: TransformerEngine's CUDA kernel: (max * 2^-margin) / amax
    FALLBACK = "te.pytorch"  #: its PyTorch path: (max / amax) / 2^margin
    KERAS = "keras"  #: Keras 3: as FALLBACK, from the window before this step's amax is in it


@dataclass(frozen=True)
class Delayed:
    """The state of delayed scaling of one tensor: each step gives the next state.

    >>> import numpy as np
    >>> from fpemu.scaling import Delayed
    >>> state = Delayed("e4m3fn", length=3)
    >>> for size in (2.0, 8.0, 4.0):
    ...     scaled, state = state.quantize(np.float32([size, 1.0]))
    ...     print(float(scaled.scales), state.scale)
    1.0 224.0
    0.004464285913854837 56.0
    0.01785714365541935 56.0

    element: a format, Cast or other element. length: steps that are looked back on. newest: take
    the newest amax alone ("most_recent"), not the largest of the window ("max"). margin: binades
    of headroom, at most 64. The first step is scaled by 1.
    NaN, infinity: such an amax, and 0, leaves the scale as it is; a zero amax leaves the window
    too. A scale that overflows is the largest float32; Keras's is 0 then, which makes zeros NaN.
    Values beyond saturate.
    Source: TransformerEngine's DelayedScaling; Keras 3.15's float8.
    """

    element: Element | str
    length: int = 1024
    newest: bool = False
    margin: int = 0
    variant: Variant = Variant.ENGINE
    scale: float = 1.0  #: what values are multiplied by in this step; Keras: divided by
    window: tuple[float, ...] = field(default=(), repr=False)  #: amax of steps before, newest last

    def __post_init__(self) -> None:
        object.__setattr__(self, "element", make_element(self.element))
        object.__setattr__(self, "variant", _variant(self.variant))
        if type(self.length) is not int or self.length < 1:
            raise InputError(f"length={self.length!r:.40}: must be a number of steps from 1 on")
        if type(self.margin) is not int or abs(self.margin) > _MARGIN:
            raise InputError(
                f"margin={self.margin!r:.40}: must be an int from -{_MARGIN} to {_MARGIN} binades"
            )
        window = tuple(self.window) if isinstance(self.window, list | tuple) else (None,)
        if not all(isinstance(amax, float | int) for amax in window):
            raise InputError(f"window={self.window!r:.40}: must be magnitudes, newest last")
        object.__setattr__(self, "window", window)
        self.recipe()  # which refuses a scale that is none

    def quantize(self, x: Any, **draws: Any) -> tuple[Scaled, Delayed]:
        """Return an array's codes at this step's scale, and the next state.

        draws: seed, offset, random_bits for a stochastic element.
        """
        following = self._after(x)
        return self.recipe().quantize(x, **draws), following

    def round(self, x: Any, **draws: Any) -> tuple[Array, Delayed]:
        """Return what is left of an array at this step's scale, and the next state."""
        following = self._after(x)  # first: out may be x
        return self.recipe().round(x, **draws), following

    def observe(self, amax: float) -> Delayed:
        """Return the state after a step whose largest magnitude was `amax`."""
        if not isinstance(amax, float | int | np.floating) or amax < 0:
            raise InputError(f"amax={amax!r:.40}: must be a magnitude, from 0 on, or NaN")
        with np.errstate(over="ignore"):
            return _NEXT[self.variant](self, float(np.float32(amax)))

    def recipe(self) -> Recipe:
        """Return what this step does, as a recipe of one scale that is fixed."""
        assert not isinstance(self.element, str)
        rule = FixedRule(self.scale, inverse=self.variant is Variant.KERAS)
        return Recipe(f"delayed.{self.variant.value}", Block.of("tensor"), rule, self.element)

    def _after(self, x: Any) -> Delayed:
        library = None if type(x) is np.ndarray else library_of(x)
        if library is not None and library.place(x) is Place.CUDA:
            from fpemu.scaling.on_device import largest

            amax = float(largest(library, x))
            return self.observe(amax if math.isfinite(amax) else math.nan)
        array = float32_of(x if library is None else library.to_numpy(x))
        found = moments(array)
        return self.observe(found.amax if found.count == array.size else math.nan)

    def _kept(self, amax: float) -> tuple[float, ...]:
        return (*self.window, amax)[-self.length :]

    def _top(self, window: tuple[float, ...]) -> float:
        if not window:
            return 0.0
        # a window with a NaN in it has a NaN for its largest
        return window[-1] if self.newest else float(np.max(window))

    def _scale_of(self, amax: float, kept: float) -> float:
        """The factor that an amax asks for; what cannot be asked leaves the one that is kept."""
        if not 0 < amax < math.inf:
            return kept
        assert not isinstance(self.element, str)
        top, most = np.float32(amax), np.float32(self.element.max)
        with np.errstate(over="ignore", divide="ignore"):
            if self.variant is Variant.ENGINE:
                scale = most * np.float32(2.0**-self.margin) / top
            else:
                scale = most / top / np.float32(2.0**self.margin)
        # Keras keeps the reciprocal: 0, of an infinite scale
        return float(scale) if self.variant is Variant.KERAS else min(float(scale), _FLT_MAX)


def _variant(value: Any) -> Variant:
    known = [one.value for one in Variant]
    if not isinstance(value, Variant) and value not in known:
        hint = did_you_mean(str(value), known)
        raise InputError(f"variant={value!r:.40}: {hint}give one of {', '.join(known)}")
    return Variant(value)


def _engine(state: Delayed, amax: float) -> Delayed:
    if amax == 0:
        return state
    window = state._kept(amax)
    return replace(state, scale=state._scale_of(state._top(window), state.scale), window=window)


def _keras(state: Delayed, amax: float) -> Delayed:
    # The scale comes from the window without this step, and is used in the next. It is the
    # reciprocal that is kept, and made one again where it stays: 1 / (1 / s) is not always s.
    one = np.float32(1)
    with np.errstate(divide="ignore"):
        factor = state._scale_of(state._top(state.window), float(one / np.float32(state.scale)))
        return replace(state, scale=float(one / np.float32(factor)), window=state._kept(amax))


_NEXT: dict[Variant, Callable[[Delayed, float], Delayed]] = {
    Variant.ENGINE: _engine,
    Variant.FALLBACK: _engine,
    Variant.KERAS: _keras,
}
