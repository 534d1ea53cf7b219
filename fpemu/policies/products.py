"""Products: how operands of a layer's three matrix products are rounded, and what adds them up.

A linear layer multiplies three times: y = x w in the forward pass, dx = dy w and dw = dy x in the
backward pass. Blocks of numbers that share a scale lie along the axis that a product sums over,
another one for each, so each product rounds its own operands, from the numbers before rounding.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Any

from fpemu.cast import Cast
from fpemu.errors import InputError, did_you_mean
from fpemu.format import Format
from fpemu.policies.accumulators import (
    Accumulator,
    accumulator_json,
    accumulator_text,
    make_accumulator,
    split_accumulator,
)
from fpemu.policies.checks import check_facts
from fpemu.policies.scalers import Scaler, make_scaler, scaler_json, scaler_text
from fpemu.scaling import Delayed, Recipe, recipes
from fpemu.scaling.hadamard import TRANSFORMER_ENGINE
from fpemu.tensorcore import Chip

__all__ = ["MULTIPLIES", "PRODUCTS", "Products"]

_SAME: Any = "same"

#: Where an operand's scaler comes from if it is not given.
_LIKE = {"w": "x", "dy": "x", "dgrad_w": "w", "wgrad_dy": "dy", "wgrad_x": "x"}

#: The operands of the three products.
_OPERANDS = ("x", "w", "dy", "dgrad_w", "wgrad_dy", "wgrad_x")

#: The operands that are named in text in any case, unless one recipe is for all.
_MAIN = ("x", "w", "dy")

#: A kind of tensors -> the operands that are of it.
_KINDS = {
    "activation": ("x", "wgrad_x"),
    "weight": ("w", "dgrad_w"),
    "gradient": ("dy", "wgrad_dy"),
}

#: PyTorch's operations that multiply matrices, by some axis or other.
_NAMES = """
    linear matmul mm bmm mv addmm addmv addbmm baddbmm einsum tensordot inner bilinear
    chain_matmul linalg_multi_dot linalg_vecdot dot vdot conv1d conv2d conv3d conv_transpose1d
    conv_transpose2d conv_transpose3d scaled_dot_product_attention
"""
MULTIPLIES = tuple(_NAMES.split())

_WORD = re.compile(r"(x|w|dy|dgrad_w|wgrad_dy|wgrad_x)=")


@dataclass(frozen=True, repr=False)
class Products:
    """What scales and rounds each operand of a layer's three products.

    >>> from fpemu.policies import Products
    >>> found = Products("mxfp8", dy="mxfp8_e5m2")
    >>> print(found)
    x=mxfp8 w=mxfp8 dy=mxfp8_e5m2
    >>> found.wgrad_dy.name, Products.of(str(found)) == found
    ('mxfp8_e5m2', True)

    x, w: of the forward product; dy, dgrad_w: of the one that gives x's gradient; wgrad_dy,
    wgrad_x: of the one that gives w's. Each is a `fpemu.scaling.Recipe`, its name or text, a
    `fpemu.scaling.Delayed` at its start or its text ("delayed(length=16) e5m2"), or None: as it
    is. What is not given: w and dy are as x, and the others as their own of the product before.
    accumulate: what adds the products up: a chip ("hopper", "hopper(promote=128)", a
    `fpemu.tensorcore.Chip`), a Cast of every partial sum ("float16"), or a
    `fpemu.arithmetic.Accumulation`; None: float32, as PyTorch's own product does.

    >>> print(Products.of("te.delayed").replace(accumulate="H100"))
    te.delayed accumulate=hopper
    """

    x: Scaler
    w: Scaler = _SAME
    dy: Scaler = _SAME
    dgrad_w: Scaler = _SAME
    wgrad_dy: Scaler = _SAME
    wgrad_x: Scaler = _SAME
    accumulate: Accumulator | None = None

    def __init__(
        self,
        x: Scaler | str,
        w: Scaler | str = _SAME,
        dy: Scaler | str = _SAME,
        *,
        dgrad_w: Scaler | str = _SAME,
        wgrad_dy: Scaler | str = _SAME,
        wgrad_x: Scaler | str = _SAME,
        accumulate: Accumulator | Chip | Cast | Format | Mapping[str, Any] | str | None = None,
    ) -> None:
        given = locals()
        made: dict[str, Scaler] = {}
        for name in _OPERANDS:
            value = given[name]
            same = name in _LIKE and isinstance(value, str) and value == _SAME
            scaler = made[_LIKE[name]] if same else make_scaler(value, name)
            made[name] = scaler
            object.__setattr__(self, name, scaler)
        object.__setattr__(self, "accumulate", make_accumulator(accumulate))

    @classmethod
    def of(cls, value: Products | Recipe | Delayed | str | Mapping[str, Any]) -> Products:
        """Return the Products of a name, text, recipe or JSON facts; Products are ones already.

        >>> from fpemu.policies import Products
        >>> Products.of("te.block").w.block, Products.of("1x8 exponent fp4").dy.block
        (Block(rows=128, columns=128), Block(rows=1, columns=8))

        A recipe stands for all operands. Errors: InputError for what is none of these.
        """
        if isinstance(value, Products):
            return value
        if isinstance(value, Mapping):
            return cls.from_json(value)
        if isinstance(value, str):
            value, accumulate = split_accumulator(value)
            if accumulate is not None:
                return cls.of(value).replace(accumulate=accumulate)
        if isinstance(value, str) and value in PRODUCTS:
            return PRODUCTS[value]
        if isinstance(value, str) and _WORD.match(value.strip()):
            return cls(**_words(value))
        return cls(make_scaler(value, "products"))

    def __str__(self) -> str:
        """Return text that `Products.of` reads back: a name, a recipe, or words."""
        if self.accumulate is not None:
            told = _quoted(accumulator_text(self.accumulate))
            return f"{self.replace(accumulate=None)} accumulate={told}"
        for name, known in PRODUCTS.items():
            if known == self:
                return name
        if self == Products(self.x) and scaler_text(self.x) not in PRODUCTS:
            return scaler_text(self.x)
        return " ".join(f"{key}={_quoted(scaler_text(one))}" for key, one in self._told().items())

    def __repr__(self) -> str:
        return f"Products.of({str(self)!r})"

    def __reduce__(self) -> tuple[Any, ...]:  # known recipes by name, as a NaN in one equals none
        facts = {key: _named(getattr(self, key)) for key in _OPERANDS}
        return _remade, ({**facts, "accumulate": self.accumulate},)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-ready dict that `from_json` reads back."""
        facts = {name: scaler_json(getattr(self, name)) for name in _OPERANDS}
        added = accumulator_json(self.accumulate)
        return facts if added is None else {**facts, "accumulate": added}

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> Products:
        """Read `to_json` back; what it leaves out is as where a product is made without it.

        >>> from fpemu.policies import Products
        >>> found = Products("mxfp4", dy=None)
        >>> Products.from_json(found.to_json()) == found
        True
        """
        check_facts({"x": "", **facts}, "products", [field.name for field in fields(cls)], ())
        if "x" not in facts:
            raise InputError("products facts: 'x' is missing; null leaves it as it is")
        return cls(**facts)

    def replace(self, **changes: Any) -> Products:
        """Return these with some operands' scalers changed."""
        return replace(self, **changes)

    def with_kind(self, kind: str, scaler: Scaler) -> Products:
        """Return these with all operands of a kind ("activation", "weight", "gradient") changed."""
        return replace(self, **dict.fromkeys(_KINDS[kind], scaler))

    def of_kind(self, kind: str, other: Products) -> Products:
        """Return these with all operands of a kind taken from others."""
        return replace(self, **{name: getattr(other, name) for name in _KINDS[kind]})

    @property
    def delays(self) -> bool:
        """Whether any operand has delayed scaling, and so a state."""
        return any(isinstance(getattr(self, name), Delayed) for name in _OPERANDS)

    def _told(self) -> dict[str, Scaler]:
        """The operands that are to be named: those that are not as they would be unless given."""
        return {
            name: scaler
            for name in _OPERANDS
            for scaler in (getattr(self, name),)
            if name in _MAIN or scaler != getattr(self, _LIKE[name])
        }


def _named(scaler: Scaler) -> Scaler | str:
    known = isinstance(scaler, Recipe) and recipes.get(scaler.name) is scaler
    return scaler_text(scaler) if known else scaler


def _remade(facts: dict[str, Any]) -> Products:
    return Products(**facts)


def _quoted(text: str) -> str:
    return f'"{text}"' if " " in text else text


def _words(text: str) -> dict[str, str]:
    known = _OPERANDS
    found: dict[str, str] = {}
    try:
        words = shlex.split(text)
    except ValueError as wrong:
        raise InputError(f"products {text!r:.80}: {wrong}") from None
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or key not in known or key in found:
            hint = did_you_mean(key[:40], known)
            raise InputError(
                f"products {text!r:.80}: {word[:40]!r} is not one new operand=recipe; {hint}"
                f"operands: {', '.join(known)}; a recipe's text stands in double quotes"
            )
        found[key] = value
    if "x" not in found:
        raise InputError(f"products {text!r:.80}: x= is missing; x=none leaves it as it is")
    return found


# --- what real systems do ----------------------------------------------------------------------

_TENSOR = "tensor amax(wide=true, least=1e-12, zero=none, divides=true"
_DRAWN = "1x16 two_level float4_e2m1fn:stochastic"
_SIGNS = TRANSFORMER_ENGINE.signs

#: Sources: TransformerEngine's recipes with their defaults (Format.HYBRID where directions differ);
#: torchao 0.18.0, Float8LinearConfig and mx_mm; DeepSeek-V3 (arXiv 2412.19437, 3.3);
#: Keras 3.15, Dense.
_TABLE: dict[str, dict[str, str]] = {
    "te.delayed": {"x": "delayed e4m3fn", "dy": "delayed e5m2"},
    "te.current": {"x": "te.current", "dy": "te.current.e5m2"},
    "te.block": {"x": "te.block", "w": "te.block.weight"},
    "te.mxfp8": {"x": "te.mxfp8"},
    "te.nvfp4": {"x": "nvfp4", "w": "nvfp4.weight", "dy": _DRAWN, "wgrad_x": "nvfp4.hadamard",
                 "wgrad_dy": f"{_DRAWN} hadamard(size=16, signs={_SIGNS})"},
    "deepseek": {"x": "deepseek", "w": "deepseek.weight"},
    "torchao.float8.tensorwise": {"x": "torchao.float8.tensorwise",
                                  "dy": f"{_TENSOR}) float8_e5m2:overflow=saturate"},
    "torchao.float8.rowwise": {"x": "torchao.float8.rowwise"},
    "torchao.float8.rowwise_with_gw_hp": {
        "x": "torchao.float8.rowwise", "wgrad_dy": "none", "wgrad_x": "none",
        "dgrad_w": f"{_TENSOR}, power_of_two=true) float8_e4m3fn:overflow=saturate"},
    "torchao.mxfp8": {"x": "torchao.mxfp8.rceil"},
    "keras.float8.delayed": {"x": "delayed(variant=keras) e4m3fn",
                             "dy": "delayed(variant=keras) e5m2"},
}  # fmt: skip

#: Name -> what a real system does, read-only.
PRODUCTS: Mapping[str, Products] = MappingProxyType(
    {name: Products(**facts) for name, facts in _TABLE.items()}
)
