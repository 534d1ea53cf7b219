"""Stochastic rounding: unbiased, and the same bits however the work is cut up."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise

import numpy as np
import pytest
from support import ODD, TABLED, assert_same_bits, directed_inputs, every_cast, wide_range

import fpemu
from fpemu.cast import Cast, Rounding
from fpemu.kernels.pool import SMALL
from fpemu.kernels.random import BLOCK
from fpemu.rounding import exact, round_exact, value_of

CAST = Cast("e4m3fn", "stochastic")
DRAWS = 1_000_000


def stochastic(x, to=CAST, seed=11, **options):
    return fpemu.round(x, to, rounding="stochastic", seed=seed, **options)


# --- probabilities ---------------------------------------------------------------------------


def share_away(x: float, to: str, n: int | None, seed: int, dtype=np.float32) -> float:
    """The share of draws that move a number away from zero."""
    got = stochastic(np.full(DRAWS, x, dtype), to, seed, random_bits=n)
    low = fpemu.round(dtype(x), to, rounding="toward_zero")
    moved = got != low
    assert np.unique(got[moved]).size <= 1
    assert (np.abs(got[moved]) > abs(low)).all()
    return float(moved.mean())


def fraction_of(x: float, to: str) -> Fraction:
    """Where |x| lies between its neighbours, exactly."""
    form = fpemu.finfo(to)
    number = exact(abs(x))
    code = round_exact(Cast(form, "toward_zero"), number).code
    low, high = (value_of(form, c) for c in (code, code + 1))
    position = Fraction(*number[1:]) - Fraction(*low[1:])
    return position / (Fraction(*high[1:]) - Fraction(*low[1:]))


TINY = 2.0**-24  # float16's smallest subnormal
PROBABILITIES = [
    # (number, format, random bits)
    (1 + 1 / 64, "e4m3fn", None), (1 + 3 / 64, "e4m3fn", None), (-1.99, "e4m3fn", None),
    (0.1, "float16", None), (0.1, "bfloat16", None), (-1234.567, "tf32", None),
    (math.pi, "e5m2", None), (3.3, "fp4", None), (0.3, "e2m3", None), (5e-3, "e4m3fnuz", None),
    (100.0, "e8m0", None), (1.9e4, "e8m0", None),
    # subnormals, and below the smallest of them
    (2.3 * TINY, "float16", None), (100.7 * TINY, "float16", None), (0.5 * TINY, "float16", None),
    (0.01 * TINY, "float16", None), (2.0**-12 * 1.1, "e4m3fn", None), (2.0**-18, "e4m3fn", None),
    (1e-39, "bfloat16", None), (3e-41, "bfloat16", None), (0.003, "fp4", None),
    # few random bits: the fraction is cut to them
    (1 + 1 / 12, "e4m3fn", 1), (1 + 1 / 12, "e4m3fn", 2), (1 + 1 / 12, "e4m3fn", 3),
    (1 + 0.7 / 8, "e4m3fn", 4), (0.1, "float16", 13), (0.1, "bfloat16", 16),
    (0.7 * TINY, "float16", 2), (0.2 * TINY, "float16", 2), (2.0**-18, "e4m3fn", 8),
]  # fmt: skip


@pytest.mark.parametrize(("x", "to", "n"), PROBABILITIES)
def test_probability_within_four_sigma(x, to, n):
    x = float(np.float32(x))
    bits = n or 32
    p = math.floor(fraction_of(x, to) * 2**bits) / 2**bits
    sigma = math.sqrt(p * (1 - p) / DRAWS)
    share = share_away(x, to, n, seed=5)
    assert abs(share - p) <= 4 * sigma, f"{share} for {p}: {(share - p) / (sigma or 1):.1f} sigma"


@pytest.mark.parametrize(("x", "to", "n"), [(0.1, "float16", None), (1 + 2.0**-30, "bfloat16", 40),
                                            (2.0**-30, "float16", None), (math.e, "e4m3fn", 64),
                                            (1e-42, "bfloat16", None)])  # fmt: skip
def test_probability_of_float64(x, to, n):
    bits = n or 64
    p = math.floor(fraction_of(x, to) * 2**bits) / 2**bits
    share = share_away(x, to, n, 21, np.float64)
    assert abs(share - p) <= 4 * math.sqrt(p * (1 - p) / DRAWS)


def test_the_mean_is_the_number():
    x = np.random.default_rng(1).normal(size=2000).astype(np.float32)
    total = np.zeros(x.size)
    for seed in range(400):
        total += stochastic(x, "e4m3fn", seed)
    gap = fpemu.round(x, "e4m3fn", rounding="up") - fpemu.round(x, "e4m3fn", rounding="down")
    error = (total / 400 - x) / np.where(gap == 0, 1, gap)
    assert np.abs(error).max() < 5 * 0.5 / math.sqrt(400)
    assert abs(error.mean()) < 4 * 0.5 / math.sqrt(400 * x.size)


@pytest.mark.parametrize("form", [*TABLED[:14], *ODD], ids=str)
def test_exact_values_never_move(form):
    values = fpemu.values(form)
    values = values[np.isfinite(values)]
    for cast in every_cast(form, [Rounding.STOCHASTIC])[:2]:
        want = fpemu.round(values, cast.replace(rounding="toward_zero"))
        for n in (1, 13, 32):
            got = fpemu.round(np.tile(values, 5), cast, seed=n, random_bits=n)
            assert_same_bits(got, np.tile(want, 5), np.tile(values, 5), cast)


def test_results_are_one_of_the_two_neighbours():
    x = wide_range(200_000, 3)
    x = x[np.abs(x) <= 448]
    got = stochastic(x)
    down, up = (fpemu.round(x, "e4m3fn", rounding=mode) for mode in ("down", "up"))
    same = (got == down) | (got == up)
    assert_same_bits(same, np.ones_like(same), x)
    assert_same_bits(np.signbit(got), np.signbit(x), x)


def test_special_inputs_do_not_draw():
    x = np.float32([np.inf, -np.inf, np.nan, 0.0, -0.0, 1e30, -1e30])
    for rule in ("ieee", "saturate", "saturate_keep_inf"):
        for name in ("e5m2", "e4m3fn", "fp4"):
            want = fpemu.round(x, name, overflow=rule)
            assert_same_bits(stochastic(x, name, overflow=rule), want, x, name)


# --- no correlation --------------------------------------------------------------------------


@lru_cache(maxsize=16)
def coin(seed: int, offset: int = 0, halvings: int = 1) -> np.ndarray:
    """A million times 1 with probability 2**-halvings, else 0."""
    x = np.full(DRAWS, 1 + 2.0 ** -(3 + halvings), np.float32)
    return (stochastic(x, seed=seed, offset=offset) > 1.1).astype(np.int64)


def chi_square(a: np.ndarray, b: np.ndarray) -> float:
    """Of the 2 x 2 table of two coins; one degree of freedom."""
    table = np.bincount(2 * a + b, minlength=4).reshape(2, 2)
    expected = np.outer(table.sum(1), table.sum(0)) / table.sum()
    return float(((table - expected) ** 2 / expected).sum())


LIMIT = 20.0  # 4.5 sigma: about 200 tables are looked at
LAGS = [1, 2, 3, 4, 7, 8, 16, 64, 100, 256, 1000, 1024, 4096, 12288, 32768, 65536, 196608]


@pytest.mark.parametrize("halvings", [1, 2, 3])
@pytest.mark.parametrize("seed", [3, 7, 16])
def test_neighbours_are_independent(seed, halvings):
    draws = coin(seed, halvings=halvings)
    found = {lag: chi_square(draws[:-lag], draws[lag:]) for lag in LAGS}
    assert max(found.values()) < LIMIT, {lag: round(c) for lag, c in found.items() if c >= LIMIT}


@pytest.mark.parametrize("other", [1, 2, 3, 256, 2**32, 2**63])
def test_seeds_are_independent(other):
    for seed in (0, 12345):
        assert chi_square(coin(seed), coin(seed + other)) < LIMIT
        assert chi_square(coin(seed)[1:], coin(seed + other)[:-1]) < LIMIT


@pytest.mark.parametrize("offset", [DRAWS, 2**20, 2**31, 2**32, 2**33, 2**40, 2**62])
def test_offsets_are_independent(offset):
    assert chi_square(coin(7), coin(7, offset)) < LIMIT


def test_draws_are_uniform_in_every_bit():
    """A number whose fraction is one bit moves exactly if the draw reaches it: 8 bits, 256 cells
    of 2**12 expected draws each."""
    counts = np.zeros(256)
    for k in range(1, 256):
        got = stochastic(np.full(1 << 16, 1 + k / 2048, np.float32), "e4m3fn", 5, random_bits=8)
        counts[k] = (got > 1).mean() * 256 - k
    assert np.abs(counts).max() < 5 * 256 * 0.5 / math.sqrt(1 << 16)


# --- the same bits however it is run ---------------------------------------------------------

SIZE = 3 * SMALL + 1001
X = wide_range(SIZE, 9)


@pytest.fixture(scope="module")
def want():
    return stochastic(X, threads=1)


@pytest.mark.parametrize("threads", [None, 2, 7])
def test_threads(threads, want):
    assert_same_bits(stochastic(X, threads=threads), want, X)


@pytest.mark.parametrize("cuts", [[1], [333, 334, 70_001], [SMALL + 1, 2 * SMALL - 1]])
def test_pieces_with_offsets(cuts, want):
    ends = [0, *cuts, SIZE]
    pieces = [stochastic(X[a:b], offset=a) for a, b in pairwise(ends)]
    assert_same_bits(np.concatenate(pieces), want, X)


def test_layouts_count_elements_in_c_order(want):
    x, flat = X[: 30 * 40], want[: 30 * 40]
    square, goal = x.reshape(30, 40), flat.reshape(30, 40)
    assert_same_bits(stochastic(square), goal, square)
    assert_same_bits(stochastic(np.asfortranarray(square)), goal, square)
    assert_same_bits(stochastic(square.T.copy().T), goal, square)
    strided = np.zeros((30, 80), np.float32)[:, ::2]
    strided[...] = square
    assert_same_bits(stochastic(strided), goal, square)
    backwards = np.ascontiguousarray(square[::-1, ::-1])[::-1, ::-1]
    assert_same_bits(stochastic(backwards), goal, square)
    out = np.empty_like(square, order="F")
    assert stochastic(square, out=out) is out
    assert_same_bits(np.array(out), goal, square)
    mine = np.asfortranarray(square)
    stochastic(mine, out=mine)
    assert_same_bits(np.array(mine), goal, square)


def test_scalars_and_encode_draw_the_same(want):
    for i in range(20):
        assert_same_bits(stochastic(X[i], offset=i), want[i], X[i])
    codes = fpemu.encode(X[:5000], CAST, seed=11)
    assert_same_bits(fpemu.decode(codes, "e4m3fn"), want[:5000], X[:5000])


@pytest.mark.parametrize("threads", [1, 2])
def test_blocks_of_2_32_elements_join(threads):
    """The keys change there; a shard that spans the border agrees with two that meet at it."""
    before, size = 5, 2 * SMALL + 20
    x = np.full(size, 1 + 1 / 16, np.float32)
    whole = stochastic(x, offset=BLOCK - before, threads=threads)
    left = stochastic(x[:before], offset=BLOCK - before)
    right = stochastic(x[before:], offset=BLOCK)
    assert_same_bits(whole, np.concatenate([left, right]), x)
    assert not np.array_equal(right[:1000], stochastic(x[:1000], offset=0))
    assert stochastic(x[:3], offset=2**63 - 1).shape == (3,)


def test_another_seed_or_offset_is_another_draw():
    x = np.full(4096, 1 + 1 / 16, np.float32)
    base = stochastic(x, seed=0)
    assert np.array_equal(base, stochastic(x, seed=0))
    assert np.array_equal(base[1:], stochastic(x[1:], seed=0, offset=1))
    for options in ({"seed": 1}, {"seed": 2**63}, {"seed": 0, "offset": 4096}):
        assert not np.array_equal(base, stochastic(x, **options))


def test_seeds_of_other_integer_types():
    x = np.full(64, 0.1, np.float32)
    assert_same_bits(stochastic(x, seed=np.int64(3)), stochastic(x, seed=3))
    assert_same_bits(stochastic(x, seed=3, offset=np.uint8(9)), stochastic(x, seed=3, offset=9))


def test_the_seed_is_ignored_by_other_modes():
    x = directed_inputs(CAST.format)
    assert_same_bits(fpemu.round(x, "e4m3fn", seed=3), fpemu.round(x, "e4m3fn"), x)
