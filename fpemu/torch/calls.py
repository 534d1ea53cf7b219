"""Calls: PyTorch's functions and methods, above autograd, as a policy rules them."""

from __future__ import annotations

import types as python
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.attention
from torch.overrides import TorchFunctionMode

from fpemu.cast import Cast
from fpemu.errors import InputError
from fpemu.policies import Rule
from fpemu.torch.accumulate import doubts
from fpemu.torch.conversions import CASTS, CONVERSIONS
from fpemu.torch.edges import changed, gradient_as, joined
from fpemu.torch.names import (
    ALIAS_RESULTS,
    FACTORIES,
    RECURRENT,
    STRAIGHT,
    aten_operations,
    is_in_place,
    operation_of,
)
from fpemu.torch.onednn import without_onednn
from fpemu.torch.operands import Work
from fpemu.torch.products import MULTIPLY, Product
from fpemu.torch.promotion import Scan, scan
from fpemu.torch.state import Decision, State
from fpemu.torch.transparent import transparent
from fpemu.torch.words import words

__all__ = ["CallMode"]

Tensor = torch.Tensor
Call = Callable[..., Any]
Change = Callable[[Tensor], Tensor]

_MATH = torch.nn.attention.SDPBackend.MATH.value

#: They convert their input to the dtype they are given, out of sight: before they are dispatched.
_CONVERT_FIRST = words("softmax log_softmax special_softmax special_log_softmax")

#: Functions that end a region of the real autocast, as it is to be used.
_BACKWARD = ("backward", "grad")

#: Work on tensors as Python objects; what it computes on the way is not the model's.
_ASIDE = words("__repr__ __format__ __str__ __reduce_ex__")


class CallMode(TorchFunctionMode):
    """Casts the arguments of PyTorch's functions as the policy says, differentiably."""

    def __init__(self, state: State) -> None:
        super().__init__()
        self.state = state
        self._plans: dict[Any, Call] = {}
        self._operations: dict[str, str] = {}  # a function's name -> the policy's
        self._running: Any = None
        self._recurrent = False  #: whether the steps of a recurrent layer run

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        state = self.state
        if state.off or (state.quiet and state.in_optimizer()):
            return func(*args, **kwargs) if kwargs else func(*args)
        plan = self._plans.get(func)
        if plan is None:
            plan = self._plans[func] = self._plan(func)
        return plan(*args, **kwargs) if kwargs else plan(*args)

    def _plan(self, func: Any) -> Call:
        """What to call instead of a function, decided once for each."""
        name = getattr(func, "__name__", "__get__")
        if name in _ASIDE:
            return partial(self._aside, func)
        if name == "__deepcopy__":
            return partial(self._copy, func)
        if isinstance(func, python.FunctionType):
            inner = partial(self._through, func, transparent(func), name)
            own = name in self.state.policy.operations and name not in aten_operations()
            return partial(self._operate, inner, name) if own else inner
        if name in CONVERSIONS:
            return partial(CONVERSIONS[name], self.state, func)
        if isinstance(func, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
            return func
        if name in STRAIGHT:
            return func  # type: ignore[no-any-return]
        if name in FACTORIES:
            return partial(self._make, func)
        if name in RECURRENT:
            return partial(self._steps, func, name)
        if name in _CONVERT_FIRST:
            return partial(self._convert_first, func, name)
        if name == "rms_norm":
            return partial(self._operate, partial(self._norm, func), name)
        if name == "scaled_dot_product_attention":
            return partial(self._operate, partial(self._attention, func), name)
        return partial(self._operate, func, name)

    def _aside(self, func: Call, *args: Any, **kwargs: Any) -> Any:
        with self.state.aside():
            return func(*args, **kwargs)

    def _copy(self, func: Call, x: Tensor, memo: Any) -> Any:
        made = self._aside(func, x, memo)
        if x.dtype is torch.float32 and x.layout is torch.strided:
            self.state.tags.put(made, self.state.tags.of(x))
        return made

    def _through(self, func: Call, copy: Call, name: str, *args: Any, **kwargs: Any) -> Any:
        """Run a function written in Python so that the calls inside are seen."""
        if self._running is func:  # a method in front of one in C of the same name
            if name in STRAIGHT:
                return func(*args, **kwargs)
            return self._operate(func, name, *args, **kwargs)
        running, self._running = self._running, func
        try:
            with self:
                return copy(*args, **kwargs)
        finally:
            self._running = running
            if name in _BACKWARD:
                self.state.forget_weights()  # as on leaving a region of the real autocast

    def _make(self, func: Call, *args: Any, **kwargs: Any) -> Any:
        if kwargs and kwargs.get("dtype") in CASTS:
            return self._as_dtype(func, args, kwargs)
        return func(*args, **kwargs)

    def _as_dtype(self, func: Call, args: Any, kwargs: dict[str, Any]) -> Any:
        """A result of a narrow dtype: float32, and its numbers in that format."""
        cast = CASTS[kwargs["dtype"]]
        result = func(*args, **{**kwargs, "dtype": torch.float32})
        return _map(result, lambda x: changed(self.state, x, cast))

    def _convert_first(
        self, func: Call, name: str, x: Tensor, *args: Any, dtype: Any = None, **kwargs: Any
    ) -> Any:
        last = len(args) - 1  # the dtype may stand there, too
        if args and isinstance(args[last], torch.dtype):
            args, dtype = args[:last], args[last]
        if dtype is None:
            return self._operate(func, name, x, *args, **kwargs)
        x = changed(self.state, x, CASTS.get(dtype)) if x.dtype is torch.float32 else x
        return self._operate(func, name, x, *args, dtype=dtype, **kwargs)

    # --- operations ----------------------------------------------------------------------------

    def _operate(self, func: Call, name: str, *args: Any, **kwargs: Any) -> Any:
        state = self.state
        if not state.is_forward():
            return func(*args, **kwargs)
        if kwargs and kwargs.get("dtype") in CASTS:
            return self._as_dtype(partial(self._operate, func, name), args, kwargs)
        written = int(is_in_place(name))  # the first argument is written to: left as it is
        if state.reading:
            args = (*args[:written], *_map(args[written:], state.read))
        if written or kwargs.get("out") is not None:
            return func(*self._joined(args, kwargs, written), **kwargs)
        if name == "pad":
            name = _padding(*args, **kwargs)
        operation = self._operations.get(name)
        if operation is None:
            operation = operation_of(name, state.policy.operations)
            self._operations[name] = operation
        decision = state.decision(operation)
        if decision.rule is Rule.KEEP:
            if decision.products is not None:
                return self._kept(func, operation, decision, args, kwargs)
            return func(*self._joined(args, kwargs, 0), **kwargs)
        return _RULES[decision.rule](self, func, operation, decision, args, kwargs)

    def _lower(
        self, func: Call, name: str, decision: Decision, args: Any, kwargs: dict[str, Any]
    ) -> Any:
        state, result = self.state, decision.result
        args, kwargs = self._changed(args, kwargs, partial(self._lowered, decision))
        if decision.rule is Rule.LOWER and decision.products is not None:
            func = self._accumulating(func, name, decision, result, args)
        if result == decision.activation == decision.weight == decision.gradient:
            return func(*args, **kwargs)
        framed, frame = state.framed, state.frame
        state.framed, state.frame = True, result
        try:
            out = func(*args, **kwargs)
        finally:
            state.framed, state.frame = framed, frame
        if decision.gradient is None or decision.gradient == result:
            return out
        gradient = decision.gradient
        return _map(out, lambda x: gradient_as(state, x, gradient) if x.requires_grad else x)

    def _kept(
        self, func: Call, name: str, decision: Decision, args: Any, kwargs: dict[str, Any]
    ) -> Any:
        """A matrix product of narrow operands, which keeps their format; others are left alone."""
        formats = [self.state.tags.of(x) for x in args if isinstance(x, Tensor)]
        narrow = [one for one in formats if one is not None]
        if narrow and len(narrow) == len(formats):
            result = self.state.result_format(narrow)
            func = self._accumulating(func, name, decision, result, args)
        return func(*self._joined(args, kwargs, 0), **kwargs)

    def _accumulating(
        self, func: Call, name: str, decision: Decision, result: Cast | None, args: Any
    ) -> Call:
        """What to call for a product whose operands need no recipe, but that is added up by one."""
        called = operation_of(getattr(func, "__name__", name), ())
        if called not in MULTIPLY:
            self.state.not_emulated[
                f"{called}: no accumulator reaches its products, which float32 adds up; write them "
                "as matmul"
            ] = None
            return func
        if any(isinstance(x, Tensor) and x.dtype is not torch.float32 for x in args):
            return func
        assert decision.products is not None
        work = Work(self.state, decision.products, "", result, False, False)

        def multiply(a: Tensor, b: Tensor, added: Tensor | None) -> Tensor:
            return Product.apply(a, b, added, work)  # type: ignore[no-untyped-call, no-any-return]

        return partial(MULTIPLY[called], multiply)

    def _scaled(
        self, func: Call, name: str, decision: Decision, args: Any, kwargs: dict[str, Any]
    ) -> Any:
        """A matrix product whose operands have recipes; the weight comes as it is."""
        state = self.state
        called = operation_of(getattr(func, "__name__", name), ())
        if called not in MULTIPLY or self._recurrent:
            state.not_emulated[_unreached(called, self._recurrent, decision.activation)] = None
            return self._lower(func, name, decision, args, kwargs)
        if any(isinstance(x, Tensor) and x.dtype is not torch.float32 for x in args):
            return func(*args, **kwargs)
        return MULTIPLY[called](partial(self._multiply, decision, called), *args, **kwargs)

    def _multiply(
        self, decision: Decision, name: str, a: Tensor, b: Tensor, added: Tensor | None
    ) -> Tensor:
        state = self.state
        assert decision.products is not None
        learns, again = torch.is_grad_enabled(), state.in_backward()
        weight = b._base if b._base is not None else b  # linear multiplies by a view
        layer = state.layers.of(weight, state.module, name) if decision.products.delays else ""
        work = Work(state, decision.products, layer, decision.result, learns, again)
        plain = decision.products.x is None and decision.products.accumulate is not None
        if plain or not isinstance(a, torch.nn.Parameter):
            a = self._as(decision.activation, a)
        products = decision.products
        if (doubt := doubts(products)) is not None:
            state.not_emulated[doubt] = None
        if products.w is None and products.accumulate is not None:
            b = self._lowered(decision, b)  # as it is, it has no format of a chip's
        elif name != "linear" and not isinstance(weight, torch.nn.Parameter):
            b = self._as(decision.activation, b)
        added = None if added is None else self._lowered(decision, added)
        out = Product.apply(a, b, added, work)  # type: ignore[no-untyped-call]
        if not state.inside:
            state.end_forward()
        return out  # type: ignore[no-any-return]

    def _lowered(self, decision: Decision, x: Tensor) -> Tensor:
        weight = decision.weight
        if weight is not None and x.requires_grad and x.is_leaf and not x._is_view():
            return self.state.weight(x, weight)
        return changed(self.state, x, decision.activation)

    def _float32(
        self, func: Call, name: str, decision: Decision, args: Any, kwargs: dict[str, Any]
    ) -> Any:
        args, kwargs = self._changed(args, kwargs, partial(self._as, None))
        return func(*args, **kwargs)

    def _float32_result(
        self, func: Call, name: str, decision: Decision, args: Any, kwargs: dict[str, Any]
    ) -> Any:
        if kwargs.get("dtype") is not None:
            return func(*self._joined(args, kwargs, 0), **kwargs)
        if name not in ALIAS_RESULTS:
            return self._float32(func, name, decision, args, kwargs)
        state = self.state
        args = tuple(joined(state, x) if self._narrow(x) else x for x in args)
        with state.aside():
            return func(*args, **kwargs)

    def _float32_inside(
        self, func: Call, name: str, decision: Decision, args: Any, kwargs: dict[str, Any]
    ) -> Any:
        out = self._float32(func, name, decision, args, kwargs)
        return _map(out, partial(self._as, decision.activation))

    def _widest(
        self, func: Call, name: str, decision: Decision, args: Any, kwargs: dict[str, Any]
    ) -> Any:
        found = scan(self.state.tags, (*args, *kwargs.values()), Scan())
        widest = None if found.any_wide else decision.activation
        args, kwargs = self._changed(args, kwargs, partial(self._as, widest))
        return func(*args, **kwargs)

    def _banned(
        self, func: Call, name: str, decision: Decision, args: Any, kwargs: dict[str, Any]
    ) -> Any:
        raise InputError(
            f"{name} under policy {self.state.policy.name!r}: refused there, as its inputs may "
            "leave the format's range; use binary_cross_entropy_with_logits, or an override"
        )

    def _steps(self, func: Call, name: str, *args: Any, **kwargs: Any) -> Any:
        """A recurrent layer as the operations of its steps: the lists name those."""
        from torch._decomp import decomposition_table

        if not self.state.is_forward():
            return func(*args, **kwargs)
        packet = getattr(torch.ops.aten, name)
        packed = isinstance(args[1], Tensor) and not args[1].is_floating_point()  # batch sizes
        steps = decomposition_table[packet.data if packed else packet.input]
        decision = self.state.decision(f"{name}_cell")  # CUDA lists those, and casts all of it
        if decision.rule is Rule.LOWER:
            args, kwargs = self._changed(args, kwargs, partial(self._lowered, decision))
        self._recurrent = True
        try:
            with self, without_onednn():
                return steps(*args, **kwargs)
        finally:
            self._recurrent = False

    def _norm(self, func: Call, input: Tensor, *args: Any, **kwargs: Any) -> Any:
        """rms_norm is made of others, between casts to float32 and back that a half tensor has."""
        own = self.state.tags.of(input)
        if own is None:
            return func(input, *args, **kwargs)
        out = func(changed(self.state, input, None), *args, **kwargs)
        return changed(self.state, out, self.state.result_format([own]))

    def _attention(self, func: Call, *args: Any, **kwargs: Any) -> Any:
        """Where no kernel does it in one, PyTorch computes attention of half tensors in float32."""
        found = scan(self.state.tags, args, Scan())
        allowed = torch._C._get_math_sdp_allow_fp16_bf16_reduction()
        if not found.narrow or allowed or torch._fused_sdp_choice(*args, **kwargs) != _MATH:
            return func(*args, **kwargs)
        narrow = self.state.result_format(found.narrow)
        args, kwargs = self._changed(args, kwargs, partial(self._as, None))
        return changed(self.state, func(*args, **kwargs), narrow)

    # --- arguments -----------------------------------------------------------------------------

    def _as(self, cast: Cast | None, x: Tensor) -> Tensor:
        return changed(self.state, x, cast)

    def _own_gradient(self, x: Tensor) -> Tensor:
        return joined(self.state, x) if x.requires_grad and torch.is_grad_enabled() else x

    def _narrow(self, x: Any) -> bool:
        """Whether x is narrow and its gradient must be too."""
        if not isinstance(x, Tensor) or x.dtype is not torch.float32:
            return False
        return x.requires_grad and torch.is_grad_enabled() and self.state.tags.of(x) is not None

    def _joined(self, args: Any, kwargs: dict[str, Any], first: int) -> Any:
        """Arguments of an operation that promotes: their gradients come in their own formats."""
        if not torch.is_grad_enabled():
            return args
        found = scan(self.state.tags, args, Scan())
        if kwargs:
            scan(self.state.tags, kwargs.values(), found)
        formats = len(found.narrow) + len(found.scalars)
        if not formats or (formats == 1 and not found.any_wide and "dtype" not in kwargs):
            return args
        return (*args[:first], *_map(args[first:], self._own_gradient))

    def _changed(
        self, args: Any, kwargs: dict[str, Any], change: Change
    ) -> tuple[Any, dict[str, Any]]:
        args = _map(args, change)
        if kwargs:
            kwargs = {name: _map(value, change) for name, value in kwargs.items()}
        return args, kwargs


_RULES = {
    Rule.LOWER: CallMode._lower,
    Rule.SCALED: CallMode._scaled,
    Rule.FLOAT32: CallMode._float32,
    Rule.FLOAT32_RESULT: CallMode._float32_result,
    Rule.FLOAT32_INSIDE: CallMode._float32_inside,
    Rule.WIDEST: CallMode._widest,
    Rule.BANNED: CallMode._banned,
}


def _unreached(name: str, recurrent: bool, base: Cast | None) -> str:
    what, out = (
        ("a recurrent layer's steps", "write them as modules of linear layers")
        if recurrent
        else (name, "write them as matmul")
    )
    return f"{what}: recipes do not reach its products, which run in {base or 'float32'}; {out}"


def _padding(input: Tensor, pad: Any, mode: str = "constant", value: Any = None) -> str:
    """The operation that `torch.nn.functional.pad` runs."""
    kind = {"reflect": "reflection", "replicate": "replication"}.get(mode, mode)
    return f"{kind}_pad{len(pad) // 2}d"


def _map(value: Any, change: Change) -> Any:
    """The same structure with each float32 tensor changed."""
    if isinstance(value, Tensor):
        return change(value) if value.dtype is torch.float32 else value
    if isinstance(value, tuple | list) and not isinstance(value, torch.Size):
        made = [_map(one, change) for one in value]
        return made if isinstance(value, list) else _tuple(value, made)
    return value


def _tuple(like: tuple[Any, ...], made: list[Any]) -> Any:
    return tuple(made) if type(like) is tuple else like.__class__(made)  # a named one of torch's
