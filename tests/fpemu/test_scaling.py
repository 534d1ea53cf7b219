"""Scaled formats: against the formulas in exact arithmetic, a plain loop, and torchao."""

from __future__ import annotations

import json
import logging
import math
import os
import warnings
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

import fpemu
from fpemu.errors import FpemuError, InputError
from fpemu.scaling import (
    AmaxRule,
    Block,
    Codebook,
    Delayed,
    ExponentRule,
    FixedRule,
    FloatElement,
    IntegerElement,
    Recipe,
    find_recipe,
    recipes,
)

#: QSNR of Gaussian data in dB, as published (arXiv 2510.25602, figure 4b), and how near it must be.
PUBLISHED = {
    "mxfp8.fit": (31.51, 0.15),
    "mxfp6_e2m3.fit": (31.03, 0.15),
    "mxfp4.fit": (18.79, 0.15),
    "nvfp4": (20.35, 0.15),
    "mxint8.fit": (41.93, 0.8),
    "mxint6.fit": (30.18, 0.8),
    "mxint4.fit": (17.22, 0.8),
    "1x16 two_level int4:symmetric": (21.65, 0.8),
}


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """Equality with every NaN equal to every NaN, and -0 apart from +0."""
    nan = np.isnan(a) & np.isnan(b)
    return bool(((a == b) & (np.signbit(a) == np.signbit(b)) | nan).all())


def hostile(rng: np.random.Generator, rows: int, width: int = 64) -> np.ndarray:
    x = rng.standard_normal((rows, width)) * 2.0 ** rng.integers(-150, 128, (rows, 1))
    with np.errstate(over="ignore"):
        x = np.where(rng.random(x.shape) < 0.1, 0.0, x).astype(np.float32)
    x[:4] = 0
    x[4, 3], x[5, 40], x[6] = np.nan, np.inf, -np.inf
    x[7], x[8], x[9], x[10, 7] = 1e-45, 3.4e38, 2.0**-130, np.nan
    x[10, :5] = 5.0
    x[11, 0] = -0.0
    return x


# --- scales, in exact arithmetic -----------------------------------------------------------------


def floor_log2(value: Fraction) -> int:
    k = value.numerator.bit_length() - value.denominator.bit_length()
    return k if value >= Fraction(2) ** k else k - 1


@pytest.mark.parametrize("name", [name for name in recipes if name.startswith("mx")])
def test_ocp_scales_and_elements_are_those_of_the_formula(name: str) -> None:
    """2^(floor(log2 amax) - emax), or for `.fit` the first power of two not below amax / max."""
    recipe, rng = find_recipe(name), np.random.default_rng(1)
    x = hostile(rng, 120)
    scaled, rounded = recipe.quantize(x), recipe.round(x)
    for row, half in np.ndindex(len(x), 2):
        block = x[row, 32 * half :][:32]
        code = int(scaled.scales[row, half])
        got = rounded[row, 32 * half :][:32]
        if np.isnan(block).any():
            assert code == 255
            assert np.isnan(got).all()
            continue
        top = float(np.abs(block).max())
        if not 0 < top < math.inf:
            assert code == (0 if top == 0 else min(128 - recipe.element.emax + 127, 254))
            continue
        most, amax = Fraction(recipe.element.max), Fraction(top)
        if name.endswith(".fit"):
            exponent = floor_log2(amax / most)
            exponent += Fraction(2) ** exponent < amax / most
        else:
            exponent = floor_log2(amax) - floor_log2(most)
        assert code == min(max(exponent, -127), 127) + 127
        scale = 2.0 ** (code - 127)  # dividing by it is exact in float64
        want = nearest(recipe, block.astype(np.float64) / scale) * scale
        with np.errstate(over="ignore"):  # the largest float32 may round up beyond it
            assert same(got, want.astype(np.float32))


def nearest(recipe: Recipe, scaled: np.ndarray) -> np.ndarray:
    """The nearest elements of float64 numbers, found in the list of all of them."""
    if isinstance(recipe.element, IntegerElement):
        whole = 2.0**recipe.element.fraction_bits
        found = np.clip(np.rint(scaled * whole) / whole, recipe.element.least, recipe.element.max)
        return found + 0.0  # integers have no -0
    return fpemu.round(scaled, recipe.element.cast)


# --- the published table -------------------------------------------------------------------------


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_quality_of_gaussian_data(name: str) -> None:
    x = np.float32(np.random.default_rng(0).standard_normal((512, 1024)))
    published, tolerance = PUBLISHED[name]
    assert abs(fpemu.error(x, find_recipe(name).round(x)).sqnr - published) < tolerance


# --- layouts -------------------------------------------------------------------------------------


def plain(x: np.ndarray, rows: int | None, columns: int | None) -> np.ndarray:
    """Power-of-two scaled FP4 of a matrix, block by block."""
    out = np.empty_like(x)
    high, wide = rows or x.shape[0], columns or x.shape[1]
    for r in range(0, x.shape[0], high):
        for c in range(0, x.shape[1], wide):
            block = x[r : r + high, c : c + wide]
            amax = np.abs(block).max()
            scale = 2.0 ** (math.floor(math.log2(amax)) - 2) if amax else 1.0
            out[r : r + high, c : c + wide] = (
                fpemu.round(block / np.float32(scale), "fp4") * np.float32(scale)
            )
    return out


@pytest.mark.parametrize("block", ["1x16", "1x32", "3x5", "16x16", "row", "tensor", "128x128"])
@pytest.mark.parametrize("shape", [(64, 64), (50, 37), (1, 200), (7, 1)])
def test_blocks_of_any_shape_are_those_of_a_plain_loop(block: str, shape: tuple[int, int]) -> None:
    x = np.float32(np.random.default_rng(2).standard_normal(shape))
    cut = Block.of(block)
    recipe = Recipe("own", cut, ExponentRule(), FloatElement.of("fp4"))
    want = plain(x, cut.rows, cut.columns)
    assert same(recipe.round(x), want)
    assert same(recipe.quantize(x).dequantize(), want)
    assert same(recipe.round(x.T, axis=0), want.T)
    assert same(recipe.round(np.asfortranarray(x)), want)
    assert str(Block.of(str(cut))) == block


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_any_axis_of_more_dimensions(axis: int) -> None:
    x = np.float32(np.random.default_rng(3).standard_normal((3, 40, 5)))
    recipe = find_recipe("mxfp4")
    moved = np.moveaxis(x, axis, -1)
    lines = moved.reshape(-1, moved.shape[-1])
    want = np.stack([plain(line[None], 1, 32)[0] for line in lines])
    assert same(np.moveaxis(recipe.round(x, axis=axis), axis, -1), want.reshape(moved.shape))


def test_scalars_and_empty_arrays() -> None:
    for name in recipes:
        recipe = find_recipe(name)
        if recipe.block.rows in (None, 1) and recipe.rotation is None:
            assert recipe.round(np.float32(1)).shape == ()
            assert recipe.round(np.zeros((0,), np.float32)).shape == (0,)
        assert recipe.round(np.zeros((0, 16), np.float32)).shape == (0, 16)
        assert recipe.quantize(np.zeros((5, 0), np.float32)).dequantize().shape == (5, 0)


def test_threads_and_pieces_change_nothing() -> None:
    x = np.float32(np.random.default_rng(4).standard_normal((300, 2049)))
    for name in ("mxfp8", "nvfp4", "te.block.weight", "te.current", "torchao.float8.rowwise"):
        whole = find_recipe(name).round(x, threads=1)
        assert same(find_recipe(name).round(x, threads=3), whole)
        if find_recipe(name).block.rows == 1 and name != "nvfp4":
            assert same(find_recipe(name).round(x[100:101]), whole[100:101])


# --- zeros, infinities, NaN ----------------------------------------------------------------------


@pytest.mark.parametrize("name", recipes)
def test_a_scale_is_never_nan_by_accident(name: str) -> None:
    recipe = find_recipe(name)
    # 16 rotated numbers of 2^127 add up to more than float32 holds
    for value in (0.0, 1e-45, 2.0**-126, 2.0**127 if recipe.rotation is None else 2.0**120):
        x = np.full((16, 128), value, np.float32)
        scaled = recipe.quantize(x)
        values = scaled.dequantize()
        if value < 1e-40 and name == "torchao.nvfp4":
            assert np.isnan(values).all()  # as torchao itself: its tensor scale is 0
            continue
        assert np.isfinite(values).all(), value
        if value == 0:
            assert (values == 0).all()
        elif value > 1e-30:
            assert (np.abs(values / x - 1) < 0.13).all()


#: What a block of ones is beside a NaN, and beside an infinity; then that number itself.
BESIDE = {
    "mx": ((np.nan, np.nan), (0, None)),  # clipped, at a scale that differs
    "te.mxfp8": ((np.nan, np.nan), (0, None)),
    "torchao.mx": ((np.nan, np.nan), (0, None)),
    "te.current": ((np.nan, np.nan), (1, 448)),
    "te.current.e5m2": ((np.nan, np.nan), (1, 57344)),
    "te.block": ((0, np.nan), (1, 448)),
    "": ((np.nan, np.nan), (np.nan, np.nan)),
}


@pytest.mark.parametrize("name", recipes)
def test_what_nan_and_infinity_make_of_their_block(name: str) -> None:
    """The second table of docs/scaling.md."""
    recipe = find_recipe(name)
    key = max((key for key in BESIDE if name.startswith(key)), key=len)
    for value, (beside, itself) in zip((np.nan, -np.inf), BESIDE[key], strict=True):
        x = np.ones((16, 256), np.float32)
        x[0, 0] = value
        left = recipe.round(x)
        assert np.array_equal(left[0, 1], beside, equal_nan=True)
        if itself is not None:
            assert np.array_equal(abs(left[0, 0]), itself, equal_nan=True)
        else:
            assert left[0, 0] < -1e38
        if recipe.block.rows == 1 and "nvfp4" not in name:  # no other block knows of it
            assert same(left[1:], recipe.round(x[1:]))
        elif "nvfp4" in name:
            assert np.isnan(left).all()


def test_transformer_engine_and_deepgemm_at_the_edges() -> None:
    def scale(name: str, value: float) -> float:
        return float(find_recipe(name).quantize(np.full((1, 128), value, np.float32)).scales.max())

    flt_max = np.finfo(np.float32).max
    assert scale("te.current", 0.0) == scale("te.current", np.inf) == 1.0
    assert scale("te.current", 1e-44) == np.float32(1) / flt_max  # max / amax is infinite
    assert scale("te.current", 2.0) == np.float32(1) / np.float32(224)
    assert scale("te.block", 3.0) == 2.0**-7  # 448 / 3 = 149.3, rounded down to 128
    assert scale("deepseek", 0.0) == np.float32(1e-4) / np.float32(448)
    assert scale("deepgemm.e8m0", 449.0) == 2.0
    assert scale("deepgemm.e8m0", 448.0) == 1.0


def test_nvfp4_by_its_formula_one_number_at_a_time() -> None:
    rng, f = np.random.default_rng(5), np.float32
    x = f(rng.standard_normal((4, 64)) * 2.0 ** rng.integers(-12, 12, (4, 64)))
    x[2, 16:32] = 0
    scaled = find_recipe("nvfp4").quantize(x)
    whole = f(448) * f(6) / np.abs(x).max()
    assert scaled.tensor_scale == whole
    for row, block in np.ndindex(4, 4):
        part = x[row, 16 * block :][:16]
        asked = np.abs(part).max() * (whole * (f(1) / f(6)))
        code = np.minimum(asked, f(448)).astype(ml_dtypes.float8_e4m3fn)
        assert scaled.scales[row, block] == code.view(np.uint8)
        kept = f(code) * (f(1) / whole)
        with np.errstate(divide="ignore"):
            factor = min(f(1) / kept, np.finfo(f).max)
        codes = np.clip(part * factor, -6, 6).astype(ml_dtypes.float4_e2m1fn).view(np.uint8)
        assert (scaled.codes[row, 16 * block :][:16] == codes).all()


def test_where_recipes_go_wrong() -> None:
    """The last column of the table in docs/scaling.md."""

    def left(name: str, *numbers: float) -> list[float]:
        return [float(v) for v in find_recipe(name).round(np.float32([numbers]))[0]]

    assert left("mxfp8", 500.0) == [448.0]  # the scale of 256 is that of 500, and clips it
    assert left("mxfp8.fit", 500.0) == [512.0]
    tiny = float(np.float32(2.0**-130))
    for mode, kept in (("floor", 0.5), ("ceil", 0.5), ("even", 0.5), ("rceil", 0)):
        for size in (tiny, 2.0**-119):
            assert left(f"torchao.mxfp8.{mode}", size) == [kept * size]
            assert left("mxfp8", size) == [size]
        assert left(f"torchao.mxfp8.{mode}", 2.0**-117) == [2.0**-117]
    for k in range(-3, 4):  # the rounded product never lets an amax slip under its power of two
        for amax in np.float32(448 * 2.0**k) * (1 + np.float32([-1e-7, 0, 1.2e-7, 1e-6])):
            scale = float(find_recipe("te.mxfp8").quantize(amax.reshape(1)).scales[0]) - 127
            assert 448 * 2.0**scale >= float(amax) > 448 * 2.0 ** (scale - 1)
    assert left("te.current", 1e6, 1e-1) == [1e6, 0.0]
    assert left("deepseek", 1e-10, 2e-10) == [0.0, 0.0]
    assert left("deepseek", 3e-10)[0] > 0
    blocks = [1.0, *[0.0] * 15, 2.0**-19, *[0.0] * 15, 2.0**-18, *[0.0] * 15]
    assert [value > 0 for value in left("nvfp4", *blocks)[::16]] == [True, False, True]
    assert np.isnan(left("torchao.float8.tensorwise", math.inf, 1.0)).all()
    assert np.isnan(left("torchao.float8.rowwise", math.inf, 1.0)).all()
    assert np.isnan(left("torchao.nvfp4", 0.0, 0.0)).all()
    assert left("te.block", 510.0, 1.0) == [512.0, 1.0]  # 448 / 510 falls to 1 / 2
    assert left("nf4", 26.0, 1.0) == [26.0, 0.0]
    assert left("keras.int8", 3e-10) == [0.0]
    assert left("keras.int8", 1e-9)[0] > 0


def test_fixed_point_codebooks_and_integers() -> None:
    fixed = Recipe("q4.4", Block.of("tensor"), FixedRule(), IntegerElement(8, 4))
    x = np.float32([0.03125, 0.09375, -0.03125, 7.97, 100, -100, np.nan])
    assert fixed.round(x).tolist() == [0, 0.125, 0, 7.9375, 7.9375, -8, 0]
    book = Codebook("own", (-1.0, 0.0, 0.25, 1.0))
    own = Recipe("own", Block.of("tensor"), AmaxRule(inverse=True, zero=None), book)
    assert own.round(np.float32([4, 0.5, 0.51, -1.9, -2.1])).tolist() == [4, 0, 1, 0, -4]
    assert own.quantize(np.float32([4, 1])).scales == 4
    keras = find_recipe("keras.int8").round(np.float32([[1, -1, 0.5]]))
    scale = np.float32(127) / (np.float32(1) + np.float32(1e-7))
    assert keras.tolist() == [[float(np.float32(k) / scale) for k in (127, -127, 63)]]


def test_stochastic_elements_are_right_on_average() -> None:
    recipe = find_recipe("nvfp4").replace(element=FloatElement.of("fp4:rounding=stochastic"))
    x = np.full((1, 1 << 16), 0.3, np.float32)
    x[0, ::16] = 1.0  # else a block's own scale, rounded to E4M3, would clip it
    first = recipe.round(x, seed=1)
    assert same(first, recipe.round(x, seed=1, threads=4))
    assert abs(first[x == np.float32(0.3)].mean() - 0.3) < 0.005
    assert not same(first, recipe.round(x, seed=2))
    with pytest.raises(InputError, match="needs a seed"):
        recipe.round(x)


# --- torchao -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def torchao():
    logging.getLogger("torchao").setLevel(logging.CRITICAL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("torchao", reason="torchao is not installed")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mode", ["FLOOR", "CEIL", "EVEN", "RCEIL"])
@pytest.mark.parametrize("name", ["mxfp8", "mxfp8_e5m2", "mxfp6_e2m3", "mxfp6_e3m2", "mxfp4"])
def test_mx_equals_torchao(torchao, name: str, mode: str) -> None:
    import torch
    from torchao.prototype.mx_formats import mx_tensor
    from torchao.prototype.mx_formats.config import ScaleCalculationMode

    dtype = {
        "mxfp8": torch.float8_e4m3fn,
        "mxfp8_e5m2": torch.float8_e5m2,
        "mxfp6_e2m3": mx_tensor.DTYPE_FP6_E2M3,
        "mxfp6_e3m2": mx_tensor.DTYPE_FP6_E3M2,
        "mxfp4": torch.float4_e2m1fn_x2,
    }[name]
    x = hostile(np.random.default_rng(6), 3000)
    scale, data = mx_tensor.to_mx(torch.tensor(x), dtype, 32, ScaleCalculationMode[mode])
    ours = find_recipe(f"torchao.{name}.{mode.lower()}").quantize(x)
    codes = (mx_tensor.unpack_uint4(data) if name == "mxfp4" else data.view(torch.uint8)).numpy()
    values = mx_tensor.to_dtype(data, scale, dtype, 32, torch.float32).numpy()
    assert (ours.scales == scale.view(torch.uint8).numpy()).all()
    # FP6 and FP4 have no NaN, and torchao's own codes for it are no rule of anybody's
    known = ~np.isnan(x) & (~np.isnan(values) | (mode != "RCEIL"))
    assert (ours.codes == codes.reshape(x.shape))[known].all()
    assert same(ours.dequantize(), values)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("size", [1.0, 1e-30, 1e20, 0.0, math.nan])
def test_nvfp4_and_float8_equal_torchao(torchao, size: float) -> None:
    import torch
    from torchao.float8.config import ScalingGranularity
    from torchao.float8.float8_utils import tensor_to_scale, to_fp8_saturated
    from torchao.prototype.mx_formats import mx_tensor, nvfp4_tensor

    rng = np.random.default_rng(7)
    x = np.float32(rng.standard_normal((512, 64)) * 2.0 ** rng.integers(-20, 20, (512, 1)) * size)
    x[3], x[5, :16] = 0, 0
    if size == 0:
        x[:] = 0
    if math.isnan(size):  # one NaN, one infinity among numbers
        x[:] = rng.standard_normal(x.shape)
        x[2, 5] = size
        x[4, 7] = np.inf
    tensor = torch.tensor(x)
    whole = nvfp4_tensor.per_tensor_amax_to_scale(tensor.abs().max())
    scales, data = nvfp4_tensor.nvfp4_quantize(tensor, 16, whole)
    ours = find_recipe("torchao.nvfp4").quantize(x)
    assert np.array_equal(whole.numpy(), ours.tensor_scale, equal_nan=True)
    theirs = scales.view(torch.uint8).numpy().reshape(ours.scales.shape)
    assert (theirs == ours.scales).all() or (math.isnan(size) and (theirs & 127 == 127).all())
    if size and not math.isnan(size):
        assert (mx_tensor.unpack_uint4(data).numpy().reshape(x.shape) == ours.codes).all()
    else:  # 0 / 0, for which FP4 has no code
        assert np.isnan(ours.dequantize()).all()
    for kind, granularity, axis in (
        ("tensorwise", ScalingGranularity.TENSORWISE, None),
        ("rowwise", ScalingGranularity.AXISWISE, -1),
    ):
        scale = tensor_to_scale(
            tensor, torch.float8_e4m3fn, scaling_granularity=granularity, axiswise_dim=axis,
            round_scales_to_power_of_2=axis is not None,
        )  # fmt: skip
        codes = to_fp8_saturated(tensor * scale, torch.float8_e4m3fn).view(torch.uint8).numpy()
        ours = find_recipe(f"torchao.float8.{kind}").quantize(x)
        assert np.array_equal(scale.numpy().reshape(-1), ours.scales.reshape(-1), equal_nan=True)
        assert (codes == ours.codes)[codes & 127 != 127].all()
        values = codes.view(ml_dtypes.float8_e4m3fn).astype(np.float32) / scale.numpy()
        assert same(ours.dequantize(), values)


# --- delayed scaling -----------------------------------------------------------------------------


def rolled(amaxes: list[float], length: int, newest: bool, margin: int, fallback: bool) -> list:
    """TransformerEngine's scales by its own buffer: slot 0 is this step, and the rest rolls."""
    history, scale, scales = np.zeros(length, np.float32), np.float32(1), []
    for amax in amaxes:
        history[0] = amax
        top = history[0] if newest else history.max()
        if amax != 0:
            if 0 < top < np.inf:
                with np.errstate(over="ignore"):
                    scale = (
                        np.float32(448) / top / np.float32(2**margin)
                        if fallback
                        else np.float32(448 * 2.0**-margin) / top
                    )
                scale = min(scale, np.finfo(np.float32).max)
            history = np.roll(history, -1)
            history[0] = 0
        scales.append(float(scale))
    return scales


@pytest.mark.parametrize("variant", ["te", "te.pytorch"])
@pytest.mark.parametrize(
    ("length", "newest", "margin"), [(1, False, 0), (4, False, 2), (7, True, 1)]
)
def test_delayed_scaling_is_that_of_a_rolling_buffer(
    variant: str, length: int, newest: bool, margin: int
) -> None:
    rng = np.random.default_rng(8)
    amaxes = [float(np.float32(v)) for v in 2.0 ** rng.uniform(-30, 30, 60)]
    amaxes[5:8], amaxes[20], amaxes[40] = [0, 0, 0], math.inf, 1e-42
    state = Delayed("e4m3fn", length=length, newest=newest, margin=margin, variant=variant)
    scales = []
    for amax in amaxes:
        before = state
        state = state.observe(amax)
        scales.append(state.scale)
    assert scales == rolled(amaxes, length, newest, margin, variant == "te.pytorch")
    assert before is not state


def test_delayed_steps_scale_by_the_steps_before() -> None:
    state, x = Delayed("e5m2"), np.float32([3.0, -100.0, 0.5])
    first, state = state.round(x)
    assert first.tolist() == [3, -96, 0.5]
    assert state.scale == np.float32(57344) / np.float32(100)
    second, after = state.round(x * 2)
    assert np.abs(second).max() == np.float32(57344) / np.float32(state.scale)  # clipped
    assert after.scale == state.scale / 2
    assert state.round(np.float32([np.nan]))[1].scale == state.scale


@pytest.mark.filterwarnings("ignore")
def test_keras_float8_is_keras() -> None:
    os.environ.setdefault("KERAS_BACKEND", "torch")
    keras = pytest.importorskip("keras", reason="keras is not installed")
    quantizers = keras.quantizers
    rng = np.random.default_rng(9)
    state, scale, history = Delayed("e4m3fn", length=3, variant="keras"), 1.0, np.zeros(3, "f4")
    scale, scales = keras.ops.convert_to_tensor(np.float32(1)), []
    for step in range(14):
        size = 0.0 if step == 5 else 1e-40 if 7 <= step < 10 else 2.0 ** rng.integers(-20, 20)
        x = np.float32(np.append(0, rng.standard_normal(50)) * size)
        theirs = quantizers.quantize_and_dequantize(
            keras.ops.convert_to_tensor(x), scale, "float8_e4m3fn", "float32"
        )
        top = keras.ops.convert_to_tensor(history.max())
        scale = quantizers.compute_float8_scale(top, scale, np.float32(448))
        history = np.asarray(
            quantizers.compute_float8_amax_history(x, keras.ops.convert_to_tensor(history))
        )
        ours, state = state.round(x)
        assert same(ours, np.asarray(theirs))
        assert state.scale == float(scale)
        scales.append(state.scale)
    assert 0 in scales  # 448 / 1e-40 is infinite, and Keras keeps its reciprocal


# --- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: find_recipe("mxpf8"), "did you mean 'mxfp8'"),
        (lambda: find_recipe("mxfp8").round(np.zeros(3)), "float64"),
        (lambda: find_recipe("mxfp8").round(np.zeros(3, np.int8)), "int8"),
        (lambda: find_recipe("mxfp8").round(np.zeros(3, np.float32), axis=1), "axis=1"),
        (lambda: find_recipe("nvfp4.weight").round(np.zeros(3, np.float32)), "two dimensions"),
        (lambda: Block.of("0x4"), "give 'tensor'"),
        (lambda: Delayed("e4m3fn", length=0), "length=0"),
        (lambda: IntegerElement(1), "bits must be"),
        (lambda: Codebook("x", (1.0, 0.0)), "above the one before"),
        (lambda: Codebook("x y", (0.0, 1.0)), "letters and digits"),
        (lambda: Block(3, None), "must be two ints"),
        (lambda: Block(9999, 9999), "tile"),
        (lambda: Delayed("e4m3fn", margin=65), "margin=65"),
        (lambda: Delayed("e4m3fn", variant="ter"), "did you mean 'te'"),
        (lambda: Delayed("e4m3fn", scale=math.nan), "scale=nan"),
        (lambda: Delayed("e4m3fn", window="ab"), "window='ab'"),
        (lambda: Delayed("e4m3fn").observe(-1.0), "amax=-1.0"),
        (lambda: find_recipe("mxfp4").replace(rule="exponent"), "give a rule"),
        (lambda: find_recipe("mxfp4").dequantize(3), "what quantize returns"),
        (lambda: find_recipe("mxfp8").round(np.float32(1), axis="x"), "axis='x'"),
        (lambda: Recipe.from_json(find_recipe("mxfp4").to_json() | {"rotation": 0}), "rotation=0"),
    ],
)
def test_what_cannot_be_done_is_refused_in_a_line(call, message: str) -> None:
    with pytest.raises(InputError, match=message) as refusal:
        call()
    assert "\n" not in str(refusal.value)


# --- text and JSON -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", recipes)
def test_recipes_are_text_and_json_both_ways(name: str) -> None:
    recipe = find_recipe(name)
    x = hostile(np.random.default_rng(10), 32, 128)
    for again in (
        find_recipe(str(recipe)),
        Recipe.from_json(json.loads(json.dumps(recipe.to_json()))),
    ):
        assert again.block == recipe.block
        assert again.element == recipe.element
        assert str(again.rule) == str(recipe.rule)  # which shows a NaN, that equals nothing
        assert same(again.round(x), recipe.round(x))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1x32 exponent", "give block, rule and element"),
        ("1x32 exponnt fp4", "did you mean 'exponent'"),
        ("1x32 exponent(mod=fit) fp4", "did you mean 'mode'"),
        ("1x32 exponent(mode=fitt) fp4", "did you mean 'fit'"),
        ("1x32 amax(wide=maybe) fp4", "must be true or false"),
        ("1x32 amax(wide=none) fp4", "must be true or false"),
        ("1x32 amax(margin=0.5) fp4", "whole number"),
        ("1x32 amax(least=x) fp4", "is no number"),
        ("1x32 amax fp5", "fp5"),
        ("1x32 amax(margin=none) fp4", "whole number"),
        ("1x32 amax(margin=-2000) fp4", "margin=-2000"),
        ("1x32 amax(least=nan) fp4", "least=nan"),
        ("1x32 exponent(mode=fit, mode=ceil) fp4", "mode is given twice"),
        ("tensor fixed(scale=0) fp4", "scale=0.0"),
        ("1x32 amax book[1, x]", "is no number"),
        ("32 amax fp4", "give 'tensor'"),
    ],
)
def test_text_that_is_no_recipe_is_refused_in_a_line(text: str, message: str) -> None:
    with pytest.raises(FpemuError, match=message) as refusal:
        find_recipe(text)
    assert "\n" not in str(refusal.value)
