"""Fitting: values put into a tensor's own dtype, and whether that holds them exactly."""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple

import numpy as np

import fpemu
from fpemu.errors import InputError, did_you_mean

__all__ = ["FORMATS", "WIDTHS", "Fitted", "Inexact", "fit", "read_inexact"]

Array = np.ndarray[Any, Any]

#: The float dtypes of whole bytes that tensors keep, and fpemu's names of their formats.
FORMATS = {
    "F16": "float16", "BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
    "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "F8_E8M0": "float8_e8m0fnu",
}  # fmt: skip

#: Bytes of a value, by dtype; F4 and F6 are less than one. A tensor begins at a multiple of them.
WIDTHS = {
    "F64": 8, "C64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2,
    "I16": 2, "U16": 2,
}  # fmt: skip


class Inexact(Enum):
    """What becomes of a tensor whose dtype does not hold every result exactly."""

    FLOAT32 = "float32"  #: it becomes float32
    REFUSE = "refuse"
    ROUND = "round"  #: results are rounded again, to its dtype


def read_inexact(value: str | Inexact) -> Inexact:
    """Return an Inexact, or the one that is called so; anything else is an InputError."""
    known = [one.value for one in Inexact]
    if isinstance(value, Inexact) or value in known:
        return Inexact(value)
    hint = did_you_mean(str(value), known)
    raise InputError(f"inexact={value!r:.40}: {hint}give one of {', '.join(known)}")


class Fitted(NamedTuple):
    """Values as a file holds them."""

    octets: Array
    values: Array  #: what they are then
    exact: bool


def fit(values: Array, dtype: str) -> Fitted:
    """Return values as a dtype of safetensors.

    >>> import numpy as np
    >>> from fpemu.analysis.conversion.fitting import fit
    >>> fit(np.float32([1.0, 1.0009765625]), "BF16").exact, fit(np.float32([1.5]), "BF16").octets
    (False, array([192,  63], dtype=uint8))
    """
    if dtype in ("F32", "F64"):
        kept = np.ascontiguousarray(values, f"<f{WIDTHS[dtype]}")
        return Fitted(_octets(kept), values, True)
    form = FORMATS[dtype]
    codes = fpemu.encode(values, form)
    back = fpemu.decode(codes, form, values.dtype)
    same = (back == values) | (np.isnan(back) & np.isnan(values))
    return Fitted(_octets(codes.astype(codes.dtype.newbyteorder("<"))), back, bool(same.all()))


def _octets(array: Array) -> Array:
    return array.reshape(-1).view(np.uint8)
