"""Dispatch: ATen operations, below autograd, as if their narrow tensors had their formats.

The forward pass ends here, and backward passes and optimizers are seen nowhere else.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from fpemu.cast import Cast
from fpemu.errors import InputError
from fpemu.torch.kernels import Kernel, kernel_of
from fpemu.torch.promotion import Scan, narrow_results, scan
from fpemu.torch.recipes import Recipe, on_grid
from fpemu.torch.state import State
from fpemu.torch.tags import REFUSED, is_emulated_kind
from fpemu.torch.words import words

__all__ = ["DispatchMode"]

Tensor = torch.Tensor

#: The backward pass makes these with the dtype of their first input, which it names: float32.
_MADE_LIKE = words("new_zeros new_empty new_ones new_full")


class DispatchMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Runs each ATen operation on float32 numbers and rounds what it returns or writes."""

    def __init__(self, state: State, recipes: dict[str, Recipe]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.state = state
        self.recipes = recipes

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # its wrapper costs as much as a small operation, and loads the compiler

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if self.state.quiet:
            return func(*args, **(kwargs or {}))
        with torch._C.DisableTorchFunction():  # in a backward pass the calls' mode is on here
            return self._handle(func, kernel_of(func), args, kwargs or {})

    def _handle(self, func: Any, kernel: Kernel, args: Any, kwargs: dict[str, Any]) -> Any:
        state = self.state
        if state.off or kernel.passes or (kernel.name == "_to_copy" and _leaves(args, kwargs)):
            return func(*args, **kwargs)
        found = scan(state.tags, args, Scan(state.blanks))
        if kwargs:
            _refuse_dtype(kwargs.get("dtype"))
            scan(state.tags, kwargs.values(), found)
        formats = found.formats()
        if not formats:
            out = func(*args, **kwargs)
            self._note(kernel, args, kwargs, out)
            return out
        if kernel.inside is not None:
            state.not_emulated[kernel.inside] = None
        if kernel.same and found.any_wide:
            args = self._lowered(args, formats[0], found)
        return self._run(func, kernel, args, kwargs, found)

    def _run(
        self, func: Any, kernel: Kernel, args: Any, kwargs: dict[str, Any], found: Scan
    ) -> Any:
        state = self.state
        formats = found.formats()
        fresh = len(formats) == 1 and not found.any_wide and kernel.exact
        if fresh and kernel.takes_numbers:
            fresh = all(on_grid(value, formats[0]) for value in args if isinstance(value, float))
        answer: tuple[bool, ...] | None = ()
        if kernel.returned:
            made = kernel.name in _MADE_LIKE and state.in_backward()
            answer = (True,) if made else narrow_results(state.tags, func, args, kwargs)
        narrow = state.result_format(formats)
        recipe = self.recipes.get(kernel.name.rstrip("_"))
        mixed = found.any_wide and not _only_scalars(state, args)
        if recipe is None or narrow is None or mixed or "out" in kwargs:
            out = func(*args, **kwargs)
        else:
            out = self._follow(recipe, func, kernel, args, kwargs, narrow)
        for place in kernel.written:
            self._settle_written(_tensors_at(args, kwargs, place), formats, fresh)
        if kernel.returned and narrow is not None:
            results = out if isinstance(out, list | tuple) else (out,)
            for index, result in enumerate(results):
                mine = len(kernel.returned) == 1 or index in kernel.returned
                if mine and (not found.any_wide if answer is None else answer[index]):
                    self._settle(result, narrow, fresh and narrow == formats[0])
        return out

    def _follow(
        self, recipe: Recipe, func: Any, kernel: Kernel, args: Any, kwargs: Any, cast: Cast
    ) -> Any:
        """Compute as a kernel that rounds its steps; in place by way of a new tensor."""
        state = self.state

        def r(step: Tensor) -> Tensor:
            state.round(step, cast)
            return step

        if not kernel.written:
            return recipe(func, args, kwargs, cast, r)
        plain = getattr(getattr(torch.ops.aten, kernel.name.rstrip("_")), func._overloadname)
        return args[0].copy_(recipe(plain, args, kwargs, cast, r))

    def _settle(self, result: Any, cast: Cast, fresh: bool) -> None:
        """Round a new result in place and say its format."""
        if isinstance(result, list | tuple):
            for one in result:
                self._settle(one, cast, fresh)
        elif isinstance(result, Tensor) and result.dtype is torch.float32:
            if not fresh:
                self.state.round(result, cast)
            self.state.tags.put(result, cast)

    def _settle_written(self, written: list[Tensor], formats: list[Cast], fresh: bool) -> None:
        """Round what an operation wrote to, by its own format."""
        state = self.state
        for tensor in written:
            state.forget_weight(tensor)
            if not is_emulated_kind(tensor):
                continue
            cast = state.tags.of(tensor)
            if cast is None and state.blanks.of(tensor) is not None:
                cast = state.result_format(formats)
                state.blanks.put(tensor, None)
                state.tags.put(tensor, cast)
            if cast is not None and not (fresh and cast in formats):
                state.round(tensor, cast)

    def _note(self, kernel: Kernel, args: Any, kwargs: dict[str, Any], out: Any) -> None:
        """After an operation on float32 alone: forget weights it wrote to, note new zeros."""
        state = self.state
        for place in kernel.written:
            for tensor in _tensors_at(args, kwargs, place):
                state.forget_weight(tensor)
        if kernel.name in ("zeros", "new_zeros") and state.in_backward():
            state.blanks.put(out, state.policy.compute)

    def _lowered(self, args: Any, cast: Cast, found: Scan) -> Any:
        """Arguments in one format, below autograd; `found` is told."""
        state = self.state
        made = []
        for value in args:
            if isinstance(value, Tensor) and is_emulated_kind(value) and not state.tags.of(value):
                value = state.rounded(value, cast)
                state.tags.put(value, cast)
                found.add(cast, value)
            made.append(value)
        found.any_wide = False
        return tuple(made)


def _only_scalars(state: State, args: Any) -> bool:
    """Whether the float32 tensors among some arguments have no dimensions."""
    return all(
        not value.dim() or state.tags.of(value) is not None
        for value in args
        if isinstance(value, Tensor) and value.dtype is torch.float32
    )


def _leaves(args: Any, kwargs: dict[str, Any]) -> bool:
    """Whether a conversion is to a dtype that is not emulated, or from one."""
    dtype = kwargs.get("dtype") or torch.float32
    if dtype in REFUSED:
        return False
    return dtype is not torch.float32 or args[0].dtype is not torch.float32


def _refuse_dtype(dtype: Any) -> None:
    """Real casts come from a real autocast, or from code that this mode cannot see into."""
    if dtype in REFUSED:
        raise InputError(
            f"a real cast to {dtype} under emulate: switch torch.autocast off there "
            "(enabled=False), or write x.to(dtype) where the model does it"
        )


def _tensors_at(args: Any, kwargs: dict[str, Any], place: int | str) -> list[Tensor]:
    if isinstance(place, str):
        value = kwargs.get(place)
    else:
        value = args[place] if place < len(args) else None
    if isinstance(value, Tensor):
        return [value]
    return [v for v in value if isinstance(v, Tensor)] if isinstance(value, list | tuple) else []
