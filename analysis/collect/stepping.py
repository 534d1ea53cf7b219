"""Stepping: tells when a training step is over, from the optimizers."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from fpemu.analysis.collect.framework import torch

__all__ = ["Stepping"]

Optimizer = torch.optim.Optimizer
Told = Callable[[Optimizer], None]


class Stepping:
    """Calls back before and after the steps of the optimizers that matter.

    Those are the given ones, or all that `matters` says yes to. A training step ends with the
    last of the given ones, else with the first that was met, until it comes round again: then with
    the one before it. Another that steps twice meanwhile takes its place. It is the only thing that
    stays attached on steps that are not recorded.
    """

    def __init__(
        self,
        optimizers: Sequence[Optimizer],
        matters: Callable[[Optimizer], bool],
        before: Told,
        after: Told,
    ) -> None:
        self._given = [weakref.ref(one) for one in optimizers]
        self._matters, self._before, self._after = matters, before, after
        self._last = self._given[-1] if self._given else None
        self._others: list[weakref.ref[Optimizer]] = []
        self._round_known = bool(self._given)
        self._handles: list[Any] = []

    def install(self) -> None:
        """Begin to listen to all optimizers."""
        self._handles = [
            register_optimizer_step_pre_hook(lambda one, args, kwargs: self._tell(one, True)),
            register_optimizer_step_post_hook(lambda one, args, kwargs: self._tell(one, False)),
        ]

    def remove(self) -> None:
        """Listen no more."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def counts(self, optimizer: Optimizer) -> bool:
        """Say whether an optimizer is one of the run's."""
        if self._given:
            return any(ref() is optimizer for ref in self._given)
        return self._matters(optimizer)

    def ends(self, optimizer: Optimizer) -> bool:
        """Say whether a training step ends with this step of an optimizer that counts."""
        if self._last is None or self._last() is None:
            self._last = weakref.ref(optimizer)
        ended = self._last() is optimizer
        if ended and self._others and not self._round_known:  # the discriminator of two, say
            self._last, ended, self._round_known = self._others[-1], False, True
            self._others = []
        if not ended and not self._given:
            ended = any(ref() is optimizer for ref in self._others)
            self._last = weakref.ref(optimizer) if ended else self._last
        self._others = [] if ended else [*self._others, weakref.ref(optimizer)]
        return ended

    def _tell(self, optimizer: Optimizer, before: bool) -> None:
        if self.counts(optimizer):
            (self._before if before else self._after)(optimizer)
