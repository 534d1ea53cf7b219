"""Part: what a target makes of some rows of a tensor, and how its codes are stored."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from fpemu.codes import code_dtype
from fpemu.scaling import FloatElement, IntegerElement
from fpemu.scaling.elements import Element

__all__ = ["Draw", "Part", "Shape", "code_dtype_of", "one_matrix"]

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]


class Draw(NamedTuple):
    """Where a piece's random bits come from: a seed, and the place of its first number."""

    seed: int | None
    offset: int


class Part(NamedTuple):
    """What a target makes of some rows of a tensor."""

    values: Array  #: float32, or float64 where it was; of the rows' shape
    codes: Array  #: one each, of the rows' shape
    scales: Array | None = None  #: as stored; blocks along the axis stand there
    tensor_scale: np.float32 | None = None


def code_dtype_of(element: Element) -> tuple[str, int]:
    """Return the safetensors dtype of an element's codes, and their bits where they are packed."""
    if isinstance(element, FloatElement):
        form = element.cast.format
        if form.name in _NATIVE:
            return _NATIVE[form.name], 0
        size = code_dtype(form).itemsize
        return f"U{8 * size}", form.bits if form.bits < 8 else 0
    if isinstance(element, IntegerElement) and element.bits in (8, 16):
        return f"I{element.bits}", 0
    return ("U8", element.bits if element.bits < 8 else 0) if element.bits <= 8 else ("U16", 0)


#: fpemu's formats that safetensors has a dtype for.
_NATIVE = {
    "float32": "F32", "float16": "F16", "bfloat16": "BF16", "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2", "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2fnuz": "F8_E5M2FNUZ", "float8_e8m0fnu": "F8_E8M0",
}  # fmt: skip


def one_matrix(shape: Shape) -> Shape:
    """Return a shape's outer dimensions as one."""
    return math.prod(shape[:-1]), shape[-1]
