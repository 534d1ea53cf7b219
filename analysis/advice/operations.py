"""Operations: which ones a narrow format is for, and which autocast computes in float32.

The table of autocast's lists is the one of `fpemu.policies`; the names are those of a trace.
"""

from __future__ import annotations

from functools import cache

from fpemu.analysis.tensor_names import operation_of
from fpemu.policies import Rule, find_policy, rules

__all__ = ["PRODUCTS", "WIDE", "is_in_float32", "is_product"]

#: What the matrix units for 8-bit formats compute; all else stays wide.
PRODUCTS = rules(
    lower="linear addmm mm matmul bmm baddbmm conv1d conv2d conv3d convolution "
    "conv_transpose1d conv_transpose2d conv_transpose3d"
)

#: Rules under which an operation computes in float32.
WIDE = (Rule.FLOAT32, Rule.FLOAT32_RESULT, Rule.FLOAT32_INSIDE)

#: Names that the lists know by the operation that these are made of.
_MADE_OF = {"cross_entropy": "nll_loss", "square": "pow"}


@cache
def is_in_float32(operation: str) -> bool:
    """Say whether autocast on a GPU computes an operation, by its name, in float32.

    >>> from fpemu.analysis.advice.operations import is_in_float32
    >>> is_in_float32("softmax"), is_in_float32("add"), is_in_float32("mse_loss")
    (True, False, True)
    """
    policy = find_policy("torch.autocast.cuda.float16")
    return policy.rule(_MADE_OF.get(operation, operation)) in WIDE


def is_product(name: str) -> bool:
    """Say whether a tensor of a trace is the result of a product between modules.

    >>> from fpemu.analysis.advice.operations import is_product
    >>> is_product("attention.matmul@model.py:7"), is_product("attention.add@model.py:8")
    (True, False)
    """
    return operation_of(name) in PRODUCTS
