"""Recipe: a block shape, a scale rule and an element: numbers scaled to a small format and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fpemu.arrays import read_floats
from fpemu.elementwise import Draws
from fpemu.errors import InputError
from fpemu.kernels.cpu_blocks import amax_loop, factor_loop
from fpemu.kernels.pool import run_chunks
from fpemu.scaling.elements import Element, draws_for
from fpemu.scaling.layout import Block, Lines, lay_out
from fpemu.scaling.rules import ScaleRule, Scales, TwoLevel
from fpemu.scaling.text import check_facts, parse_element, parse_rule, rule_text, split_text

__all__ = ["Recipe", "Scaled"]

Array = np.ndarray[Any, Any]

_PIECE = 1 << 16  # numbers: they and what is made of them stay in the second cache


@dataclass(frozen=True, eq=False)
class Scaled:
    """An array under a recipe: the codes of its elements, and its scales.

    codes: of the array's shape, one code each. scales: as stored, one for each block: E8M0 or
    E4M3 codes, or float32. tensor_scale: of the tensor as a whole where there are two levels.
    """

    recipe: Recipe
    codes: Array
    scales: Array
    tensor_scale: np.float32
    axis: int

    def dequantize(self) -> Array:
        """Return the float32 values."""
        return self.recipe.dequantize(self)

    @property
    def bits_per_value(self) -> float:
        """Bits that a value takes, its share of the scales included."""
        if not self.codes.size:
            return float(self.recipe.element.bits)
        scales = self.scales.nbytes + (4 if isinstance(self.recipe.rule, TwoLevel) else 0)
        return self.recipe.element.bits + 8 * scales / self.codes.size


@dataclass(frozen=True)
class Recipe:
    """How numbers share scales and become elements: block shape x scale rule x element.

    >>> import numpy as np
    >>> from fpemu.scaling import find_recipe
    >>> recipe = find_recipe("mxfp4")
    >>> x = np.float32([0.1, -0.3, 0.7, 1.0])
    >>> recipe.round(x)
    array([ 0.125, -0.25 ,  0.75 ,  1.   ], dtype=float32)
    >>> scaled = recipe.quantize(x)
    >>> scaled.codes, scaled.scales
    (array([ 1, 10,  5,  6], dtype=uint8), array([125], dtype=uint8))

    x: float32, or a narrower float, which widens exactly; any number of dimensions. axis: along
    which blocks lie; blocks of several rows take them from the dimension before it (after it has
    been moved to the end). seed, offset, random_bits: for stochastic elements, as in
    `fpemu.round`; element i is counted in the array with the axis moved to the end.
    float64 is refused: real recipes start from float32. NaN, infinity, zeros: as the rule says.
    """

    name: str
    block: Block
    rule: ScaleRule
    element: Element
    note: str = field(default="", compare=False)

    def round(
        self, x: Any, *, axis: int = -1, seed: int | None = None, offset: int = 0,
        random_bits: int | None = None, threads: int | None = None,
    ) -> Array:  # fmt: skip
        """Return what is left of an array: its elements times their scales, in float32."""
        laid = lay_out(_values(x), self.block, axis)
        out = np.empty_like(laid.lines)
        draws = draws_for(self.element, seed, offset, random_bits)

        def sink(place: tuple[slice, slice], part: Array, kept: Array, own: Draws | None) -> None:
            self.element.round(part.reshape(-1), own)
            factor_loop(self.rule.divides)(part, kept, out[place])

        self._run(laid, draws, threads, sink)
        return laid.restored(out)

    def quantize(
        self, x: Any, *, axis: int = -1, seed: int | None = None, offset: int = 0,
        random_bits: int | None = None, threads: int | None = None,
    ) -> Scaled:  # fmt: skip
        """Return an array's codes and scales."""
        laid = lay_out(_values(x), self.block, axis)
        codes = np.empty(laid.lines.shape, np.uint8 if self.element.bits <= 8 else np.uint16)
        draws = draws_for(self.element, seed, offset, random_bits)

        def sink(place: tuple[slice, slice], part: Array, kept: Array, own: Draws | None) -> None:
            codes[place] = self.element.encode(part.reshape(-1), own).reshape(part.shape)

        scales, whole = self._run(laid, draws, threads, sink)
        return Scaled(self, laid.restored(codes), scales.reshape(laid.grid), whole, laid.axis)

    def dequantize(self, scaled: Scaled) -> Array:
        """Return the float32 values that codes and scales stand for."""
        values = np.asarray(self.element.decode(scaled.codes.reshape(-1)), np.float32)
        laid = lay_out(values.reshape(scaled.codes.shape), self.block, scaled.axis)
        with np.errstate(all="ignore"):
            kept = self.rule.kept(scaled.scales.reshape(-1), scaled.tensor_scale)
        out = np.empty_like(laid.lines)
        factor_loop(self.rule.divides)(laid.lines, laid.spread(kept), out)
        return laid.restored(out)

    def replace(self, **changes: Any) -> Recipe:
        """Return the recipe with some of its facts changed."""
        return replace(self, **changes)

    def __str__(self) -> str:
        """The recipe as text, which `Recipe.of` reads back: block, rule and element."""
        return f"{self.block} {rule_text(self.rule)} {self.element}"

    @classmethod
    def of(cls, text: str, name: str = "") -> Recipe:
        """Read a recipe's text.

        >>> from fpemu.scaling import Recipe
        >>> recipe = Recipe.of("1x16 exponent(mode=fit) fp4")
        >>> str(recipe)
        '1x16 exponent(mode=fit) float4_e2m1fn'

        Without rules of its own a float format saturates. Errors: InputError for text that is no
        recipe; `fpemu.scaling.find_recipe` takes the known ones' names too.
        """
        block, rule, element = split_text(text)
        return cls(name or text.strip(), block, rule, parse_element(element))

    def to_json(self) -> dict[str, str]:
        """Return the recipe as a JSON-ready dict; `from_json` reads it back."""
        parts = {"block": self.block, "rule": rule_text(self.rule), "element": self.element}
        return {"name": self.name, **{key: str(part) for key, part in parts.items()}}

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> Recipe:
        """Read `to_json` back; anything else is an InputError."""
        check_facts(facts, ("name", "block", "rule", "element"))
        block, rule = Block.of(str(facts["block"])), parse_rule(str(facts["rule"]))
        return cls(str(facts["name"]), block, rule, parse_element(str(facts["element"])))

    # --- the work ----------------------------------------------------------------------------

    def _run(
        self,
        laid: Lines,
        draws: Draws | None,
        threads: int | None,
        sink: Callable[[tuple[slice, slice], Array, Array, Draws | None], None],
    ) -> tuple[Array, np.float32]:
        """Scale the lines piece by piece and hand each to a sink; return scales as stored."""
        amax = _amax(laid, threads)
        tops = laid.shared(amax)
        with np.errstate(all="ignore"):
            most = tops.max(initial=0).reshape(1).view(np.float32)[0]
            whole = self.rule.whole(most, self.element)
            scales = self._scales(tops.view(np.float32), whole)
        encode, kept = laid.spread(scales.encode), laid.spread(scales.decode)
        pieces, width = list(laid.pieces(_PIECE)), laid.lines.shape[1]

        def work(index: int) -> None:
            rows, columns = place = pieces[index]
            x = laid.lines[place]
            part = np.empty(x.shape, np.float32)
            factor_loop(self.rule.divides_first)(x, encode[rows], part)
            first = rows.start * width + columns.start
            own = draws and draws._replace(offset=draws.offset + first)
            sink(place, part, kept[rows], own)

        _each(pieces, work, threads)
        return scales.stored, whole

    def _scales(self, amax: Array, whole: np.float32) -> Scales:
        made = self.rule.scales(amax, self.element, whole)
        return Scales(
            np.ascontiguousarray(made.encode, np.float32),
            np.ascontiguousarray(made.decode, np.float32),
            np.ascontiguousarray(made.stored),
        )


def _amax(laid: Lines, threads: int | None) -> Array:
    """Each line's largest magnitude, as bits."""
    words, count = laid.lines.view(np.uint32), laid.lines.shape[0]
    pieces = list(laid.pieces(_PIECE))
    parts = [np.zeros(rows.stop - rows.start, np.uint32) for rows, _ in pieces]

    def work(index: int) -> None:
        amax_loop()(words[pieces[index]], parts[index])

    _each(pieces, work, threads)
    amax = np.zeros(count, np.uint32)
    for (rows, _), part in zip(pieces, parts, strict=True):
        np.maximum(amax[rows], part, out=amax[rows])
    return amax


def _each(pieces: list[Any], work: Callable[[int], None], threads: int | None) -> None:
    """Do each piece's work, on threads where there are many."""

    def chunk(start: int, stop: int) -> None:
        for index in range(-(-start // _PIECE), -(-stop // _PIECE)):
            work(index)

    run_chunks(chunk, len(pieces) * _PIECE, threads)


def _values(x: Any) -> Array:
    array, given = read_floats(x)
    if given == np.float64:
        raise InputError(
            "float64 would be rounded to float32 first, as scaled formats start from that: give "
            "x.astype(np.float32)"
        )
    return np.asarray(array, np.float32)
