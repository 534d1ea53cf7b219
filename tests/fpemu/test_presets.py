"""Presets against the real systems where those run on a CPU, and against their documents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fpemu
from fpemu.presets import PRESETS
from fpemu.testing import differences

Array = np.ndarray[Any, Any]


def torch_cast(name: str) -> Callable[[Array], Array]:
    torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")
    if tuple(map(int, torch.__version__.split("+")[0].split(".")[:2])) < (2, 13):
        pytest.skip(f"torch {torch.__version__}: the presets describe 2.13 and later")
    return lambda x: torch.from_numpy(x).to(getattr(torch, name)).to(torch.float32).numpy()


def jax_cast(name: str) -> Callable[[Array], Array]:
    jnp = pytest.importorskip("jax.numpy", reason="jax is not installed: pip install jax")
    return lambda x: np.asarray(jnp.asarray(x).astype(getattr(jnp, name))).astype(np.float32)


def ml_dtypes_cast(name: str) -> Callable[[Array], Array]:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    return lambda x: x.astype(getattr(ml_dtypes, name)).astype(np.float32)


def numpy_cast(name: str) -> Callable[[Array], Array]:
    return lambda x: x.astype(name).astype(np.float32)


MAKERS = {
    "torch": torch_cast, "jax": jax_cast, "ml_dtypes": ml_dtypes_cast, "numpy": numpy_cast,
}  # fmt: skip

#: Presets whose real system runs here.
REAL = [
    name for name in PRESETS if name.partition(".")[0] in MAKERS and "until" not in name
]

# Where the real thing contradicts its own standard, or rounds what no standard covers: the
# kinds of difference, the only inputs at which they may lie, and why.
KNOWN: dict[str, tuple[str, Callable[[Array], Array], str]] = {
    **{
        f"ml_dtypes.{name}": ("nan", np.isnan, "NaN becomes a zero, the format has no NaN")
        for name in ("float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn")
    },
    **{
        f"{system}.float8_e8m0fnu": (
            "rounding",
            lambda x: (np.abs(x) > 2.0**-127) & (np.abs(x) < 1.5 * 2.0**-127),
            "just above its lowest value the exponent is counted up, not rounded",
        )
        for system in ("torch", "ml_dtypes")
    },
}


@pytest.mark.parametrize("name", REAL)
def test_preset_is_the_real_cast(name: str) -> None:
    system, _, dtype = name.partition(".")
    real = MAKERS[system](dtype)
    found = differences(real, fpemu.casts[name])
    kinds = [d.kind for d in found.kinds]
    if name in KNOWN:
        kind, where, why = KNOWN[name]
        assert set(kinds) <= {kind}, f"{found}\nknown: {why}"
        assert all(where(np.float32([d.x]))[0] for d in found.kinds), str(found)
    else:
        assert not found, str(found)


@pytest.mark.parametrize("name", KNOWN)
def test_known_difference_is_still_there(name: str) -> None:
    """A list of known differences that no longer differ would be an excuse."""
    system, _, dtype = name.partition(".")
    assert differences(MAKERS[system](dtype), fpemu.casts[name]), "mend KNOWN and the preset's note"


inf, nan = np.inf, np.nan

#: What the documents of systems without a CPU implementation say: preset, input, result.
DOCUMENTED = [
    # facts measured on GPUs: cuBLAS rounds TF32 to nearest with ties away; rn and rz do not
    ("cublas.tf32", 1024.5, 1025.0),
    ("ptx.cvt.rna.tf32.f32", 1024.5, 1025.0),
    ("ptx.cvt.rn.tf32.f32", 1024.5, 1024.0),
    ("ptx.cvt.rz.tf32.f32", 1024.5, 1024.0),
    ("ptx.cvt.rz.tf32.f32", -1024.9, -1024.0),
    ("tensorcore.tf32", 1024.99, 1024.0),
    ("tensorcore.tf32", np.finfo(np.float32).max, float(fpemu.formats["tf32"].max)),
    # PTX: .satfinite makes overflow and infinity the largest value, NaN stays NaN
    ("ptx.cvt.rn.satfinite.e4m3x2.f32", 464.1, 448.0),
    ("ptx.cvt.rn.satfinite.e4m3x2.f32", -inf, -448.0),
    ("ptx.cvt.rn.satfinite.e4m3x2.f32", nan, nan),
    ("ptx.cvt.rn.satfinite.e5m2x2.f32", inf, 57344.0),
    ("ptx.cvt.rn.satfinite.f16x2.f32", 70000.0, 65504.0),
    ("ptx.cvt.rn.f16.f32", 65520.0, inf),
    ("ptx.cvt.rz.f16.f32", 65520.0, 65504.0),
    ("ptx.cvt.rm.f16.f32", -65505.0, -inf),
    ("ptx.cvt.rp.f16.f32", -65505.0, -65504.0),
    ("ptx.cvt.rn.bf16.f32", 1 + 2**-8, 1.0),
    ("ptx.cvt.rz.bf16.f32", 1.999, 1.9921875),
    # PTX: FP6 and FP4 have no NaN, it becomes +MAX
    ("ptx.cvt.rn.satfinite.e2m1x2.f32", nan, 6.0),
    ("ptx.cvt.rn.satfinite.e2m3x2.f32", -nan, 7.5),
    ("ptx.cvt.rn.satfinite.e3m2x2.f32", nan, 28.0),
    ("ptx.cvt.rn.satfinite.e2m1x2.f32", -inf, -6.0),
    # CUDA E8M0: magnitudes, down or up
    ("cuda.e8m0.rz", -3.0, 2.0),
    ("cuda.e8m0.rp", -3.0, 4.0),
    ("cuda.e8m0.rp", 2.0**127 * 1.5, 2.0**127),
    ("cuda.e8m0.rz", 0.0, 2.0**-127),
    ("cuda.e8m0.rz", nan, nan),
    # processors that flush results below the smallest normal
    ("amx.bfloat16", 2.0**-127, 0.0),
    ("amx.bfloat16", 2.0**-126, 2.0**-126),
    ("cdna2.float16", 2.0**-15, 0.0),
    ("cdna2.float16", -(2.0**-14), -(2.0**-14)),
    ("cdna2.bfloat16", -(2.0**-130), -0.0),
    # OCP FP8: the two modes
    ("ocp.e4m3.saturating", inf, 448.0),
    ("ocp.e4m3.nonsaturating", 465.0, nan),
    ("ocp.e5m2.saturating", 1e6, 57344.0),
    ("ocp.e5m2.nonsaturating", 61440.0, inf),
    ("ocp.mx.e2m3", 100.0, 7.5),
    ("ocp.mx.e3m2", 100.0, 28.0),
    ("ocp.mx.e2m1", 5.0, 4.0),
    # P3109: three saturation modes
    ("p3109.binary8p4se.SatFinite", inf, 224.0),
    ("p3109.binary8p4se.SatFinite", 1e9, 224.0),
    ("p3109.binary8p4se.SatPropagate", inf, inf),
    ("p3109.binary8p4se.SatPropagate", 1e9, 224.0),
    ("p3109.binary8p4se.OvfInf", 1e9, inf),
    ("torch.float8_e4m3fn.until_2.11", 465.0, nan),
]


@pytest.mark.parametrize(("name", "x", "want"), DOCUMENTED)
def test_preset_does_what_its_document_says(name: str, x: float, want: float) -> None:
    got = fpemu.casts[name](np.float32(x))
    assert (np.isnan(got) and np.isnan(want)) or got == np.float32(want)
    assert np.isnan(want) or np.signbit(got) == np.signbit(want)


def test_stochastic_presets_take_the_hardware_width() -> None:
    """13 and 16 random bits: 1 + 2**-24 has a discarded fraction of 2**-14 ulp in float16."""
    x = np.full(1 << 16, 1 + 2.0**-23, np.float32)
    by_13 = fpemu.casts["ptx.cvt.rs.f16x2.f32"](x, seed=0, random_bits=13)
    by_32 = fpemu.casts["ptx.cvt.rs.f16x2.f32"](x, seed=0)
    # the fraction is 2**-13: one draw of 2**13 moves it; all 32 bits agree on that probability
    assert 0 < (by_13 > 1).sum() < 40
    assert 0 < (by_32 > 1).sum() < 40
    below = np.full(1 << 16, 1 + 2.0**-23, np.float32)
    assert (fpemu.casts["ptx.cvt.rs.f16x2.f32"](below, seed=0, random_bits=12) == 1).all()


def test_every_preset_is_tested_and_has_a_source() -> None:
    tested = {*REAL, *(name for name, _, _ in DOCUMENTED), *(n for n in PRESETS if ".rs." in n)}
    assert set(PRESETS) == tested
    assert all(preset.source and preset.cast for preset in PRESETS.values())
    assert {n: p.cast for n, p in PRESETS.items()} == dict(fpemu.casts)
