"""Scaled formats: packed codes, out=, and arrays of other libraries."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import fpemu
from fpemu.errors import InputError
from fpemu.scaling import Delayed, FloatElement, Recipe, find_recipe, recipes


def sample(*shape: int) -> np.ndarray:
    return np.float32(np.random.default_rng(0).standard_normal(shape))


def bits_in_order(codes: np.ndarray, bits: int) -> list[int]:
    """The bits of codes along the last axis, lowest first: how they must lie in bytes."""
    return [int(code) >> place & 1 for code in codes.reshape(-1) for place in range(bits)]


# --- packed codes --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mxfp4", "nvfp4", "mxfp6_e2m3", "mxint6", "mxint4", "nf4"])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_packed_codes_are_the_codes_side_by_side(name: str, axis: int) -> None:
    recipe, x = find_recipe(name), sample(64, 24, 128)
    plain, packed = recipe.quantize(x, axis=axis), recipe.quantize(x, axis=axis, packed=True)
    bits = recipe.element.bits
    assert packed.codes.dtype == np.uint8
    length = x.shape[axis]
    assert packed.codes.shape[axis] == length * bits // 8
    rows, octets = (np.moveaxis(made.codes, axis, -1)[3, 5] for made in (plain, packed))
    assert bits_in_order(octets, 8) == bits_in_order(rows, bits)
    assert (packed.scales == plain.scales).all()
    assert (packed.dequantize() == plain.dequantize()).all()
    assert packed.bits_per_value == plain.bits_per_value


def test_codes_that_fill_bytes_are_as_they_are() -> None:
    x = sample(4, 64)
    plain, packed = (find_recipe("mxfp8").quantize(x, packed=p) for p in (False, True))
    assert (plain.codes == packed.codes).all()
    assert not packed.packed


def test_codes_of_wide_elements_are_whole() -> None:
    x = sample(3, 64)
    for to, size in (("bf16", 2), ("tf32", 4)):
        scaled = Recipe.of(f"1x32 exponent {to}").quantize(x)
        assert scaled.codes.itemsize == size
        assert (scaled.dequantize() == Recipe.of(f"1x32 exponent {to}").round(x)).all()


def test_elements_that_do_not_saturate_keep_that_in_text() -> None:
    element = FloatElement(fpemu.Cast("bf16"))
    recipe = find_recipe("mxfp8").replace(element=element, name="own")
    assert Recipe.of(str(recipe), "own") == recipe
    x = np.full((1, 32), 3.4e38, np.float32)
    assert np.isinf(FloatElement.of(str(element)).decode(element.encode(x[0].copy(), None))).all()


def test_a_row_must_fill_whole_bytes() -> None:
    with pytest.raises(InputError, match="33 codes of 4 bits along the last axis"):
        find_recipe("mxfp4").quantize(sample(2, 33), packed=True)
    wrong = find_recipe("mxfp6_e2m3").quantize(sample(2, 64), packed=True)
    object.__setattr__(wrong, "codes", wrong.codes[:, :-1])
    with pytest.raises(InputError, match="multiple of 3 bytes"):
        wrong.dequantize()


@pytest.mark.parametrize("name", ["mxfp8", "te.block.weight", "nvfp4", "nf4"])
def test_codes_and_scales_that_do_not_fit_are_refused(name: str) -> None:
    """Loops read a scale for each line: with too few of them they would read other memory."""
    scaled = find_recipe(name).quantize(sample(256, 256))
    for part, wrong in (
        ("scales", scaled.scales[:-1]),
        ("scales", scaled.scales.astype(np.float64)),
        ("scales", None),
        ("scales", scaled.scales.reshape(-1)[1:]),
        ("codes", scaled.codes.astype(np.float32)),
        ("axis", 2),
    ):
        with pytest.raises(InputError, match=part):
            replace(scaled, **{part: wrong}).dequantize()


@pytest.mark.parametrize("name", [name for name in recipes if "int" in name])
def test_integers_have_no_minus_zero(name: str) -> None:
    x = sample(32, 128)
    assert not (np.signbit(find_recipe(name).round(x)) & (find_recipe(name).round(x) == 0)).any()


# --- out= ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", recipes)
def test_out_and_in_place_are_the_same(name: str) -> None:
    recipe, x = find_recipe(name), sample(256, 384)
    for axis in (0, 1):
        want = recipe.round(x, axis=axis)
        out = np.full_like(x, 7)
        assert recipe.round(x, axis=axis, out=out) is out
        own = x.copy()
        assert recipe.round(own, axis=axis, out=own) is own
        strided = np.zeros((256, 768), np.float32)[:, ::2]
        recipe.round(x, axis=axis, out=strided)
        column = np.asfortranarray(np.zeros_like(x))
        recipe.round(x, axis=axis, out=column)
        for found in (out, own, strided, column):
            assert np.array_equal(found, want)


def test_delayed_scaling_looks_before_it_writes() -> None:
    x = sample(64) * 100
    state, own = Delayed("fp4"), x.copy()
    _, after = state.round(own, out=own)
    assert after == state.round(x)[1]
    assert (own == state.round(x)[0]).all()


def test_partial_blocks_into_out() -> None:
    x = sample(5, 70)
    want = find_recipe("mxfp8").round(x)
    out = np.zeros_like(x)
    find_recipe("mxfp8").round(x, out=out)
    assert np.array_equal(out, want)
    assert np.array_equal(want[:, :64], find_recipe("mxfp8").round(x[:, :64]))
    assert np.array_equal(want[:, 64:], find_recipe("mxfp8").round(x[:, 64:]))


def test_an_input_is_never_changed() -> None:
    for name in recipes:
        x = sample(256, 128)
        kept = x.copy()
        for axis in (0, 1):
            find_recipe(name).round(x, axis=axis)
            find_recipe(name).quantize(x, axis=axis).dequantize()
        assert (x == kept).all()


def test_wrong_out_is_refused() -> None:
    recipe, x = find_recipe("mxfp8"), sample(4, 64)
    for out, why in (
        (np.zeros((4, 63), np.float32), "shape"),
        (np.zeros((4, 64), np.float64), "dtype float64"),
        ([0.0], "must be a numpy array"),
        (np.broadcast_to(np.float32(0), (4, 64)), "read-only"),
    ):
        with pytest.raises(InputError, match=why):
            recipe.round(x, out=out)
    base = sample(5, 64)
    with pytest.raises(InputError, match="overlaps"):
        recipe.round(base[:4], out=base[1:])


# --- wide pieces, threads ------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["1x48 exponent e4m3fn", "1x33 amax e5m2", "2x16 exponent fp4",
                                  "1x100000 exponent e4m3fn", "row amax e4m3fn"])  # fmt: skip
@pytest.mark.parametrize("shape", [(2, 200_000), (4000, 96), (130, 1000)])
def test_blocks_of_any_width_by_their_definition(text: str, shape: tuple[int, int]) -> None:
    """Each block alone gives what it gives among others, wherever pieces end."""
    recipe, x = Recipe.of(text), sample(*shape)
    found = recipe.round(x, threads=3)
    high, wide = recipe.block.rows or 1, recipe.block.columns or shape[1]
    rng = np.random.default_rng(1)
    for _ in range(40):
        row = rng.integers(-(-shape[0] // high)) * high
        column = rng.integers(-(-shape[1] // wide)) * wide
        place = (slice(row, row + high), slice(column, column + wide))
        alone = np.zeros((high, wide), np.float32)
        part = x[place]
        alone[: part.shape[0], : part.shape[1]] = part
        want = recipe.round(alone)[: part.shape[0], : part.shape[1]]
        assert np.array_equal(found[place], want)


# --- arrays of other libraries -------------------------------------------------------------------


def test_torch_tensors_stay_torch_tensors() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    x = sample(8, 64)
    recipe, tensor = find_recipe("nvfp4"), torch.tensor(x)
    left = recipe.round(tensor)
    assert isinstance(left, torch.Tensor)
    assert (left.numpy() == recipe.round(x)).all()
    scaled = recipe.quantize(tensor, packed=True)
    assert isinstance(scaled.codes, torch.Tensor)
    assert (scaled.scales.numpy() == recipe.quantize(x).scales).all()
    assert isinstance(scaled.dequantize(), torch.Tensor)
    assert (scaled.dequantize().numpy() == recipe.round(x)).all()
    assert scaled.bits_per_value == recipe.quantize(x).bits_per_value
    out = torch.zeros(8, 64)
    assert recipe.round(tensor, out=out) is out
    assert (out == left).all()
    assert recipe.round(tensor, out=tensor) is tensor
    assert (tensor == left).all()
    half = torch.tensor(x, dtype=torch.bfloat16)
    assert (recipe.round(half).numpy() == recipe.round(half.float().numpy())).all()
    with pytest.raises(InputError, match="x's own library"):
        recipe.round(tensor, out=np.zeros((8, 64), np.float32))


def test_jax_arrays_stay_jax_arrays() -> None:
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    x = sample(8, 64)
    left = find_recipe("mxfp8").round(jax.numpy.asarray(x))
    assert isinstance(left, jax.Array)
    assert (np.asarray(left) == find_recipe("mxfp8").round(x)).all()
