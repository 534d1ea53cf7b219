"""Emulation: a context in which PyTorch computes as if its tensors had a policy's formats."""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Any

import torch

from fpemu.cast import Cast
from fpemu.errors import InputError
from fpemu.policies import Policy, Products, check_operations, find_policy, in_torch
from fpemu.policies.accumulators import Accumulator
from fpemu.policies.in_torch import left_out
from fpemu.scaling import Delayed, Recipe
from fpemu.tensorcore import Chip
from fpemu.torch.calls import CallMode
from fpemu.torch.dispatch import DispatchMode
from fpemu.torch.inplace import Draws
from fpemu.torch.modules import Modules
from fpemu.torch.names import known_operations
from fpemu.torch.optimizers import Optimizers
from fpemu.torch.recipes import recipes_of
from fpemu.torch.state import State

__all__ = ["Emulation", "emulate", "emulated"]

_FLOAT32 = Cast("float32")


class _Entered(threading.local):
    """The emulations entered in a thread, innermost last."""

    def __init__(self) -> None:
        self.stack: list[Emulation] = []


_entered = _Entered()


def emulate(
    policy: Policy | Products | Recipe | Delayed | str,
    *,
    model: torch.nn.Module | None = None,
    device: str | torch.device | None = None,
    seed: int | None = None,
    accumulate: Accumulator | Chip | Cast | str | None = None,
) -> Emulation:
    """Return a context in which PyTorch computes as if tensors had a policy's formats.

    >>> import torch
    >>> from fpemu.torch import emulate
    >>> layer = torch.nn.Linear(4, 2)
    >>> with emulate("torch.autocast.cuda.float16") as emulation:
    ...     y = layer(torch.full((1, 4), 1 / 3))
    ...     print(y.dtype, emulation.format(y), emulation.format(y.softmax(-1)))
    torch.float32 float16 float32

    policy: what `fpemu.policies.find_policy` reads: a name, a name with changes, a Policy; or a
        recipe of `fpemu.scaling`, its name or text, for the operands of every matrix product.
    model: whose weights, inputs and outputs the policy is about, and whose modules it names;
        unless given, the outermost module that is called.
    device: "cpu" or "cuda", whose kernels to follow where they round differently; unless given,
        what the policy's name says, or "cuda".
    seed: for policies with stochastic casts; recipes that round stochastically take PyTorch's
        own (`torch.initial_seed()`) unless it is given.
    accumulate: what adds up the products of matrix products, in place of the policy's: a chip
        ("hopper", "H100", "hopper(promote=128)", a `fpemu.tensorcore.Chip`), a format that every
        partial sum is rounded to ("float16"), a `fpemu.arithmetic.Accumulation`; None: float32.

    Inside, all tensors stay ordinary float32 tensors; each carries a format, which `format` tells.
    Forward and backward passes and optimizers' steps are emulated, so all of them belong inside;
    rules of the policy hold in forward passes. float64, integer and complex tensors are left
    alone. Real half tensors, sparse and quantized ones, and tensors without memory (meta) are an
    InputError where a format would be needed. See docs/emulate.md.
    """
    return Emulation(policy, model=model, device=device, seed=seed, accumulate=accumulate)


def _eager() -> Any:
    """What makes compiled models run as they were written; None where nothing was compiled."""
    if "torch._dynamo" not in sys.modules:  # loading it takes seconds
        return None
    stance = torch.compiler.set_stance("force_eager")
    stance.__enter__()
    return stance


def emulated() -> str | None:
    """Return the name of the policy that this thread computes under, or None.

    >>> from fpemu.torch.emulation import emulate, emulated
    >>> with emulate("te.delayed", accumulate="hopper"):
    ...     print(emulated())
    te.delayed accumulate=hopper
    """
    return _entered.stack[-1].policy.name if _entered.stack else None


class Emulation:
    """What `emulate` returns: the context, and what is known of the tensors inside.

    >>> import torch
    >>> from fpemu.torch import emulate
    >>> emulation = emulate("uniform:e4m3fn")
    >>> with emulation:
    ...     print(torch.tensor([0.3, 1.1]) * torch.tensor(1.0))
    tensor([0.3125, 1.1250])

    It may be entered any number of times, and again while it is entered; what it knows of tensors
    stays with it. Inside of another emulation it takes the other's place.
    """

    def __init__(
        self,
        policy: Policy | Products | Recipe | Delayed | str,
        *,
        model: torch.nn.Module | None = None,
        device: str | torch.device | None = None,
        seed: int | None = None,
        accumulate: Accumulator | Chip | Cast | str | None = None,
    ) -> None:
        if model is not None and not isinstance(model, torch.nn.Module):
            raise InputError(f"model of {type(model)}: give a torch.nn.Module, or leave it out")
        self._accumulate = accumulate
        found = self._found(policy)
        self.policy = in_torch(found)
        check_operations(self.policy, known_operations())
        self._state = State(self.policy, seed)
        if lost := left_out(found):
            self._state.not_emulated[
                f"policy {found.name}: PyTorch has no operation for {len(lost)} of the "
                f"{len(found.operations)} that it lists, such as {lost[0]}; give them rules by "
                "PyTorch's names"
            ] = None
        self._modules = Modules(self._state, model)
        self._optimizers = Optimizers(self._state, self._modules)
        self._modes = (
            DispatchMode(self._state, recipes_of(self.policy, device)),
            CallMode(self._state),
        )
        self._depth = 0
        self._eagerly: Any = None

    def _found(self, policy: Policy | Products | Recipe | Delayed | str) -> Policy:
        found = find_policy(policy)
        return found if self._accumulate is None else found.accumulating(self._accumulate)

    def __repr__(self) -> str:
        return f"<Emulation of {self.policy.name!r} at step {self._state.step}>"

    # --- the context -------------------------------------------------------------------------

    def __enter__(self) -> Emulation:
        stack = _entered.stack
        if self._depth and (not stack or stack[-1] is not self):
            raise InputError(
                f"{self!r} is entered already, in another thread or around another emulation; "
                "make one for each"
            )
        if not self._depth:
            self._begin(stack)
        self._depth += 1
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        stack = _entered.stack
        if not stack or stack[-1] is not self:
            raise InputError(
                f"{self!r} is not what this thread entered last: leave what is inside of it first"
            )
        self._depth -= 1
        if self._depth:
            return
        for mode in reversed(self._modes):
            mode.__exit__(kind, error, trace)  # type: ignore[no-untyped-call]
        if self._eagerly is not None:
            self._eagerly.__exit__(kind, error, trace)
        self._modules.remove()
        self._optimizers.remove()
        self._state.forget_weights()
        stack.pop()
        if stack:
            stack[-1]._state.off -= 1

    def _begin(self, stack: list[Emulation]) -> None:
        try:
            self._modules.install()
        except BaseException:
            self._modules.remove()
            raise
        self._optimizers.install()
        self._eagerly = _eager()
        for mode in self._modes:
            mode.__enter__()  # type: ignore[no-untyped-call]
        if stack:
            stack[-1]._state.off += 1  # the inner one takes the outer one's place
        stack.append(self)

    # --- what it knows -----------------------------------------------------------------------

    def format(self, tensor: torch.Tensor) -> Cast:
        """Return the Cast that a float32 tensor's numbers have been rounded by.

        Cast("float32") for one that carries no format; other dtypes are an InputError.
        """
        if not isinstance(tensor, torch.Tensor):
            raise InputError(f"{type(tensor).__name__}: give a torch.Tensor")
        if tensor.dtype is not torch.float32:
            raise InputError(f"a {tensor.dtype} tensor carries no format: only float32 ones do")
        return self._state.tags.of(tensor) or _FLOAT32

    @property
    def not_emulated(self) -> list[str]:
        """What ran so far and is rounded at its edges only, with the reason and a way out."""
        return list(self._state.not_emulated)

    # --- delayed scaling, and files ---------------------------------------------------------

    @property
    def delayed(self) -> dict[str, dict[str, Delayed]]:
        """The states of delayed scaling for the next step: layer -> operand -> Delayed.

        >>> import torch
        >>> from fpemu.torch import emulate
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 2))
        >>> with emulate("te.delayed") as emulation:
        ...     y = model(torch.full((1, 4), 7.0))
        ...     print(emulation.delayed["0"]["x"].scale)
        64.0

        A layer goes by the name of its weight, without ".weight"; operands are x and w of the
        forward pass, and dy. States go on by a step where the outermost module returns, and
        where a backward pass ends; passes without gradients change none.
        """
        return self._state.delays.states()

    def state_dict(self) -> dict[str, Any]:
        """Return what a run that goes on needs beside the model's and the optimizer's own.

        >>> import json
        >>> from fpemu.torch import emulate
        >>> json.dumps(emulate("te.delayed").state_dict())
        '{"step": 0, "seed": null, "drawn": 0, "delayed": {}}'

        JSON-ready, and for `torch.save`: the step, the seed and how much was drawn of its bits, and
        the states of delayed scaling. Take it between steps, where no pass is under way.
        """
        draws = self._state.draws
        return {"step": self.step, "seed": draws.seed, "drawn": draws.offset,
                "delayed": self._state.delays.to_json()}  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` returned, of an emulation of the same policy.

        Errors: InputError for anything else.
        """
        known = ("step", "seed", "drawn", "delayed")
        if not isinstance(state, Mapping) or set(state) != set(known):
            raise InputError(f"{state!r:.80}: is not what state_dict gives: {', '.join(known)}")
        for name in ("step", "drawn"):
            if type(state[name]) is not int or state[name] < 0:
                raise InputError(f"state {name}={state[name]!r:.40}: must be an int from 0")
        draws = Draws(state["seed"])
        self._state.delays.load_json(state["delayed"])
        self._state.draws, draws.offset = draws, state["drawn"]
        self._state.go_to(state["step"])

    # --- changes -----------------------------------------------------------------------------

    def change(self, policy: Policy | Products | Recipe | Delayed | str) -> None:
        """Go on under a policy that differs from this one in its overrides alone.

        >>> import torch
        >>> from fpemu.torch import emulate
        >>> layer = torch.nn.Linear(4, 2)
        >>> with emulate("torch.autocast.cuda.float16", model=layer) as emulation:
        ...     before = layer(torch.ones(1, 4))
        ...     emulation.change("torch.autocast.cuda.float16; override: to=e4m3fn")
        ...     print(emulation.format(before), emulation.format(layer(torch.ones(1, 4))))
        float16 float8_e4m3fn

        It holds from the next operation on; call it between steps, where no pass is under way.
        Tensors keep the formats that they have. Where overrides begin to name modules, give the
        emulation its `model`, or change before the model is called. Errors: InputError for a
        policy that differs in more, or whose overrides name operations that nobody knows.
        """
        found = in_torch(self._found(policy))
        plain = found.replace(name=self.policy.name, overrides=self.policy.overrides)
        if plain != self.policy:
            raise InputError(
                f"policy {found.name!r} differs from {self.policy.name!r} in more than its "
                "overrides: emulate it in a context of its own"
            )
        check_operations(found, known_operations())
        self.policy = self._state.policy = found
        self._state.go_to(self._state.step)
        if self._depth:
            self._modules.install()

    # --- steps -------------------------------------------------------------------------------

    @property
    def step(self) -> int:
        """The step whose overrides hold: how often the first optimizer has made a step.

        Set it where steps are counted otherwise; from then on optimizers do not count.
        """
        return self._state.step

    @step.setter
    def step(self, step: int) -> None:
        if isinstance(step, bool) or not isinstance(step, int) or step < 0:
            raise InputError(f"step {step!r}: steps are ints from 0")
        self._optimizers.counts = False
        self._state.go_to(step)
