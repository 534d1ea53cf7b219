"""Optimizers: their steps counted and told from the forward pass, their state in a format."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch.optim import optimizer as hooks

from fpemu.cast import Cast
from fpemu.torch.modules import Modules
from fpemu.torch.state import State, format_or_none

__all__ = ["Optimizers"]

Tensor = torch.Tensor


class Optimizers:
    """Hooks around every optimizer's step.

    Steps are those of the first optimizer that makes one, until `Emulation.step` is set.
    """

    def __init__(self, state: State, modules: Modules) -> None:
        self.state = state
        self.modules = modules
        self.counts = True
        self._first: int | None = None
        self._handles: list[Any] = []

    def install(self) -> None:
        self._handles = [
            hooks.register_optimizer_step_pre_hook(self._before),
            hooks.register_optimizer_step_post_hook(self._after),
        ]

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self.state.leave_optimizer()

    def _before(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        state, tags = self.state, self.state.tags
        if not state.is_here():
            return
        plain = not self._has_format() and _closure(args, kwargs) is None
        for parameter in _parameters(optimizer):
            gradient, own = parameter.grad, tags.of(parameter)
            plain = plain and own is None
            if gradient is not None and gradient.dtype is torch.float32 and not gradient.is_sparse:
                tags.put(gradient, own)
        state.enter_optimizer(sys._getframe(1), plain)

    def _after(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if not self.state.is_here():
            return
        self.state.leave_optimizer()
        self._hold(optimizer)
        if self._first is None:
            self._first = id(optimizer)
        if self.counts and self._first == id(optimizer):
            self.state.go_to(self.state.step + 1)

    def _hold(self, optimizer: Any) -> None:
        """Keep tensors of an optimizer's state, of their parameter's size, in the format."""
        if not self._has_format():
            return
        state, owners = self.state, self.modules.owners()
        for parameter in _parameters(optimizer):
            cast = format_or_none(self._format(owners.get(id(parameter))))
            if cast is None:
                continue
            for value in optimizer.state.get(parameter, {}).values():
                whole = isinstance(value, Tensor) and value.shape == parameter.shape
                if whole and value.dtype is torch.float32 and state.tags.of(value) != cast:
                    state.round(value, cast)
                    state.tags.put(value, cast)

    def _has_format(self) -> bool:
        now = self.state.now
        return now.state is not None or any(o.kind == "state" for o in now.overrides)

    def _format(self, module: str | None) -> Cast | None:
        """The format of the state of a module's weights."""
        now = self.state.now
        for override in reversed(now.overrides):
            own = override.kind == "state" and override.matches("state", None, module)
            if own and isinstance(override.to, Cast):
                return override.to
        return now.state


def _closure(args: Any, kwargs: Any) -> Any:
    """The function that computes the loss again: a forward and a backward pass within the step."""
    return args[1] if len(args) > 1 else kwargs.get("closure")


def _parameters(optimizer: Any) -> Iterator[Tensor]:
    for group in optimizer.param_groups:
        yield from group["params"]
