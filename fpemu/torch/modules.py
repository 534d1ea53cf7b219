"""Modules: where in a model an operation runs, and a model's weights, inputs and outputs."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

import torch
from torch.nn.modules import module as hooks

from fpemu.cast import Cast
from fpemu.policies import Policy, Products
from fpemu.torch.edges import changed
from fpemu.torch.state import State, format_or_none

__all__ = ["Modules"]

Tensor = torch.Tensor
Module = torch.nn.Module


class Modules:
    """Follows the modules that run: their names, and what a policy does with a model as a whole.

    The model is the outermost module called, or the one given.
    """

    def __init__(self, state: State, model: Module | None) -> None:
        self.state = state
        self.model = weakref.ref(model) if model is not None else None
        self._handles: list[Any] = []
        self._marks: list[tuple[dict[int, bool], int]] = []  #: in models, and their keys
        self._running: list[tuple[Module, str | None]] = []
        self._names: weakref.WeakKeyDictionary[Module, str] = weakref.WeakKeyDictionary()
        policy = state.policy
        self._parameters = format_or_none(policy.parameters)
        self._inputs, self._outputs = policy.inputs, policy.outputs

    def install(self) -> None:
        """Hook into all modules, once, if the policy says anything about them."""
        model = self.model() if self.model is not None else None
        if self._handles or not _about_modules(self.state.policy):
            return
        if model is not None:
            self._name(model)
            for module in model.modules():
                self._adopt(module)
            self._see_keywords(model)
        self._handles.append(hooks.register_module_forward_pre_hook(self._before))
        self._handles.append(hooks.register_module_forward_hook(self._after, always_call=True))

    def _see_keywords(self, model: Module) -> None:
        """Hook into a model's keywords by a mark in it: a hook in it would be copied with it."""
        handle = hooks.register_module_forward_pre_hook(self._keywords)
        marks = model._forward_pre_hooks_with_kwargs
        marks[handle.id] = True
        self._handles.append(handle)
        self._marks.append((marks, handle.id))

    def remove(self) -> None:
        for marks, key in self._marks:
            marks.pop(key, None)
        self._marks.clear()
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._running.clear()
        self.state.module, self.state.inside = None, False

    def owners(self) -> dict[int, str]:
        """The name of the module that holds each parameter, by the parameter's identity."""
        return {
            id(parameter): name
            for module, name in self._names.items()
            for parameter in module._parameters.values()
        }

    # --- hooks ---------------------------------------------------------------------------------

    def _before(self, module: Module, args: Any) -> Any:
        if not self.state.is_here():
            return None
        outermost = self._is_model(module)
        if not self._running and module not in self._names:
            self._name(module)
        self._running.append((module, self.state.module))
        self.state.inside = True
        self.state.module = self._names.get(module, self.state.module)
        self.state.layers.begin(self.state.module)
        self._adopt(module)
        if outermost and self._inputs is not None:
            return self._cast(args, self._inputs)
        return None

    def _after(self, module: Module, args: Any, output: Any) -> Any:
        if not self.state.is_here():
            return None
        while self._running:  # a module that raised before its hooks ran is left behind
            last, self.state.module = self._running.pop()
            if last is module:
                break
        if not self._running:
            self.state.inside = False
            self.state.end_forward()
        if self._outputs is not None and self._is_model(module) and output is not None:
            return self._cast(output, self._outputs)
        return None

    def _keywords(self, module: Module, args: Any, kwargs: Any = None) -> Any:
        if kwargs is None or self._inputs is None or not self._is_model(module):
            return None  # a copy of the model has its mark
        if not self.state.is_here():
            return None
        return args, self._cast(kwargs, self._inputs)

    def _is_model(self, module: Module) -> bool:
        return not self._running if self.model is None else module is self.model()

    def _name(self, root: Module) -> None:
        for name, module in root.named_modules():
            self._names.setdefault(module, name)
        self.state.layers.add(root)

    # --- numbers -------------------------------------------------------------------------------

    def _cast(self, value: Any, cast: Cast) -> Any:
        """Nested values with all float32 tensors in a format."""
        if isinstance(value, Tensor):
            emulated = value.dtype is torch.float32
            return changed(self.state, value, format_or_none(cast)) if emulated else value
        if isinstance(value, Mapping):
            items = {key: self._cast(one, cast) for key, one in value.items()}
            return items if type(value) is dict else type(value)(items)  # type: ignore[call-arg]
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*(self._cast(one, cast) for one in value))
        if isinstance(value, list | tuple):
            return type(value)(self._cast(one, cast) for one in value)
        return value

    def _adopt(self, module: Module) -> None:
        """Hold a module's own parameters and buffers in the policy's format."""
        cast = self._parameters
        if cast is None or self.state.policy.keeps(type(module).__name__):
            return
        master = self.state.policy.master is not None
        for parameter in module._parameters.values():
            if parameter is not None and parameter.dtype is torch.float32:
                if master:
                    self.state.reading[id(parameter)] = weakref.ref(parameter)
                else:
                    self._hold(parameter, cast)
        for buffer in module._buffers.values():
            if buffer is not None and buffer.dtype is torch.float32:
                self._hold(buffer, cast)

    def _hold(self, tensor: Tensor, cast: Cast) -> None:
        if self.state.tags.of(tensor) != cast:
            self.state.round(tensor, cast)
            self.state.tags.put(tensor, cast)


def _about_modules(policy: Policy) -> bool:
    whole = (policy.parameters, policy.inputs, policy.outputs)
    delays = [policy.products, *(override.to for override in policy.overrides)]
    return (
        any(cast is not None for cast in whole)
        or any(override.module is not None for override in policy.overrides)
        or any(isinstance(found, Products) and found.delays for found in delays)
    )
