"""Presets: what real systems do when they cast, one line each, with its source.

`fpemu.casts` maps a preset's name to its Cast; docs/casts.md shows the table, and the tests hold
every preset that can run on a CPU against the real thing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from fpemu.cast import Cast, make_cast
from fpemu.errors import UnknownFormatError, did_you_mean

__all__ = ["CASTS", "PRESETS", "Preset", "find_preset"]


@dataclass(frozen=True)
class Preset:
    """A named cast of a real system, its source, and what it cannot say."""

    name: str
    cast: Cast
    source: str
    note: str = ""


def _preset(name: str, cast: str, source: str, note: str = "") -> Preset:
    return Preset(name, make_cast(cast), source, note)


_TORCH = "PyTorch 2.13, c10/util and Tensor.to"
_ML = "ml_dtypes 0.6, astype"
_JAX = "JAX 0.10, astype on a CPU"
_PTX = "PTX ISA, cvt"
_OCP = "OCP FP8 v1.0, section 5.2"
_MX = "OCP MX v1.0, sections 5.3.2 to 5.3.4"
_P3109 = "IEEE P3109 draft, projection"

_ABS = "negative=abs,zero=smallest"
_NAN_IS_ZERO = "NaN becomes a zero there, the largest value here"
_E8M0_NEAR_LOWEST = "between 2**-127 and 1.5 * 2**-127 it gives 2**-126, the nearest is 2**-127"

_TABLE = (
    # frameworks and array libraries
    _preset("torch.float16", "float16", _TORCH),
    _preset("torch.bfloat16", "bfloat16", _TORCH),
    _preset("torch.float8_e4m3fn", "float8_e4m3fn:overflow=saturate", _TORCH,
            "infinity becomes 448 too"),
    _preset("torch.float8_e4m3fn.until_2.11", "float8_e4m3fn", "PyTorch 2.1 to 2.11",
            "overflow became NaN"),
    _preset("torch.float8_e5m2", "float8_e5m2", _TORCH, "not saturating, unlike its e4m3fn"),
    _preset("torch.float8_e4m3fnuz", "float8_e4m3fnuz", _TORCH),
    _preset("torch.float8_e5m2fnuz", "float8_e5m2fnuz", _TORCH),
    _preset("torch.float8_e8m0fnu", f"float8_e8m0fnu:{_ABS}", _TORCH, _E8M0_NEAR_LOWEST),
    _preset("numpy.float16", "float16", "NumPy 2, astype",
            "keeps a signalling NaN signalling; here it becomes quiet"),
    _preset("jax.float16", "float16", _JAX),
    _preset("jax.bfloat16", "bfloat16", _JAX),
    _preset("jax.float8_e4m3fn", "float8_e4m3fn", _JAX, "overflow becomes NaN"),
    _preset("jax.float8_e5m2", "float8_e5m2", _JAX),
    _preset("ml_dtypes.bfloat16", "bfloat16", _ML),
    _preset("ml_dtypes.float8_e4m3fn", "float8_e4m3fn", _ML, "overflow becomes NaN"),
    _preset("ml_dtypes.float8_e5m2", "float8_e5m2", _ML),
    _preset("ml_dtypes.float8_e4m3", "float8_e4m3", _ML),
    _preset("ml_dtypes.float8_e3m4", "float8_e3m4", _ML),
    _preset("ml_dtypes.float8_e4m3fnuz", "float8_e4m3fnuz", _ML),
    _preset("ml_dtypes.float8_e5m2fnuz", "float8_e5m2fnuz", _ML),
    _preset("ml_dtypes.float8_e4m3b11fnuz", "float8_e4m3b11fnuz", _ML),
    _preset("ml_dtypes.float6_e2m3fn", "float6_e2m3fn", _ML, _NAN_IS_ZERO),
    _preset("ml_dtypes.float6_e3m2fn", "float6_e3m2fn", _ML, _NAN_IS_ZERO),
    _preset("ml_dtypes.float4_e2m1fn", "float4_e2m1fn", _ML, _NAN_IS_ZERO),
    _preset("ml_dtypes.float8_e8m0fnu", "float8_e8m0fnu", _ML, _E8M0_NEAR_LOWEST),
    # NVIDIA: PTX conversions
    _preset("ptx.cvt.rn.f16.f32", "float16", _PTX),
    _preset("ptx.cvt.rz.f16.f32", "float16:toward_zero", _PTX),
    _preset("ptx.cvt.rm.f16.f32", "float16:down", _PTX),
    _preset("ptx.cvt.rp.f16.f32", "float16:up", _PTX),
    _preset("ptx.cvt.rn.satfinite.f16x2.f32", "float16:overflow=saturate", _PTX),
    _preset("ptx.cvt.rn.bf16.f32", "bfloat16", _PTX),
    _preset("ptx.cvt.rz.bf16.f32", "bfloat16:toward_zero", _PTX),
    _preset("ptx.cvt.rs.f16x2.f32", "float16:stochastic", _PTX, "give random_bits=13"),
    _preset("ptx.cvt.rs.bf16x2.f32", "bfloat16:stochastic", _PTX, "give random_bits=16"),
    _preset("ptx.cvt.rna.tf32.f32", "tf32:nearest_away", _PTX,
            "sm_80 and later; a NaN of its low 13 bits alone becomes infinity there"),
    _preset("ptx.cvt.rn.tf32.f32", "tf32", _PTX, "sm_90 and later"),
    _preset("ptx.cvt.rz.tf32.f32", "tf32:toward_zero", _PTX, "sm_90 and later"),
    _preset("ptx.cvt.rn.satfinite.e4m3x2.f32", "float8_e4m3fn:overflow=saturate", _PTX),
    _preset("ptx.cvt.rn.satfinite.e5m2x2.f32", "float8_e5m2:overflow=saturate", _PTX),
    _preset("ptx.cvt.rn.satfinite.e2m3x2.f32", "float6_e2m3fn", _PTX, "NaN becomes +7.5"),
    _preset("ptx.cvt.rn.satfinite.e3m2x2.f32", "float6_e3m2fn", _PTX, "NaN becomes +28"),
    _preset("ptx.cvt.rn.satfinite.e2m1x2.f32", "float4_e2m1fn", _PTX, "NaN becomes +6"),
    _preset("cuda.e8m0.rz", f"float8_e8m0fnu:toward_zero,overflow=saturate,{_ABS}",
            "CUDA cuda_fp8, PTX cvt.rz.satfinite.ue8m0x2.f32"),
    _preset("cuda.e8m0.rp", f"float8_e8m0fnu:up,overflow=saturate,{_ABS}",
            "CUDA cuda_fp8, PTX cvt.rp.satfinite.ue8m0x2.f32"),
    # TF32 on its way into a matrix multiply
    _preset("cublas.tf32", "tf32:nearest_away", "cuBLAS, measured: 1 + 2**-11 goes up"),
    _preset("tensorcore.tf32", "tf32:toward_zero", "NVIDIA mma given unrounded float32",
            "the low 13 bits are dropped; a NaN with only those set would become infinity"),
    # processors that flush
    _preset("amx.bfloat16", "bfloat16:subnormals=flush", "Intel AMX TDPBF16PS",
            "float32 subnormal inputs count as zero before rounding"),
    _preset("cdna2.float16", "float16:subnormals=flush", "AMD CDNA2 MFMA"),
    _preset("cdna2.bfloat16", "bfloat16:subnormals=flush", "AMD CDNA2 MFMA"),
    # standards
    _preset("ocp.e4m3.saturating", "float8_e4m3fn:overflow=saturate", _OCP),
    _preset("ocp.e4m3.nonsaturating", "float8_e4m3fn", _OCP, "overflow becomes NaN"),
    _preset("ocp.e5m2.saturating", "float8_e5m2:overflow=saturate", _OCP),
    _preset("ocp.e5m2.nonsaturating", "float8_e5m2", _OCP),
    _preset("ocp.mx.e2m3", "float6_e2m3fn", _MX),
    _preset("ocp.mx.e3m2", "float6_e3m2fn", _MX),
    _preset("ocp.mx.e2m1", "float4_e2m1fn", _MX),
    _preset("p3109.binary8p4se.SatFinite", "binary8p4se:overflow=saturate", _P3109),
    _preset("p3109.binary8p4se.SatPropagate", "binary8p4se:overflow=saturate_keep_inf", _P3109),
    _preset("p3109.binary8p4se.OvfInf", "binary8p4se", _P3109),
)  # fmt: skip

#: Every preset with its source, by name.
PRESETS: Mapping[str, Preset] = MappingProxyType({p.name: p for p in _TABLE})

#: Preset name -> Cast, read-only; `fpemu.casts` is this mapping.
CASTS: Mapping[str, Cast] = MappingProxyType({p.name: p.cast for p in _TABLE})


def find_preset(name: str) -> Cast:
    """Return the Cast of a preset; an unknown name is refused with the closest known.

    >>> from fpemu.presets import find_preset
    >>> str(find_preset("cublas.tf32"))
    'tf32:nearest_away'
    """
    if name in CASTS:
        return CASTS[name]
    system = name.partition(".")[0]
    known = [n for n in CASTS if n.startswith(f"{system}.")] or sorted(
        {n.partition(".")[0] + ".*" for n in CASTS}
    )
    raise UnknownFormatError(
        f"unknown preset {name!r}; {did_you_mean(name, CASTS)}known: {', '.join(known)}"
    )
