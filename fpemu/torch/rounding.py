"""round: tensors through a Cast, differentiable."""

from __future__ import annotations

import operator
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch.overrides import handle_torch_function, has_torch_function

from fpemu.cast import Cast, Negative, Overflow, Rounding, Subnormals, Zero, cast_of, make_cast
from fpemu.errors import InputError
from fpemu.format import Format
from fpemu.outcomes import visible
from fpemu.presets import CASTS
from fpemu.torch.beyond import bounds_of
from fpemu.torch.checks import check_tensor, result_dtype
from fpemu.torch.graphs import constant
from fpemu.torch.operators import cast_text, round_values
from fpemu.torch.straight import differentiated, straight_through

__all__ = ["Target", "cast_to", "round"]

#: What a tensor may be rounded to.
Target = Cast | Format | str | torch.dtype


def cast_to(to: Target) -> Cast:
    """Return the Cast of a target; a torch dtype is what PyTorch's own cast to it does.

    >>> import torch
    >>> from fpemu.torch.rounding import cast_to
    >>> str(cast_to(torch.float8_e4m3fn))
    'float8_e4m3fn:overflow=saturate'
    """
    if isinstance(to, torch.dtype):
        name = str(to)
        return make_cast(name if name in CASTS else name.removeprefix("torch."))
    if isinstance(to, Cast) and not hasattr(to, "_hash"):  # torch.compile only imagines it
        raise InputError("a Cast made inside a compiled function: make it outside, or give text")
    return make_cast(to)


def round(
    tensor: torch.Tensor,
    to: Target,
    *,
    rounding: Rounding | str | None = None,
    overflow: Overflow | str | None = None,
    subnormals: Subnormals | str | None = None,
    negative: Negative | str | None = None,
    zero: Zero | str | None = None,
    seed: int | None = None,
    offset: int = 0,
    random_bits: int | None = None,
    gradient: Target | None = None,
    clip: bool = False,
) -> torch.Tensor:
    """Round a tensor to the values of a format; gradients pass as if nothing had been rounded.

    >>> import torch, fpemu.torch
    >>> x = torch.tensor([0.1, 465.0], requires_grad=True)
    >>> fpemu.torch.round(x, "e4m3fn", overflow="saturate", clip=True).sum().backward()
    >>> x.grad
    tensor([1., 0.])

    to: a format's name, a `Format`, a `Cast`, a preset's name, or a torch dtype, which means
    PyTorch's own cast to it. The rules beside it, and seed, offset and random_bits for
    stochastic rounding, are those of `fpemu.round`; so are the numbers, to the bit.
    gradient: what the gradient is rounded to on its way back; as it is unless given.
    clip: make the gradient zero where the number lay beyond the format's largest value, infinity
    included: where it saturated or overflowed. A stochastic gradient draws from the seed with its
    top bit flipped, apart from the draws of the way forward.

    Returns a tensor of the same shape, device and (where dense) strides. float64 is rounded once
    and stays float64; float32 stays float32; a narrower float keeps its dtype if that holds every
    result, else float32. NaN, infinity, zero and overflow are `fpemu.round`'s; NaN's gradient
    passes.
    Works under torch.compile, vmap and torch.func, in forward mode, and can be differentiated
    twice (the second derivative of rounding is zero, that of gradients passes). torch.func inside
    a compiled function is refused: PyTorch passes over custom gradients there.
    Sparse, quantized, nested, complex, integer and meta tensors are an InputError.
    """
    if not torch.compiler.is_compiling() and has_torch_function((tensor,)):
        given = {name: value for name, value in locals().items() if name not in ("tensor", "to")}
        overridden: torch.Tensor = handle_torch_function(round, (tensor,), tensor, to, **given)
        return overridden
    check_tensor(tensor)
    plan = _plan(tensor.dtype, to, gradient, (rounding, overflow, subnormals, negative, zero), clip)
    x = tensor if tensor.dtype in (torch.float32, torch.float64) else tensor.to(torch.float32)
    draws = (_signed(seed) if plan.drawn else None, offset, random_bits)
    value = round_values(x.detach(), plan.text, *draws)
    beyond = _beyond(x.detach(), plan, draws) if clip and differentiated(x) else None
    rounded = straight_through(x, value, beyond, plan.gradient, _other(seed, plan))
    return rounded if rounded.dtype == plan.dtype else rounded.to(plan.dtype)


# --- what a call does, in terms that a graph can hold ------------------------------------------


class _Plan(NamedTuple):
    text: str  #: of the cast
    drawn: bool  #: whether it draws
    gradient: str  #: text of the gradient's cast; "" if there is none
    gradient_drawn: bool
    dtype: torch.dtype  #: of the result
    low: float  #: what is <= low or >= high lies beyond the largest value
    high: float
    shown: str  #: text of the cast whose results show what lay beyond, where draws decide; else ""
    largest: float  #: finite value of the format


@constant
def _plan(*asked: Any) -> _Plan:
    try:
        return _plan_of(*asked)
    except (TypeError, AttributeError):  # something unhashable, which is refused
        return _plan_of.__wrapped__(*asked)


@lru_cache(maxsize=4096)
def _plan_of(
    given: torch.dtype, to: Target, gradient: Target | None, rules: Any, clip: bool
) -> _Plan:
    cast = cast_of(cast_to(to), rules)
    back = None if gradient is None else cast_to(gradient)
    drawn = cast.rounding is Rounding.STOCHASTIC
    bits = 64 if given == torch.float64 else 32
    low, high = bounds_of(cast, bits) if clip else (0.0, 0.0)
    return _Plan(
        text=cast_text(cast),
        drawn=drawn,
        gradient="" if back is None else cast_text(back),
        gradient_drawn=back is not None and back.rounding is Rounding.STOCHASTIC,
        dtype=result_dtype(given, cast.format),
        low=low,
        high=high,
        shown=cast_text(visible(cast)) if clip and drawn else "",
        largest=float(cast.format.max),
    )


_Draws = tuple[int | None, int, int | None]


def _beyond(x: torch.Tensor, plan: _Plan, draws: _Draws) -> torch.Tensor:
    if not plan.shown:
        return (x <= plan.low) | (x >= plan.high)
    # infinity, NaN, or more than the largest
    shown = round_values(x, plan.shown, *draws)
    return ~((shown.abs() <= plan.largest) | x.isnan())


# --- seeds: unsigned for people, int64 in a graph ----------------------------------------------


def _signed(seed: Any) -> int | None:
    if seed is None:
        return None  # refused by fpemu.round, with the way out
    number = seed if isinstance(seed, int) else _index(seed)  # index() would be constant in graphs
    if isinstance(seed, bool) or not 0 <= number < 2**64:
        raise InputError(f"seed={seed!r}: must be an int from 0 to {2**64 - 1}")
    return number if number < 2**63 else number - 2**64


def _index(seed: Any) -> int:
    try:
        return operator.index(seed)
    except TypeError:
        return -1  # no seed at all


def _other(seed: Any, plan: _Plan) -> int | None:
    """The seed of the gradient's draws."""
    if not plan.gradient_drawn:
        return None
    own = _signed(seed)
    if own is None:
        raise InputError("a stochastic gradient needs a seed: give seed=0 (another each step)")
    return own + 2**63 if own < 0 else own - 2**63  # the top bit, flipped
