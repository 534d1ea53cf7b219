"""Forward: sees the operations of a step, in modules and between them, and hooks gradients.

Modules are seen by PyTorch's global module hooks, operations by a function mode: nothing is
attached to a module, and full backward hooks, which in-place operations break, are not used.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch.nn.modules.module as module_hooks

from fpemu.analysis.collect import modes
from fpemu.analysis.collect.arrays import is_counted
from fpemu.analysis.collect.backward import Gradients, in_backward
from fpemu.analysis.collect.framework import torch
from fpemu.analysis.collect.given import is_given, is_mask
from fpemu.analysis.collect.ingoing import Facts, ingoing, origin_of
from fpemu.analysis.collect.labels import Labels
from fpemu.analysis.collect.names import Names
from fpemu.analysis.collect.operations import (
    Operation,
    labelled,
    operation_of,
    tensors_in,
)
from fpemu.analysis.collect.places import Place, find_place, is_ours
from fpemu.analysis.collect.products import take_inputs
from fpemu.analysis.collect.sample import Sample, Site
from fpemu.analysis.collect.weights import Weights

__all__ = ["Forward"]


@dataclass(slots=True)
class _Call:
    """A module that is running."""

    module: torch.nn.Module
    name: str
    leaf: bool  #: PyTorch's own and without parts: its operation goes by its name
    counted: bool
    pushed: bool = False  #: the mode was entered for this call
    named: bool = False  #: an operation has taken the module's name


class Forward:
    """Listens to one step's forward pass."""

    def __init__(
        self,
        sample: Sample,
        names: Names,
        labels: Labels,
        gradients: Gradients,
        weights: Weights,
        discover: bool,
        loss: Callable[[float], None],
    ) -> None:
        self._sample, self._names, self._labels = sample, names, labels
        self._gradients, self._weights, self._discover = gradients, weights, discover
        self._settings, self._loss = sample.settings, loss
        self._calls: list[_Call] = []
        self._mode = modes.Listener(self._heard)
        self._home = os.getpid(), threading.get_ident()
        self._handles: list[Any] = []
        self._depth, self._paused = 0, False

    def install(self, depth: int) -> None:
        """Begin to listen; the function mode goes to a depth of the stack of modes."""
        self._handles = [
            module_hooks.register_module_forward_pre_hook(self._enter),
            module_hooks.register_module_forward_hook(self._leave, always_call=True),
        ]
        self._depth = depth
        modes.insert(self._mode, depth)

    def pause(self) -> None:
        """Hear no operations while an optimizer steps, but for those of modules that it calls."""
        self._paused = modes.remove(self._mode)

    def resume(self) -> None:
        """Hear operations again."""
        if self._paused:
            modes.insert(self._mode, self._depth)
        self._paused = False

    def remove(self) -> None:
        """Take away all that was installed; the mode only if it is not at work at the moment."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._calls.clear()
        self._mode.retire()

    # --- modules -----------------------------------------------------------------------------

    def _elsewhere(self) -> bool:
        """In a forked worker, or on another thread."""
        return self._home != (os.getpid(), threading.get_ident())

    def _enter(self, module: torch.nn.Module, args: Any) -> None:
        if self._elsewhere():
            return
        name = self._names.module(module)
        outer = self._calls[-1] if self._calls else None
        owns = outer is None and next(module.parameters(), None) is not None
        if name is None and owns and self._discover:
            self._names.add(module)
            name = self._names.module(module)
        call = self._call(module, name, outer, owns)
        if outer is None and not modes.has(self._mode):
            # a checkpoint is computed again, or an optimizer evaluates a closure
            modes.insert(self._mode, modes.depth())
            call.pushed = True
        self._calls.append(call)
        if outer is None and call.counted and name is not None:
            self._weights.start()

    def _call(
        self, module: torch.nn.Module, name: str | None, outer: _Call | None, owns: bool
    ) -> _Call:
        if name is None:  # a stranger: one with weights of its own is not watched
            inherited = outer.name if outer else ""
            counted = outer.counted if outer else not owns and self._trains()
            return _Call(module, inherited, False, counted)
        leaf = type(module).__module__.startswith("torch.") and not module._modules
        return _Call(module, name, leaf, outer.counted if outer else self._trains())

    def _trains(self) -> bool:
        return self._settings.evaluation or torch.is_grad_enabled()

    def _leave(self, module: torch.nn.Module, args: Any, result: Any) -> None:
        if self._elsewhere() or not any(call.module is module for call in self._calls):
            return
        call = self._calls.pop()
        while call.module is not module:  # one that ended with an error
            call = self._calls.pop()
        if call.pushed:
            modes.remove(self._mode)
        known = self._names.module(module)
        if call.counted and known and not self._settings.matmul:
            self._outputs(call, args, result)

    def _outputs(self, call: _Call, args: Any, result: Any) -> None:
        """Take those outputs of a module that no operation has shown (custom functions)."""
        fresh = []
        for label, tensor in labelled(result, ""):
            if (entry := self._sample.current(tensor)) is not None:
                self._hook_late(tensor, entry.site)
            elif is_counted(tensor):
                fresh.append((label, tensor))
        if not fresh or (in_backward() and not torch.is_grad_enabled()):
            return
        inputs = [tensor for tensor in tensors_in(args) if is_counted(tensor)]
        place = find_place(1)
        for label, tensor in fresh:
            if any(tensor is one for one in inputs) or tensor._base is not None:
                continue
            site = Site(f"{call.name}{label}", type(call.module).__name__, call.name, place)
            self._computed(site, tensor, inputs, ingoing(self._sample, self._names, inputs))

    # --- operations --------------------------------------------------------------------------

    def _heard(self, function: Any, args: Any, kwargs: Any, result: Any) -> None:
        operation = operation_of(function)
        if function is torch.Tensor.__setitem__:
            result = args[0]  # x[...] = y returns nothing and changes x
        if operation is None or result is None:
            if function is torch.Tensor.backward and args[0].numel() == 1:
                self._loss(float(args[0].detach()))
            return
        call = self._calls[-1] if self._calls else None
        if not (call.counted if call else torch.is_grad_enabled()):
            return
        several = [("", result)] if isinstance(result, torch.Tensor) else labelled(result, "", 2)
        fresh = [
            (label, tensor)
            for label, tensor in several
            if is_counted(tensor) and not _is_leaf(tensor) and self._sample.current(tensor) is None
        ]
        if not fresh or is_ours(2) or (in_backward() and not torch.is_grad_enabled()):
            return
        given = (*args, *kwargs.values()) if kwargs else args
        inputs = [tensor for tensor in tensors_in(given) if is_counted(tensor)]
        sites = [entry.site for entry in map(self._sample.entry, inputs) if entry]
        if not operation.matmul and self._hands_on(operation, fresh, inputs, sites):
            return
        known = sites or any(tensor.requires_grad for _, tensor in fresh)
        if known and not self._elsewhere():
            self._new(operation, call, args, kwargs, inputs, fresh)

    def _hands_on(
        self,
        operation: Operation,
        fresh: list[tuple[str, torch.Tensor]],
        inputs: list[torch.Tensor],
        sites: list[Site],
    ) -> bool:
        """Whether an operation hands its input's values on; if so, follow them."""
        first = fresh[0][1]
        changed = any(first is one for one in inputs)
        if changed and operation.moves:
            return True
        moved = operation.moves and not (inputs and _narrowed(inputs[0], first))
        if changed or not (moved or first._base is not None):
            return False
        for _, tensor in fresh:
            if sites:
                self._sample.remember(tensor, sites[0])
        return True

    def _new(
        self,
        operation: Operation,
        call: _Call | None,
        args: Any,
        kwargs: Any,
        inputs: list[torch.Tensor],
        fresh: list[tuple[str, torch.Tensor]],
    ) -> None:
        """Take the results of an operation."""
        place = find_place(3)
        module = call.name if call else ""
        label = self._label(operation, call, module, place)
        facts = ingoing(self._sample, self._names, inputs)
        if self._settings.matmul and operation.matmul and not in_backward():
            take_inputs(self._sample, self._names, self._weights, label, inputs)
        if operation.matmul and not in_backward():
            self._note_inputs(label, inputs)
        several = len(fresh) > 1
        for k, (where, tensor) in enumerate(fresh):
            name = f"{label}{where or f'[{k}]'}" if several else label
            site = Site(name, operation.name, module, place)
            given = partial(is_given, self._sample, operation, args, kwargs)
            self._computed(site, tensor, inputs, facts, given, operation.matmul)

    def _note_inputs(self, label: str, inputs: list[torch.Tensor]) -> None:
        """Note what a matrix product is given: the tensors that a small format would round."""
        read = [one for one in inputs if self._names.weight(one) is None]
        entries = map(self._sample.entry, read)
        self._sample.reads(label, [entry.site.name if entry else "" for entry in entries])

    def _label(self, operation: Operation, call: _Call | None, module: str, place: Place) -> str:
        if call and call.leaf and not call.named:
            call.named = True
            return call.name
        return self._labels.name(module, operation.name.rstrip("_"), place)

    def _computed(
        self,
        site: Site,
        tensor: torch.Tensor,
        inputs: list[torch.Tensor],
        facts: Facts,
        given: Callable[[], bool] = lambda: False,
        matmul: bool = True,
    ) -> None:
        """Take one new tensor: its values, its gradient's hook, and what it was made of."""
        sample = self._sample
        for one in inputs:
            if (entry := sample.entry(one)) is not None:
                entry.site.consumers.append(site)
                self._hook_late(one, entry.site)
        if not in_backward():  # else a checkpoint computes it again: it has been counted
            if self._settings.matmul:
                site.inputs = tuple(map(weakref.ref, inputs))
            elif "activation" in self._settings.kinds:
                self._value(site, tensor, facts, given)
        sample.remember(tensor, site)
        site.tensor, site.hooked = id(tensor), site.masked or (
            self._settings.matmul and not matmul
        )
        if tensor.requires_grad and not site.hooked:
            site.hooked = True
            self._gradients.hook(tensor, site)

    def _hook_late(self, tensor: torch.Tensor, site: Site) -> None:
        """Watch the gradient of what a custom function has computed, without gradients.

        What a checkpoint returns is computed again in the backward pass, and hooked then.
        """
        if site.hooked or site.tensor != id(tensor) or tensor.grad_fn is None:
            return
        site.hooked = True
        if type(tensor.grad_fn).__name__ != "CheckpointFunctionBackward":
            self._gradients.hook(tensor, site)

    def _value(
        self,
        site: Site,
        tensor: torch.Tensor,
        facts: Facts,
        given: Callable[[], bool],
    ) -> None:
        numbers = self._sample.measure(site.name, tensor)
        if numbers is None:
            return
        if is_mask(numbers) and given():
            site.masked = True
            return
        origin = partial(origin_of, site, facts)
        site.value = self._sample.take(
            site.name, "activation", tensor, numbers, "forward", site.operation, origin
        )


def _is_leaf(tensor: torch.Tensor) -> bool:
    """Whether gradients end at a tensor: a weight being initialised, an input that was drawn."""
    return tensor.requires_grad and tensor.is_leaf


def _narrowed(before: torch.Tensor, after: torch.Tensor) -> bool:
    """Whether a cast may have changed values: float32 -> float16 does, float16 -> float32 not."""
    return before.dtype != after.dtype and (
        after.element_size() <= before.element_size() and after.dtype.is_floating_point
    )
