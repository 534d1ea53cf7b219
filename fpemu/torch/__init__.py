"""fpemu.torch: number formats inside PyTorch: rounding with gradients, fake quantization, policies.

    round(tensor, to)        a tensor through a Cast, differentiable
    FakeQuantize(to)         a module: a tensor through a format at a scale, for training with it
    prepare(model, ...)      FakeQuantize modules for a model's weights and activations, and undo
    Integer(bits)            symmetric integers, beside the float formats
    emulate(policy)          a context in which a model runs in another framework's precisions, or
                             multiplies by a recipe of `fpemu.scaling`, or adds up as a chip does

The files, each from the outside in:

    rounding        round: checks (which tensors), beyond (what is clipped), straight (gradients),
                    operators (the numbers, as an operator of PyTorch's), graphs (torch.compile)
    fake_quantize   FakeQuantize, on a grid; insertion is prepare
    emulation       the context: modules and optimizers are its hooks, and all share one state,
                    with tags, the formats of tensors
      calls         above autograd: the policy's rules for functions. names (what a function is
                    called in policies), conversions (x.half()), transparent (functions written
                    in Python), edges (changes of format, and what they do to gradients)
      products      matrix products whose operands have recipes: operands (one of them, rounded),
                    accumulate (the sums of a chip, or of a format), delays (the states of delayed
                    scaling), layers (what those are called)
      dispatch      below autograd: rounds results. kernels (facts of ATen's operations),
                    promotion (which results are narrow), recipes (kernels that round more than
                    once), onednn, inplace (the numbers)

Needs PyTorch: pip install 'fpemu[torch]'.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

from fpemu.errors import MissingExtraError

if importlib.util.find_spec("torch") is None:
    raise MissingExtraError("fpemu.torch needs PyTorch: pip install 'fpemu[torch]'")

from fpemu.torch.fake_quantize import FakeQuantize, Observer, Scale
from fpemu.torch.grid import Integer
from fpemu.torch.insertion import Prepared, prepare
from fpemu.torch.rounding import round

if TYPE_CHECKING:
    from fpemu.torch.emulation import emulate

__all__ = [
    "FakeQuantize",
    "Integer",
    "Observer",
    "Prepared",
    "Scale",
    "emulate",
    "prepare",
    "round",
]

_LAZY = {"emulate": "fpemu.torch.emulation"}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'fpemu.torch' has no attribute {name!r}")
    value = getattr(importlib.import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
