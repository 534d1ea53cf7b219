"""Blocks: counted against a plain loop over each block."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

import fpemu
from fpemu.blocks import BlockTally, block_tally
from fpemu.errors import InputError


def blocks_of(x: np.ndarray, block: int, axis: int) -> list[list[float]]:
    """Each block's numbers, cut out one by one."""
    found = []
    for index in np.ndindex(*np.delete(x.shape, axis)):
        place = list(index)
        place.insert(axis % x.ndim, slice(None))
        line = [float(v) for v in x[tuple(place)]]
        found += [line[k : k + block] for k in range(0, len(line), block)]
    return found


def crest(block: list[float]) -> float:
    amax = max(map(abs, block))
    return amax / math.sqrt(math.fsum(v * v for v in block) / len(block))


def hostile(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    x = rng.standard_normal(shape) * 2.0 ** rng.integers(-140, 120, shape)
    x = np.where(rng.random(shape) < 0.3, 0.0, x).astype(np.float32)
    x.flat[3], x.flat[-1], x.flat[7] = np.nan, np.inf, -0.0
    return x


@pytest.mark.parametrize(("shape", "axis"), [((70,), -1), ((5, 33), 1), ((17, 4, 3), 0)])
@pytest.mark.parametrize("block", [1, 4, 32, 1000])
def test_counts_are_those_of_a_plain_loop(shape: tuple[int, ...], axis: int, block: int) -> None:
    x = hostile(np.random.default_rng(block), shape)
    counted, plain = block_tally(x, block=block, axis=axis), blocks_of(x, block, axis)
    tops = [math.nan if any(map(math.isnan, b)) else max(map(abs, b)) for b in plain]
    assert counted.blocks == len(plain)
    assert counted.zero == sum(top == 0 for top in tops)
    assert counted.nonfinite == sum(not math.isfinite(top) for top in tops)
    assert counted.amax == fpemu.tally(np.float32(tops))
    finite = [b for b, top in zip(plain, tops, strict=True) if top and math.isfinite(top)]
    assert sum(counted.crest) == len(finite)
    bins = np.histogram(
        [max(crest(b), 1.0) for b in finite], 2.0 ** (np.arange(len(counted.crest) + 1) / 8)
    )[0]
    # a crest factor at the border of two bins may fall to either: 1 and sqrt(2) are such
    assert np.abs(np.cumsum(bins - counted.crest)).max(initial=0) <= len(finite) // 10 + 1


@pytest.mark.parametrize("to", ["fp4", "e4m3fn", "e5m2", "float6_e2m3fn"])
def test_scales_and_clipped_blocks_are_those_of_casting(to: str) -> None:
    rng = np.random.default_rng(1)
    x = np.float32(rng.standard_normal((999, 16)) * 2.0 ** rng.integers(-30, 30, (999, 1)))
    counted, form = block_tally(x, block=16), fpemu.finfo(to)
    top = math.floor(math.log2(form.max))
    scales = np.array([2.0 ** (math.floor(math.log2(max(np.abs(row)))) - top) for row in x])
    scaled = x / np.float32(scales)[:, None]
    continued = fpemu.round(scaled, to, overflow="saturate", count=True)
    clipped = sum(
        fpemu.round(row, to, overflow="saturate", count=True)[1].saturated > 0 for row in scaled
    )
    assert continued[1].saturated >= clipped > 0
    assert counted.clipped(to) == clipped
    least, low, middle, high, largest = counted.scale_quantiles(to)
    ordered = np.sort(scales)
    assert (least, largest) == (ordered[0], ordered[-1])
    assert (low, middle, high) == tuple(ordered[math.floor(q * 999)] for q in (0.01, 0.5, 0.99))


def test_parts_add_up_to_the_whole() -> None:
    x = hostile(np.random.default_rng(2), (40, 64))
    whole = block_tally(x, block=16)
    assert block_tally(x[:13], block=16) + block_tally(x[13:], block=16) == whole
    assert BlockTally.from_json(whole.to_json()) == whole
    assert block_tally(x.T, block=16, axis=0) == whole


def test_long_arrays_are_looked_at_in_pieces() -> None:
    x = np.float32(np.random.default_rng(3).standard_normal((3, 1_400_001)))
    counted = block_tally(x, block=32)
    assert counted.blocks == 3 * math.ceil(1_400_001 / 32)
    tops = [np.abs(row[k : k + 32]).max() for row in x for k in range(0, x.shape[1], 32)]
    assert counted.amax == fpemu.tally(np.float32(tops))


def test_subnormals_have_a_crest_factor() -> None:
    assert block_tally(np.float32([1e-44, 1e-44]), block=2).crest == (1,)


def test_narrow_floats_widen_and_nothing_counts_nothing() -> None:
    x = np.array([1.5, -3.0, 0.25], ml_dtypes.bfloat16)
    assert block_tally(x, block=2) == block_tally(x.astype(np.float32), block=2)
    for empty in (np.zeros((0, 4), np.float32), np.zeros((4, 0), np.float32)):
        counted = block_tally(empty)
        assert (counted.blocks, counted.crest, counted.clipped("fp4")) == (0, (), 0)
        assert all(map(math.isnan, counted.scale_quantiles("fp4")))
    assert block_tally(np.float32(2)).blocks == 1


@pytest.mark.parametrize(
    ("x", "given"),
    [
        (np.zeros(3), {}),
        (np.zeros(3, np.int32), {}),
        (np.zeros(3, np.float32), {"block": 0}),
        (np.zeros(3, np.float32), {"block": 2.5}),
        (np.zeros(3, np.float32), {"block": True}),
        (np.zeros(3, np.float32), {"axis": 1}),
        (np.zeros(3, np.float32), {"axis": "x"}),
        (np.zeros(3, np.float32), {"axis": 10**30}),
    ],
)
def test_what_cannot_be_counted_is_refused_in_a_line(x: np.ndarray, given: dict) -> None:
    with pytest.raises(InputError) as refusal:
        block_tally(x, **given)
    assert "\n" not in str(refusal.value)


def test_block_sizes_do_not_mix_and_damaged_counts_are_refused() -> None:
    ones = np.ones(8, np.float32)
    with pytest.raises(InputError, match="blocks of 4 and of 8"):
        block_tally(ones, block=4) + block_tally(ones, block=8)
    good = block_tally(ones, block=4).to_json()
    for bad in ({}, good | {"crest": [5]}, good | {"amax": "!"}, good | {"block": -1}):
        with pytest.raises(InputError, match="no BlockTally"):
            BlockTally.from_json(bad)


@pytest.mark.parametrize("quantiles", [[math.nan], [-0.1], [1.5], [math.inf], 3, "x", [None]])
def test_quantiles_that_are_none(quantiles: object) -> None:
    for counted in (block_tally(np.ones(8, np.float32)), block_tally(np.float32([]))):
        with pytest.raises(InputError, match="must be numbers from 0 to 1"):
            counted.scale_quantiles("fp4", quantiles)  # type: ignore[arg-type]
