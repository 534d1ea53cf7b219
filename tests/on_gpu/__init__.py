"""What is done on a machine with a GPU; benchmarks/gpu.py and tests/gpu share it."""

from __future__ import annotations

__all__ = ["FORMATS"]

#: The formats of which every input is tried and whose speed is documented.
FORMATS = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "tf32")
