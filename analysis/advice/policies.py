"""Policies: what is advised as a policy that `fpemu.torch.emulate` runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from fpemu.analysis.advice.fits import FLOAT32, scales_itself
from fpemu.analysis.advice.operations import PRODUCTS, WIDE
from fpemu.analysis.by_recipe import ByRecipe, Target
from fpemu.cast import Cast, Overflow, make_cast
from fpemu.errors import FormatError
from fpemu.format import Format
from fpemu.policies import Override, Policy, Products, Rule, find_policy
from fpemu.policies.override import exactly

if TYPE_CHECKING:
    from fpemu.analysis.advice.rows import Advice, LayerAdvice

__all__ = ["advised_policy", "scaled_cast"]


def scaled_cast(cast: Cast, scale: float) -> Cast:
    """Return the cast of x * scale, divided by scale again: that of a format of another bias.

    >>> import fpemu
    >>> from fpemu.analysis.advice.policies import scaled_cast
    >>> scaled = scaled_cast(fpemu.Cast("e4m3fn"), 2.0**10)
    >>> scaled.format.name, scaled.format.bias, scaled.format.max
    ('float8_e4m3fn.s+10', 17, 0.4375)

    It saturates: what was recorded fits, what was not may lie beyond. A scale at which values
    leave float32 is brought to the nearest one at which none does.
    """
    form, shift = cast.format, round(math.log2(scale))
    if shift:
        form = _shifted(form, shift)
    return replace(cast, format=form, overflow=Overflow.SATURATE)


def _shifted(form: Format, shift: int) -> Format:
    for less in range(abs(shift)):
        shift_by = shift - int(math.copysign(less, shift))
        try:
            return replace(form, name=f"{form.name}.s{shift_by:+d}", bias=form.bias + shift_by)
        except FormatError:
            continue
    return form


def advised_policy(advice: Advice, base: Policy | str | None) -> Policy:
    """Return a policy with the loss scale, and overrides for each layer that differs from it."""
    wanted = advice.formats[0]
    found = find_policy(base) if base is not None else _base(advice, wanted)
    narrow = scales_itself(found.compute)
    if narrow:
        found = _for_products(found, advice)
    narrow = narrow or found.products is not None
    scale = advice.loss_scale_advised
    loss_scale = scale if scale != 1.0 or isinstance(found.loss_scale, str) else found.loss_scale
    overrides = [o for layer in sorted(advice.layers, key=_breadth)
                 for o in _overrides(layer, found, narrow, advice)]  # fmt: skip
    return found.replace(
        name=f"{found.name}+advised",
        loss_scale=loss_scale,
        overrides=(*found.overrides, *overrides),
    )


def _breadth(layer: LayerAdvice) -> bool:
    """Overrides of operations come first: the last one that matches wins."""
    return layer.module is not None


def _base(advice: Advice, wanted: Target) -> Policy:
    """The policy that one would use for a format or a recipe."""
    if isinstance(wanted, ByRecipe):
        return find_policy(wanted.recipe)
    name = wanted.format.name
    if name in ("float16", "bfloat16"):
        return find_policy(f"torch.autocast.cuda.{name}")
    if scales_itself(wanted):
        return Policy(name, replace(wanted, overflow=Overflow.SATURATE), operations=PRODUCTS)
    return find_policy("torch.autocast.cuda.float16").replace(
        name=name, compute=wanted, loss_scale=None
    )


def _for_products(base: Policy, advice: Advice) -> Policy:
    """The policy with products as a matrix unit for narrow formats computes them: wide results.

    A policy that lowers everything would round losses and sums to 8 bits, which no scale mends.
    """
    listed = base.operations if base.otherwise is not Rule.LOWER else PRODUCTS
    if Rule.LOWER not in listed.lists():
        listed = PRODUCTS
    gradient = next((x.gradient_to for x in advice.layers if x.to == str(advice.formats[0])), None)
    changes: dict[str, object] = {"operations": listed, "otherwise": Rule.KEEP}
    if gradient is not None and gradient != "float32":
        to = _target(gradient, advice)
        if isinstance(to, Cast):
            changes["gradient"] = replace(to, overflow=Overflow.SATURATE)
    return base.replace(result=base.result or FLOAT32, **changes)


def _target(text: str, advice: Advice) -> Target:
    """The cast or recipe of a text: those of one's own are known to the advice alone."""
    return next((to for to in advice.formats if str(to) == text), None) or make_cast(text)


def _overrides(
    layer: LayerAdvice, base: Policy, narrow: bool, advice: Advice
) -> Iterator[Override]:
    module = None if layer.module is None else exactly(layer.module)
    if module is not None and any(c.isspace() or c in ";#" for c in module):
        return  # no module of PyTorch's: a trace of one's own
    where = partial(Override, module=module, operation=layer.operation)
    if layer.to == "float32":
        if not _is_wide(layer, base, narrow):
            yield where(Rule.FLOAT32)
        return
    to, gradient_to = (_target(text, advice) for text in (layer.to, layer.gradient_to))
    if isinstance(to, ByRecipe) or isinstance(gradient_to, ByRecipe):
        yield from _by_recipe(layer, where, base, to, gradient_to)
        return
    if not scales_itself(to):
        if to.format != base.compute.format and not _is_wide(layer, base, narrow):
            yield where(to if layer.matmul else Rule.FLOAT32)
        return
    if not narrow or not layer.matmul:
        return
    for kind, cast, scale in (
        ("activation", to, layer.activation_scale),
        ("weight", to, layer.weight_scale),
        ("gradient", gradient_to, layer.gradient_scale / advice.loss_scale_advised),
    ):
        yield where(scaled_cast(cast, scale), kind=kind)


def _by_recipe(
    layer: LayerAdvice, where: Callable[..., Override], base: Policy, to: Target, gradient: Target
) -> Iterator[Override]:
    """What makes a layer's products scale their operands, where the policy does not already."""
    if not layer.matmul or not isinstance(to, ByRecipe) or not isinstance(gradient, ByRecipe):
        return
    if base.products is None or str(base.products) != str(Products.of(to.recipe)):
        yield where(to.recipe)
    if gradient != to:
        yield where(gradient.recipe, kind="gradient")


def _is_wide(layer: LayerAdvice, base: Policy, narrow: bool) -> bool:
    """Whether the policy leaves a layer wide anyway: no product where only products are lowered."""
    if layer.matmul:
        return False
    if narrow:
        return True
    return layer.operation is not None and base.rule(layer.operation) in WIDE
