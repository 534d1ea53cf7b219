"""fpemu: what FP16, BF16, FP8, TF32 and any small float format would do to your numbers, exactly.

>>> import numpy as np, fpemu
>>> fpemu.round(np.array([0.1, 70000.0], np.float32), "fp16")
array([0.09997559,        inf], dtype=float32)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from fpemu.cast import Cast, Overflow, Rounding
from fpemu.catalog import FORMATS as formats
from fpemu.catalog import find_format as finfo
from fpemu.catalog import p3109
from fpemu.errors import FpemuError
from fpemu.format import Format, NaN
from fpemu.presets import CASTS as casts

if TYPE_CHECKING:
    import fpemu.arithmetic as arithmetic
    import fpemu.policies as policies
    import fpemu.scaling as scaling
    import fpemu.tensorcore as tensorcore
    import fpemu.testing as testing
    import fpemu.torch as torch  # noqa: F401
    from fpemu import analysis
    from fpemu.codes import decode, encode, values
    from fpemu.emulate import round, warmup
    from fpemu.measures import error, nextafter, spacing
    from fpemu.tallies import Outcome, Tally, tally

__version__ = "0.1.0.dev0"

__all__ = [
    "Cast",
    "Format",
    "FpemuError",
    "NaN",
    "Outcome",
    "Overflow",
    "Rounding",
    "Tally",
    "analysis",
    "arithmetic",
    "casts",
    "decode",
    "encode",
    "error",
    "finfo",
    "formats",
    "nextafter",
    "p3109",
    "policies",
    "round",
    "scaling",
    "spacing",
    "tally",
    "tensorcore",
    "testing",
    "values",
    "warmup",
]

# Loaded on first use, so that `import fpemu` brings neither numba nor matplotlib.
_LAZY = {
    "decode": "fpemu.codes",
    "encode": "fpemu.codes",
    "error": "fpemu.measures",
    "nextafter": "fpemu.measures",
    "spacing": "fpemu.measures",
    "round": "fpemu.emulate",
    "values": "fpemu.codes",
    "warmup": "fpemu.emulate",
    "Outcome": "fpemu.tallies",
    "Tally": "fpemu.tallies",
    "tally": "fpemu.tallies",
}
# torch is not in __all__: `from fpemu import *` must not take the name of PyTorch.
_MODULES = {"analysis", "arithmetic", "policies", "scaling", "tensorcore", "testing", "torch"}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        value = getattr(importlib.import_module(_LAZY[name]), name)
    elif name in _MODULES:
        value = importlib.import_module(f"fpemu.{name}")
    else:
        raise AttributeError(f"module 'fpemu' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
