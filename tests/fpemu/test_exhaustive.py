"""All 2**32 float32 inputs, against the steps of the second algorithm.

The reference is a table of runs (from this bit pattern to that one: this result), made of values
and midpoints in float64, and shares no function with the kernels; test_rounding.py holds it
against the exact definition. Run with: pytest -m exhaustive
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from second_algorithm import Steps, step_values, steps
from support import assert_same_bits, blocks

import fpemu
from fpemu.cast import Cast
from fpemu.kernels import cpu, params

pytestmark = pytest.mark.exhaustive

BLOCK = 1 << 22  # 16 MB an array: small enough to stay near the processor
MAIN = ["float16", "bfloat16", "tf32", "float8_e4m3fn", "float8_e5m2"]
CASTS = [
    *MAIN,
    *(f"{name}:{mode}" for name in MAIN[:2] for mode in ("toward_zero", "up", "down")),
    "tf32:nearest_away",
    "tf32:toward_zero",
    "float8_e4m3fn:overflow=saturate",
    "float8_e5m2:overflow=saturate",
    "float6_e2m3fn",
    "float6_e3m2fn",
    "float4_e2m1fn",
    "float8_e8m0fnu",
]


def run_of(table: Steps, start: int, stop: int, dtype: type) -> np.ndarray:
    """What the patterns from start to stop become."""
    first = np.searchsorted(table.starts, start, side="right") - 1
    last = np.searchsorted(table.starts, stop, side="left")
    ends = np.append(table.starts[first + 1 : last].astype(np.int64), stop)
    lengths = np.diff(ends, prepend=start)
    return np.repeat(table.codes[first:last].astype(dtype), lengths)


def every_input(loop, tables: tuple[Steps, Steps], dtype: type) -> None:
    """Compare a loop over words with the tables of both signs, block by block, on threads."""

    def check(block: tuple[int, int]) -> int:
        start, stop = block
        words = np.arange(start, stop, dtype=np.uint32)
        got = np.empty(words.size, dtype)
        loop(words, got)
        sign = start >> 31
        want = run_of(tables[sign], start - (sign << 31), stop - (sign << 31), dtype)
        if not np.array_equal(got, want):  # perhaps in the payload of a NaN alone
            view = np.float32 if dtype == np.uint32 and tables[0].codes.dtype == np.uint32 else dtype
            assert_same_bits(got.view(view), want.view(view), words.view(np.float32), block)
        return words.size

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        assert sum(threads.map(check, blocks(1 << 32, BLOCK))) == 1 << 32


@pytest.mark.parametrize("text", CASTS)
def test_round(text):
    cast = Cast.from_str(text)
    p = params.params_of(cast)
    loop = cpu.special_loop("round", 32, p.grid, p.values, p.shape)
    every_input(loop, (step_values(cast, False), step_values(cast, True)), np.uint32)


@pytest.mark.parametrize("text", MAIN)
def test_encode(text):
    cast = Cast.from_str(text)
    p = params.params_of(cast)
    loop = cpu.special_loop("encode", 32, p.grid, p.codes, p.shape)
    dtype = fpemu.encode(np.float32([1.0]), cast).dtype.type
    every_input(loop, (steps(cast, False), steps(cast, True)), dtype)


def test_the_public_function_runs_these_loops():
    """fpemu.round on a large array, whose cast has become hot, is the loop that is tested above."""
    x = np.arange(0x33000000, 0x33000000 + BLOCK, dtype=np.uint32).view(np.float32)
    fpemu.warmup("float16")
    got = fpemu.round(x, "float16").view(np.uint32)
    table = step_values(Cast("float16"), False)
    want = run_of(table, 0x33000000, 0x33000000 + BLOCK, np.uint32)
    assert_same_bits(got.view(np.float32), want.view(np.float32), x)
