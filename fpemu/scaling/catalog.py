"""The known recipes: what real systems do when they scale, one line each, with its source."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from fpemu.errors import InputError, did_you_mean
from fpemu.scaling.elements import Codebook, FloatElement, IntegerElement
from fpemu.scaling.hadamard import TRANSFORMER_ENGINE
from fpemu.scaling.layout import Block
from fpemu.scaling.recipe import Recipe
from fpemu.scaling.rules import AmaxRule, Exponent, ExponentRule, ScaleRule, TwoLevel

__all__ = ["NF4", "RECIPES", "find_recipe"]

#: The quantiles of a normal distribution that QLoRA keeps 4-bit weights as (arXiv 2305.14314,
#: appendix E), as float32.
NF4 = Codebook(
    "nf4",
    (
        -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
        -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
        0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
        0.7229568362236023, 1.0,
    ),
)  # fmt: skip

_OCP = "OCP Microscaling Formats 1.0, 6.3"
_TE = "TransformerEngine"
_AO = "torchao 0.18.0"

_MX = {"mxfp8": "e4m3fn", "mxfp8_e5m2": "e5m2", "mxfp6_e2m3": "fp6_e2m3", "mxfp6_e3m2": "fp6_e3m2",
       "mxfp4": "fp4"}  # fmt: skip

#: torchao's clamp of an amax, for its float8 recipes.
_EPS = 1e-12


def _mx() -> dict[str, tuple[str, ScaleRule, Any, str]]:
    """The MX recipes: OCP's rule, torchao's four modes, and the one that never clips."""
    found: dict[str, tuple[str, ScaleRule, Any, str]] = {}
    for name, to in _MX.items():
        found[name] = ("1x32", ExponentRule(), to, _OCP)
        found[f"{name}.fit"] = ("1x32", ExponentRule(Exponent.FIT), to, "arXiv 2510.25602")
        for mode in (Exponent.FLOOR, Exponent.CEIL, Exponent.EVEN):
            rule = ExponentRule(mode, least=2.0**126)
            found[f"torchao.{name}.{mode.value}"] = ("1x32", rule, to, f"{_AO}, {mode.name}")
        rule = ExponentRule(Exponent.RCEIL, least=1.0, broken=True)
        found[f"torchao.{name}.rceil"] = ("1x32", rule, to, f"{_AO}, RCEIL")
    for bits in (8, 6, 4):
        element = IntegerElement(bits, bits - 2)
        found[f"mxint{bits}"] = ("1x32", ExponentRule(), element, _OCP)
        symmetric = IntegerElement(bits, bits - 2, symmetric=True)
        rule = ExponentRule(Exponent.FIT)
        found[f"mxint{bits}.fit"] = ("1x32", rule, symmetric, "arXiv 2510.25602")
    return found


_TABLE: dict[str, tuple[str, ScaleRule, Any, str]] = {
    **_mx(),
    "te.mxfp8": ("1x32", ExponentRule(Exponent.RECIPROCAL), "e4m3fn", f"{_TE}, MXFP8BlockScaling"),
    "te.current": ("tensor", AmaxRule(), "e4m3fn", f"{_TE}, Float8CurrentScaling"),
    "te.current.e5m2": ("tensor", AmaxRule(), "e5m2", f"{_TE}, Float8CurrentScaling, gradients"),
    "te.block": ("1x128", AmaxRule(power_of_two=True), "e4m3fn", f"{_TE}, Float8BlockScaling"),
    "te.block.weight": ("128x128", AmaxRule(power_of_two=True), "e4m3fn",
                        f"{_TE}, Float8BlockScaling, weights"),
    "deepseek": ("1x128", AmaxRule(inverse=True, least=1e-4, zero=None), "e4m3fn",
                 "DeepSeek-V3 (arXiv 2412.19437, 3.3); DeepGEMM's amax of at least 1e-4"),
    "deepseek.weight": ("128x128", AmaxRule(inverse=True, least=1e-4, zero=None), "e4m3fn",
                        "DeepSeek-V3, weights"),
    "deepgemm.e8m0": ("1x128", AmaxRule(inverse=True, least=1e-4, zero=None, power_of_two=True),
                      "e4m3fn", "DeepGEMM, scales rounded up to powers of two"),
    "nvfp4": ("1x16", TwoLevel(), "fp4", f"{_TE}, NVFP4BlockScaling"),
    "nvfp4.weight": ("16x16", TwoLevel(), "fp4", f"{_TE}, NVFP4BlockScaling, weights"),
    "torchao.nvfp4": ("1x16", TwoLevel(clamped=True), "fp4", f"{_AO}, two levels"),
    "torchao.float8.tensorwise": (
        "tensor", AmaxRule(wide=True, least=_EPS, zero=None, divides=True), "e4m3fn", _AO),
    "torchao.float8.rowwise": (
        "row", AmaxRule(wide=True, least=_EPS, zero=None, divides=True, power_of_two=True),
        "e4m3fn", _AO),
    "keras.int8": (
        "row", AmaxRule(added=1e-7, zero=None, divides=True), IntegerElement(8, 0, symmetric=True),
        "Keras 3.15, abs_max_quantize"),
    "nf4": ("1x64", AmaxRule(inverse=True, zero=None), NF4, "QLoRA, one level of scales"),
}  # fmt: skip


def _recipe(name: str, block: str, rule: ScaleRule, to: Any, note: str) -> Recipe:
    element = FloatElement.of(to) if isinstance(to, str) else to
    return Recipe(name, Block.of(block), rule, element, note)


def _all() -> dict[str, Recipe]:
    found = {name: _recipe(name, *facts) for name, facts in _TABLE.items()}
    turned = found["nvfp4"].replace(
        name="nvfp4.hadamard", rotation=TRANSFORMER_ENGINE,
        note=f"{_TE}, NVFP4BlockScaling, inputs of weight gradients",
    )  # fmt: skip
    return found | {turned.name: turned}


#: Name -> recipe, read-only.
RECIPES: Mapping[str, Recipe] = MappingProxyType(_all())


def find_recipe(name: str | Recipe) -> Recipe:
    """Return a recipe by its name or its text; a recipe is one already.

    >>> from fpemu.scaling import find_recipe
    >>> str(find_recipe("nvfp4")), find_recipe("1x8 exponent fp4").block
    ('1x16 two_level float4_e2m1fn', Block(rows=1, columns=8))

    Errors: InputError for a name that is none, with those that are.
    """
    if isinstance(name, Recipe):
        return name
    if isinstance(name, str) and name in RECIPES:
        return RECIPES[name]
    if isinstance(name, str) and " " in name.strip():
        return Recipe.of(name)
    hint = did_you_mean(str(name), tuple(RECIPES))
    known = hint or f"known: {', '.join(RECIPES)}; "
    raise InputError(
        f"unknown recipe {name!r:.60}; {known}fpemu.scaling.recipes has all, and a text such as "
        "'1x32 exponent e4m3fn' is one too"
    )
