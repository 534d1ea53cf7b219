"""Choosing: a format for each layer, and one loss scale for the gradients that 16 bits hold."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from fpemu.analysis.advice.fits import FLOAT32, Fit, Fits, rides_loss_scale, scales_itself
from fpemu.analysis.advice.flow import joined
from fpemu.analysis.by_recipe import ByRecipe
from fpemu.analysis.scales import SCALES, SafeScales, is_safe, safe_of
from fpemu.cast import Cast

if TYPE_CHECKING:
    from fpemu.analysis.advice.flow import Read
    from fpemu.analysis.advice.layers import Layer
    from fpemu.analysis.by_recipe import Target
    from fpemu.analysis.parts import Parts
    from fpemu.analysis.totals import Total

__all__ = ["CASTS", "Chosen", "Option", "Options", "choose", "loss_scale_for"]


Key = tuple[str, str]

#: Of a layer in 8 bits and fewer: all that its products read, its weights, and its results'
#: gradients, each of which gets one cast.
CASTS = (("", "activation"), ("", "weight"), ("", "activation_gradient"))


@dataclass(frozen=True)
class Option:
    """One layer in one format: its tensors, each with what the format does to it.

    In a format of 8 bits and fewer, a layer's products read their inputs, weights and gradients in
    it, and what comes out is wide: there the fits are those of CASTS.
    """

    layer: Layer
    to: Target
    gradient_to: Target
    fits: Mapping[Key, Fits]  #: by name and kind
    known: bool = True  #: whether all is recorded that the format would round

    def at(self, loss_scale: float) -> dict[Key, Fit]:
        """Return what becomes of each tensor if the loss is multiplied by a scale."""
        return {
            key: fits.at(loss_scale) if _rides(key, fits) else fits.own
            for key, fits in self.fits.items()
        }

    def safe_at(self, loss_scale: float) -> bool:
        """Whether every tensor is safe then."""
        return self.known and all(
            is_safe(fits.outcomes[loss_scale], fits.tolerance)
            if _rides(key, fits)
            else fits.own.is_safe
            for key, fits in self.fits.items()
        )

    @cached_property
    def can_be_safe(self) -> bool:
        """Whether every tensor is safe for itself at some scale that it can have."""
        return self.known and all(
            fits.safe.safe if _rides(key, fits) else fits.own.is_safe
            for key, fits in self.fits.items()
        )

    @property
    def riding(self) -> list[Fits]:
        """The tensors that the loss scale multiplies and that have no scale of their own."""
        return [fits for key, fits in self.fits.items() if _rides(key, fits)]

    def damage(self, loss_scale: float) -> float:
        """The sum of the damage to its tensors."""
        return sum(fit.damage for fit in self.at(loss_scale).values())


def _kin(a: ByRecipe, b: ByRecipe) -> bool:
    """Whether two recipes differ in the element alone, which has as many bits, as E4M3 and E5M2."""
    same = a.recipe.replace(name="", element=b.recipe.element) == b.recipe.replace(name="")
    return same and a.bits == b.bits


def _rides(key: Key, fits: Fits) -> bool:
    return rides_loss_scale(key[1], fits.to)


class Options:
    """Every layer in every format asked for, and in float32; counted when looked at."""

    def __init__(
        self,
        layers: Sequence[Layer],
        formats: Sequence[Target],
        tolerance: float,
        inputs: Mapping[str, Read],
    ) -> None:
        self.layers, self.tolerance, self.inputs = tuple(layers), tolerance, inputs
        self.formats = tuple(dict.fromkeys((*formats, FLOAT32)))
        self._fits: dict[tuple[str, str, Target], Fits] = {}
        self._known: dict[tuple[str, Target], Option] = {}

    def option(self, layer: Layer, to: Target) -> Option:
        """Return a layer in a format."""
        found = self._known.get((layer.name, to))
        if found is None:
            found = self._known[layer.name, to] = self._made(layer, to)
        return found

    def fits(self, total: Total, to: Target) -> Fits:
        """Return a tensor in a format."""
        key = (total.name, total.kind, to)
        if key not in self._fits:
            self._fits[key] = Fits(total.parts, to, self.tolerance)
        return self._fits[key]

    def _made(self, layer: Layer, to: Target) -> Option:
        if scales_itself(to):
            return self._narrow(layer, to)
        fits = {(t.name, t.kind): self.fits(t, to) for t in layer.tensors}
        return Option(layer, to, to, fits)

    def _narrow(self, layer: Layer, to: Target) -> Option:
        read = self.inputs[layer.name]
        weights, gradients = (
            joined([t for t in layer.tensors if t.kind == kind]) for _, kind in CASTS[1:]
        )
        gradient_to = self._gradient_format(gradients, to)
        casts = zip(
            CASTS, (read.parts, weights, gradients), (to, to, gradient_to), strict=True
        )
        fits = {
            key: Fits(parts, cast, self.tolerance)
            for key, parts, cast in casts
            if parts is not None
        }
        return Option(layer, to, gradient_to, fits, read.whole)

    def _gradient_format(self, gradients: Parts | None, to: Target) -> Target:
        """Of the formats of as many bits, the one with the most safe scales.

        E4M3 goes forward and E5M2 backward in FP8 training, if both were asked for: gradients
        spread over more binades, and move while a run goes on.
        """
        if gradients is None:
            return to
        if isinstance(to, ByRecipe):
            kin = [to, *(f for f in self.formats if isinstance(f, ByRecipe) and _kin(f, to))]
            return min(kin, key=lambda form: Fits(gradients, form, self.tolerance).own.damage)
        casts = [f for f in self.formats if isinstance(f, Cast)]
        same = [f for f in casts if f.format.bits == to.format.bits]
        return max(same, key=lambda form: Fits(gradients, form, self.tolerance).safe_scales)

    def formats_for(self, layer: Layer) -> tuple[Target, ...]:
        """Return the formats that a layer may have: narrow ones are for products alone."""
        if layer.in_float32:
            return (FLOAT32,)
        return tuple(f for f in self.formats if layer.matmul or not scales_itself(f))


@dataclass(frozen=True)
class Chosen:
    """A format for each layer, and a loss scale."""

    options: tuple[Option, ...]
    loss_scale: SafeScales | None  #: of true gradients; None: none of them needs one
    scale: float  #: the one to use


def choose(options: Options) -> Chosen:
    """Return for each layer the first format that keeps its values, and the loss scale for that.

    Layers whose gradients do not fit the loss scale that serves most of them go on to the next
    format in the list, and at last to float32.
    """
    found = [_first(options, layer, lambda option: option.can_be_safe) for layer in options.layers]
    scale = _best_for([option for option in found if option.riding])
    found = [
        option
        if option.safe_at(scale)
        else _first(options, option.layer, lambda other: other.safe_at(scale))
        for option in found
    ]
    safe = loss_scale_for(found, options.tolerance)
    return Chosen(tuple(found), safe, safe.best if safe else 1.0)


def loss_scale_for(found: Iterable[Option], tolerance: float) -> SafeScales | None:
    """Return the loss scales that serve all gradients without a scale of their own."""
    riding = [fits for option in found for fits in option.riding]
    if not riding:
        return None
    # formats wider in range go along with any scale that the narrowest can take
    outcomes = [list(fits.outcomes.values()) for fits in riding]
    names = dict.fromkeys(str(fits.to) for fits in riding)
    return safe_of(outcomes, ", ".join(names), SCALES, tolerance)


def _first(options: Options, layer: Layer, good: Callable[[Option], bool]) -> Option:
    found = (options.option(layer, to) for to in options.formats_for(layer))
    return next(option for option in found if option.to == FLOAT32 or good(option))


def _best_for(found: Sequence[Option]) -> float:
    """The scale at which the most options are safe: 1, or the middle of the widest run of those."""
    safe = [frozenset(o.layer.name for o in found if o.safe_at(scale)) for scale in SCALES]
    most = max(map(len, safe), default=0)
    one = SCALES.index(1.0)
    if not found or len(safe[one]) == most:
        return 1.0
    runs: list[tuple[int, int]] = []
    place = 0
    for same, run in itertools.groupby(safe):
        length = len(list(run))
        if len(same) == most:
            runs.append((length, place + (length - 1) // 2))
        place += length
    return SCALES[max(runs)[1]]
