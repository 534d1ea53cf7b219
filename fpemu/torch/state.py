"""State: what an emulation knows at one moment: formats of tensors, policy, step, module, phase."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NamedTuple

import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from fpemu.cast import Cast, Rounding
from fpemu.policies import Policy, Products, Rule
from fpemu.policies.products import MULTIPLIES
from fpemu.torch.delays import Delays
from fpemu.torch.inplace import Draws, round_into, rounded
from fpemu.torch.layers import Layers
from fpemu.torch.promotion import wider
from fpemu.torch.tags import Tags, storage_of

__all__ = ["Decision", "State", "format_or_none"]

Tensor = torch.Tensor


class Decision(NamedTuple):
    """What a policy says of one operation in one module."""

    rule: Rule
    activation: Cast | None
    weight: Cast | None
    result: Cast | None
    gradient: Cast | None
    products: Products | None = None  #: what rounds the operands of a product, or adds it up


class _Weight(NamedTuple):
    """A parameter's numbers in a narrow format, for as long as the parameter is as it was."""

    parameter: weakref.ref[Tensor]
    version: int
    cast: Cast
    value: Tensor


def format_or_none(cast: Cast | None) -> Cast | None:
    """Return None for float32, which every tensor has that carries no other format."""
    return None if cast is None or cast == _FLOAT32 else cast


_FLOAT32 = Cast("float32")


class State:
    """All that changes while a policy is emulated; the modes and edges share it."""

    def __init__(self, policy: Policy, seed: int | None) -> None:
        self.policy = policy
        self.tags = Tags()
        self.blanks = Tags()  #: zeros that the backward pass made and has not written to yet
        self.draws = Draws(seed)
        self.delays = Delays()
        self.off = 0  #: above 0, operations are left alone
        self.framed = False  #: whether narrow results have the format `frame`, not their inputs'
        self.frame: Cast | None = None
        self.module: str | None = None
        self.inside = False  #: whether any module runs
        self.layers = Layers()
        self.not_emulated: dict[str, None] = {}
        self.reading: dict[int, weakref.ref[Tensor]] = {}  #: parameters that are read narrow
        self.quiet = False  #: in an optimizer's step on float32 alone
        self._stepping: FrameType | None = None
        self._weights: dict[int, _Weight] = {}
        self._decisions: dict[tuple[str, str | None], Decision] = {}
        self.now: Policy = Policy("none yet", _FLOAT32)  #: the policy of this step
        self.go_to(0)

    def go_to(self, step: int) -> None:
        """Take the policy of a step."""
        self.step = step
        now = self.policy.at(step)
        if now is self.now:
            return
        self.now = now
        self._decisions = {}
        self.compute = format_or_none(now.compute)
        self.result = format_or_none(now.result or now.compute)
        self.own_gradient = format_or_none(now.gradient) not in (None, self.result)

    def clear(self) -> None:
        """Forget all tensors."""
        self.tags.clear()
        self.blanks.clear()
        self.forget_weights()
        self.reading.clear()
        self.leave_optimizer()

    # --- phases ----------------------------------------------------------------------------

    def is_here(self) -> bool:
        """Whether what runs now is emulated by this: PyTorch's hooks are those of all threads."""
        if self.off:  # another emulation has this one's place
            return False
        stack = _get_current_dispatch_mode_stack()
        return any(getattr(mode, "state", None) is self for mode in stack)

    def is_forward(self) -> bool:
        """Whether a policy's rules apply: not in backward passes nor in optimizers' steps.

        There, gradients are off; where somebody turns them on again (a checkpoint that is
        computed once more, an optimizer's closure), it is a forward pass.
        """
        if torch.is_grad_enabled():
            return True
        return not (self.in_backward() or self.in_optimizer())

    def in_backward(self) -> bool:
        return torch._C._current_graph_task_id() != -1

    def in_optimizer(self) -> bool:
        """Whether the frame that called an optimizer's step still runs; it may have raised."""
        if self._stepping is None:
            return False
        frame: FrameType | None = sys._getframe()
        while frame is not None:
            if frame is self._stepping:
                return True
            frame = frame.f_back
        self.leave_optimizer()
        return False

    def enter_optimizer(self, frame: FrameType, quiet: bool) -> None:
        """Note the frame that calls an optimizer's step; quiet: it works on float32 alone."""
        self._stepping = frame
        self.quiet = quiet
        if quiet:
            self.forget_weights()  # they are about to change, unseen

    def leave_optimizer(self) -> None:
        self._stepping = None
        self.quiet = False

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Leave operations alone for a while."""
        self.off += 1
        try:
            yield
        finally:
            self.off -= 1

    def end_forward(self) -> None:
        """The outermost module has returned: delayed scaling goes on by a step."""
        if not self.in_backward():  # there, a checkpoint computes once more what has counted
            self.delays.end_forward()
            self.layers.begin(None)

    # --- what the policy says ----------------------------------------------------------------

    def decision(self, operation: str) -> Decision:
        key = (operation, self.module)
        found = self._decisions.get(key)
        if found is None:
            found = self._decisions[key] = self._decide(operation, self.module)
        return found

    def _decide(self, operation: str, module: str | None) -> Decision:
        now = self.now
        products = now.scaling(operation, module)
        if products is not None:
            base, result = format_or_none(now.compute), now.result_cast(operation, module)
            return Decision(Rule.SCALED, base, base, format_or_none(result), base, products)
        own = now.products.accumulate if now.products and operation in MULTIPLIES else None
        return Decision(
            products=None if own is None else Products(None, accumulate=own),
            rule=now.rule(operation, module),
            activation=format_or_none(now.cast("activation", operation, module)),
            weight=format_or_none(now.cast("weight", operation, module)),
            result=format_or_none(now.result_cast(operation, module)),
            gradient=format_or_none(now.cast("gradient", operation, module)),
        )

    def result_format(self, formats: list[Cast]) -> Cast | None:
        """The format of an operation's narrow results, from those of its inputs."""
        if self.framed:
            return self.frame
        if self.own_gradient and not torch.is_grad_enabled() and self.in_backward():
            return self._gradient_result(formats)
        return wider(formats)

    def _gradient_result(self, formats: list[Cast]) -> Cast | None:
        now = self.now
        if now.gradient in formats or now.compute in formats:
            return self.result if now.result is not None else now.gradient
        return wider(formats)

    def gradient_format(self, own: Cast | None) -> Cast | None:
        """The format of the gradient of a tensor."""
        now = self.now
        if own is None or now.gradient is None or now.result is not None or own != now.compute:
            return own
        return now.gradient

    # --- numbers -------------------------------------------------------------------------------

    def rounded(self, x: Tensor, cast: Cast) -> Tensor:
        return rounded(x, cast, self.draws)

    def round(self, x: Tensor, cast: Cast) -> None:
        """Round a tensor in place."""
        self.off += 1
        try:
            round_into(x, cast, x, self.draws)
        finally:
            self.off -= 1

    def weight(self, parameter: Tensor, cast: Cast) -> Tensor:
        """Return a parameter in a format, made once as long as the parameter does not change."""
        from fpemu.torch.edges import changed

        key = id(storage_of(parameter))
        found = self._weights.get(key)
        if (
            found is not None
            and found.parameter() is parameter
            and found.version == parameter._version
            and found.cast == cast
            and found.value.requires_grad == torch.is_grad_enabled()
        ):
            return found.value
        value = changed(self, parameter, cast)
        if cast.rounding is not Rounding.STOCHASTIC:
            made = _Weight(weakref.ref(parameter), parameter._version, cast, value)
            self._weights[key] = made
        return value

    def read(self, x: Tensor) -> Tensor:
        """Return what a model reads where it names a tensor: a narrow copy of a master weight."""
        found = self.reading.get(id(x))
        if found is None or found() is not x:
            return x
        return self.weight(x, self.now.parameters or self.now.compute)

    def forget_weights(self) -> None:
        """Forget what was made of parameters: it holds them, by its gradient's path."""
        self._weights.clear()

    def forget_weight(self, written: Tensor) -> None:
        """Forget what was made of a parameter that is written to, by whatever alias."""
        if self._weights:
            self._weights.pop(id(storage_of(written)), None)
