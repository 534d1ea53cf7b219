"""Scalers: hears what GradScalers do, so that scaled gradients and skipped steps are known."""

from __future__ import annotations

import functools
import weakref
from typing import Any, Protocol

from fpemu.analysis.collect.framework import torch

__all__ = ["Listening", "listen", "scale_of", "stop"]

_Scaler: Any = torch.amp.GradScaler


class Listening(Protocol):
    """Who wants to hear of scalers."""

    def before_scale(self, scaler: Any) -> None:
        """A scaler is about to multiply a loss."""

    def after_scale(self, scaler: Any) -> None:
        """It has."""

    def before_scaler_step(self, scaler: Any, optimizer: torch.optim.Optimizer) -> None:
        """A scaler is about to step an optimizer, or to skip the step."""

    def after_scaler_step(self, scaler: Any, optimizer: torch.optim.Optimizer) -> None:
        """It has."""


_listeners: list[Listening] = []
_originals: dict[str, Any] = {}


def listen(listener: Listening) -> None:
    """Begin to tell a listener; GradScaler's two methods are wrapped while anybody listens."""
    if not _listeners:
        for name, wrap in (("scale", _wrap_scale), ("step", _wrap_step)):
            _originals[name] = getattr(_Scaler, name)
            setattr(_Scaler, name, wrap(_originals[name]))
    _listeners.append(listener)


def stop(listener: Listening) -> None:
    """Tell a listener no more; after the last one GradScaler is as it was."""
    if listener in _listeners:
        _listeners.remove(listener)
    if not _listeners:
        for name, original in _originals.items():
            setattr(_Scaler, name, original)
        _originals.clear()


def scale_of(scaler: weakref.ref[Any] | None) -> float | None:
    """Return the scale of a scaler that is at work, or None."""
    found = scaler() if scaler else None
    return float(found.get_scale()) if found is not None and found.is_enabled() else None


def _wrap_scale(original: Any) -> Any:
    @functools.wraps(original)
    def scale(self: Any, outputs: Any) -> Any:
        for listener in list(_listeners):
            listener.before_scale(self)
        scaled = original(self, outputs)
        for listener in list(_listeners):
            listener.after_scale(self)
        return scaled

    return scale


def _wrap_step(original: Any) -> Any:
    @functools.wraps(original)
    def step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        for listener in list(_listeners):
            listener.before_scaler_step(self, optimizer)
        result = original(self, optimizer, *args, **kwargs)
        for listener in list(_listeners):
            listener.after_scaler_step(self, optimizer)
        return result

    return step
