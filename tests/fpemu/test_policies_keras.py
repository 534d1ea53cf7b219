"""The policies of Keras against Keras itself, where it is installed."""

from __future__ import annotations

import importlib.util
import os

import numpy as np
import pytest

import fpemu
from fpemu.policies import POLICIES, Rule

if importlib.util.find_spec("torch"):
    os.environ.setdefault("KERAS_BACKEND", "torch")
keras = pytest.importorskip("keras", reason="keras is not installed: pip install keras")

MIXED = POLICIES["keras.mixed_float16"]
LAYERS = {
    "Dense": (4,), "Conv1D": (4, 3), "EinsumDense": ("abc,cd->abd", (None, 4)), "Softmax": (),
    "ReLU": (), "BatchNormalization": (), "LayerNormalization": (), "GroupNormalization": (2,),
    "RMSNormalization": (),
}  # fmt: skip


@pytest.fixture(autouse=True)
def policy_as_before():
    before = keras.config.dtype_policy()
    yield
    keras.config.set_dtype_policy(before)


def plain(x) -> np.ndarray:
    x = keras.ops.cast(x, "float32")
    return x.detach().numpy() if hasattr(x, "detach") else np.asarray(x)


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_layers_end_in_the_compute_format(name, dtype):
    """Those that are computed in float32 inside too; variables are float32 everywhere."""
    keras.config.set_dtype_policy(f"mixed_{dtype}")
    layer = getattr(keras.layers, name)(*LAYERS[name])
    out = layer(np.ones((2, 8, 4), np.float32))
    assert POLICIES[f"keras.mixed_{dtype}"].rule(name) in (Rule.LOWER, Rule.FLOAT32_INSIDE)
    assert keras.backend.standardize_dtype(out.dtype) == dtype
    assert {variable.dtype for variable in layer.variables} <= {"float32"}


@pytest.mark.parametrize("name", [n for n, r in MIXED.operations.items()
                                  if r is Rule.FLOAT32_INSIDE])  # fmt: skip
def test_normalizations_are_computed_in_float32_inside(name):
    """The square of 1000 is no float16."""
    keras.config.set_dtype_policy("mixed_float16")
    layer = getattr(keras.layers, name)(*LAYERS[name])
    x = np.array([-1000, 1000, -1000, 1000], np.float32) * np.ones((2, 8, 1), np.float32)
    out = plain(layer(x, training=True) if name.startswith("Batch") else layer(x))
    assert np.isfinite(out).all()
    if not name.startswith("Batch"):  # which sees each channel apart
        assert np.abs(np.abs(out) - 1).max() < 0.01


def test_losses_are_float32():
    keras.config.set_dtype_policy("mixed_float16")
    names = [n for n, r in MIXED.operations.items() if r is Rule.FLOAT32]
    assert len(names) == 21
    y = np.full((2, 4), 0.25, np.float16)
    for name in names:
        loss = getattr(keras.losses, name)()
        assert loss.dtype == "float32"
        if name == "MeanSquaredError":
            assert keras.backend.standardize_dtype(loss(y, y).dtype) == "float32"
    assert {n for n in dir(keras.losses) if n[0].isupper()} - {"Loss", *names} <= {
        "MultiNegativesRankingLoss", "CategoricalGeneralizedCrossEntropy",
    }  # fmt: skip


def test_float8_rounds_inputs_and_kernel_as_the_policy_says():
    """With the first scale, 1, and the result in float32."""
    policy = POLICIES["keras.float8"]
    layer = keras.layers.Dense(3, use_bias=False)
    layer.build((None, 8))
    random = np.random.default_rng(5)
    x = (random.standard_normal((4, 8)) * 300).astype(np.float32)  # some beyond 448
    w = random.standard_normal((8, 3)).astype(np.float32)
    layer.set_weights([w])
    layer.quantize("float8")
    got = layer(x, training=False)
    rounded = [fpemu.round(x, policy.cast("activation")), fpemu.round(w, policy.cast("weight"))]
    assert np.abs(rounded[0]).max() == 448
    assert keras.backend.standardize_dtype(got.dtype) == "float32"
    np.testing.assert_allclose(plain(got), rounded[0] @ rounded[1], rtol=1e-5, atol=1e-3)
