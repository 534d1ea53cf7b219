"""Edges: differentiable changes of format, whose backward passes change the gradient's format."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from fpemu.cast import Cast

if TYPE_CHECKING:
    from fpemu.torch.state import State

__all__ = ["changed", "gradient_as", "joined"]

Tensor = torch.Tensor


def changed(state: State, x: Tensor, cast: Cast | None) -> Tensor:
    """Return a tensor's numbers in a format, in a new tensor; its gradient in x's own format.

    This is PyTorch's `x.to(dtype)`. None stands for float32; a tensor of that format already is
    returned as it is.
    """
    if state.tags.of(x) == cast:
        return x
    if x.requires_grad and torch.is_grad_enabled():
        return _Change.apply(x, state, cast)  # type: ignore[no-any-return,no-untyped-call]
    return _change(state, x, cast)


def joined(state: State, x: Tensor) -> Tensor:
    """Return a tensor itself, whose gradient is brought to its own format.

    What PyTorch's engine does where an operation's result is wider than an input of it.
    """
    return _Join.apply(x, state)  # type: ignore[no-any-return,no-untyped-call]


def gradient_as(state: State, x: Tensor, cast: Cast) -> Tensor:
    """Return a tensor itself, whose gradient is rounded by a cast."""
    return _Gradient.apply(x, state, cast)  # type: ignore[no-any-return,no-untyped-call]


def _change(state: State, x: Tensor, cast: Cast | None) -> Tensor:
    with state.aside():
        out = state.rounded(x, cast) if cast is not None else x.detach().clone()
    state.tags.put(out, cast)
    return out


class _Change(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, state: State, cast: Cast | None) -> Tensor:
        ctx.state, ctx.own = state, state.tags.of(x)
        return _change(state, x, cast)

    @staticmethod
    def backward(ctx: Any, upper: Tensor) -> Any:
        state = ctx.state
        return changed(state, upper, state.gradient_format(ctx.own)), None, None


class _Join(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, state: State) -> Tensor:
        ctx.state, ctx.own = state, state.tags.of(x)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, upper: Tensor) -> Any:
        state = ctx.state
        return changed(state, upper, state.gradient_format(ctx.own)), None


class _Gradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, state: State, cast: Cast) -> Tensor:
        ctx.state, ctx.cast = state, cast
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, upper: Tensor) -> Any:
        return changed(ctx.state, upper, ctx.cast), None, None
