"""Section "Blocks": the scales that blocks of each tensor would have in block formats."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fpemu.analysis.carried import carried
from fpemu.analysis.report.numbers import count, number, power, share
from fpemu.analysis.report.quantiles import quantiles
from fpemu.analysis.report.rows import record_json
from fpemu.analysis.report.section import Section
from fpemu.analysis.report.terminal import Column, left_out, note, print_rows, tensor
from fpemu.analysis.totals import add_to
from fpemu.analysis.what_if import percent
from fpemu.blocks import CREST_STEPS
from fpemu.cast import make_cast
from fpemu.tallies import Tally, exponent_of

if TYPE_CHECKING:
    from rich.console import Console

    from fpemu.analysis.report.summary import Report
    from fpemu.analysis.trace import Trace
    from fpemu.blocks import BlockTally

__all__ = ["ELEMENTS", "QUANTILES", "SECTION", "BlockRow", "block_rows"]

#: Element formats of block formats: MXFP8 and MXFP4.
ELEMENTS = ("float8_e4m3fn", "float4_e2m1fn")

#: Which scales of the blocks are shown: the smallest, p1, the median, p99, the largest.
QUANTILES = (0.0, 0.01, 0.5, 0.99, 1.0)


@dataclass(frozen=True, slots=True)
class BlockRow:
    """The blocks of one tensor, all steps together, in one element format.

    The scale of a block is the power of two by which its values are divided before the cast,
    2^(floor(log2(amax)) - emax) (OCP MX 1.0, 6.3). Gradients are taken without their loss scale.
    """

    name: str
    kind: str
    to: str  #: the element's format
    block: int  #: values that share a scale
    blocks: int
    zero: int  #: blocks of nothing but zeros
    nonfinite: int  #: blocks that hold NaN or infinity
    scales: tuple[float, ...]  #: at QUANTILES; empty: no block has a scale
    clipped: int  #: blocks with values beyond the largest one at that scale
    crest_median: float | None  #: largest magnitude over rms, of the median block

    @property
    def clipped_percent(self) -> float:
        """Clipped blocks, of those that have a scale."""
        return percent(self.clipped, self.blocks - self.zero - self.nonfinite)

    def to_json(self) -> dict[str, Any]:
        return record_json(self) | {"clipped_percent": self.clipped_percent}


def block_rows(trace: Trace) -> tuple[BlockRow, ...]:
    """Return the blocks that a trace counted, each tensor in each element format."""
    scales = carried(trace)
    totals: dict[tuple[str, str, int], BlockTally] = {}
    exponents: dict[tuple[str, str, int], dict[int, int]] = {}
    for counted in trace.counted("blocks"):
        key = counted.name, counted.kind, counted.value.block
        add_to(totals, key, counted.value)
        shift = exponent_of(scales.factor(counted))
        binades = exponents.setdefault(key, {})
        for place, n in enumerate(counted.value.amax.exponents().tolist(), Tally.EXPONENTS.start):
            if n:
                add_to(binades, place + shift, n)
    return tuple(
        _row(*key[:2], to, tally, exponents[key]) for key, tally in totals.items()
        for to in ELEMENTS
    )  # fmt: skip


def _row(name: str, kind: str, to: str, tally: BlockTally, binades: Mapping[int, int]) -> BlockRow:
    top = make_cast(to).format.emax
    scales = tuple(math.ldexp(1.0, place - top) for place in quantiles(binades, QUANTILES))
    crest = next(iter(quantiles(dict(enumerate(tally.crest)), (0.5,))), None)
    return BlockRow(
        name,
        kind,
        to,
        tally.block,
        tally.blocks,
        tally.zero,
        tally.nonfinite,
        scales,
        tally.clipped(to),
        None if crest is None else 2.0 ** ((crest + 0.5) / CREST_STEPS),
    )


# --- text --------------------------------------------------------------------------------------


def _scale(place: int) -> Any:
    return lambda row: power(row.scales[place]) if row.scales else number(None)


_COLUMNS = (
    Column("tensor", lambda r: tensor(r.name, r.kind)),
    Column("element", lambda r: r.to),
    Column("block>", lambda r: str(r.block), 100),
    Column("blocks>", lambda r: count(r.blocks), 90),
    Column("all zero>", lambda r: count(r.zero), 110),
    Column("scale min>", _scale(0), 100),
    Column("p1>", _scale(1), 120),
    Column("median>", _scale(2)),
    Column("p99>", _scale(3), 120),
    Column("max>", _scale(4), 100),
    Column("clipped>", lambda r: share(r.clipped_percent)),
    Column("crest>", lambda r: number(r.crest_median), 80),
)


def _show(report: Report, console: Console, limit: int) -> None:
    print_rows(console, report.blocks, _COLUMNS, limit)
    said = "Scales that divide a block's values, chosen by its largest one (OCP MX). "
    said += "Clipped: blocks with values beyond the format's largest then."
    note(console, said + left_out(len(report.blocks), limit))


SECTION = Section(
    "blocks",
    lambda report: "Blocks",
    lambda report: bool(report.blocks),
    _show,
    lambda report: {"blocks": [row.to_json() for row in report.blocks]},
)
