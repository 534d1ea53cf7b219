"""The chip's own conversions: PTX cvt, as inline assembly, and what fpemu says that they do.

https://docs.nvidia.com/cuda/parallel-thread-execution (cvt). FP6, FP4 and stochastic forms need
targets of one architecture alone (sm_100a), for which numba does not compile.
"""

from __future__ import annotations

from dataclasses import dataclass

import fpemu

__all__ = ["INSTRUCTIONS", "Instruction"]

_ZERO = "0f00000000"
# $0: a 32-bit register of the result; $1: the float32
_HALF = "{{ .reg .b16 h; {0} h, $1; cvt.u32.u16 $0, h; }}"  # a 16-bit result
_PAIR = "{0} $0, " + _ZERO + ", $1;"  # two 16-bit results, ours the lower
_BYTES = "{{ .reg .b16 h; {0} h, " + _ZERO + ", $1; cvt.u32.u16 $0, h; }}"  # two of 8 bits
_WORD = "{0} $0, $1;"  # tf32, as a float32


@dataclass(frozen=True)
class Instruction:
    """A conversion of the chip, and the preset that says what it does."""

    name: str  #: in PTX; "ptx." before it names the preset, unless another is given
    text: str  #: assembly around it
    capability: tuple[int, int] = (8, 0)  #: the first that has it
    preset: str = ""
    nan: bool = True  #: False: what it makes of NaN is left out of comparisons

    @property
    def assembly(self) -> str:
        """The inline assembly."""
        return self.text.format(self.name)

    @property
    def shift(self) -> int:
        """How far left of a right-aligned code the result lies: tf32 is a float32's upper bits."""
        return 13 if self.text is _WORD else 0

    @property
    def cast(self) -> fpemu.Cast:
        """What fpemu says that it does."""
        return fpemu.casts[self.preset or f"ptx.{self.name}"]


_TURING, _ADA, _HOPPER = (7, 5), (8, 9), (9, 0)

INSTRUCTIONS = (
    Instruction("cvt.rn.f16.f32", _HALF, _TURING),
    Instruction("cvt.rz.f16.f32", _HALF, _TURING),
    Instruction("cvt.rm.f16.f32", _HALF, _TURING),
    Instruction("cvt.rp.f16.f32", _HALF, _TURING),
    Instruction("cvt.rn.f16x2.f32", _PAIR, preset="ptx.cvt.rn.f16.f32"),
    Instruction("cvt.rn.satfinite.f16x2.f32", _PAIR),
    Instruction("cvt.rn.bf16.f32", _HALF),
    Instruction("cvt.rz.bf16.f32", _HALF),
    Instruction("cvt.rn.bf16x2.f32", _PAIR, preset="ptx.cvt.rn.bf16.f32"),
    Instruction("cvt.rn.satfinite.e4m3x2.f32", _BYTES, _ADA),
    Instruction("cvt.rn.satfinite.e5m2x2.f32", _BYTES, _ADA),
    # ptxas 13.0 makes of it, for sm_80 to sm_100: (|x| < inf ? bits + 0x1000 : bits) & ~0x1fff;
    # so a NaN whose upper payload is zero becomes infinity
    Instruction("cvt.rna.tf32.f32", _WORD, nan=False),
    Instruction("cvt.rn.tf32.f32", _WORD, _HOPPER),
    Instruction("cvt.rz.tf32.f32", _WORD, _HOPPER),
)
