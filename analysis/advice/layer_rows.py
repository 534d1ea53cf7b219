"""Layer rows: what was chosen for each layer and tensor, and why, as rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fpemu.analysis.advice.choosing import CASTS, Chosen, Option, Options
from fpemu.analysis.advice.fits import FLOAT32, Fit, bits_of, rides_loss_scale, scales_itself
from fpemu.analysis.advice.memory import bytes_of, elements
from fpemu.analysis.advice.rows import Keep, LayerAdvice, TensorAdvice
from fpemu.analysis.by_recipe import ByRecipe
from fpemu.analysis.records import GRADIENTS
from fpemu.analysis.report.numbers import count, power, share

if TYPE_CHECKING:
    from fpemu.analysis.by_recipe import Target
    from fpemu.analysis.totals import Total

__all__ = ["kept", "layer_row", "memory_of", "tensor_rows"]

_UNKNOWN = (
    "it reads what the trace does not hold, such as the model's input: record it with "
    "watch(..., tensors='matmul')"
)

_SHARED = {"activation": "what it reads", "weight": "its weights",
           "activation_gradient": "the gradients of its results"}  # fmt: skip


def layer_row(option: Option, loss_scale: float) -> LayerAdvice:
    """Return the row of one layer."""
    layer, fits = option.layer, option.at(loss_scale)
    scales = [fits[key].scale if key in fits else 1.0 for key in CASTS]
    return LayerAdvice(
        layer=layer.name,
        to=str(option.to),
        gradient_to=str(option.gradient_to),
        module=layer.module,
        operation=layer.operation,
        matmul=layer.matmul,
        damage=sum(fit.damage for fit in fits.values()),
        memory_bytes=memory_of(option),
        activation_scale=scales[0],
        weight_scale=scales[1],
        gradient_scale=scales[2],
    )


def memory_of(option: Option) -> int:
    """Return the bytes of a layer's tensors, each once, in the formats that they would have."""
    return sum(
        bytes_of(elements(total), bits_of(total.parts, tensor_format(total, option)))
        for total in option.layer.tensors
    )


def tensor_format(total: Total, option: Option) -> Target:
    """Return the format of a tensor of a layer.

    Of a layer in 8 bits and fewer, results are read by other products in as many bits (they come
    out wide, and are kept as they are read); the gradients of its weights come out wide.
    """
    if total.kind == "weight_gradient" and scales_itself(option.to):
        return FLOAT32
    return option.gradient_to if total.kind in GRADIENTS else option.to


def kept(chosen: Chosen, options: Options) -> tuple[Keep, ...]:
    """Return the layers that are in another format than the one asked for, worst first."""
    wanted, found = options.formats[0], []
    for option in chosen.options:
        if option.to == wanted or wanted not in options.formats_for(option.layer):
            continue
        asked = options.option(option.layer, wanted)
        fits = asked.at(chosen.scale)
        damage = sum(fit.damage for fit in fits.values()) if asked.known else 0.0
        why = _why(fits) if asked.known else _UNKNOWN
        found.append(Keep(option.layer.name, damage, why, str(option.to), str(wanted)))
    return tuple(sorted(found, key=lambda one: -one.damage))


def _why(fits: Mapping[tuple[str, str], Fit]) -> str:
    """What the format does to the tensor that it damages most."""
    (name, kind), fit = max(fits.items(), key=lambda item: (not item[1].is_safe, item[1].damage))
    what = f"its {kind.replace('_', ' ')} {name}" if name else _SHARED[kind]
    where = f"in {fit.to}" + ("" if fit.scale == 1.0 else f" at scale {power(fit.scale)}")
    if fit.outcome.overflow:
        n = fit.outcome.overflow
        return f"{where}, {count(n)} value{'s' * (n != 1)} of {what} overflow{'s' * (n == 1)}"
    if not fit.is_safe and not isinstance(fit.to, ByRecipe):
        ways = [f"{share(fit.underflow_percent)} underflow" * bool(fit.outcome.underflow),
                f"{share(fit.saturated_percent)} saturate" * bool(fit.outcome.saturated)]
        return f"{where}, of the non-zero values of {what} {' and '.join(filter(None, ways))}"
    decibels = fit.noise.sqnr_db
    noise = "no error" if decibels is None else f"a signal to noise ratio of {decibels:.1f} dB"
    zeroed = share(fit.underflow_percent)
    gone = f", {zeroed} of the values 0" * (isinstance(fit.to, ByRecipe) and not fit.is_safe)
    return f"{where}, {what} would have {noise}{gone}"


def tensor_rows(chosen: Chosen, options: Options) -> tuple[TensorAdvice, ...]:
    """Return a row for each tensor, by layer."""
    return tuple(
        _tensor(total, option, chosen, options)
        for option in chosen.options
        for total in option.layer.tensors
    )


def _tensor(total: Total, option: Option, chosen: Chosen, options: Options) -> TensorAdvice:
    fits = options.fits(total, tensor_format(total, option))
    rides = rides_loss_scale(total.kind, fits.to)
    fit = fits.at(chosen.scale) if rides else fits.own
    return TensorAdvice(
        name=total.name,
        kind=total.kind,
        layer=option.layer.name,
        to=str(fits.to),
        scale=fit.scale,
        scaled=_scaled(fit, rides),
        low=fit.safe.low,
        high=fit.safe.high,
        margin_bits=fit.margin_bits,
        underflow_percent=fit.underflow_percent,
        saturated_percent=fit.saturated_percent,
        sqnr_db=fit.noise.sqnr_db,
        measured=isinstance(fits.to, ByRecipe) and total.parts.scored(fits.to).measured,
        bits_per_value=bits_of(total.parts, fits.to),
        reason=_reason(fit, option, options.formats[0]),
    )


def _scaled(fit: Fit, rides: bool) -> str:
    """Where the scale comes from."""
    if isinstance(fit.to, ByRecipe):
        return "recipe"
    return "" if fit.scale == 1.0 else "loss" if rides else "own"


def _reason(fit: Fit, option: Option, wanted: Target) -> str:
    safe = "safe" if fit.is_safe else "not safe"
    if isinstance(fit.to, ByRecipe):
        return f"{safe} with the recipe's own scales"
    if fit.to != FLOAT32:
        where = "as it is" if fit.scale == 1.0 else f"at scale {power(fit.scale)}"
        least = ", and its error least" * (scales_itself(fit.to) and fit.scale != 1.0)
        return f"{safe} {where}{least}"
    if scales_itself(option.to):
        return "comes out of its product wide"
    if option.layer.in_float32:
        return "autocast computes it in float32"
    if scales_itself(wanted) and not option.layer.matmul:
        return "no product: narrow formats are for products"
    return "kept: its layer fits no format asked for"
