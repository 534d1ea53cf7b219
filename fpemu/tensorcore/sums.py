"""Sums: the ways in which matrix units add products to an accumulator, as frozen records of facts.

Each has the loop that computes it; a new chip is a line of the table with one of these.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from fpemu.cast import Cast, Rounding, Subnormals
from fpemu.catalog import FORMATS
from fpemu.errors import FormatError, short
from fpemu.format import Format, NaN

__all__ = ["AlignedSum", "ChainedSum", "StagedSum", "Sum"]

Loop = Callable[..., Any]

#: No product of two float32 lies below 2**-298.
_NO_LEAST = -300


@dataclass(frozen=True)
class AlignedSum:
    """Products and accumulator cut at one place and added as integers, as tensor cores do.

    >>> from fpemu.tensorcore import AlignedSum
    >>> AlignedSum(group=16, fraction_bits=25, least_exponent=-133).result.name
    'float32'

    group: products of a step. A product is exact, its exponent the sum of its factors', which for
    subnormals is their format's emin; products of zero do not count.
    fraction_bits: what each term keeps below the largest exponent of the step; the rest is cut off,
    toward zero. least_exponent: that largest exponent is at least this.
    result: the format in which the sum goes on, as the next step's accumulator, laid out as IEEE
    754 has it; rounding: how it gets there, "toward_zero" or "nearest_even". Beyond its largest
    value it is infinite.
    separate: the accumulator is no term of the step: it is added afterwards, in float32, to
    nearest even.
    """

    subnormals: ClassVar[Subnormals] = Subnormals.KEEP
    most_precision: ClassVar[int] = 24  #: of operands

    group: int
    fraction_bits: int
    least_exponent: int
    result: Format
    rounding: Rounding
    separate: bool

    def __init__(
        self,
        group: int,
        fraction_bits: int,
        least_exponent: int = _NO_LEAST,
        result: Format | str = "float32",
        rounding: Rounding | str = Rounding.TOWARD_ZERO,
        separate: bool = False,
    ) -> None:
        cast = Cast(result, rounding)
        values = (group, fraction_bits, least_exponent, cast.format, cast.rounding, separate)
        for field, value in zip(fields(self), values, strict=True):
            object.__setattr__(self, field.name, value)
        _check_ints(self, group=(1, 1 << 20), fraction_bits=(1, 40),
                    least_exponent=(_NO_LEAST, 127))  # fmt: skip
        if self.rounding not in (Rounding.TOWARD_ZERO, Rounding.NEAREST_EVEN):
            raise FormatError(
                f"rounding {self.rounding.value!r}: sums are rounded 'toward_zero' or "
                "'nearest_even'"
            )
        _check_flag(self, "separate")
        if not (self.result.nan is NaN.TOP_BINADE and self.result.inf and self.result.signed):
            raise FormatError(
                f"result {self.result.name!r}: must be laid out as IEEE 754 has it, with a sign, "
                "and the highest exponent for infinity and NaN alone"
            )
        if self.group << self.fraction_bits >= 1 << 50:
            raise FormatError(
                f"group={self.group} of {self.fraction_bits} fraction bits: their sum must stay "
                "below 2**52; take fewer"
            )

    @property
    def total(self) -> Format:
        """The format of every sum that leaves a step."""
        return FORMATS["float32"] if self.separate else self.result

    def wide(self, first: Format, second: Format) -> bool:
        """Whether operands of these formats need float64, or products in float32 are exact."""
        fits = (self.group << (self.fraction_bits + 2)) <= 1 << 31  # a product is below 4
        near = all(f.emin - f.mantissa_bits >= -30 and f.emax <= 30 for f in (first, second))
        return not (fits and near and first.precision + second.precision <= 24)

    def loop(self, wide: bool) -> tuple[Loop, tuple[Any, ...]]:
        """Return the loop and its facts."""
        from fpemu.kernels.cpu_aligned import aligned_loop

        form = self.result
        nearest = self.rounding is Rounding.NEAREST_EVEN
        facts = (self.group, self.fraction_bits, self.least_exponent, form.mantissa_bits,
                 form.emin, form.emax + 1, nearest)  # fmt: skip
        return aligned_loop(wide), facts


class _Float32Sum:
    """What the other sums share: they go on in float32, and their loops take float64 operands."""

    __slots__ = ()

    total: ClassVar[Format] = FORMATS["float32"]
    separate: ClassVar[bool] = False
    subnormals: ClassVar[Subnormals] = Subnormals.KEEP
    most_precision: ClassVar[int] = 24

    def wide(self, first: Format, second: Format) -> bool:
        """Whether operands of these formats need float64."""
        return True


@dataclass(frozen=True)
class StagedSum(_Float32Sum):
    """Products aligned and added first, then joined with the accumulator, as AMD's CDNA3 does.

    group: products of a step; halves: 2 where those with an even and with an odd number are added
    apart first. Each product keeps fraction_bits below the largest exponent, cut toward zero; one
    from 2**128 on is infinite. Sum and accumulator are aligned to the larger exponent and cut
    downward: the sum to whole_bits + 1 of fraction, the accumulator to fraction_bits. Their sum is
    cut downward to whole_bits and rounded to float32, to nearest even.
    drops: an accumulator more than fraction_bits + 1 below is left out, where it would be cut to
    -1 if negative.
    """

    group: int
    fraction_bits: int = 24
    whole_bits: int = 31
    halves: int = 1
    drops: bool = False

    def __post_init__(self) -> None:
        _check_ints(self, group=(1, 64), fraction_bits=(1, 32), whole_bits=(24, 40), halves=(1, 2))
        _check_flag(self, "drops")

    def loop(self, wide: bool) -> tuple[Loop, tuple[Any, ...]]:
        """Return the loop and its facts."""
        from fpemu.kernels.cpu_staged import staged_loop

        apart = self.fraction_bits + 1 if self.drops else 0
        return staged_loop(self.halves), (self.group, self.fraction_bits, self.whole_bits, apart)


@dataclass(frozen=True)
class ChainedSum(_Float32Sum):
    """Fused multiply-adds in float32, one after another in a few chains, as Intel's AMX does.

    group: products of an instruction: product k goes to chain k modulo chains; the chains begin at
    zero, are added up, and then to the accumulator. Each addition is rounded to nearest even;
    subnormal operands, accumulators and results are zero.
    """

    group: int
    chains: int = 2
    subnormals: ClassVar[Subnormals] = Subnormals.FLUSH
    most_precision: ClassVar[int] = 12  #: more, and float64 would round a sum that is then a tie

    def __post_init__(self) -> None:
        _check_ints(self, group=(1, 1 << 20), chains=(1, 64))

    def loop(self, wide: bool) -> tuple[Loop, tuple[Any, ...]]:
        """Return the loop and its facts."""
        from fpemu.kernels.cpu_chains import chains_loop

        return chains_loop(), (self.group, self.chains)


Sum = AlignedSum | StagedSum | ChainedSum


def _check_ints(record: Any, **ranges: tuple[int, int]) -> None:
    for name, (low, high) in ranges.items():
        value = getattr(record, name)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise FormatError(
                f"{type(record).__name__} {name}={short(value)}: must be an int from {low} to "
                f"{high}"
            )


def _check_flag(record: Any, name: str) -> None:
    value = getattr(record, name)
    if not isinstance(value, bool):
        raise FormatError(f"{type(record).__name__} {name}={short(value)}: must be True or False")
