"""The known formats: the table, their aliases, IEEE P3109's by rule, and finding one by name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from fpemu.errors import FormatError, UnknownFormatError, did_you_mean, short
from fpemu.format import Format, NaN

__all__ = ["ALIASES", "FORMATS", "find_format", "p3109"]


def _ieee(name: str, e: int, m: int) -> Format:
    return Format(name, e, m, (1 << (e - 1)) - 1, NaN.TOP_BINADE, inf=True)


_TABLE = (
    _ieee("float32", 8, 23),
    _ieee("float16", 5, 10),
    _ieee("bfloat16", 8, 7),
    _ieee("tf32", 8, 10),
    # OCP FP8 v1.0
    Format("float8_e4m3fn", 4, 3, 7, NaN.TOP_CODE, inf=False),
    _ieee("float8_e5m2", 5, 2),
    # IEEE-like siblings, as in ml_dtypes
    _ieee("float8_e4m3", 4, 3),
    _ieee("float8_e3m4", 3, 4),
    # finite, no -0: NaN sits at the code of -0
    Format("float8_e4m3fnuz", 4, 3, 8, NaN.MINUS_ZERO, inf=False),
    Format("float8_e5m2fnuz", 5, 2, 16, NaN.MINUS_ZERO, inf=False),
    Format("float8_e4m3b11fnuz", 4, 3, 11, NaN.MINUS_ZERO, inf=False),
    # OCP MX v1.0
    Format("float6_e2m3fn", 2, 3, 1, NaN.NONE, inf=False),
    Format("float6_e3m2fn", 3, 2, 3, NaN.NONE, inf=False),
    Format("float4_e2m1fn", 2, 1, 1, NaN.NONE, inf=False),
    Format("float8_e8m0fnu", 8, 0, 127, NaN.TOP_CODE, inf=False, signed=False, zero=False),
)

#: Canonical name -> Format, read-only; `fpemu.formats` is this mapping.
FORMATS: Mapping[str, Format] = MappingProxyType({f.name: f for f in _TABLE})

#: What people type -> canonical name.
ALIASES: Mapping[str, str] = MappingProxyType(
    {
        "fp32": "float32", "f32": "float32", "single": "float32",
        "fp16": "float16", "f16": "float16", "half": "float16", "binary16": "float16",
        "bf16": "bfloat16",
        "tensorfloat32": "tf32", "tensorfloat-32": "tf32",
        "e5m2": "float8_e5m2", "fp8_e5m2": "float8_e5m2",
        "e4m3fn": "float8_e4m3fn", "fp8_e4m3fn": "float8_e4m3fn",
        "e3m4": "float8_e3m4",
        "e4m3fnuz": "float8_e4m3fnuz", "e5m2fnuz": "float8_e5m2fnuz",
        "e4m3b11fnuz": "float8_e4m3b11fnuz",
        "e2m3": "float6_e2m3fn", "e2m3fn": "float6_e2m3fn", "fp6_e2m3": "float6_e2m3fn",
        "e3m2": "float6_e3m2fn", "e3m2fn": "float6_e3m2fn", "fp6_e3m2": "float6_e3m2fn",
        "fp4": "float4_e2m1fn", "e2m1": "float4_e2m1fn", "e2m1fn": "float4_e2m1fn",
        "fp4_e2m1": "float4_e2m1fn",
        "e8m0": "float8_e8m0fnu", "e8m0fnu": "float8_e8m0fnu", "ue8m0": "float8_e8m0fnu",
    }
)  # fmt: skip

_AMBIGUOUS = {
    "e4m3": ("float8_e4m3fn", "float8_e4m3", "float8_e4m3fnuz", "float8_e4m3b11fnuz"),
    "fp8": ("float8_e4m3fn", "float8_e5m2"),
    "float8": ("float8_e4m3fn", "float8_e5m2"),
    "fp6": ("float6_e2m3fn", "float6_e3m2fn"),
    "float6": ("float6_e2m3fn", "float6_e3m2fn"),
    "fp8_e4m3": ("float8_e4m3fn", "float8_e4m3", "float8_e4m3fnuz"),
}

_P3109_NAME = re.compile(r"binary([1-9]\d?)p([1-9]\d?)([su]?)([ef]?)", re.ASCII | re.IGNORECASE)


def p3109(K: int, P: int, signed: bool = True, extended: bool = True) -> Format:
    """Return IEEE P3109's format of K bits and precision P.

    >>> import fpemu
    >>> f = fpemu.p3109(8, 4)
    >>> f.name, f.max, f.bias
    ('binary8p4se', 224.0, 8)

    K: width in bits, 3 to 15. P: precision with the hidden bit, 1 to K-1 (to K if unsigned).
    signed: one sign bit, NaN at the code of -0; unsigned formats keep NaN at the top code.
    extended: has infinities, at the code below the NaN or the sign bit; otherwise finite.
    Formats whose values leave float32 (more than 8 exponent bits) are refused with the reason.
    Source: IEEE P3109 draft, section 4 (format parameters and value sets).
    """
    for field, value in (("K", K), ("P", P)):
        if isinstance(value, bool) or not isinstance(value, int):
            raise FormatError(f"p3109 {field}={value!r}: must be an int")
    for field, flag in (("signed", signed), ("extended", extended)):
        if not isinstance(flag, bool):
            raise FormatError(f"p3109 {field}={flag!r}: must be True or False")
    if not 3 <= K <= 15:
        raise FormatError(f"p3109 K={K}: the width must be 3 to 15 bits")
    largest = K - 1 if signed else K
    if not 1 <= P <= largest:
        raise FormatError(f"p3109 K={K} P={P}: the precision must be 1 to {largest}")
    name = f"binary{K}p{P}{'s' if signed else 'u'}{'e' if extended else 'f'}"
    exponent_bits = K - P + (0 if signed else 1)
    return Format(
        name,
        exponent_bits,
        P - 1,
        bias=1 << (exponent_bits - 1),
        nan=NaN.MINUS_ZERO if signed else NaN.TOP_CODE,
        inf=extended,
        signed=signed,
    )


def find_format(name: str | Format) -> Format:
    """Return the Format of a canonical name, an alias or a P3109 name, ignoring case.

    >>> import fpemu
    >>> fpemu.finfo("bf16").max
    3.3895313892515355e+38

    A name with several meanings in the field ("e4m3") is refused with the choices; an unknown
    one names the closest known. A Format is returned as it is.
    """
    if isinstance(name, Format):
        return name
    if not isinstance(name, str):
        raise UnknownFormatError(
            f"format {short(name)}: must be a name or a fpemu.Format, not {type(name).__name__}"
        )
    key = name.strip().lower()
    if key in FORMATS:
        return FORMATS[key]
    if key in ALIASES:
        return FORMATS[ALIASES[key]]
    if key in _AMBIGUOUS:
        choices = ", ".join(repr(choice) for choice in _AMBIGUOUS[key])
        raise UnknownFormatError(f"format {name!r} is ambiguous in the field: say {choices}")
    if found := _P3109_NAME.fullmatch(key):
        K, P, sign, domain = found.groups()
        return p3109(int(K), int(P), signed=sign != "u", extended=domain != "f")
    if ":" in key:
        raise UnknownFormatError(
            f"{short(name)} is the text of a cast, not a format: fpemu.Cast.from_str reads it"
        )
    hint = did_you_mean(key[:64], [*FORMATS, *ALIASES])
    raise UnknownFormatError(
        f"unknown format {short(name)}; {hint}known: {', '.join(FORMATS)}, "
        "binary{K}p{P}{s,u}{e,f}; or make your own with fpemu.Format(...)"
    )
