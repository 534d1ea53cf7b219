"""Typed: what people type on a command line, read as casts and scales."""

from __future__ import annotations

import math
import re

from fpemu.cast import Cast, make_cast
from fpemu.errors import InputError
from fpemu.presets import find_preset

__all__ = ["read_cast", "read_scale"]


def read_cast(text: str) -> Cast:
    """Return the cast of a format's name, of 'format:rules' or of a preset.

    >>> from fpemu.analysis.typed import read_cast
    >>> str(read_cast("e4m3fn:overflow=saturate")), str(read_cast("cublas.tf32"))
    ('float8_e4m3fn:overflow=saturate', 'tf32:nearest_away')

    Unknown names are an UnknownFormatError with the closest known one.
    """
    return find_preset(text) if "." in text else make_cast(text)


def read_scale(text: str) -> float:
    """Return a power of two given as a number or as 2^k.

    >>> from fpemu.analysis.typed import read_scale
    >>> read_scale("1024"), read_scale("2^-3")
    (1024.0, 0.125)

    Anything else, and powers beyond 2^-100 and 2^100, are an InputError.
    """
    power = re.fullmatch(r"2(?:\^|\*\*)([+-]?\d{1,3})", text.strip())
    try:
        scale = math.ldexp(1.0, int(power[1])) if power else float(text)
    except ValueError:
        scale = math.nan
    if not (2.0**-100 <= scale <= 2.0**100 and math.frexp(scale)[0] == 0.5):
        raise InputError(
            f"scale {text!r}: must be a power of two (scaling is then exact), such as 1024 or 2^10"
        )
    return scale
