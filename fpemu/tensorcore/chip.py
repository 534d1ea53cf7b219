"""Chip: what the matrix units of a processor take, and how they add it up, as frozen records."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from fpemu.arrays import holds
from fpemu.catalog import find_format
from fpemu.errors import FormatError, InputError, short
from fpemu.format import Format
from fpemu.tensorcore.sums import Sum

__all__ = ["Chip", "Unit"]


@dataclass(frozen=True)
class Unit:
    """Formats that a chip multiplies with each other, the format of the sum, and how it adds.

    >>> from fpemu.tensorcore import AlignedSum, Unit
    >>> unit = Unit("fp16", AlignedSum(group=4, fraction_bits=23))
    >>> [f.name for f in unit.formats], unit.out.name, unit.verified
    (['float16'], 'float32', False)

    formats: a name or a `Format`, or several: any two of them can be multiplied with each other.
    sum: one of the records of `fpemu.tensorcore.sums`; what it gives must be numbers of out, the
    format of results and of c.
    recorded: the recordings of a real chip that its results were compared with; "" if none.
    """

    formats: tuple[Format, ...]
    sum: Sum
    out: Format
    recorded: str

    def __init__(
        self,
        formats: Format | str | Iterable[Format | str],
        sum: Sum,
        out: Format | str = "float32",
        recorded: str = "",
    ) -> None:
        names: Iterable[Any] = (
            (formats,) if isinstance(formats, str) or not isinstance(formats, Iterable) else formats
        )
        forms, result = tuple(find_format(name) for name in names), find_format(out)
        if not forms:
            raise FormatError("a Unit without formats: name at least one")
        if not isinstance(sum, Sum):
            raise FormatError(f"sum={short(sum)}: must be AlignedSum, StagedSum or ChainedSum")
        for field, value in zip(fields(self), (forms, sum, result, recorded), strict=True):
            object.__setattr__(self, field.name, value)
        self._check()

    def _check(self) -> None:
        """Refuse operands whose products would not be exact, and sums that are not of out."""
        kind, most = type(self.sum).__name__, self.sum.most_precision
        for form in self.formats:
            if form.precision > most:
                raise FormatError(
                    f"{form.name} has {form.precision} bits of precision: {kind} takes operands "
                    f"of {most} at most"
                )
        if not holds(self.out, self.sum.total):
            raise FormatError(
                f"out={self.out.name!r}: does not hold the {self.sum.total.name} sums of this "
                f"{kind}; give that, or float32"
            )

    @property
    def verified(self) -> bool:
        """Whether its results were compared with recordings of a real chip."""
        return bool(self.recorded)

    def takes(self, first: Format, second: Format) -> bool:
        """Whether it multiplies numbers of these formats."""
        return first in self.formats and second in self.formats


@dataclass(frozen=True)
class Chip:
    """A processor's matrix units.

    >>> from fpemu import tensorcore
    >>> hopper = tensorcore.find_chip("hopper")
    >>> hopper.unit("e4m3fn", "e5m2").sum.fraction_bits
    13
    >>> hopper.verified, tensorcore.find_chip("amx").verified
    (True, False)

    name: what errors call it. units: what it can multiply. source: where that is known from. note:
    what is not covered.
    """

    name: str
    units: tuple[Unit, ...]
    source: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        units = tuple(self.units) if isinstance(self.units, Iterable) else ()
        object.__setattr__(self, "units", units)
        if not units or not all(isinstance(unit, Unit) for unit in units):
            raise FormatError(f"chip {short(self.name)}: units must be one or more Unit records")
        taken = [(form, unit.out) for unit in units for form in unit.formats]
        for form, out in taken:
            if taken.count((form, out)) > 1:
                raise FormatError(
                    f"chip {short(self.name)}: more than one unit sums {form.name} in {out.name}; "
                    "make it two chips"
                )

    @property
    def verified(self) -> bool:
        """Whether the results of all its units were compared with recordings of a real chip."""
        return all(unit.verified for unit in self.units)

    @property
    def formats(self) -> tuple[Format, ...]:
        """The formats of operands that it takes."""
        return tuple(dict.fromkeys(form for unit in self.units for form in unit.formats))

    def unit(
        self, first: Format | str, second: Format | str | None = None, out: Format | str = "float32"
    ) -> Unit:
        """Return the unit for operands of these formats (second: as first) and such a result.

        Errors: InputError names what the chip has.
        """
        a = find_format(first)
        b = a if second is None else find_format(second)
        result = find_format(out)
        both = [unit for unit in self.units if unit.takes(a, b)]
        for unit in both:
            if unit.out == result:
                return unit
        raise InputError(self._refusal(a, b, result, both))

    def _refusal(self, a: Format, b: Format, out: Format, both: list[Unit]) -> str:
        if both:
            return (
                f"out={out.name!r}: {self.name} sums products of {a.name} in "
                f"{_names(unit.out for unit in both)}"
            )
        missing = [form for form in (a, b) if form not in self.formats]
        if missing:
            return (
                f"{self.name} has no {missing[0].name} in its matrix units; it has "
                f"{_names(self.formats)}"
            )
        partners = [form for unit in self.units if a in unit.formats for form in unit.formats]
        return f"{self.name} multiplies {a.name} with {_names(partners)}, not with {b.name}"


def _names(formats: Iterable[Format]) -> str:
    return ", ".join(dict.fromkeys(form.name for form in formats))
