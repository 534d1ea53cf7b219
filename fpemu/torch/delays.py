"""Delays: the states of delayed scaling in an emulation, one for each operand of each layer.

A pass scales by what steps before it have seen; what it sees itself counts from the next on. Many
calls of one layer in a pass are one step of it, with the largest of what they see.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import torch

from fpemu.errors import FpemuError, InputError
from fpemu.policies.scalers import make_scaler, scaler_text
from fpemu.scaling import Delayed

__all__ = ["Delays"]


class Operand(NamedTuple):
    """Which operand of which layer."""

    layer: str
    role: str


class _Seen(NamedTuple):
    """What a pass has used so far for an operand, and the largest magnitude that it met."""

    state: Delayed
    amax: float


class Delays:
    """States of delayed scaling, and what the passes that are under way have seen."""

    def __init__(self) -> None:
        self._now: dict[Operand, Delayed] = {}
        self._before: dict[Operand, Delayed] = {}  #: what the last forward pass was scaled by
        self._forward: dict[Operand, _Seen] = {}
        self._backward: dict[int, dict[Operand, _Seen]] = {}  #: by the engine's number of the pass

    def states(self) -> dict[str, dict[str, Delayed]]:
        """The states of the next step: layer -> operand -> Delayed."""
        found: dict[str, dict[str, Delayed]] = {}
        for (layer, role), state in self._now.items():
            found.setdefault(layer, {})[role] = state
        return found

    def state(self, layer: str, role: str, start: Delayed, again: bool) -> Delayed:
        """The state that a pass scales by; again: one that computes a forward pass once more."""
        held = (self._before if again else self._now).get(Operand(layer, role))
        return held if held is not None and _as_at_start(held, start) == start else start

    def saw(self, layer: str, role: str, state: Delayed, amax: float, backward: bool) -> None:
        """Note what an operand's largest magnitude was, for when the pass has ended."""
        seen = self._in_backward() if backward else self._forward
        key = Operand(layer, role)
        other = seen[key].amax if key in seen else 0.0
        seen[key] = _Seen(state, _larger(amax, other))

    def end_forward(self) -> None:
        """Go on to the next step of the operands of forward passes."""
        self._before |= {key: seen.state for key, seen in self._forward.items()}
        self._settle(self._forward)
        self._backward.clear()  # of passes that broke off

    def _in_backward(self) -> dict[Operand, _Seen]:
        task = torch._C._current_graph_task_id()
        if task not in self._backward:
            self._backward[task] = {}
            ended = partial(self._end_backward, task)
            torch.autograd.Variable._execution_engine.queue_callback(ended)
        return self._backward[task]

    def _end_backward(self, task: int) -> None:
        self._settle(self._backward.pop(task, {}))

    def _settle(self, seen: dict[Operand, _Seen]) -> None:
        self._now |= {key: one.state.observe(one.amax) for key, one in seen.items()}
        seen.clear()

    # --- in files ----------------------------------------------------------------------------

    def to_json(self) -> dict[str, dict[str, dict[str, Any]]]:
        """The states as JSON-ready facts."""
        return {
            layer: {role: _facts(state) for role, state in roles.items()}
            for layer, roles in self.states().items()
        }

    def load_json(self, facts: Mapping[str, Any]) -> None:
        """Take the states of facts in place of these."""
        found = {
            Operand(layer, role): _state(one, f"state of {role} of layer {layer!r:.60}")
            for layer, roles in facts.items()
            for role, one in roles.items()
        }
        for known in (self._before, self._forward, self._backward):
            known.clear()
        self._now = found


def _as_at_start(held: Delayed, start: Delayed) -> Delayed:
    return replace(held, scale=start.scale, window=start.window)


def _larger(a: float, b: float) -> float:
    """The larger of two magnitudes, NaN if one is."""
    return math.nan if math.isnan(a) or math.isnan(b) else max(a, b)


def _facts(state: Delayed) -> dict[str, Any]:
    """JSON has no NaN: that is a text in it."""
    window = [amax if math.isfinite(amax) else str(amax) for amax in state.window]
    return {"delayed": scaler_text(state), "scale": state.scale, "window": window}


def _state(facts: Any, what: str) -> Delayed:
    try:
        start = make_scaler({"delayed": facts["delayed"]}, what)
        assert isinstance(start, Delayed)
        window = tuple(float(amax) for amax in facts["window"])
        return replace(start, scale=float(facts["scale"]), window=window)
    except (KeyError, TypeError, ValueError) as wrong:
        if isinstance(wrong, FpemuError):
            raise
        raise InputError(f"{what}: {facts!r:.60} is not what state_dict gives") from None
