"""Accumulators: what adds up the products of a matrix product: a chip's units, or a format.

    hopper                                       the matrix units of a chip
    hopper(promote=128)                          with a new sum each 128 products
    volta(out=float16)                           summed in float16
    float16                                      every partial sum rounded
    tf32:toward_zero(block=128, outer=float32)   blocks, and their sums
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from fpemu.arithmetic import Accumulation, Order
from fpemu.cast import Cast, Rounding, make_cast
from fpemu.catalog import FORMATS, find_format
from fpemu.errors import FpemuError, InputError, did_you_mean
from fpemu.format import Format
from fpemu.tensorcore import Chip, chips, find_chip

__all__ = ["Accumulator", "OnChip", "accumulator_json", "accumulator_text", "make_accumulator",
           "split_accumulator"]  # fmt: skip

_TEXT = re.compile(r"([^()\s]+)\s*(?:\(([^()]*)\))?")
_WORD = re.compile(r"(?:^|\s+)accumulate=(\"[^\"]*\"|\S+)(?=\s|$)")


@dataclass(frozen=True)
class OnChip:
    """The matrix units of a chip, and how they are used.

    >>> from fpemu.policies.accumulators import OnChip
    >>> str(OnChip("H100", promote=128))
    'hopper(promote=128)'

    chip: a name of `fpemu.tensorcore.chips`, or a Chip of your own, which has no text and no JSON
    that read it back. promote: a new sum each so many products, as in `fpemu.tensorcore.mma`.
    out: the format of sums.
    """

    chip: Chip
    promote: int | None = None
    out: Format = FORMATS["float32"]

    def __init__(
        self, chip: Chip | str, promote: int | None = None, out: Format | str = "float32"
    ) -> None:
        found = find_chip(chip)
        if promote is not None and (type(promote) is not int or promote < 1):
            raise InputError(f"promote={promote!r:.40}: must be an int, 1 or more")
        sums = list(dict.fromkeys(unit.out for unit in found.units))
        form = find_format(out)
        if form not in sums:
            known = ", ".join(one.name for one in sums)
            raise InputError(f"out={form.name!r}: {found.name} sums products in {known}")
        for name, value in (("chip", found), ("promote", promote), ("out", form)):
            object.__setattr__(self, name, value)

    def __str__(self) -> str:
        given = {"promote": self.promote, "out": self.out.name}
        return _written(self.chip.name, given, {"promote": None, "out": "float32"})


Accumulator = OnChip | Accumulation

_CHIP_FACTS = tuple(field.name for field in fields(OnChip))
_SUM_FACTS = tuple(field.name for field in fields(Accumulation))


def make_accumulator(value: Any) -> Accumulator | None:
    """Return what adds up products, of a record, a chip's or a format's name, text or JSON facts.

    >>> from fpemu.policies.accumulators import make_accumulator
    >>> make_accumulator("float16(order=pairwise)").order.value
    'pairwise'

    None, or "none": PyTorch's own float32. Errors: InputError for what is none of these, and for
    stochastic casts.
    """
    try:
        found = _make(value)
    except FpemuError as wrong:
        raise InputError(f"accumulate: {wrong}") from None
    if isinstance(found, Accumulation):
        casts = (found.cast, found.product, found.outer)
        if any(cast and cast.rounding is Rounding.STOCHASTIC for cast in casts):
            raise InputError(
                f"accumulate={accumulator_text(found)}: sums are not rounded stochastically here; "
                "call fpemu.arithmetic.matmul with a seed"
            )
    return found


def _make(value: Any) -> Accumulator | None:
    if value is None or isinstance(value, OnChip | Accumulation):
        return value
    if isinstance(value, Chip):
        return OnChip(value)
    if isinstance(value, Mapping):
        if "chip" not in value:
            return Accumulation.from_json(value)
        return OnChip(**_checked(_CHIP_FACTS, value))
    if isinstance(value, Cast | Format):
        return Accumulation(value)
    text = value.strip() if isinstance(value, str) else ""
    found = _TEXT.fullmatch(text)
    if found is None:
        raise InputError(f"{value!r:.80}: give a chip or a format, as 'hopper(promote=128)'")
    return None if text == "none" else _read(found[1], found[2] or "")


def _read(name: str, inside: str) -> Accumulator:
    facts: dict[str, Any] = {}
    for part in filter(None, map(str.strip, inside.split(","))):
        key, equals, value = (word.strip() for word in part.partition("="))
        if not equals or key in facts:
            raise InputError(f"{part[:40]!r} is not one new fact=value")
        facts[key] = int(value) if re.fullmatch(r"\d{1,9}", value) else value
    if _is_chip(name):
        return OnChip(**_checked(_CHIP_FACTS, {"chip": name, **facts}))
    try:
        cast = make_cast(name)
    except FpemuError:
        hint = did_you_mean(name[:40], list(chips))
        raise InputError(
            f"{name!r:.60} is no chip and no format; {hint}chips: {', '.join(chips)}; formats as "
            "in fpemu.Cast"
        ) from None
    return Accumulation(**_checked(_SUM_FACTS, {"cast": cast, **facts}))


def _is_chip(name: str) -> bool:
    try:
        find_chip(name)
    except InputError:
        return False
    return True


def _checked(known: tuple[str, ...], facts: Mapping[str, Any]) -> dict[str, Any]:
    for key in facts:
        if key not in known:
            hint = did_you_mean(str(key)[:40], known)
            raise InputError(f"{str(key)[:40]!r} is unknown here; {hint}facts: {', '.join(known)}")
    return dict(facts)


def accumulator_text(accumulator: Accumulator | None) -> str:
    """Return text that `make_accumulator` reads back.

    >>> from fpemu.arithmetic import Accumulation
    >>> from fpemu.policies.accumulators import accumulator_text
    >>> accumulator_text(Accumulation("fp16", block=64, outer="float32"))
    'float16(block=64, outer=float32)'
    """
    if accumulator is None:
        return "none"
    if isinstance(accumulator, OnChip):
        return str(accumulator)
    facts = {name: getattr(accumulator, name) for name in _SUM_FACTS if name != "cast"}
    start = {**dict.fromkeys(facts), "order": Order.SEQUENTIAL}
    return _written(str(accumulator.cast), facts, start)


def accumulator_json(accumulator: Accumulator | None) -> dict[str, Any] | None:
    """Return JSON facts that `make_accumulator` reads back; a chip of your own has none."""
    if not isinstance(accumulator, OnChip):
        return None if accumulator is None else accumulator.to_json()
    chip = accumulator.chip
    if chips.get(chip.name) != chip:
        raise InputError(f"chip {chip.name!r} is your own: JSON holds the names of known chips")
    facts = {"chip": chip.name, "promote": accumulator.promote, "out": accumulator.out.name}
    return {name: value for name, value in facts.items() if value is not None}


def split_accumulator(text: str) -> tuple[str, str | None]:
    """Return a text without its accumulate=..., and what that says; None if it says nothing.

    >>> from fpemu.policies.accumulators import split_accumulator
    >>> split_accumulator('te.delayed accumulate="float16(block=64, outer=tf32)"')
    ('te.delayed', 'float16(block=64, outer=tf32)')
    """
    found = _WORD.findall(text)
    if not found:
        return text, None
    if len(found) > 1:
        raise InputError(f"{text!r:.80}: accumulate= is given twice; keep one")
    return _WORD.sub("", text).strip(), found[0].strip('"')


def _written(name: str, facts: Mapping[str, Any], start: Mapping[str, Any]) -> str:
    changed = {key: value for key, value in facts.items() if value != start[key]}
    shown = (f"{k}={v.value if isinstance(v, Order) else v}" for k, v in changed.items())
    return f"{name}({', '.join(shown)})" if changed else name
