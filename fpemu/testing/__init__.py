"""Tools to test rounding code, fpemu's own or anybody's.

    directed_inputs(format)      the inputs that find mistakes: values, ties, neighbours, specials
    assert_same_bits(got, want)  equality on bits, every NaN equal
    differences(function, cast)  how a cast function differs from the exact definition, by kind
    assert_cast(function, cast)  the same, as an assertion
    strategies                   Hypothesis strategies: values, codes, ties, casts, formats
"""

from __future__ import annotations

from typing import Any

from fpemu.testing.bits import assert_same_bits
from fpemu.testing.check import Difference, Differences, assert_cast, differences
from fpemu.testing.directed import directed_inputs

__all__ = [
    "Difference",
    "Differences",
    "assert_cast",
    "assert_same_bits",
    "differences",
    "directed_inputs",
    "strategies",
]


def __getattr__(name: str) -> Any:
    if name == "strategies":  # needs Hypothesis
        import importlib

        return importlib.import_module("fpemu.testing.strategies")
    raise AttributeError(f"module 'fpemu.testing' has no attribute {name!r}")
