"""Cast: one function from the real numbers to a format.

"Cast to E4M3" is not one function. A Cast names all of it: format, rounding, what happens above
the largest value, below the smallest normal, and to what the format cannot hold at all.
The function's exact meaning is `fpemu.rounding`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from fpemu.catalog import FORMATS, find_format
from fpemu.errors import FormatError, FpemuError, InputError, did_you_mean
from fpemu.format import Format

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "Cast",
    "Negative",
    "Overflow",
    "Rounding",
    "Subnormals",
    "Zero",
    "cast_of",
    "make_cast",
]


class Rounding(enum.Enum):
    """How a real number between two neighbours on the grid chooses one."""

    NEAREST_EVEN = "nearest_even"  #: the nearer; a tie goes to the even code (IEEE roundTiesToEven)
    NEAREST_AWAY = "nearest_away"  #: the nearer; a tie goes away from zero (roundTiesToAway)
    TOWARD_ZERO = "toward_zero"  #: truncation (roundTowardZero)
    UP = "up"  #: toward +inf (roundTowardPositive)
    DOWN = "down"  #: toward -inf (roundTowardNegative)
    TO_ODD = "to_odd"  #: exact, else the neighbour with the odd code (Boldo and Melquiond)
    STOCHASTIC = "stochastic"  #: away from zero with the discarded fraction as probability


class Overflow(enum.Enum):
    """What a result beyond the largest finite value becomes."""

    IEEE = "ieee"  #: infinity, or NaN where the format has none (the default: it stays visible)
    SATURATE = "saturate"  #: the largest finite value, for infinite input too
    SATURATE_KEEP_INF = "saturate_keep_inf"  #: the largest finite value; infinity stays infinite

    @classmethod
    def _missing_(cls, value: object) -> Overflow | None:
        """Understand the names of PTX and P3109 too."""
        names = {"satfinite": "saturate", "satpropagate": "saturate_keep_inf", "ovfinf": "ieee"}
        own = names.get(str(value).lower())
        return cls(own) if own else None


class Subnormals(enum.Enum):
    """What a result below the smallest normal becomes."""

    KEEP = "keep"  #: it is kept (gradual underflow)
    FLUSH = "flush"  #: zero of its sign, decided after rounding


class Negative(enum.Enum):
    """What a negative number becomes in an unsigned format."""

    NAN = "nan"  #: NaN
    ABS = "abs"  #: its magnitude


class Zero(enum.Enum):
    """What zero becomes in a format without zero."""

    NAN = "nan"  #: NaN
    SMALLEST = "smallest"  #: the smallest value


_E = TypeVar("_E", bound=enum.Enum)


def _enum(kind: type[_E], value: Any) -> _E:
    try:
        return kind(value)
    except ValueError:
        choices = [member.value for member in kind]
        hint = did_you_mean(str(value)[:64], choices)
        raise FormatError(
            f"unknown {kind.__name__.lower()} {repr(value)[:80]}; {hint}choose one of {choices}"
        ) from None


@dataclass(frozen=True)
class Cast:
    """One function from the reals to a format, usable on arrays.

    >>> import numpy as np, fpemu
    >>> cast = fpemu.Cast("e4m3fn", overflow="saturate")
    >>> cast(np.array([0.1, 464.1, np.nan], np.float32))
    array([1.015625e-01, 4.480000e+02,          nan], dtype=float32)
    >>> fpemu.Cast("fp4") == fpemu.Cast("fp4", overflow="saturate")
    True

    Fields (strings are accepted for the enums)
        format: a `Format`, its name or alias.
        rounding: see `Rounding`; nearest_even unless given.
        overflow: see `Overflow`; "ieee" unless given. The format's grid is continued above its
            largest finite value, the number is rounded on it, and it overflows if the result lies
            beyond. "ieee" gives infinity (NaN in a format without one) for nearest and stochastic
            rounding and for up and down where they point away from zero, and the largest finite
            value for toward_zero, to_odd and where up and down point back (IEEE 754-2019, 7.4).
        subnormals: "keep" or "flush".
        negative: "nan" or "abs", for unsigned formats only.
        zero: "nan" or "smallest", for formats without zero only.

    Fields that cannot matter to a format are set to their default, so that equal functions are
    equal records with equal hashes: FP6 and FP4 know neither infinity nor NaN, so every overflow
    rule is "saturate" there, and NaN becomes the largest value (as PTX and CUDA do). NaN results
    are quiet and keep the input's sign. E8M0's ties go to the larger magnitude.
    """

    format: Format
    rounding: Rounding = Rounding.NEAREST_EVEN
    overflow: Overflow = Overflow.IEEE
    subnormals: Subnormals = Subnormals.KEEP
    negative: Negative = Negative.NAN
    zero: Zero = Zero.NAN

    def __init__(
        self,
        format: Format | str,
        rounding: Rounding | str = Rounding.NEAREST_EVEN,
        overflow: Overflow | str = Overflow.IEEE,
        subnormals: Subnormals | str = Subnormals.KEEP,
        negative: Negative | str = Negative.NAN,
        zero: Zero | str = Zero.NAN,
    ) -> None:
        form = find_format(format)
        values = {
            "format": form,
            "rounding": _enum(Rounding, rounding),
            "overflow": _enum(Overflow, overflow),
            "subnormals": _enum(Subnormals, subnormals),
            "negative": _enum(Negative, negative),
            "zero": _enum(Zero, zero),
        }
        if FORMATS.get(form.name) is not form:
            _refuse_borrowed_name(form)
        if not form.signed and not form.has_nan and values["negative"] is Negative.NAN:
            raise FormatError(
                f"format {form.name!r} is unsigned and has no NaN: a negative number has "
                "nothing to become; give negative='abs'"
            )
        if not form.has_nan:
            values["overflow"] = Overflow.SATURATE
        if form.min_normal_code == form.min_code:  # no subnormals to flush
            values["subnormals"] = Subnormals.KEEP
        if form.signed:
            values["negative"] = Negative.NAN
        if form.zero:
            values["zero"] = Zero.NAN
        for name, value in values.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "_hash", hash(tuple(values.values())))

    def __hash__(self) -> int:  # stored: looked up on every small call
        return self._hash  # type: ignore[attr-defined,no-any-return]

    def __reduce__(self) -> tuple[type[Cast], tuple[Any, ...]]:
        return Cast, tuple(getattr(self, f.name) for f in fields(self))

    def __call__(self, x: Any, **options: Any) -> np.ndarray[Any, Any]:
        """Round an array: `fpemu.round(x, self, ...)`."""
        from fpemu.emulate import round

        return round(x, self, **options)  # type: ignore[no-any-return]

    def replace(self, **changes: Any) -> Cast:
        """Return this cast with some fields changed.

        >>> import fpemu
        >>> str(fpemu.Cast("fp16").replace(rounding="up"))
        'float16:up'
        """
        unknown = sorted(set(changes) - {f.name for f in fields(self)})
        if unknown:
            raise FormatError(
                f"a Cast has no field {unknown[0]!r}; its fields: {[f.name for f in fields(self)]}"
            )
        return replace(self, **changes)

    # --- text and JSON, both ways --------------------------------------------------------------

    def __str__(self) -> str:
        """Return 'format' or 'format:rounding,key=value,...'; defaults are left out.

        >>> import fpemu
        >>> str(fpemu.Cast("e5m2", overflow="saturate", subnormals="flush"))
        'float8_e5m2:overflow=saturate,subnormals=flush'
        """
        rounding = [] if self.rounding is Rounding.NEAREST_EVEN else [self.rounding.value]
        plain = Cast(self.format, negative=self.negative)
        others = [
            f"{name}={getattr(self, name).value}"
            for name in _RULES[1:]
            if getattr(self, name) is not getattr(plain, name)
            or (name == "negative" and self.negative is not Negative.NAN)
        ]
        rules = ",".join(rounding + others)
        return f"{self.format.name}:{rules}" if rules else self.format.name

    @classmethod
    def from_str(cls, text: str) -> Cast:
        """Read `str(cast)` back, or a preset's name; the format must be one that a name finds.

        >>> import fpemu
        >>> fpemu.Cast.from_str("e4m3fn:toward_zero,overflow=saturate").rounding.value
        'toward_zero'
        """
        if not isinstance(text, str):
            raise FormatError(f"cast {text!r}: must be text such as 'float16:toward_zero'")
        return make_cast(text)

    @staticmethod
    def _parse(text: str) -> tuple[str, dict[str, Any]]:
        name, _, rules = text.partition(":")
        options: dict[str, Any] = {}
        for rule in filter(None, (r.strip() for r in rules.split(","))):
            key, equals, value = rule.partition("=")
            key, value = (key.strip(), value.strip()) if equals else ("rounding", rule)
            if key not in _RULES:
                raise FormatError(f"cast {text!r}: unknown rule {key!r}; rules: {_RULES}")
            if key in options:
                raise FormatError(f"cast {text!r}: {key} is given twice; keep one")
            options[key] = value
        return name, options

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-ready dict that `from_json` reads back, for users' own formats too."""
        known = FORMATS.get(self.format.name) == self.format
        rules = {name: getattr(self, name).value for name in _RULES}
        return {"format": self.format.name if known else self.format.to_json(), **rules}

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> Cast:
        """Make a Cast from `to_json`'s dict.

        >>> import fpemu
        >>> c = fpemu.Cast("fp16", "up")
        >>> fpemu.Cast.from_json(c.to_json()) == c
        True
        """
        if not isinstance(facts, Mapping) or "format" not in facts:
            raise FormatError(f"cast facts {facts!r}: 'format' is missing; give what to_json gives")
        form, rules = facts["format"], {k: v for k, v in facts.items() if k != "format"}
        unknown = sorted(set(rules) - set(_RULES))
        if unknown:
            raise FormatError(f"cast facts: unknown rule {unknown[0]!r}; rules: {_RULES}")
        return cls(Format.from_json(form) if isinstance(form, Mapping) else form, **rules)


@lru_cache(maxsize=1024)  # looking for a name that nobody has takes a millisecond
def _refuse_borrowed_name(form: Format) -> None:
    """Refuse a format that another one is found by the name of: its casts' texts would lie."""
    try:
        known = find_format(form.name)
    except FpemuError:  # nobody's name
        return
    if known != form:
        raise FormatError(
            f"format {form.name!r} is not the known one of that name: give yours another name"
        )


_RULES = tuple(f.name for f in fields(Cast) if f.name != "format")


@lru_cache(maxsize=4096)
def _make_cast(to: Format | str, rules: tuple[Any, ...]) -> Cast:
    if isinstance(to, str) and "." in to and ":" not in to:  # as only presets' names have
        from fpemu.presets import find_preset

        return find_preset(to).replace(**_given(rules))
    name, own = Cast._parse(to) if isinstance(to, str) else (to, {})
    return Cast(name, **own | _given(rules))


def _given(rules: tuple[Any, ...]) -> dict[str, Any]:
    return {name: rule for name, rule in zip(_RULES, rules, strict=True) if rule is not None}


Rules = tuple[
    Rounding | str | None,
    Overflow | str | None,
    Subnormals | str | None,
    Negative | str | None,
    Zero | str | None,
]

_NO_RULES = (None, None, None, None, None)


def make_cast(
    to: Cast | Format | str,
    *,
    rounding: Rounding | str | None = None,
    overflow: Overflow | str | None = None,
    subnormals: Subnormals | str | None = None,
    negative: Negative | str | None = None,
    zero: Zero | str | None = None,
) -> Cast:
    """Return the Cast that `to` names, with the rules given here in place of its own."""
    return cast_of(to, (rounding, overflow, subnormals, negative, zero))


def cast_of(to: Cast | Format | str, rules: Rules) -> Cast:
    """`make_cast` with the rules as a tuple, as every small call goes through here."""
    try:
        if isinstance(to, Cast):
            return to if rules == _NO_RULES else to.replace(**_given(rules))
        return _make_cast(to, rules)
    except (TypeError, ValueError) as wrong:  # unhashable, or an array
        if isinstance(wrong, FpemuError):
            raise
        odd = [r for r in rules if r is not None and not isinstance(r, str | enum.Enum)]
        raise InputError(
            f"{repr(odd[0] if odd else to)[:80]}: a format, cast or rule is a name or one of "
            "fpemu's records"
        ) from None
