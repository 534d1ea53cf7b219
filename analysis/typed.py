"""Typed: what commands share of how people type: the help options, lists of casts, and scales."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterable, Sequence

from fpemu.errors import InputError

__all__ = ["HELP", "read_casts", "read_scale", "read_scales"]

#: Of every command: click keeps a command's help option, so the group's may come too late.
HELP = {"help_option_names": ["-h", "--help"]}

#: A comma between names: not inside brackets, nor before a further rule of a cast, as in ",up=..".
_COMMA = re.compile(r",(?![^(\[]*[)\]])(?!\s*\w+=)")


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


def read_casts(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the casts of options given once or more, each a list of names.

    >>> from fpemu.analysis.typed import read_casts
    >>> read_casts(["bf16,mxfp8", "e4m3fn:overflow=saturate,rounding=up"])
    ('bf16', 'mxfp8', 'e4m3fn:overflow=saturate,rounding=up')
    >>> read_casts(["mxfp8,1x16 amax(least=0.1, added=0) fp4,e5m2:overflow=saturate,bf16"])
    ('mxfp8', '1x16 amax(least=0.1, added=0) fp4', 'e5m2:overflow=saturate', 'bf16')

    Commas inside the brackets of a recipe, and between the rules of a cast, part no names.
    """
    split = (_COMMA.split(text) for text in texts)
    return tuple(name.strip() for names in split for name in names if name.strip())


def read_scales(text: str) -> tuple[float, ...]:
    """Return powers of two given by their exponents, as 'LOW:HIGH' or as a list.

    >>> from fpemu.analysis.typed import read_scales
    >>> read_scales("-1:2"), read_scales("10,0")
    ((0.5, 1.0, 2.0, 4.0), (1.0, 1024.0))

    Anything else, and exponents beyond what a tally takes, are an InputError.
    """
    from fpemu.tallies import SCALE_LIMIT

    exponents: Sequence[int] = ()
    with contextlib.suppress(ValueError):
        if ":" in text:
            low, high = (int(part) for part in text.split(":"))
            exponents = range(max(low, -SCALE_LIMIT - 1), min(high, SCALE_LIMIT + 1) + 1)
        else:
            exponents = sorted(int(part) for part in text.replace(",", " ").split())
    if not exponents or max(-exponents[0], exponents[-1]) > SCALE_LIMIT:
        raise InputError(
            f"scales {text!r}: give exponents of two from -{SCALE_LIMIT} to {SCALE_LIMIT}, "
            "as '-8:24' or '0,3,7,10'"
        )
    return tuple(math.ldexp(1.0, k) for k in exponents)
