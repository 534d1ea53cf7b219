"""What mma and its records refuse: one line with the value, the rule and the way out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fpemu import tensorcore
from fpemu.errors import FormatError, FpemuError, InputError
from fpemu.tensorcore import AlignedSum, ChainedSum, Chip, StagedSum, Unit

ONE = np.ones((2, 2), np.float32)


def refused(match: str, a: Any = ONE, b: Any = ONE, c: Any = None, **options: Any) -> None:
    given = {"chip": "hopper", "to": "fp16"} | options
    with pytest.raises(FpemuError, match=match) as caught:
        tensorcore.mma(a, b, c, **given)
    assert "\n" not in str(caught.value)


def test_chips_and_formats() -> None:
    refused("unknown chip 'hoper'; did you mean 'hopper'\\? known: volta, ampere", chip="hoper")
    refused("unknown chip 7;", chip=7)
    refused("volta has no bfloat16 in its matrix units; it has float16$", chip="volta", to="bf16")
    refused("ampere has no float8_e4m3fn .* it has float16, bfloat16, tf32$", chip="a100",
            to="e4m3fn")  # fmt: skip
    refused("hopper has no float4_e2m1fn", to="fp4")
    refused("hopper multiplies float16 with float16, not with bfloat16$", to=("fp16", "bf16"))
    refused("float8_e4m3fn with float8_e4m3fn, float8_e5m2, not with float16$",
            to=("e4m3fn", "fp16"))  # fmt: skip
    refused("out='float16': hopper sums products of bfloat16 in float32$", to="bf16", out="fp16")
    refused("out='bfloat16': hopper sums products of float16 in float32, float16$", out="bf16")
    refused("format array.*: must be a name or a fpemu.Format", out=ONE)
    refused("format 'e4m3' is ambiguous", to="e4m3")
    refused("to has 3 entries: give one cast, or a pair", to=("fp16",) * 3)
    refused("to='float16:stochastic': operands are not rounded at random", to="fp16:stochastic")


def test_shapes() -> None:
    refused(r"a of shape \(2,\): must be a matrix .* give a\[None, :\]", a=ONE[0])
    refused(r"b of shape \(\): must be a matrix", b=np.float32(1))
    refused(r"a of shape \(2, 3\) and b of shape \(2, 2\): a's columns \(3\) must be as many as "
            r"b's rows \(2\)", a=np.ones((2, 3)))  # fmt: skip
    refused(r"the dimensions before the last two must be equal or 1",
            a=np.ones((2, 2, 2)), b=np.ones((3, 2, 2)))  # fmt: skip
    refused(r"c of shape \(3, 2\): must broadcast to the result's shape \(2, 2\)",
            c=np.ones((3, 2)))  # fmt: skip
    refused(r"c of shape \(2, 2, 2\): must broadcast", c=np.ones((2, 2, 2)))
    refused("dtype int64: fpemu works on float32", a=np.ones((2, 2), np.int64))
    refused("dtype complex64", b=np.ones((2, 2), np.complex64))


def test_promotion() -> None:
    for wrong in (0, -128, 48, 1.5, True, "128"):
        refused("promote=.*: must be a multiple of 32, the products of a step here", promote=wrong,
                to="e4m3fn")  # fmt: skip
    refused("promote=array.* must be a multiple of 32", promote=ONE, to="e4m3fn")
    refused("promote=128 with out='float16': promoted sums are float32", promote=128, out="fp16")


def test_threads() -> None:
    refused("threads=0: must be an int, 1 or more", threads=0)
    refused("threads=0: must be", threads=0, a=ONE[:, :0], b=ONE[:0])  # with nothing to do too


def test_records() -> None:
    wrong: list[tuple[str, Any]] = [
        ("group=0: must be an int from 1", lambda: AlignedSum(0, 25)),
        ("fraction_bits=True: must be an int", lambda: AlignedSum(4, True)),
        ("least_exponent=-1000", lambda: AlignedSum(4, 25, -1000)),
        ("rounding 'up': sums are rounded", lambda: AlignedSum(4, 25, rounding="up")),
        ("result 'float8_e4m3fn': must be laid out as IEEE 754 has it",
         lambda: AlignedSum(4, 25, result="e4m3fn")),
        ("result 'binary8p4se': must be laid out as IEEE 754 has it",
         lambda: AlignedSum(4, 25, result="binary8p4se")),
        ("AlignedSum separate='no': must be True or False",
         lambda: AlignedSum(4, 25, separate="no")),  # type: ignore[arg-type]
        ("StagedSum drops=1: must be True", lambda: StagedSum(8, drops=1)),  # type: ignore[arg-type]
        ("group=4096 of 40 fraction bits: their sum must stay below", lambda: AlignedSum(4096, 40)),
        ("StagedSum halves=3", lambda: StagedSum(8, halves=3)),
        ("ChainedSum chains=0", lambda: ChainedSum(32, 0)),
        ("a Unit without formats", lambda: Unit((), AlignedSum(4, 25))),
        ("out='float16': does not hold the float32 sums of this AlignedSum; give that, or float32",
         lambda: Unit("fp16", AlignedSum(4, 25), out="fp16")),
        ("out='float16': does not hold the float32 sums",
         lambda: Unit("fp16", AlignedSum(4, 25, result="fp16", separate=True), out="fp16")),
        ("out='bfloat16': does not hold the float16 sums",
         lambda: Unit("fp16", AlignedSum(4, 25, result="fp16"), out="bf16")),
        ("float32 has 24 bits of precision: ChainedSum takes operands of 12 at most",
         lambda: Unit(("bf16", "float32"), ChainedSum(32))),
        ("sum='fast': must be AlignedSum", lambda: Unit("fp16", "fast")),  # type: ignore[arg-type]
        ("chip 'none': units must be one or more", lambda: Chip("none", ())),
        ("chip 'none': units must be", lambda: Chip("none", None)),  # type: ignore[arg-type]
        ("chip 'two': more than one unit sums float16 in float32; make it two chips",
         lambda: Chip("two", (Unit("fp16", AlignedSum(4, 25)), Unit("fp16", AlignedSum(8, 25))))),
    ]
    for match, make in wrong:
        with pytest.raises(FormatError, match=match) as caught:
            make()
        assert "\n" not in str(caught.value)


def test_unknown_names_are_our_errors() -> None:
    with pytest.raises(FormatError, match="unknown rounding 'best'"):
        AlignedSum(4, 25, rounding="best")
    with pytest.raises(FpemuError, match="format 7: must be a name"):
        Unit(7, AlignedSum(4, 25))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="has no tf32"):
        tensorcore.chips["volta"].unit("tf32")
