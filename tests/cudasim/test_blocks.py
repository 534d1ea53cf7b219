"""Recipes on a device, in numba's simulator: every one of the catalogue gives the host's bits.

The host's own results are held against torchao, ml_dtypes and formulas by tests/fpemu.
"""

from __future__ import annotations

import dataclasses
import os
import sys

import ml_dtypes
import numpy as np
import pytest
from support import assert_same_bits

import fpemu
from fpemu.scaling import Delayed, Recipe, TwoLevel, Variant, find_recipe, recipes

pytestmark = pytest.mark.cudasim
if os.environ.get("NUMBA_ENABLE_CUDASIM") != "1":
    pytest.skip("the simulator needs NUMBA_ENABLE_CUDASIM=1", allow_module_level=True)
pytest.importorskip("numba_cuda", reason="needs numba-cuda: the extra cuda12 or cuda13")

from numba import cuda  # noqa: E402

from fpemu.libraries.library import library_of  # noqa: E402
from fpemu.scaling import on_device  # noqa: E402


@pytest.fixture(autouse=True)
def _threads_take_turns():
    """The simulator's threads wait for each other all the time: let them do so quickly."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def blocks(width: int) -> np.ndarray:
    """Rows of `width`, each with another largest magnitude; those at both ends, and specials."""
    random = np.random.default_rng(width)
    tops = [1.0, 448, 6, 2688, 0.0, 1e-45, 2**-127, 2**-126, 1e-38, 1e-12, 1e-4, 3.4e38,
            1.9999999, 1.75, 1.8125]  # fmt: skip
    rows = [random.uniform(-1, 1, width) * top for top in tops]
    for row, top in zip(rows, tops, strict=True):
        row[random.integers(width)] = -top if top == 6 else top
    odd = [random.standard_normal(width) for _ in range(4)]
    odd[0][0], odd[1][1], odd[2][:2], odd[3][:4] = np.nan, -np.inf, (np.inf, np.nan), (
        0.5, 1.5, 2.5, -0.0)  # fmt: skip
    return np.array([*rows, *odd]).astype(np.float32)


def hostile(recipe: Recipe) -> np.ndarray:
    """An array in which each block of a recipe looks different."""
    columns = recipe.block.columns
    if columns is None:
        return blocks(12)
    if recipe.block.rows == 1:  # and an end that is no whole block
        return blocks(columns + 4 if not recipe.rotation else columns)
    return blocks(columns + 4) if columns == 16 else blocks(20)


def nan_codes(codes: np.ndarray, recipe: Recipe) -> np.ndarray:
    return np.isnan(recipe.element.decode(codes.reshape(-1)).reshape(codes.shape))


def signless(scales: np.ndarray, recipe: Recipe) -> np.ndarray:
    """Scales, of which an E4M3 one that is NaN has lost its sign: 0 / 0 has that of the host."""
    if not isinstance(recipe.rule, TwoLevel):
        return scales
    return np.where(scales & 0x7F == 0x7F, np.uint8(0x7F), scales)


def check(recipe: Recipe, x: np.ndarray, axis: int = -1, **options: object) -> None:
    """On a device, codes, scales and values are the host's.

    What is NaN is NaN; only that of a NaN has a sign to keep.
    """
    device = cuda.to_device(x)
    got = recipe.quantize(device, axis=axis, **options)
    want = recipe.quantize(x, axis=axis, **options)
    assert (got.axis, got.packed) == (want.axis, want.packed)
    assert_same_bits(got.tensor_scale, want.tensor_scale)
    scales, codes = got.scales.copy_to_host(), got.codes.copy_to_host()
    assert_same_bits(signless(scales, recipe), signless(want.scales, recipe))
    if not want.packed:
        broken = nan_codes(want.codes, recipe)
        assert_same_bits(nan_codes(codes, recipe), broken)
        kept = np.isnan(x) | ~broken
        assert_same_bits(codes[kept], want.codes[kept], x[kept])
    else:
        assert_same_bits(codes, want.codes)
    assert_same_bits(got.dequantize().copy_to_host(), want.dequantize())
    rounding = {name: value for name, value in options.items() if name != "packed"}
    rounded = recipe.round(device, axis=axis, **rounding).copy_to_host()
    assert_same_bits(rounded, recipe.round(x, axis=axis, **rounding), x)


@pytest.mark.parametrize("name", recipes)
def test_every_recipe_on_hostile_blocks(name):
    recipe = find_recipe(name)
    check(recipe, hostile(recipe))


# --- shapes and axes -----------------------------------------------------------------------------

#: Recipes of every kind of block, and element; small, as the simulator is slow.
KINDS = {
    "1-D": "1x8 exponent fp4",
    "1-D, wide": "1x32 exponent(mode=fit) e4m3fn",
    "1-D, no power of two": "1x6 amax e5m2",
    "1-D, odd": "1x5 amax(inverse=true, zero=none) e4m3fn",
    "one column": "1x1 exponent e4m3fn",
    "long": "1x1100 exponent(mode=ceil) fp4",
    "tiles": "4x8 exponent e4m3fn",
    "odd tiles": "3x5 amax(power_of_two=true) e4m3fn",
    "two levels": "1x16 two_level fp4",
    "two levels, tiles": "2x8 two_level(clamped=true) fp4",
    "row": "row amax(divides=true) e4m3fn",
    "tensor": "tensor amax e5m2",
    "fixed": "tensor fixed(scale=16.0) int8.4",
    "fixed blocks": "1x4 fixed(scale=3.0, inverse=true) e4m3fn",
    "codebook": "1x4 amax three[-1, 0.25, 0.75]",
    "wide integers": "1x8 exponent int12.10",
}

SHAPES = [(), (7,), (16,), (0,), (3, 0), (0, 8), (4, 16), (5, 11), (2, 3, 10), (2, 2, 3, 8)]


def sample(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Numbers over some binades, of any shape."""
    random = np.random.default_rng([seed, *shape])
    return np.float32(random.standard_normal(shape) * 2.0 ** random.integers(-9, 9, shape))


@pytest.mark.parametrize("kind", KINDS)
def test_shapes_and_axes(kind):
    recipe = find_recipe(KINDS[kind])
    for shape in SHAPES[list(KINDS).index(kind) % 2 :: 2] if kind != "tiles" else SHAPES:
        if len(shape) < 2 and (recipe.block.rows or 1) > 1:
            continue
        for axis in range(len(shape)) or [-1]:
            check(recipe, sample(shape), axis)


@pytest.mark.parametrize("text", ["1x16 exponent e4m3fn", "row amax e4m3fn"])
def test_long_rows_take_several_segments(text):
    x = sample((2, 300))
    for array, axis in ((x, -1), (np.ascontiguousarray(x.T), 0), (x[:, 1:].copy(), 1)):
        check(find_recipe(text), array, axis)


def test_zeros_alone():
    for name in ("nvfp4", "torchao.nvfp4", "mxfp8", "te.current", "keras.int8"):
        check(find_recipe(name), np.zeros((2, 20), np.float32))


# --- random bits ---------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("text", [
    "1x8 exponent fp4", "1x5 amax e4m3fn", "3x4 exponent e4m3fn", "row amax e5m2",
    "tensor amax e5m2", "1x4 two_level fp4",
])  # fmt: skip
def test_draws_are_counted_as_on_the_host(text, axis):
    recipe = find_recipe(f"{text}:overflow=saturate,rounding=stochastic")
    for offset, bits in ((2**32 - 40, 13), (3 * 2**32 + 5, None)):
        check(recipe, sample((3, 5, 8)), axis, seed=7, offset=offset, random_bits=bits)


def test_a_seed_is_needed():
    recipe = find_recipe("1x8 exponent fp4:rounding=stochastic")
    with pytest.raises(fpemu.FpemuError, match="needs a seed"):
        recipe.round(cuda.to_device(sample((8,))))


# --- packing, rotation ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mxfp4", "mxfp6_e2m3", "mxint4", "mxint6", "nf4", "mxfp8"])
def test_packed_codes(name):
    for shape, axis in (((3, 40), 1), ((8, 3), 0), ((2, 8, 5), 1), ((0, 8), 1)):
        check(find_recipe(name), sample(shape), axis, packed=True)


def test_codes_that_fill_no_whole_bytes_are_refused():
    for shape in ((3, 7), ()):
        with pytest.raises(fpemu.FpemuError, match="fill whole bytes"):
            find_recipe("mxfp4").quantize(cuda.to_device(sample(shape)), packed=True)


@pytest.mark.parametrize("text", [
    "1x16 two_level fp4 hadamard(size=16, signs=0x3a5c)",
    "1x8 exponent e4m3fn hadamard(size=4, signs=0b0110)",
    "tensor amax e4m3fn hadamard(size=2)",
])  # fmt: skip
def test_rotated(text):
    recipe = find_recipe(text)
    for shape, axis in (((3, 32), 1), ((32, 3), 0), ((2, 16, 3), 1), ((0, 16), 1)):
        check(recipe, sample(shape), axis)
    with pytest.raises(fpemu.FpemuError, match="takes multiples"):
        recipe.round(cuda.to_device(sample((3, 5))))


# --- arrays that come and go ---------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mxfp8", "nvfp4", "te.current", "keras.int8"])
def test_out_is_written_and_returned(name):
    recipe, x = find_recipe(name), sample((3, 40))
    want = recipe.round(x)
    device, out = cuda.to_device(x.copy()), cuda.device_array(x.shape, np.float32)
    assert recipe.round(device, out=out) is out
    assert_same_bits(out.copy_to_host(), want)
    assert recipe.round(device, out=device) is device
    assert_same_bits(device.copy_to_host(), want)


def test_narrow_floats_widen():
    x = sample((4, 32)).astype(ml_dtypes.bfloat16)
    recipe = find_recipe("mxfp8")
    got = recipe.quantize(cuda.to_device(x))
    assert_same_bits(got.codes.copy_to_host(), recipe.quantize(x).codes)
    assert_same_bits(recipe.round(cuda.to_device(x)).copy_to_host(),
                     recipe.round(x.astype(np.float32)))  # fmt: skip


@pytest.mark.parametrize("start", [1, 2, 3])
def test_memory_that_is_not_aligned_for_wide_accesses(start):
    recipe, x = find_recipe("mxfp8"), sample((67,))
    device = cuda.to_device(x)[start : start + 64]
    want = recipe.quantize(x[start : start + 64])
    got = recipe.quantize(device)
    assert_same_bits(got.codes.copy_to_host(), want.codes)
    assert_same_bits(got.scales.copy_to_host(), want.scales)


def test_what_is_no_array_for_recipes_is_refused():
    recipe = find_recipe("mxfp8")
    for x, rule in ((np.zeros(4), "float64"), (np.zeros(4, np.int32), "narrower floats")):
        with pytest.raises(fpemu.FpemuError, match=rule):
            recipe.round(cuda.to_device(x))
    with pytest.raises(fpemu.FpemuError, match="axis=2"):
        recipe.round(cuda.to_device(sample((3, 4))), axis=2)
    with pytest.raises(fpemu.FpemuError, match="need two dimensions"):
        find_recipe("te.block.weight").round(cuda.to_device(sample((8,))))
    with pytest.raises(fpemu.FpemuError, match="a float32 above 0"):
        find_recipe("tensor fixed(scale=-2.0) fp4").round(cuda.to_device(sample((8,))))


def test_scales_of_other_codes_are_refused():
    recipe = find_recipe("mxfp8")
    one, other = (recipe.quantize(cuda.to_device(sample(shape))) for shape in ((2, 32), (2, 64)))
    with pytest.raises(fpemu.FpemuError, match="have 2 blocks"):
        dataclasses.replace(one, scales=other.scales).dequantize()
    wrong = dataclasses.replace(one, scales=cuda.device_array((2, 1), np.float32))
    with pytest.raises(fpemu.FpemuError, match="codes of uint8 and scales of float32"):
        wrong.dequantize()


@pytest.mark.parametrize("variant", ["te", "keras"])
def test_delayed_scaling_goes_the_same_way(variant):
    here = there = Delayed("e4m3fn", length=2, variant=Variant(variant))
    for size in (3.0, 700.0, 0.0, np.inf, 1e-3):
        x = np.float32([size, -0.5 * size if size < np.inf else np.nan, 0.25])
        want, here = here.round(x)
        got, there = there.round(cuda.to_device(x))
        assert_same_bits(got.copy_to_host(), want, x)
        assert str(there) == str(here)  # a NaN in the window equals itself there


def test_the_largest_magnitude():
    library = library_of(cuda.to_device(np.zeros(1, np.float32)))
    for values in ([1, -3, 2], [np.inf, 1], [np.nan, -np.inf], [], [-0.0], [1e-45, 0]):
        x = np.float32(values)
        got = on_device.largest(library, cuda.to_device(x))
        assert_same_bits(got, np.max(np.abs(x), initial=0))
