"""FakeQuantize: a tensor through a small format at a scale, and its gradient past it."""

from __future__ import annotations

import enum
from typing import Any, TypeVar

import torch
from torch import nn

from fpemu.cast import Overflow, Rounding, Subnormals
from fpemu.errors import InputError
from fpemu.torch.checks import check_tensor
from fpemu.torch.graphs import unseen
from fpemu.torch.grid import Grid, Integer, make_grid
from fpemu.torch.operators import cast_text
from fpemu.torch.rounding import Target, cast_to
from fpemu.torch.straight import differentiated, straight_through

__all__ = ["FakeQuantize", "Observer", "Scale", "amax_of", "scale_of"]


class Scale(enum.Enum):
    """What a tensor is divided by before it is rounded, given its largest magnitude (amax)."""

    REAL = "real"  #: amax / largest: the format's largest value becomes amax
    POWER_OF_TWO = "power_of_two"  #: the next power of two at or above that: scaling is exact
    ONE = "one"  #: nothing


class Observer(enum.Enum):
    """Whose amax it is."""

    CURRENT = "current"  #: this very tensor's, in training and evaluation; nothing is remembered
    MAXIMUM = "maximum"  #: the largest of all tensors seen in training
    MOVING_AVERAGE = "moving_average"  #: an average that leans to the tensors seen last


_E = TypeVar("_E", bound=enum.Enum)


def _member(kind: type[_E], value: _E | str) -> _E:
    try:
        return kind(value)
    except ValueError:
        name, choices = kind.__name__.lower(), [member.value for member in kind]
        raise InputError(f"unknown {name} {value!r}; choose one of {choices}") from None


def _gradient(to: Target) -> str:
    cast = cast_to(to)
    if cast.rounding is Rounding.STOCHASTIC:
        raise InputError(
            f"gradient {cast}: fake quantization draws nothing; call fpemu.torch.round with a seed"
        )
    return cast_text(cast)


def amax_of(x: torch.Tensor, axis: int | None = None) -> torch.Tensor:
    """Return the largest magnitude among the finite numbers, for each index of an axis if given.

    >>> import torch
    >>> from fpemu.torch.fake_quantize import amax_of
    >>> amax_of(torch.tensor([[1.0, -3.0], [torch.inf, 2.0]]), axis=0)
    tensor([3., 2.])

    Zero where there are none. float32, or float64 for float64.
    """
    finite = x.detach().abs().nan_to_num_(0.0, 0.0)
    if axis is None:
        return finite.amax() if finite.numel() else finite.new_zeros(())
    others = [i for i in range(x.ndim) if i != axis % x.ndim]
    return finite.amax(others) if finite.numel() else finite.new_zeros(x.shape[axis])


def scale_of(amax: torch.Tensor, largest: float, scale: Scale | str = Scale.REAL) -> torch.Tensor:
    """Return the float32 scale at which `amax` comes to lie at (or below) a format's largest value.

    >>> import torch
    >>> from fpemu.torch.fake_quantize import scale_of
    >>> scale_of(torch.tensor([12.7, 0.0]), 127, "real"), scale_of(torch.tensor(12.7), 127, "one")
    (tensor([0.1000, 1.0000]), tensor(1.))
    >>> scale_of(torch.tensor(12.7), 127, "power_of_two")
    tensor(0.1250)

    1 where amax is 0, and never below 2**-126, whose reciprocal is still a float32.
    """
    kind = _member(Scale, scale)
    if kind is Scale.ONE:
        return torch.ones_like(amax, dtype=torch.float32)
    ratio = (amax / largest).to(torch.float32).clamp(min=2.0**-126)
    if kind is Scale.POWER_OF_TWO:  # from the bits: exp2 and log2 may be off by one
        ratio = ((ratio.view(torch.int32) + 0x7FFFFF) & 0x7F800000).view(torch.float32)
    return torch.where(amax > 0, ratio, torch.ones_like(ratio))


class FakeQuantize(nn.Module):
    """A module that returns its input as a small format at a scale would hold it.

    >>> import torch
    >>> from fpemu.torch import FakeQuantize
    >>> x = torch.tensor([[0.5, -1.27], [30.0, 100.0]])
    >>> FakeQuantize("int8", axis=0)(x)
    tensor([[  0.5000,  -1.2700],
            [ 29.9213, 100.0000]])
    >>> FakeQuantize("e2m1fn", scale="power_of_two")(x)
    tensor([[ 0., -0.],
            [32., 96.]])

    The result is grid(x * (1 / scale)) * scale, in float32 (float64 for float64) and then in x's
    dtype; `scale` is found from amax, the largest magnitude of finite numbers.

    to: "int8", "int4", an `Integer`, or a float format, Cast, preset or torch dtype.
    axis: a scale for each index of this axis; one for the whole tensor unless given.
    scale: see `Scale`; "real" for formats of up to 8 bits, "one" for wider unless given.
    observer: see `Observer`; what it remembers is learned in training mode, frozen in evaluation,
        kept in the state dict, and needs one batch of training before any evaluation.
    momentum: how far a moving average goes towards each new amax; it begins as the first one.
    overflow, rounding, subnormals: rules in place of the cast's own. overflow is "saturate" unless
        given, for casts that say otherwise too: what the scale does not reach is clipped. None
        leaves the cast's own.
    gradient: what the gradient is rounded to on its way back; as it is unless given.
    clip: whether the gradient is zero where the number was clipped, as in PyTorch.

    NaN stays NaN (the largest value in FP6 and FP4); infinity is clipped; neither counts in amax.
    Zeros keep their sign among floats. Stochastic casts, unsigned formats and tensors that
    `fpemu.torch.round` refuses are an InputError.
    """

    amax: torch.Tensor  #: of the tensors seen; none at first along an axis
    batches: torch.Tensor  #: how many those are

    def __init__(
        self,
        to: Grid | Target,
        *,
        axis: int | None = None,
        scale: Scale | str | None = None,
        observer: Observer | str = Observer.CURRENT,
        momentum: float = 0.01,
        overflow: Overflow | str | None = Overflow.SATURATE,
        rounding: Rounding | str | None = None,
        subnormals: Subnormals | str | None = None,
        gradient: Target | None = None,
        clip: bool = True,
    ) -> None:
        super().__init__()
        self.grid = make_grid(to, overflow=overflow, rounding=rounding, subnormals=subnormals)
        saturates = overflow in (None, Overflow.SATURATE, Overflow.SATURATE.value)
        if isinstance(self.grid, Integer) and (rounding or subnormals or not saturates):
            raise InputError(
                f"{self.grid}: integers are rounded to nearest and saturate; give no rules"
            )
        if not isinstance(momentum, int | float) or not 0 < momentum <= 1:
            raise InputError(f"momentum={momentum!r}: must be a number above 0 and at most 1")
        if axis is not None and type(axis) is not int:
            raise InputError(f"axis={axis!r}: must be an int, or None for the whole tensor")
        wide = self.grid.bits > 8
        self.scale = _member(Scale, scale or (Scale.ONE if wide else Scale.REAL))
        self.observer = _member(Observer, observer)
        self.axis, self.momentum, self.clip = axis, float(momentum), clip
        self.gradient = "" if gradient is None else _gradient(gradient)
        self._ready = False
        if self.observer is not Observer.CURRENT:
            self.register_buffer("amax", torch.zeros(() if axis is None else 0))
            self.register_buffer("batches", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with unseen():
            return self._quantized(x)

    def _quantized(self, x: torch.Tensor) -> torch.Tensor:
        check_tensor(x)
        self._check_axis(x)
        wide = x if x.dtype in (torch.float32, torch.float64) else x.to(torch.float32)
        bare = wide.detach()
        scale = self._along(self.scale_for(bare), bare)
        scaled = bare * (1 / scale)
        value = self.grid.quantize(scaled).mul_(scale)
        beyond = None
        if self.clip and differentiated(wide):
            low, high = self.grid.bounds(wide.dtype)
            beyond = (scaled <= low) | (scaled >= high)
        through = straight_through(wide, value, beyond, self.gradient)
        return through if through.dtype == x.dtype else through.to(x.dtype)

    def scale_for(self, x: torch.Tensor) -> torch.Tensor:
        """Return the scale for a tensor, one or a row of them; in training mode it is observed."""
        if self.observer is Observer.CURRENT:
            amax = amax_of(x, self.axis)
        else:
            if self.training:
                self._observe(amax_of(x, self.axis))
            elif not self._ready:
                raise InputError(
                    f"{self}: nothing was observed; run a batch in training mode, load its state, "
                    "or give observer='current'"
                )
            amax = self.amax
        return scale_of(amax, self.grid.largest, self.scale).to(x.dtype)

    def _observe(self, now: torch.Tensor) -> None:
        now = now.to(self.amax.dtype)
        if not self._ready:
            self.amax = now.clone()
            self._ready = True
        elif self.observer is Observer.MAXIMUM:
            self.amax.copy_(torch.maximum(self.amax, now))
        else:
            self.amax.add_((now - self.amax) * self.momentum)
        self.batches.add_(1)

    def _check_axis(self, x: torch.Tensor) -> None:
        if self.axis is None:
            return
        if not -x.ndim <= self.axis < x.ndim:
            raise InputError(f"axis={self.axis}: the tensor has {x.ndim} axes; name one of them")
        if self._ready and len(self.amax) != x.shape[self.axis]:
            raise InputError(
                f"{x.shape[self.axis]} along axis {self.axis}, but {len(self.amax)} were observed: "
                "give each kind of tensor a FakeQuantize of its own"
            )

    def _along(self, scale: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        if self.axis is None:
            return scale
        return scale.reshape([-1 if i == self.axis % x.ndim else 1 for i in range(x.ndim)])

    def extra_repr(self) -> str:
        """Return what `print(model)` shows of it."""
        along = "" if self.axis is None else f", axis={self.axis}"
        return f"{self.grid}{along}, scale={self.scale.value}, observer={self.observer.value}"

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        amax, batches = (state_dict.get(prefix + name) for name in ("amax", "batches"))
        if self.observer is not Observer.CURRENT and amax is not None and batches is not None:
            self.amax = torch.empty_like(amax, device=self.amax.device)  # an axis has a length now
            self._ready = bool(batches > 0)
        super()._load_from_state_dict(state_dict, prefix, *rest)
