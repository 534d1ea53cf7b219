"""Hadamard rotations: against the matrix itself, and what they are for."""

from __future__ import annotations

import numpy as np
import pytest

import fpemu
from fpemu.errors import InputError
from fpemu.scaling import Hadamard, Recipe, find_recipe
from fpemu.scaling.hadamard import TRANSFORMER_ENGINE


def matrix(rotation: Hadamard) -> np.ndarray:
    """diag(signs) @ H / sqrt(size), by the parity of shared bits."""
    n = rotation.size
    signs = np.array([1 - 2 * (rotation.signs >> i & 1) for i in range(n)])
    h = np.array([[(-1) ** (i & j).bit_count() for j in range(n)] for i in range(n)])
    return signs[:, None] * h / np.sqrt(n)


@pytest.mark.parametrize("size", [2, 4, 8, 16, 64, 128])
def test_rotating_is_the_matrix_product(size: int) -> None:
    rotation = Hadamard.random(size, seed=size)
    x = np.float32(np.random.default_rng(0).standard_normal((3, 5 * size)))
    want = (x.astype(np.float64).reshape(3, 5, size) @ matrix(rotation)).reshape(x.shape)
    assert np.allclose(rotation.rotate(x), want, atol=1e-5)
    assert np.allclose(rotation.restore(rotation.rotate(x)), x, atol=1e-5)
    assert np.allclose(rotation.rotate(x.T.copy(), axis=0), want.T, atol=1e-5)


def test_rotations_of_both_factors_cancel() -> None:
    rng = np.random.default_rng(1)
    a, b = (np.float32(rng.standard_normal((7, 64))) for _ in range(2))
    turned = TRANSFORMER_ENGINE.rotate(a) @ TRANSFORMER_ENGINE.rotate(b).T
    assert np.allclose(turned, a @ b.T, atol=1e-4)


def test_powers_of_two_are_exact_and_rows_independent() -> None:
    x = np.float32(np.random.default_rng(2).integers(-512, 512, (9, 32)))
    assert (TRANSFORMER_ENGINE.restore(TRANSFORMER_ENGINE.rotate(x)) == x).all()
    assert (TRANSFORMER_ENGINE.rotate(x)[3:4] == TRANSFORMER_ENGINE.rotate(x[3:4])).all()


def test_an_outlier_is_shared_out() -> None:
    rng = np.random.default_rng(3)
    x = np.float32(rng.standard_normal((64, 1024)))
    x[:, ::128] *= 200  # one number in 128: blocks of 16 around it lose all the others
    plain, turned = (fpemu.error(x, find_recipe(name).round(x)) for name in (
        "nvfp4", "nvfp4.hadamard"))  # fmt: skip
    small = np.abs(x) < 10
    lost = [np.mean(find_recipe(name).round(x)[small] == 0) for name in ("nvfp4", "nvfp4.hadamard")]
    assert turned.sqnr != plain.sqnr
    assert lost[1] < lost[0]


def test_quantizing_keeps_the_rotated_numbers() -> None:
    x = np.float32(np.random.default_rng(4).standard_normal((48, 32)))
    recipe, plain = find_recipe("nvfp4.hadamard"), find_recipe("nvfp4")
    for axis in (0, 1):
        scaled = recipe.quantize(x, axis=axis)
        turned = plain.quantize(TRANSFORMER_ENGINE.rotate(x, axis), axis=axis)
        assert (scaled.codes == turned.codes).all()
        assert (scaled.scales == turned.scales).all()
        want = TRANSFORMER_ENGINE.restore(turned.dequantize(), axis)
        assert (scaled.dequantize() == want).all()
        assert (recipe.round(x, axis=axis) == want).all()


def test_text_and_json_keep_the_rotation() -> None:
    recipe = find_recipe("nvfp4.hadamard")
    assert str(recipe).endswith(" hadamard(signs=55272)")
    assert Recipe.of(str(recipe)) == recipe.replace(name=str(recipe))
    assert Recipe.from_json(recipe.to_json()) == recipe
    own = Recipe.of("1x32 exponent fp4 hadamard(size=32, signs=0xffff)")
    assert own.rotation == Hadamard(32, 65535)
    wide = find_recipe("mxfp4").replace(rotation=Hadamard.random(128, 7))
    assert Recipe.of(str(wide)).rotation == wide.rotation  # more bits than a float holds


def test_wrong_rotations_are_refused() -> None:
    for size in (0, 3, 2048, True, 16.0):
        with pytest.raises(InputError, match="power of two"):
            Hadamard(size)  # type: ignore[arg-type]
    for signs in (-1, 16, True, 1.0):
        with pytest.raises(InputError, match="mask of 4 bits"):
            Hadamard(4, signs)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="an axis of 20 numbers"):
        find_recipe("nvfp4.hadamard").round(np.ones((2, 20), np.float32))
    with pytest.raises(InputError, match="axis=2"):
        find_recipe("nvfp4.hadamard").round(np.ones((2, 16), np.float32), axis=2)
    with pytest.raises(InputError, match="must be a whole number"):
        Recipe.of("1x16 two_level fp4 hadamard(size=x)")
