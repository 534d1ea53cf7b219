"""Named: the scalers by name, their settings checked, their text form read."""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Real
from typing import Any

from fpemu.analysis.lossscale import deepspeed, fixed, frameworks
from fpemu.analysis.lossscale.histogram import Histogram
from fpemu.analysis.lossscale.state import Scaler, float32, given_text, setting_fields
from fpemu.cast import make_cast
from fpemu.errors import FpemuError, InputError, did_you_mean
from fpemu.tallies import Tally

__all__ = ["names", "scaler"]

#: Name -> its record, in the order of the name.
SCALERS: dict[str, type[Scaler]] = {
    kind.NAME: kind
    for kind in (
        frameworks.Apex,
        fixed.ApexStatic,
        fixed.Caffe2Static,
        deepspeed.DeepSpeed,
        deepspeed.DeepSpeedFused,
        fixed.DeepSpeedStatic,
        deepspeed.DeepSpeedUnfused,
        Histogram,
        frameworks.Jmp,
        fixed.JmpNoOp,
        fixed.JmpStatic,
        frameworks.Keras,
        frameworks.MXNet,
        fixed.NoScale,
        fixed.Static,
        frameworks.TfKeras,
        frameworks.Torch,
    )
}


def names() -> tuple[str, ...]:
    """Return the names that `scaler` knows.

    >>> from fpemu.analysis import lossscale
    >>> "torch" in lossscale.names(), lossscale.names() == tuple(sorted(lossscale.names()))
    (True, True)
    """
    return tuple(SCALERS)


def scaler(name: str | Scaler, **settings: Any) -> Scaler:
    """Return a framework's loss scaler as it starts, as a frozen state.

    >>> from fpemu.analysis import lossscale
    >>> lossscale.scaler("torch", growth_interval=100)
    <torch:growth_interval=100 at scale 2^16>
    >>> lossscale.scaler("torch:growth_interval=100,init_scale=2^12").scale
    4096.0
    >>> str(lossscale.scaler("keras", initial_scale=1024, dynamic_growth_steps=2000))
    'keras:initial_scale=2^10'

    name: one of `names()`, or the text form, `name:setting=value,...`, which `str(scaler)` gives
    back; powers of two may be written 2^k. settings: under the framework's own names.
    Errors: InputError for a name or setting that is not known, a value that the framework would
    refuse or could do nothing with: a scale that is not positive and finite (in float32, where it
    is kept so), an interval below 1, a factor that does not grow or shrink.
    A scaler that is given is returned with these settings, as it starts.
    """
    if isinstance(name, Scaler):
        kind, given = type(name), {**name.settings, **settings}
    else:
        word, _, text = str(name).partition(":")
        kind = _kind(word.strip())
        given = {**_read(kind.NAME, text), **settings}
    return kind(**_checked(kind, given))


def _kind(name: str) -> type[Scaler]:
    if name not in SCALERS:
        hint = did_you_mean(name, SCALERS)
        raise InputError(f"unknown loss scaler {name!r:.60}; {hint}known: {', '.join(SCALERS)}")
    return SCALERS[name]


def _checked(kind: type[Scaler], settings: dict[str, Any]) -> dict[str, Any]:
    rules = {f.name: f.metadata["rule"] for f in setting_fields(kind)}
    found: dict[str, Any] = {}
    said: dict[str, str] = {}
    for given, value in settings.items():
        key = _own_name(kind, given, rules)
        if key in said:
            raise InputError(f"{kind.NAME}: {said[key]} and {given} are one setting; give it once")
        said[key] = given
        what, check = RULES[rules[key]]
        try:
            found[key] = check(value)
        except FpemuError as error:
            raise InputError(f"{kind.NAME}: {given}: {error}") from None
        except (TypeError, ValueError, OverflowError):
            raise InputError(
                f"{kind.NAME}: {given}={given_text(value)}: must be {what}"
            ) from None
    return found


def _own_name(kind: type[Scaler], given: str, rules: dict[str, str]) -> str:
    key = given
    if issubclass(kind, deepspeed.DeepSpeed):
        key = deepspeed.CONFIG.get(given, given)
    if key not in rules:
        hint = did_you_mean(given, rules)
        known = f"its settings: {', '.join(rules)}" if rules else "it has no settings"
        raise InputError(f"{kind.NAME}: unknown setting {given!r}; {hint}{known}")
    return key


# --- rules -----------------------------------------------------------------------------------


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError
    return float(value)


def _within(low: float, high: float) -> Callable[[object], float]:
    """A check for a number strictly between two others."""

    def check(value: object) -> float:
        number = _number(value)
        if not low < number < high:
            raise ValueError
        return number

    return check


def _float32_scale(value: object) -> float:
    number = _within(0.0, math.inf)(value)
    if math.isinf(float32(number)):
        raise ValueError
    return number


def _count(least: int) -> Callable[[object], int]:
    """A check for a whole number from `least` on."""

    def check(value: object) -> int:
        number = _number(value)
        if number != int(number) or number < least:
            raise ValueError
        return int(number)

    return check


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _power_of_two(value: object) -> float:
    number = _number(value)
    if math.frexp(number)[0] != 0.5:
        raise ValueError
    return number


def _cast(value: object) -> str:
    text = value.replace(";", ",") if isinstance(value, str) else value
    cast = make_cast(text)  # type: ignore[arg-type]
    Tally().outcome(cast)  # which refuses what no tally can answer for
    return str(cast)


#: Rule -> how a message says it, and its check, which returns the value to keep.
RULES: dict[str, tuple[str, Callable[[object], Any]]] = {
    "scale": ("a positive finite number", _within(0.0, math.inf)),
    "scale or none": (
        "a positive finite number or none",
        lambda value: None if value is None else _within(0.0, math.inf)(value),
    ),
    "float32 scale": ("a positive number that is finite in float32", _float32_scale),
    "power of two": ("a power of two", _power_of_two),
    "factor above 1": ("a finite number above 1", _within(1.0, math.inf)),
    "factor below 1": ("a number between 0 and 1", _within(0.0, 1.0)),
    "count": ("a whole number from 1 on", _count(1)),
    "count from 0": ("a whole number from 0 on", _count(0)),
    "flag": ("true or false", _flag),
    "cast": ("a format or a cast", _cast),
}


# --- text ------------------------------------------------------------------------------------

_WORDS = {"true": True, "false": False, "none": None}


def _read(name: str, text: str) -> dict[str, Any]:
    """Read 'setting=value,...'."""
    found: dict[str, Any] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not key or not value:
            raise InputError(
                f"loss scaler {name!r}: cannot read {part!r}; write name:setting=value,... such "
                "as torch:growth_interval=100"
            )
        if key in found:
            raise InputError(f"loss scaler {name!r}: {key} is given twice; give it once")
        found[key] = _value(value)
    return found


def _value(text: str) -> Any:
    """A number, a power of two, a word, else the text itself: its setting's rule says the rest."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    base, power, exponent = text.replace("**", "^").partition("^")
    try:
        if power:
            return math.ldexp(1.0, int(exponent)) if base == "2" else text
        return int(text) if text.lstrip("+-").isdigit() else float(text)
    except (ValueError, OverflowError):
        return text
