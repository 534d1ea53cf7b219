"""fpemu.scaling: scaled and block formats: FP8 recipes, MX, NVFP4, as real systems compute them.

    recipe = scaling.find_recipe("mxfp8")
    recipe.round(x)                  # what is left of x
    scaled = recipe.quantize(x)      # codes and scales
    scaled.dequantize()
"""

from __future__ import annotations

from fpemu.scaling.catalog import RECIPES as recipes
from fpemu.scaling.catalog import find_recipe
from fpemu.scaling.delayed import Delayed, Variant
from fpemu.scaling.elements import Codebook, FloatElement, IntegerElement
from fpemu.scaling.hadamard import Hadamard
from fpemu.scaling.layout import Block
from fpemu.scaling.recipe import Recipe, Scaled
from fpemu.scaling.rules import AmaxRule, Exponent, ExponentRule, FixedRule, TwoLevel
from fpemu.scaling.tally import RecipeTally, recipe_tally

__all__ = [
    "AmaxRule",
    "Block",
    "Codebook",
    "Delayed",
    "Exponent",
    "ExponentRule",
    "FixedRule",
    "FloatElement",
    "Hadamard",
    "IntegerElement",
    "Recipe",
    "RecipeTally",
    "Scaled",
    "TwoLevel",
    "Variant",
    "find_recipe",
    "recipe_tally",
    "recipes",
]
