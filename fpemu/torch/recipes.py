"""Recipes: kernels of PyTorch that round more than their result, measured on its CPU kernels.

Most kernels for narrow formats widen their inputs, compute in float32 and round once. Those here
convert Python numbers to the format first, or are written with vectors of the format itself, so
that each step rounds.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from fpemu.cast import Cast, Rounding
from fpemu.emulate import round as round_array
from fpemu.errors import InputError, did_you_mean
from fpemu.measures import nextafter
from fpemu.policies import Policy
from fpemu.torch.onednn import without_onednn
from fpemu.torch.words import words

__all__ = ["Recipe", "on_grid", "recipes_of"]

Tensor = torch.Tensor
Round = Callable[[Tensor], Tensor]
#: (function of ATen, its arguments, keywords, Cast of its result, rounds a new tensor in place)
Recipe = Callable[[Any, tuple[Any, ...], dict[str, Any], Cast, Round], Any]


# --- numbers that are converted to the format first ----------------------------------------------


@lru_cache(maxsize=4096)
def _number(value: float, cast: Cast) -> float:
    with np.errstate(over="ignore"):
        return float(round_array(np.float32(value), cast))


def on_grid(value: float, cast: Cast) -> bool:
    """Whether a cast leaves a number as it is."""
    return cast.rounding is not Rounding.STOCHASTIC and _number(value, cast) == value


def _numbers(func: Any, args: Any, kwargs: Any, cast: Cast, r: Round) -> Any:
    """Python numbers, and float32 tensors without dimensions, are rounded before they are used."""
    return func(*_rounded(args, cast), **_rounded_names(kwargs, cast))


def _rounded(values: Any, cast: Cast) -> list[Any]:
    return [_rounded_one(value, cast) for value in values]


def _rounded_names(values: dict[str, Any], cast: Cast) -> dict[str, Any]:
    return {name: _rounded_one(value, cast) for name, value in values.items()}


def _rounded_one(value: Any, cast: Cast) -> Any:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _number(value, cast)
    if isinstance(value, Tensor) and not value.dim() and value.is_floating_point():
        return torch.full((), _number(value.item(), cast))
    return value


# --- kernels whose steps round -------------------------------------------------------------------


def _pow(func: Any, args: Any, kwargs: Any, cast: Cast, r: Round) -> Any:
    """x**3 is (x * x) * x, x**-2 is 1 / (x * x)."""
    x, exponent = _rounded(args, cast)
    if isinstance(exponent, Tensor):
        return func(x, exponent)
    if exponent == 3:
        return r(x * x) * x
    return 1 / r(x * x) if exponent == -2 else func(x, exponent)


def _logarithmic(log: Callable[[Tensor], Tensor]) -> Recipe:
    """x * log(y), 0 for x = 0 and NaN for y = NaN."""

    def recipe(func: Any, args: Any, kwargs: Any, cast: Cast, r: Round) -> Any:
        x, y = (torch.as_tensor(value) for value in _rounded(args, cast))
        product = torch.where(x == 0, 0.0, x * r(log(y)))
        return torch.where(y.isnan(), y, product)

    return recipe


def _entr(func: Any, args: Any, kwargs: Any, cast: Cast, r: Round) -> Any:
    (x,) = args
    other = torch.where(x.isnan(), x, torch.where(x == 0, 0.0, -torch.inf))
    return torch.where(x > 0, -x * r(x.log()), other)


def _logit(func: Any, args: Any, kwargs: Any, cast: Cast, r: Round) -> Any:
    x, *eps = args
    if eps and eps[0] is not None and eps[0] >= 0:
        low = _number(eps[0], cast)
        x = x.clamp(low, _number(1 - low, cast))
    return r(x / r(1 - x)).log()


def _ldexp(func: Any, args: Any, kwargs: Any, cast: Cast, r: Round) -> Any:
    x, exponent = args
    return x * r(2.0**exponent)


def _own_kernel(func: Any, args: Any, kwargs: Any, cast: Cast, r: Round) -> Any:
    """PyTorch's kernel, not oneDNN's, which it takes for float32 where it can."""
    with without_onednn():
        return func(*args, **kwargs)


def _mse(func: Any, args: Any, kwargs: Any, cast: Cast, r: Round) -> Any:
    x, y, reduction = [*args, 1][:3]
    return _reduced(r(x - y).square_(), reduction, r)


def _reduced(losses: Tensor, reduction: int, r: Round) -> Tensor:
    """The mean (1) or the sum (2) of losses in the format, or all of them (0)."""
    if reduction == 0:
        return losses
    return r(losses).mean() if reduction == 1 else r(losses).sum()


def _mse_backward(func: Any, args: Any, kwargs: Any, cast: Cast, r: Round) -> Any:
    upper, x, y, reduction = args
    norm = _number(2 / x.numel() if reduction == 1 else 2.0, cast)
    return r(r(x - y).mul_(norm)) * upper


def _huber(func: Any, args: Any, kwargs: Any, cast: Cast, r: Round) -> Any:
    given: list[Any] = [*args, *(1, 1.0)[len(args) - 2 :]]
    x, y, reduction, delta = given
    delta = _number(delta, cast)
    distance = r((x - y).abs_())
    linear = r(distance - _number(0.5 * delta, cast)) * delta
    near = r(0.5 * distance) * distance
    return _reduced(torch.where(distance <= delta, near, linear), reduction, r)


def _huber_backward(func: Any, args: Any, kwargs: Any, cast: Cast, r: Round) -> Any:
    upper, x, y, reduction, delta = args
    delta = _number(delta, cast)
    norm = _number(1 / x.numel() if reduction == 1 else 1.0, cast)
    distance = r(x - y)
    upper = r(norm * upper)
    inner = torch.where(distance >= delta, upper * delta, upper * distance)
    return torch.where(distance <= -delta, -upper * delta, inner)


def _smooth_l1(func: Any, args: Any, kwargs: Any, cast: Cast, r: Round) -> Any:
    given: list[Any] = [*args, *(1, 1.0)[len(args) - 2 :]]
    x, y, reduction, beta = given
    if beta == 0:
        return func(*args, **kwargs)
    beta = _number(beta, cast)
    distance = r((x - y).abs_())
    near = r(r(0.5 * distance) * distance) / beta
    far = distance - _number(0.5 * beta, cast)
    return _reduced(torch.where(distance < beta, near, far), reduction, r)


def _sigmoid_backward(func: Any, args: Any, kwargs: Any, cast: Cast, r: Round) -> Any:
    upper, y = args
    return r(upper * r(1 - y)) * y


def _logit_backward(func: Any, args: Any, kwargs: Any, cast: Cast, r: Round) -> Any:
    upper, x, *eps = args
    inside = upper / r(x * r(1 - x))
    if not eps or eps[0] is None or eps[0] < 0:
        return torch.where((x < 0) | (x > 1), torch.nan, inside)
    low = _number(eps[0], cast)
    return torch.where((x >= low) & (x <= _number(1 - low, cast)), inside, 0.0)


def _division(func: Any, args: Any, kwargs: Any, cast: Cast, r: Round) -> Any:
    x, y = args
    mode = kwargs.get("rounding_mode", "floor" if "floor" in func.name() else None)
    if mode is None or not isinstance(y, Tensor) or not y.dim():
        return func(_rounded_one(x, cast), y, **kwargs)
    return _floored(x, y, r) if mode == "floor" else r(x / y).trunc_()


def _floored(x: Tensor, y: Tensor, r: Round) -> Tensor:
    """Python's rule for floats, each step rounded."""
    with np.errstate(invalid="ignore"):  # torch's float32 kernel gives NaN for large quotients
        rest = torch.from_numpy(np.fmod(x.numpy(), y.numpy()))
    quotient = r(r(x - rest) / y)
    below = (rest != 0) & ((y < 0) != (rest < 0))
    quotient = r(torch.where(below, quotient - 1, quotient))
    floor = quotient.floor()
    floor = r(torch.where(quotient - floor > 0.5, floor + 1, floor))
    plain = x / y
    zero = torch.copysign(torch.zeros_like(plain), plain)
    return torch.where(y == 0, plain, torch.where(quotient == 0, zero, floor))


def _next(func: Any, args: Any, kwargs: Any, cast: Cast, r: Round) -> Any:
    """The neighbour in the format, not in float32."""
    x, direction = torch.broadcast_tensors(*args)  # type: ignore[no-untyped-call]
    found = nextafter(x.numpy(), direction.numpy(), cast.format)
    return torch.from_numpy(np.asarray(found))


def _finite(func: Any, args: Any, kwargs: Any, cast: Cast, r: Round) -> Any:
    """Infinity becomes the format's largest number, not float32's."""
    x, nan, above, below = [*args, None, None, None][:4]
    largest = cast.format.max
    above = largest if above is None else above
    return func(x, nan, above, -largest if below is None else below)


#: What depends on the format itself, on any device.
_FORMATS: dict[str, Recipe] = {"nextafter": _next, "nan_to_num": _finite}

_NUMBERS_FIRST = words("""
    add sub rsub eq ne lt le gt ge fmod remainder hardshrink hardshrink_backward
    softshrink_backward atan2 where maximum minimum
""")

#: Kernels of the CPU for bfloat16.
_BFLOAT16: dict[str, Recipe] = {
    **_FORMATS,
    **dict.fromkeys(_NUMBERS_FIRST, _numbers),
    "pow": _pow,
    "xlogy": _logarithmic(torch.log),
    "special_xlog1py": _logarithmic(torch.log1p),
    "special_entr": _entr,
    "logit": _logit,
    "logit_backward": _logit_backward,
    "mse_loss": _mse,
    "mse_loss_backward": _mse_backward,
    "huber_loss": _huber,
    "huber_loss_backward": _huber_backward,
    "div": _division,
    "floor_divide": _division,
    "gelu": _own_kernel,
    "gelu_backward": _own_kernel,
    "ldexp": _ldexp,
}

#: Those for float16, which are others in a few operations.
_FLOAT16 = {name: recipe for name, recipe in _BFLOAT16.items() if name != "huber_loss"} | {
    "pow": _numbers,
    "sigmoid_backward": _sigmoid_backward,
    "smooth_l1_loss": _smooth_l1,
}

_DEVICES = ("cpu", "cuda")


def recipes_of(policy: Policy, device: str | torch.device | None) -> dict[str, Recipe]:
    """Return the recipes of a device's kernels: ATen's name -> recipe.

    device: "cpu" or "cuda"; None: the one that the policy's name speaks of, otherwise "cuda".
    """
    if device is None:
        device = "cpu" if policy.name.startswith("torch.autocast.cpu.") else "cuda"
    device = device.type if isinstance(device, torch.device) else device
    if device not in _DEVICES:
        hint = did_you_mean(str(device)[:64], _DEVICES)
        raise InputError(f"device {str(device)[:80]!r}: {hint}choose 'cpu' or 'cuda'")
    if device == "cuda":
        return _FORMATS
    return _FLOAT16 if policy.compute.format.name == "float16" else _BFLOAT16
