"""fpemu.arithmetic: every operation rounded by a Cast, once: elementwise, sums, matrix multiplies.

    arithmetic.add(a, b, "fp16")                       # one rounding, in every mode
    arithmetic.divide(a, b, "bf16", flags=True)        # and the exceptions of IEEE 754
    arithmetic.matmul(a, b, "fp16", block=128, outer="float32")
"""

from __future__ import annotations

from fpemu.arithmetic.accumulation import Accumulation, Order
from fpemu.arithmetic.convolution import conv2d
from fpemu.arithmetic.flags import Flags, Tininess
from fpemu.arithmetic.functions import FUNCTIONS, evaluate
from fpemu.arithmetic.operations import Options, add, divide, fma, multiply, sqrt, subtract
from fpemu.arithmetic.products import Sums, dot, matmul, sum
from fpemu.arithmetic.reduction import Topology, all_reduce

__all__ = [
    "FUNCTIONS",
    "Accumulation",
    "Flags",
    "Options",
    "Order",
    "Sums",
    "Tininess",
    "Topology",
    "add",
    "all_reduce",
    "conv2d",
    "divide",
    "dot",
    "evaluate",
    "fma",
    "matmul",
    "multiply",
    "sqrt",
    "subtract",
    "sum",
]
