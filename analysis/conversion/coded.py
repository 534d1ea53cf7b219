"""Coded: tensors as codes and scales: what the parts are called, and how they lie in a file.

NAME holds the codes, in a dtype of safetensors where there is one (F8_E4M3, F8_E5M2, BF16, I8),
else as unsigned integers; codes of fewer than 8 bits lie side by side along the last dimension,
the first in the lowest bits, each row filled up with zeros. NAME_scale holds the scales as the
recipe keeps them (F8_E8M0, F8_E4M3 or F32), NAME_scale_2 the tensor's own, where there is one.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from fpemu.analysis.checkpoints.safetensors import DTYPES
from fpemu.analysis.conversion.container import Entry
from fpemu.analysis.conversion.part import Part, code_dtype_of
from fpemu.analysis.conversion.plain import Plain
from fpemu.analysis.conversion.targets import Target
from fpemu.codes import pack_bits, unpack_bits
from fpemu.kernels.cpu_packing import group_of
from fpemu.scaling import ExponentRule, TwoLevel

__all__ = ["CODES", "SCALE", "SCALE_2", "Layout", "code_octets", "codes_from", "entries_of",
           "packed_size", "scale_octets"]  # fmt: skip

Array = np.ndarray[Any, Any]

#: The note of a file by which its codes are made values again.
CODES = "fpemu.codes"

SCALE, SCALE_2 = "_scale", "_scale_2"


def entries_of(name: str, shape: tuple[int, ...], axis: int, target: Target) -> list[Entry]:
    """Return the parts of a tensor that is written as codes."""
    dtype, packed = code_dtype_of(target.element)
    if packed:
        shape_of_codes = (*shape[:-1], packed_size(shape[-1] if shape else 1, packed))
    else:
        shape_of_codes = shape
    found = [Entry(name, dtype, shape_of_codes)]
    if isinstance(target, Plain):
        return found
    rule = target.recipe.rule
    kept = "F8_E8M0" if isinstance(rule, ExponentRule) else "F32"
    kept = "F8_E4M3" if isinstance(rule, TwoLevel) else kept
    found.append(Entry(name + SCALE, kept, target.grid(shape, axis)))
    if isinstance(rule, TwoLevel):
        found.append(Entry(name + SCALE_2, "F32", ()))
    return found


def packed_size(length: int, bits: int) -> int:
    """Return the bytes of a row of so many codes, filled up to whole groups."""
    count, size = group_of(bits)
    return -(-length // count) * size


def code_octets(part: Part, target: Target) -> Array:
    """Return the bytes of a part's codes."""
    _, bits = code_dtype_of(target.element)
    codes = part.codes
    if not bits:
        return _octets(codes.astype(codes.dtype.newbyteorder("<"), copy=False))
    count, _ = group_of(bits)
    if fill := -codes.shape[-1] % count:
        codes = np.pad(codes, [(0, 0)] * (codes.ndim - 1) + [(0, fill)])
    return _octets(pack_bits(np.ascontiguousarray(codes), bits))


class Layout(NamedTuple):
    """How the codes of a tensor's rows lie in bytes."""

    dtype: str  #: numpy's, unsigned
    bits: int  #: of packed codes; 0: they are not
    shape: tuple[int, ...]  #: of the tensor, seen as rows

    def octets(self, rows: int) -> int:
        """Return how many bytes so many rows take."""
        if not self.bits:
            return rows * math.prod(self.shape[1:]) * np.dtype(self.dtype).itemsize
        *outer, last = (rows, *self.shape[1:])
        return math.prod(outer) * packed_size(last, self.bits)

    def codes(self, octets: Array) -> Array:
        """Return the codes that whole rows of bytes hold."""
        if not self.bits:
            found = octets.view(self.dtype)
            return found.astype(found.dtype.newbyteorder("=")).reshape(-1, *self.shape[1:])
        if len(self.shape) == 1:
            return unpack_bits(octets, self.bits, "codes")
        last = self.shape[-1]
        packed = octets.reshape(-1, *self.shape[1:-1], packed_size(last, self.bits))
        return np.ascontiguousarray(unpack_bits(packed, self.bits, "codes")[..., :last])


def codes_from(target: Target, shape: tuple[int, ...]) -> Layout:
    """Return how the codes of a tensor, seen as rows, lie in bytes."""
    dtype, bits = code_dtype_of(target.element)
    size = 1 if bits else max(1, DTYPES[dtype].bits // 8)
    return Layout(f"<u{size}", bits, shape)


def scale_octets(scales: Array) -> Array:
    """Return the bytes of scales."""
    return _octets(scales.astype(scales.dtype.newbyteorder("<"), copy=False))


def _octets(array: Array) -> Array:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
