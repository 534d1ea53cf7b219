"""RecipeTally against a loop over the numbers of each block, by the recipes' formulas."""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from collections.abc import Callable, Iterator
from fractions import Fraction

import numpy as np
import pytest

import fpemu
from fpemu.blocks import block_tally
from fpemu.errors import InputError
from fpemu.rounding import round_exact, value_of
from fpemu.scaling import Codebook, Recipe, find_recipe, recipes
from fpemu.scaling.tally import RecipeTally, is_scale_free, recipe_tally

F = np.float32


def wild(shape: tuple[int, ...], seed: int = 0, specials: bool = True) -> np.ndarray:
    """Numbers over many binades, with blocks of zeros, NaN and infinities."""
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal(shape) * np.exp2(rng.uniform(-12, 12, shape))).astype(F)
    flat = x.reshape(-1)
    flat[rng.integers(0, flat.size, flat.size // 9)] = 0.0
    flat[: flat.size // 8] = 0.0
    if specials:
        flat[-1], flat[flat.size // 2] = np.nan, -np.inf
    return x


# --- the formulas, a number at a time: what multiplies before the element, and after -------------


def power(exponent: int) -> tuple[F, F]:
    return F(math.ldexp(1, -exponent)), F(math.ldexp(1, exponent))


def floor_scale(emax: int) -> Callable[[F, F], tuple[F, F]]:
    return lambda amax, whole: power(max(-127, min(127, math.frexp(amax)[1] - 1 - emax)))


def current(amax: F, whole: F) -> tuple[F, F]:
    scale = F(448) / amax
    return scale, F(1) / scale


def nvfp4(amax: F, whole: F) -> tuple[F, F]:
    s = F(448) * F(6) / whole
    product = amax * (s * (F(1) / F(6)))
    block = F(found_in(fpemu.Cast("e4m3fn"), product)[1])
    if block == 0:
        return F(np.finfo(F).max), F(0)
    kept = block * (F(1) / s)
    return F(1) / kept, kept


CASES = {
    "mxfp8": (floor_scale(8), (1, 32)),
    "mxfp8_e5m2": (floor_scale(15), (1, 32)),
    "mxfp4": (floor_scale(2), (1, 32)),
    "mxfp6_e2m3": (floor_scale(2), (1, 32)),
    "mxint8": (floor_scale(0), (1, 32)),
    "te.current": (current, None),
    "nvfp4": (nvfp4, (1, 16)),
    "nvfp4.weight": (nvfp4, (16, 16)),
}


def blocks_of(x: np.ndarray, shape: tuple[int, int] | None) -> Iterator[list[float]]:
    """The numbers of each block, by their places."""
    if shape is None:
        yield x.reshape(-1).tolist()
        return
    found: dict[tuple[int, ...], list[float]] = {}
    for place in itertools.product(*map(range, x.shape)):
        *lead, row, column = (0, *place) if len(place) == 1 else place
        key = (*lead, row // shape[0], column // shape[1])
        found.setdefault(key, []).append(x[place])
    yield from found.values()


def element_of(recipe: Recipe, scaled: F) -> tuple[str, float]:
    """The outcome and value of one scaled number."""
    if recipe.name == "mxint8":
        whole = round(Fraction(float(scaled)) * 64)  # ties to even
        held = min(max(whole, -128), 127)
        kind = "saturated" if whole != held else "underflow" if not held else "normal"
        return kind, held / 64
    return found_in(recipe.element.cast, scaled)


def found_in(cast: fpemu.Cast, x: F) -> tuple[str, float]:
    """The outcome and value that the exact definition gives a number."""
    found = round_exact(cast, Fraction(float(x)))
    return found.outcome, float(value_of(cast.format, found.code))


def by_hand(x: np.ndarray, name: str) -> dict[str, object]:
    """All that a RecipeTally counts, of numbers that are finite."""
    recipe, (rule, shape) = find_recipe(name), CASES[name]
    top = F(np.abs(x).max())
    found, scales, clipped_blocks, zero_blocks, blocks = Counter(), Counter(), 0, 0, 0
    signal = noise = Fraction(0)
    for numbers in blocks_of(x, shape):
        amax, blocks, clipped = F(max(map(abs, numbers))), blocks + 1, False
        if not amax:
            zero_blocks += 1
            found["zero"] += len(numbers)
            continue
        encode, decode = rule(amax, top)
        if decode:
            scales[math.frexp(decode)[1] - 1] += 1
        for value in numbers:
            if value == 0:
                found["zero"] += 1
                continue
            outcome, q = element_of(recipe, F(value) * encode)
            left = F(q) * decode
            outcome = "underflow" if left == 0 else outcome
            found[outcome] += 1
            clipped |= outcome == "saturated"
            signal += Fraction(float(value)) ** 2
            noise += (Fraction(float(value)) - Fraction(float(left))) ** 2
        clipped_blocks += clipped
    return {
        "counts": {key: n for key, n in found.items() if n}, "scales": dict(scales),
        "blocks": (blocks, zero_blocks, clipped_blocks),
        "signal": float(signal), "noise": float(noise),
    }  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("shape", [(3, 70), (2, 20, 33), (96,)])
def test_it_counts_what_the_formulas_say(name: str, shape: tuple[int, ...]) -> None:
    if name == "nvfp4.weight" and len(shape) == 1:
        pytest.skip("blocks of several rows need two dimensions")
    x = wild(shape, specials=False)
    found, want = recipe_tally(x, name), by_hand(x, name)
    counts = {k: n for k, n in found.outcome.to_json().items() if n and k != "total"}
    assert counts == want["counts"]
    assert found.total == x.size == sum(counts.values())
    assert (found.blocks, found.zero_blocks, found.clipped_blocks) == want["blocks"]
    assert found.scale_histogram == want["scales"]
    assert found.nan_blocks == found.overflow == 0
    assert found.signal == pytest.approx(want["signal"], rel=1e-12)
    assert found.noise == pytest.approx(want["noise"], rel=1e-12)


@pytest.mark.parametrize("name", sorted(n for n, r in recipes.items() if r.rotation is None))
def test_what_comes_out_is_what_is_counted(name: str) -> None:
    x = wild((64, 256), 3)
    x[5] = np.abs(x[5])  # a row without the special numbers
    with np.errstate(all="ignore"):
        kept = find_recipe(name).round(x)
        found = recipe_tally(x, name)
    some = np.isfinite(x) & (x != 0)
    good = np.isfinite(x) & np.isfinite(kept)
    assert (found.nan, found.inf, found.zero) == (1, 1, int((x == 0).sum()))
    assert found.lost == int((some & (kept == 0)).sum())
    assert found.overflow == int((some & ~np.isfinite(kept)).sum())
    wide, left = x[good].astype(np.float64), kept[good].astype(np.float64)
    assert found.signal == pytest.approx(float((wide**2).sum()), rel=1e-12)
    assert found.noise == pytest.approx(float(((wide - left) ** 2).sum()), rel=1e-12)
    scaled = find_recipe(name).quantize(x)
    assert found.blocks == scaled.scales.size
    assert found.bits_per_value == pytest.approx(scaled.bits_per_value)


def test_rotated_numbers_are_what_is_counted() -> None:
    x = wild((8, 64), 4, specials=False)
    for recipe in (r for r in recipes.values() if r.rotation is not None):
        found, turned = recipe_tally(x, recipe), recipe.rotation.rotate(x)
        plain = recipe_tally(turned, recipe.replace(rotation=None))
        assert found.outcome == plain.outcome
        assert found.part != plain.part
        kept = recipe.round(x).astype(np.float64)
        assert found.noise == pytest.approx(float(((kept - x) ** 2).sum()), rel=1e-4)


def test_crest_factors_are_those_of_blocks() -> None:
    x = wild((50, 90), specials=False)
    assert recipe_tally(x, "mxfp8").crest == block_tally(x, block=32).crest
    assert recipe_tally(x, "nvfp4").crest == block_tally(x, block=16).crest
    weight = np.arange(1.0, 33 * 18 + 1).reshape(33, 18).astype(F)
    parts = [weight[i : i + 16, j : j + 16] for i in (0, 16, 32) for j in (0, 16)]
    want = Counter(
        math.floor(8 * math.log2(part.max() / math.sqrt((part.astype(float) ** 2).mean())))
        for part in parts
    )
    found = recipe_tally(weight, "nvfp4.weight").crest
    assert dict(enumerate(found)) == {k: want[k] for k in range(max(want) + 1)}


def test_along_another_axis() -> None:
    x = wild((40, 3, 50))
    for axis in (0, 1, -2):
        turned, found = np.moveaxis(x, axis, -1), recipe_tally(x, "mxfp4", axis)
        assert found.axis == (axis if axis < 0 else axis - 3)
        want = recipe_tally(np.ascontiguousarray(turned), "mxfp4")
        assert found.outcome == want.outcome
        assert (found.scale_histogram, found.noise) == (want.scale_histogram, want.noise)


def test_nan_and_infinity_spoil_their_blocks() -> None:
    x = np.ones((3, 32), F)
    x[1, 4], x[2, 5] = np.nan, np.inf
    found = recipe_tally(x, "mxfp8")
    assert (found.nan, found.inf, found.nonfinite, found.overflow) == (1, 1, 2, 31)
    assert found.nan_blocks == 2  # infinity at its largest scale is infinite again
    assert found.flushed_blocks == 1
    assert found.signal == found.total - 2 - 31


def test_a_block_scale_that_is_zero_loses_its_block() -> None:
    x = np.full((1, 32), 1e-6, F)
    x[0, 0] = 1.0
    found = recipe_tally(x, "nvfp4")
    assert (found.lost, found.clipped, found.flushed_blocks) == (31, 0, 1)
    assert recipe_tally(x, "torchao.nvfp4").flushed_blocks == 0


def test_a_codebook_clips_what_lies_far_beyond() -> None:
    book = Codebook("three", (-1.0, 0.0, 1.0))
    recipe = Recipe.of("tensor fixed int8").replace(element=book)
    x = F([1.5, 1.50001, -1.5, -1.6, 0.4])
    assert recipe_tally(x, recipe).clipped == 2


def test_integers_clip_as_ties_go() -> None:
    x = F([127.4, 127.5, -128.5, -128.6, -127.5])
    assert recipe_tally(x, "tensor fixed int8").clipped == 2
    assert recipe_tally(x, "tensor fixed int8.0:symmetric").clipped == 4


def test_tallies_add_up_in_any_order() -> None:
    parts = [wild((7, 45), seed) * F(2.0**seed) for seed in range(4)]
    counted = [recipe_tally(x, "nvfp4") for x in parts]
    whole = sum(counted)
    back = counted[3] + counted[1] + (counted[0] + counted[2])
    assert whole.outcome == back.outcome
    assert whole.scale_histogram == back.scale_histogram
    assert (whole.crest, whole.blocks, whole.tensors) == (back.crest, back.blocks, 4)
    assert whole.noise == pytest.approx(back.noise, rel=1e-12)
    joined = recipe_tally(np.concatenate(parts), "mxfp8")  # scales of blocks alone
    assert sum(recipe_tally(x, "mxfp8") for x in parts).outcome == joined.outcome
    with pytest.raises(InputError, match="'nvfp4' along axis -1 and 'mxfp8' along axis -1 do not"):
        counted[0] + joined
    with pytest.raises(InputError, match="do not add up"):
        joined + recipe_tally(parts[0], "mxfp8", axis=0)


@pytest.mark.parametrize("name", ["mxfp8", "nvfp4", "te.current", "te.block", "nf4", "mxint4.fit"])
def test_scales_go_with_the_numbers(name: str) -> None:
    x = wild((20, 128), specials=False)
    found, times = recipe_tally(x, name), recipe_tally(x * F(2.0**-9), name)
    assert is_scale_free(find_recipe(name))
    moved = found.times(2.0**-9)
    assert moved == times
    assert moved.times(2.0**9) == found


@pytest.mark.parametrize("name", ["deepseek", "keras.int8", "tensor fixed(scale=4.0) e4m3fn"])
def test_scales_that_do_not_are_refused(name: str) -> None:
    found = recipe_tally(F([1, 2]), name)
    assert found.times(1.0) is found
    with pytest.raises(InputError, match="its scales do not go with the numbers"):
        found.times(0.5)


def test_json_both_ways() -> None:
    for name in ("nvfp4", "te.current", "nf4", "1x8 amax(margin=1) int8.3"):
        found = recipe_tally(wild((9, 40)), name)
        facts = json.loads(json.dumps(found.to_json(), allow_nan=False))
        assert RecipeTally.from_json(facts) == found
        for change in ({"clipped": -1}, {"total": True}, {"scales": [9**9]}, {"noise": "1"},
                       {"axis": 3}, {"recipe": {}}, {"more": 1}, {"low": 5000}):  # fmt: skip
            with pytest.raises(InputError, match="is no RecipeTally"):
                RecipeTally.from_json({**facts, **change})


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 70_000), ()])
def test_arrays_of_nothing_and_of_one(shape: tuple[int, ...]) -> None:
    for name in ("mxfp8", "te.current", "torchao.float8.rowwise", "nvfp4"):
        found = recipe_tally(np.ones(shape, F), name)
        assert (found.total, found.blocks) == ((1, 1) if shape == () else (0, 0))
    assert math.isnan(recipe_tally(np.ones(0, F), "mxfp8").sqnr_db)
    assert recipe_tally(np.ones(4, F), "mxfp8").sqnr_db == math.inf


def test_threads_change_nothing() -> None:
    x = wild((600, 1024))
    for name, shape in (
        ("mxfp8", (600, 1024)), ("te.current", (600, 1024)), ("keras.int8", (6, 102_400)),
    ):  # fmt: skip
        found = recipe_tally(x.reshape(shape), name, threads=1)
        for _ in range(3):
            assert recipe_tally(x.reshape(shape), name, threads=3) == found


def test_long_lines_are_looked_at_in_pieces() -> None:
    x = wild((3, 150_000), specials=False)
    found = recipe_tally(x, "keras.int8")
    assert found.outcome == sum(recipe_tally(row[None], "keras.int8").outcome for row in x)
    assert found.crest == sum(recipe_tally(row[None], "keras.int8") for row in x).crest
    q = find_recipe("keras.int8").round(x).astype(np.float64)
    assert found.noise == pytest.approx(float(((q - x) ** 2).sum()), rel=1e-12)


def test_what_cannot_be_counted_is_refused() -> None:
    with pytest.raises(InputError, match="draws of stochastic rounding"):
        recipe_tally(F([1]), "1x16 two_level fp4:rounding=stochastic")
    with pytest.raises(InputError, match="float64 would be rounded"):
        recipe_tally(np.ones(3), "mxfp8")
    with pytest.raises(InputError, match=r"unknown recipe 'mxfp9'; did you mean 'mxfp"):
        recipe_tally(F([1]), "mxfp9")
    with pytest.raises(InputError, match="axis=2"):
        recipe_tally(F([1]), "mxfp8", axis=2)
