"""Typed: what commands share of how people type: the help options, and scales."""

from __future__ import annotations

import math
import re

from fpemu.errors import InputError

__all__ = ["HELP", "read_scale"]

#: Of every command: click keeps a command's help option, so the group's may come too late.
HELP = {"help_option_names": ["-h", "--help"]}


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
