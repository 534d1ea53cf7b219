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
from fpemu.kernels import cpu, params, plan

pytestmark = pytest.mark.exhaustive

BLOCK = 1 << 18  # 1 MB an array: compared while it lies in the cache
TASK = 1 << 26
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


def check(loop, tables: tuple[Steps, Steps], dtype: type, task: tuple[int, int]) -> int:
    """Compare a loop with the tables over a range of patterns of one sign."""
    offset = task[0] >> 31 << 31
    table = tables[task[0] >> 31]
    first = np.arange(BLOCK, dtype=np.uint32)
    words, got = np.empty_like(first), np.empty(BLOCK, dtype)
    for start in range(*task, BLOCK):
        np.add(first, np.uint32(start), out=words)
        loop(words, got)
        want = run_of(table, start - offset, start - offset + BLOCK, dtype)
        if not np.array_equal(got, want):  # perhaps in the payload of a NaN alone
            view = np.float32 if dtype == np.uint32 else dtype
            assert_same_bits(got.view(view), want.view(view), words.view(np.float32))
    return task[1] - task[0]


def every_input(loop, tables: tuple[Steps, Steps], dtype: type) -> None:
    """Compare over all 2**32 patterns, on threads."""
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        tasks = [threads.submit(check, loop, tables, dtype, task) for task in blocks(1 << 32, TASK)]
        assert sum(task.result() for task in tasks) == 1 << 32


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
    # codes as the public function stores them; tf32's 19 bits lie in uint32 like float32's
    dtype = fpemu.encode(np.float32([1.0]), cast).dtype.type
    every_input(loop, (steps(cast, False), steps(cast, True)), dtype)


def test_the_public_function_runs_these_loops(monkeypatch):
    """fpemu.round of a large array of a cast that has become hot: the loops tested above."""
    used = []
    special = cpu.special_loop
    monkeypatch.setattr(cpu, "special_loop", lambda *key: used.append(key) or special(*key))
    plan.forget()
    fpemu.warmup("float16")
    p = params.params_of(Cast("float16"))
    assert ("round", 32, p.grid, p.values, p.shape) in used
    start, stop = 0x33000000, 0x33000000 + (1 << 20)
    x = np.arange(start, stop, dtype=np.uint32).view(np.float32)
    want = run_of(step_values(Cast("float16"), False), start, stop, np.uint32)
    assert_same_bits(fpemu.round(x, "float16"), want.view(np.float32), x)
    plan.forget()
