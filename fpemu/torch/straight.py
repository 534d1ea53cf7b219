"""Straight-through: a tensor with another one's values, and with its own gradient."""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd import forward_ad

from fpemu.torch.graphs import refuse_transforms
from fpemu.torch.operators import round_values

__all__ = ["differentiated", "straight_through"]


def straight_through(
    x: torch.Tensor,
    value: torch.Tensor,
    beyond: torch.Tensor | None = None,
    gradient: str = "",
    seed: int | None = None,
) -> torch.Tensor:
    """Return `value`, whose gradient goes to x: rounded, and zero where `beyond` is true.

    gradient: the text of a Cast ("" passes gradients on as they are), seed: for a stochastic one.
    The backward pass is straight-through itself, so it can be differentiated again.
    """
    if torch.compiler.is_compiling():
        refuse_transforms()
        return _apply(_Traced, x, value, beyond, gradient, seed)
    if not differentiated(x):
        return value
    transformed = torch._C._are_functorch_transforms_active()
    return _apply(_Transformed if transformed else _Straight, x, value, beyond, gradient, seed)


def _apply(function: type[torch.autograd.Function], *arguments: Any) -> torch.Tensor:
    result: torch.Tensor = function.apply(*arguments)  # type: ignore[no-untyped-call]
    return result


def differentiated(x: torch.Tensor) -> bool:
    """Whether anything may ask for derivatives; graphs and transforms do not tell."""
    return (
        torch.compiler.is_compiling()
        or (x.requires_grad and torch.is_grad_enabled())
        or torch._C._are_functorch_transforms_active()
        or forward_ad._current_level >= 0
    )


# One rule in three classes: torch.func wants forward and context apart, which takes five times as
# long to call (76 microseconds more), and torch.compile wants no forward mode.


class _Straight(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, value: Any, beyond: Any, gradient: str, seed: int | None) -> Any:
        _keep(ctx, beyond, gradient, seed)
        ctx.save_for_forward(beyond)
        return value.detach()  # a view of it could not be changed in place

    @staticmethod
    def backward(ctx: Any, upper: Any) -> Any:
        if ctx.gradient:
            rounded = round_values(upper.detach(), ctx.gradient, ctx.seed)
            upper = straight_through(upper, rounded)
        (beyond,) = ctx.saved_tensors
        return _within(upper, beyond), None, None, None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Any, *_: Any) -> Any:
        (beyond,) = ctx.saved_tensors
        return _within(tangent.clone(), beyond)


class _Traced(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Any, value: Any, beyond: Any, gradient: str, seed: int | None) -> Any:
        return value.detach()  # with *_ in the signature, torch.compile would return x

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _keep(ctx, *inputs[2:])

    backward = _Straight.backward


class _Transformed(_Traced):
    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _keep(ctx, *inputs[2:])
        ctx.save_for_forward(inputs[2])

    jvp = _Straight.jvp


def _keep(ctx: Any, beyond: Any, gradient: str, seed: int | None) -> None:
    ctx.gradient, ctx.seed = gradient, seed
    ctx.save_for_backward(beyond)


def _within(derivative: Any, beyond: Any) -> Any:
    return derivative if beyond is None else torch.where(beyond, 0, derivative)
