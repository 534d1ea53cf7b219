"""Sheet: everything that follows from a format's definition, as a JSON-ready dict."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fpemu.catalog import ALIASES, FORMATS, p3109
from fpemu.format import Format, NaN
from fpemu.presets import PRESETS

__all__ = ["aliases", "facts", "nan_codes", "presets", "same_formats"]


def facts(form: Format) -> dict[str, Any]:
    """Return all facts of a format.

    >>> import fpemu
    >>> from fpemu.analysis.formats import facts
    >>> found = facts(fpemu.finfo("e4m3fnuz"))
    >>> found["max"], found["codes"]["nan"], found["same_values_as"]
    (240.0, [128], ['binary8p4sf'])

    Codes are whole codes with their sign bit, of the positive side where there are two. values:
    how many different finite numbers there are (+0 and -0 are one).
    """
    codes = {
        "one": _code_of_one(form),
        "max": form.max_code,
        "smallest_normal": form.min_normal_code,
        "smallest_subnormal": form.min_code,
        "inf": form.inf_code,
        "nan": nan_codes(form),
    }
    magnitudes = form.max_code + 1
    return {
        "name": form.name,
        "aliases": aliases(form),
        "bits": form.bits,
        "sign_bits": int(form.signed),
        "exponent_bits": form.exponent_bits,
        "mantissa_bits": form.mantissa_bits,
        "precision": form.precision,
        "bias": form.bias,
        "emin": form.emin,
        "emax": form.emax,
        "max": form.max,
        "min": form.min,
        "smallest_normal": form.smallest_normal,
        "smallest_subnormal": form.smallest_subnormal,
        "eps": form.eps,
        "inf": form.inf,
        "nan": form.nan.value,
        "zero": form.zero,
        "minus_zero": form.minus_zero,
        "values": 2 * magnitudes - int(form.zero) if form.signed else magnitudes,
        "codes": codes,
        "same_values_as": same_formats(form),
        "presets": presets(form),
    }


def aliases(form: Format) -> list[str]:
    """The other spellings of a format's name."""
    return [alias for alias, name in ALIASES.items() if name == form.name]


def presets(form: Format) -> list[str]:
    """The presets that cast to a format."""
    return [name for name, preset in PRESETS.items() if preset.cast.format == form]


def same_formats(form: Format) -> list[str]:
    """The other names of the very same set of codes and values, P3109's among them."""
    others = [*FORMATS.values(), *_p3109_of(form)]
    return [
        other.name
        for other in others
        if other.name != form.name and replace(other, name=form.name) == form
    ]


def _p3109_of(form: Format) -> list[Format]:
    if not 3 <= form.bits <= 15 or form.mantissa_bits + 1 > form.bits - int(form.signed):
        return []
    return [p3109(form.bits, form.precision, form.signed, extended) for extended in (True, False)]


def _code_of_one(form: Format) -> int | None:
    if not form.emin <= 0 <= form.emax:
        return None
    code = (form.bias << form.mantissa_bits) if form.bias > 0 else form.min_normal_code
    return code if form.exact_magnitude(code) == 1 else None


def nan_codes(form: Format) -> list[int]:
    """Every code of NaN; of IEEE's many, the first and the last of each sign."""
    top = (1 << form.magnitude_bits) - 1
    signs = [0, 1 << form.magnitude_bits] if form.signed else [0]
    match form.nan:
        case NaN.TOP_BINADE:
            first = (top >> form.mantissa_bits << form.mantissa_bits) + 1
            return [sign | code for sign in signs for code in dict.fromkeys((first, top))]
        case NaN.TOP_CODE:
            return [sign | top for sign in signs]
        case NaN.MINUS_ZERO:
            return [top + 1]
        case NaN.NONE:
            return []
