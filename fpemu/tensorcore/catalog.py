"""The known chips, one line for each kind of operand, and finding one by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from fpemu.cast import Rounding
from fpemu.errors import InputError, did_you_mean, short
from fpemu.format import Format, NaN
from fpemu.tensorcore.chip import Chip, Unit
from fpemu.tensorcore.sums import AlignedSum, ChainedSum, StagedSum

__all__ = ["CHIPS", "find_chip"]

#: What the FP8 units of Ada and Hopper keep of a sum: float32's exponents, 13 bits of fraction.
_E8M13 = Format("e8m13", 8, 13, 127, NaN.TOP_BINADE, inf=True)

_FP8 = ("float8_e4m3fn", "float8_e5m2")
_FNUZ = ("float8_e4m3fnuz", "float8_e5m2fnuz")
_HALF = "float16"


def _half(group: int, bits: int, least: int, recorded: str = "") -> Unit:
    """float16 products summed in float16: each step to nearest even."""
    rule = AlignedSum(group, bits, least, _HALF, Rounding.NEAREST_EVEN)
    return Unit(_HALF, rule, _HALF, recorded)


_V100, _A100, _ADA, _H100, _B200 = (
    f"5,000 results of {gpu}: Khattak and Mikaitis, MATLAB-tensor-core"
    for gpu in ("a V100", "an A100", "an Ada GPU", "an H100", "a B200")
)
_PAPERS = "Khattak and Mikaitis, Accurate Models of NVIDIA Tensor Cores; arXiv 2511.10909"

_TABLE = (
    Chip("volta", (
        Unit(_HALF, AlignedSum(4, 23), recorded=_V100),
        _half(4, 23, -19, recorded=_V100),
    ), _PAPERS),
    Chip("ampere", (
        Unit(_HALF, AlignedSum(8, 24, -132), recorded=_A100),
        _half(8, 24, -20, recorded=_A100),
        Unit("bfloat16", AlignedSum(8, 24, -132), recorded=_A100),
        Unit("tf32", AlignedSum(4, 24, -132), recorded=_A100),
    ), _PAPERS),
    Chip("ada", (
        Unit(_HALF, AlignedSum(8, 24, -132)),
        _half(8, 24, -20),
        Unit("bfloat16", AlignedSum(8, 24, -132)),
        Unit("tf32", AlignedSum(4, 24, -132)),
        Unit(_FP8, AlignedSum(16, 13, -132, result=_E8M13), recorded=_ADA),
    ), _PAPERS),
    Chip("hopper", (
        Unit(_HALF, AlignedSum(16, 25, -133), recorded=_H100),
        _half(16, 25, -21, recorded=_H100),
        Unit("bfloat16", AlignedSum(16, 25, -133), recorded=_H100),
        Unit("tf32", AlignedSum(8, 25, -133), recorded=_H100),
        Unit(_FP8, AlignedSum(32, 13, -133, result=_E8M13), recorded=_H100),
    ), _PAPERS, "TF32 is recorded for half a step, FP8 without c; the rest of both as published"),
    Chip("blackwell", (
        Unit(_HALF, AlignedSum(16, 25, -133)),
        _half(16, 25, -21),
        Unit("bfloat16", AlignedSum(16, 25, -133)),
        Unit("tf32", AlignedSum(8, 25, -133)),
        Unit(_FP8, AlignedSum(32, 25, -133, separate=True), recorded=_B200),
    ), _PAPERS, "FP8 as mma.sync computes it; the units that tcgen05.mma uses are not recorded"),
    Chip("cdna3", (
        Unit(_HALF, StagedSum(8)),
        Unit("bfloat16", StagedSum(8)),
        Unit("tf32", StagedSum(4)),
        Unit(_FNUZ, StagedSum(16, halves=2, drops=True)),
    ), "arXiv 2511.10909, of an MI300X", "not verified against recordings"),
    Chip("amx", (
        Unit("bfloat16", ChainedSum(32)),
    ), "Intel SDM, TDPBF16PS", "not verified against recordings; tiles of 32 products"),
)  # fmt: skip

#: Name -> Chip, read-only; `fpemu.tensorcore.chips` is this mapping.
CHIPS: Mapping[str, Chip] = MappingProxyType({chip.name: chip for chip in _TABLE})

#: Products that people name -> chip.
_PRODUCTS = {
    "v100": "volta", "a100": "ampere", "l40s": "ada", "rtx4090": "ada", "h100": "hopper",
    "h200": "hopper", "b200": "blackwell", "mi300x": "cdna3", "sapphire_rapids": "amx",
}  # fmt: skip


def find_chip(name: Chip | str) -> Chip:
    """Return the Chip of a name, or of a product's; a Chip is returned as it is.

    >>> from fpemu.tensorcore import find_chip
    >>> find_chip("H100").name
    'hopper'

    Errors: InputError names the closest known and all others.
    """
    if isinstance(name, Chip):
        return name
    key = name.strip().lower() if isinstance(name, str) else ""
    found = CHIPS.get(_PRODUCTS.get(key, key))
    if found is None:
        hint = did_you_mean(key[:64], [*CHIPS, *_PRODUCTS])
        raise InputError(
            f"unknown chip {short(name)}; {hint}known: {', '.join(CHIPS)}; or make your own with "
            "fpemu.tensorcore.Chip(...)"
        )
    return found
