"""Products: matrix products whose three multiplications round their operands by recipes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import torch

from fpemu.cast import Cast
from fpemu.errors import InputError
from fpemu.torch.accumulate import Operand
from fpemu.torch.edges import changed
from fpemu.torch.operands import Work

__all__ = ["MULTIPLY", "Product"]

Tensor = torch.Tensor

#: (a of (..., M, K), b of (..., K, N), what is added or None) -> a b + added
Multiply = Callable[[Tensor, Tensor, Tensor | None], Tensor]


class Product(torch.autograd.Function):
    """a b + added, for b of two dimensions and a of any, or for both of three.

    Each of the three products has operands of its own, rounded along the axis that it sums over:
    a and b along K; for a's gradient the upper gradient and b along N; for b's along the rows.
    What is added, and its gradient, is not rounded by recipes: it is no product.
    """

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, added: Tensor | None, work: Work) -> Tensor:
        tags = work.state.tags
        ctx.work, ctx.shape, ctx.flat = work, a.shape, b.dim() == 2
        ctx.formats = [None if x is None else tags.of(x) for x in (a, b, added)]
        ctx.added = None if added is None else added.shape
        with work.state.aside():
            rows = a.flatten(0, -2) if ctx.flat else a
            x = work.operand("x", rows, -1, ctx.formats[0])
            w = work.operand("w", b, -2, ctx.formats[1])
            out = work.times(x, w).reshape(*a.shape[:-1], b.shape[-1])
            out = out if added is None else out + added
        needs_a, needs_b = ctx.needs_input_grad[:2]
        keep = x if work.shares("x", "wgrad_x") else Operand(rows)
        other = w if work.shares("w", "dgrad_w") else Operand(b)
        ctx.kept = (keep[2:], other[2:])  # what of them is no tensor
        ctx.save_for_backward(
            *(keep[:2] if needs_b else (None, None)), *(other[:2] if needs_a else (None, None))
        )
        return _as(work, out, work.result)

    @staticmethod
    def backward(ctx: Any, upper: Tensor) -> Any:
        work: Work = ctx.work
        state = work.state
        if torch.is_grad_enabled():
            raise InputError(
                "create_graph=True through a product by recipes: its backward pass rounds, and has "
                "no derivative, as in the systems that it follows; give that part of the model "
                "'override: to=float32'"
            )
        cast = state.gradient_format(work.result)
        upper = changed(state, upper, cast)
        made = [None if grad is None else _as(work, grad, cast) for grad in _gradients(ctx, upper)]
        formats = [state.gradient_format(own) for own in ctx.formats]
        pairs = zip(made, formats, strict=True)
        return (*(None if x is None else changed(state, x, own) for x, own in pairs), None)


def _gradients(ctx: Any, upper: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The gradients of a, of b, and of what is added, before their own rounding."""
    work: Work = ctx.work
    a, b = (Operand(*two, *rest) for two, rest in zip(_pairs(ctx), ctx.kept, strict=True))
    needs_a, needs_b, needs_added, _ = ctx.needs_input_grad
    own = work.state.tags.of(upper)
    of_a = of_b = added = turned = None
    with work.state.aside():
        dy = upper.flatten(0, -2) if ctx.flat else upper
        if needs_a:
            turned = work.operand("dy", dy, -1, own)
            shared = work.shares("w", "dgrad_w")
            w = b if shared else work.operand("dgrad_w", b.values, -1, ctx.formats[1])
            of_a = work.times(turned, w.mT).reshape(ctx.shape)
        if needs_b:
            if not work.shares("dy", "wgrad_dy"):
                turned = work.operand("wgrad_dy", dy, -2, own)
            elif turned is None:
                turned = work.operand("dy", dy, -1, own)
            shared = work.shares("x", "wgrad_x")
            x = a if shared else work.operand("wgrad_x", a.values, -2, ctx.formats[0])
            of_b = work.times(turned.mT, x).mT
        if needs_added:
            added = upper.sum_to_size(ctx.added)
    return of_a, of_b, added


def _pairs(ctx: Any) -> tuple[Any, Any]:
    """Both operands' tensors that a forward pass saved."""
    saved = ctx.saved_tensors
    return saved[:2], saved[2:]


def _as(work: Work, made: Tensor, cast: Cast | None) -> Tensor:
    """A new tensor, rounded in place to the format that it is to have."""
    if cast is not None:
        work.state.round(made, cast)
    work.state.tags.put(made, cast)
    return made


# --- PyTorch's functions as such products ------------------------------------------------------


def _linear(multiply: Multiply, input: Tensor, weight: Tensor, bias: Any = None) -> Tensor:
    if weight.dim() == 1:
        return _matmul(multiply, input, weight)
    rows = input.unsqueeze(0) if input.dim() == 1 else input
    out = multiply(rows, weight.t(), bias)
    return out.squeeze(0) if input.dim() == 1 else out


def _matmul(multiply: Multiply, input: Tensor, other: Tensor, added: Any = None) -> Tensor:
    a = input.unsqueeze(0) if input.dim() == 1 else input
    b = other.unsqueeze(-1) if other.dim() == 1 else other
    if b.dim() == 2:
        out = multiply(a, b, added)
    else:
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        a, b = (x.expand(*batch, *x.shape[-2:]).reshape(-1, *x.shape[-2:]) for x in (a, b))
        out = multiply(a, b, added)
        out = out.reshape(*batch, *out.shape[-2:])
    out = out.squeeze(-2) if input.dim() == 1 else out
    return out.squeeze(-1) if other.dim() == 1 else out


def _named(multiply: Multiply, input: Tensor, mat2: Tensor) -> Tensor:
    return _matmul(multiply, input, mat2)


def _vector(multiply: Multiply, input: Tensor, vec: Tensor) -> Tensor:
    return _matmul(multiply, input, vec)


def _added(
    multiply: Multiply, input: Tensor, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1
) -> Tensor:
    if beta == 1 and alpha == 1 and b.dim() > 1:
        return _matmul(multiply, a, b, input)
    product: Tensor = _matmul(multiply, a, b) * alpha
    return product if beta == 0 else torch.add(product, input * beta)


#: PyTorch's function -> how it multiplies.
MULTIPLY: Mapping[str, Callable[..., Tensor]] = MappingProxyType({
    "linear": _linear, "matmul": _matmul, "linalg_matmul": _matmul, "mm": _named, "bmm": _named,
    "mv": _vector, "addmm": _added, "addmv": _added, "baddbmm": _added,
})  # fmt: skip
