"""Recipe: a block shape, a scale rule and an element: numbers scaled to a small format and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fpemu.arrays import check_out, like_input, read_floats
from fpemu.codes import dtype_of_bits, pack_bits, unpack_bits
from fpemu.errors import InputError
from fpemu.libraries.library import Library, Place, host_out, library_of
from fpemu.scaling.elements import (
    Codebook,
    Element,
    FloatElement,
    IntegerElement,
    draws_for,
)
from fpemu.scaling.hadamard import Hadamard
from fpemu.scaling.layout import Block, Lines, axis_of, lay_out
from fpemu.scaling.pieces import Piece, encode_piece, round_piece, scale_lines, times
from fpemu.scaling.rules import ScaleRule, TwoLevel
from fpemu.scaling.text import (
    check_facts,
    parse_element,
    parse_rotation,
    parse_rule,
    rotation_text,
    rule_text,
    split_text,
)

__all__ = ["Recipe", "Scaled", "float32_of"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Scaled:
    """An array under a recipe: the codes of its elements, and its scales.

    codes: of the array's shape, one code each; packed: side by side in bytes along the axis.
    scales: as stored, one for each block: E8M0 or E4M3 codes, or float32. tensor_scale: of the
    tensor as a whole where there are two levels.
    """

    recipe: Recipe
    codes: Any
    scales: Any
    tensor_scale: np.float32
    axis: int
    packed: bool = False

    def dequantize(self) -> Any:
        """Return the float32 values."""
        return self.recipe.dequantize(self)

    @property
    def bits_per_value(self) -> float:
        """Bits that a value takes, its share of the scales included."""
        bits, size = self.recipe.element.bits, self._size()
        if not size:
            return float(bits)
        scales = self.scales.nbytes + (4 if isinstance(self.recipe.rule, TwoLevel) else 0)
        return bits + 8 * int(scales) / size

    def _size(self) -> int:
        """How many values there are."""
        count = int(np.prod(self.codes.shape, dtype=np.int64))
        return count * 8 // self.recipe.element.bits if self.packed else count


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

    x: float32, or a narrower float, which widens exactly; any number of dimensions; NumPy's or
    that of another library, as in `fpemu.round`. axis: along which blocks lie; blocks of several
    rows take them from the dimension before (after the axis has been moved to the end). seed,
    offset, random_bits: for stochastic elements, as in `fpemu.round`; element i is counted in the
    array with the axis moved to the end and filled up to whole blocks. rotation: before all, along
    the same axis.
    float64 is refused: real recipes start from float32. NaN, infinity, zeros: as the rule says.
    """

    name: str
    block: Block
    rule: ScaleRule
    element: Element
    note: str = field(default="", compare=False)
    rotation: Hadamard | None = None

    def __post_init__(self) -> None:
        for name, kinds, way_out in _KINDS:
            if not isinstance(getattr(self, name), kinds):
                raise InputError(
                    f"recipe: {name}={getattr(self, name)!r:.40}: give {way_out}; a whole recipe's "
                    "text is read by Recipe.of"
                )

    def round(
        self, x: Any, *, axis: int = -1, seed: int | None = None, offset: int = 0,
        random_bits: int | None = None, out: Any = None, threads: int | None = None,
    ) -> Any:  # fmt: skip
        """Return what is left of an array: its elements times their scales, in float32.

        >>> import numpy as np
        >>> from fpemu.scaling import find_recipe
        >>> find_recipe("mxfp8").round(np.float32([[1.1, 300], [0.7, 4]]), axis=0)
        array([[  1.125 , 288.    ],
               [  0.6875,   4.    ]], dtype=float32)

        out: a float32 array of x's shape to write to; x itself is allowed. A rotated array is
        rotated back.
        """
        library = None if type(x) is np.ndarray else library_of(x)
        if library is not None:
            return self._round_foreign(library, x, axis, (seed, offset, random_bits), out, threads)
        array = float32_of(x)
        if out is not None:
            check_out(out, array, np.dtype(np.float32))
        draws = draws_for(self.element, seed, offset, random_bits)
        laid = self._laid(array, axis)
        made = _memory(laid, array, out)

        def sink(piece: Piece) -> None:
            round_piece(piece, self.rule, self.element, made[piece.place])

        scale_lines(laid, self.rule, self.element, draws, threads, sink)
        result = self._unturned(laid.restored(made), laid.axis)
        if out is None:
            return like_input(x, result)
        if not np.may_share_memory(result, out):
            np.copyto(out, result)
        return out

    def quantize(
        self, x: Any, *, axis: int = -1, seed: int | None = None, offset: int = 0,
        random_bits: int | None = None, packed: bool = False, threads: int | None = None,
    ) -> Scaled:  # fmt: skip
        """Return an array's codes and scales.

        >>> import numpy as np
        >>> from fpemu.scaling import find_recipe
        >>> find_recipe("mxfp4").quantize(np.float32([0.1, -0.3, 0.7, 1.0]), packed=True).codes
        array([161, 101], dtype=uint8)

        packed: codes of fewer than 8 bits lie side by side in bytes along the axis, the first in
        the lowest bits, as in `fpemu.encode`; its length must fill whole bytes. Codes of 8 bits
        and more are as they are.
        """
        library = None if type(x) is np.ndarray else library_of(x)
        if library is not None:
            drawn = (seed, offset, random_bits)
            return self._quantize_foreign(library, x, axis, drawn, packed, threads)
        draws = draws_for(self.element, seed, offset, random_bits)
        laid = self._laid(float32_of(x), axis)
        codes = np.empty(laid.lines.shape, dtype_of_bits(self.element.bits))

        def sink(piece: Piece) -> None:
            encode_piece(piece, self.rule, self.element, codes[piece.place])

        done = scale_lines(laid, self.rule, self.element, draws, threads, sink)
        kept = laid.restored(codes)
        if packed := packed and self.element.bits < 8:
            kept = _along(kept, laid.axis, lambda last: pack_bits(last, self.element.bits))
        grid = done.stored.reshape(laid.grid)
        return Scaled(self, kept, grid, done.whole, laid.axis, packed)

    def dequantize(self, scaled: Scaled) -> Any:
        """Return the float32 values that codes and scales stand for.

        Errors: InputError for codes, scales or an axis that no array under this recipe has.
        """
        if not isinstance(scaled, Scaled):
            raise InputError(f"{type(scaled).__name__}: is not what quantize returns; give that")
        library = library_of(scaled.codes)
        if library is not None:
            return self._dequantize_foreign(library, scaled)
        codes = self._codes(scaled)
        values = np.asarray(self.element.decode(codes.reshape(-1)), np.float32)
        laid = lay_out(values.reshape(codes.shape), self.block, scaled.axis)
        with np.errstate(all="ignore"):
            kept = self.rule.kept(self._scales(scaled, laid.grid), scaled.tensor_scale)
        times(self.rule.divides, laid.lines, laid.spread(kept), laid.lines)
        return self._unturned(laid.restored(laid.lines), scaled.axis)

    def replace(self, **changes: Any) -> Recipe:
        """Return the recipe with some of its facts changed."""
        return replace(self, **changes)

    def __str__(self) -> str:
        """The recipe as text, which `Recipe.of` reads back: block, rule, element and rotation."""
        return " ".join(filter(None, self._parts().values()))

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
        block, rule, element, turned = split_text(text)
        rotation = parse_rotation(turned) if turned else None
        return cls(
            name or text.strip(), block, rule, parse_element(element), rotation=rotation
        )

    def to_json(self) -> dict[str, str]:
        """Return the recipe as a JSON-ready dict; `from_json` reads it back."""
        return {"name": self.name, **self._parts()}

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> Recipe:
        """Read `to_json` back; anything else is an InputError."""
        check_facts(facts, ("name", "block", "rule", "element"), ("rotation",))
        block, rule = Block.of(facts["block"]), parse_rule(facts["rule"])
        rotation = parse_rotation(facts["rotation"]) if "rotation" in facts else None
        element = parse_element(facts["element"])
        return cls(facts["name"], block, rule, element, rotation=rotation)

    def _parts(self) -> dict[str, str]:
        parts = {"block": str(self.block), "rule": rule_text(self.rule)}
        parts["element"] = str(self.element)
        if self.rotation is not None:
            parts["rotation"] = rotation_text(self.rotation)
        return parts

    # --- the work ----------------------------------------------------------------------------

    def _laid(self, x: Array, axis: Any) -> Lines:
        axis = axis_of(x, axis)
        return lay_out(self.rotation.rotate(x, axis) if self.rotation else x, self.block, axis)

    def _unturned(self, result: Array, axis: int) -> Array:
        return self.rotation.restore(result, axis) if self.rotation else result

    def _codes(self, scaled: Scaled) -> Array:
        """The codes of a Scaled, one each."""
        bits, name, codes = self.element.bits, str(self.element), scaled.codes
        _expect("codes", codes, np.dtype(np.uint8 if scaled.packed else dtype_of_bits(bits)))
        axis = axis_of(codes, scaled.axis)
        if not scaled.packed or bits >= 8:
            return np.asarray(codes)
        return _along(codes, axis, lambda last: unpack_bits(last, bits, name))

    def _scales(self, scaled: Scaled, grid: tuple[int, ...]) -> Array:
        """The scales of a Scaled, flat; loops read one for each line, so there must be as many."""
        _expect("scales", scaled.scales, np.dtype(self.rule.stored), grid)
        if isinstance(self.rule, TwoLevel) and not isinstance(scaled.tensor_scale, np.float32):
            raise InputError(f"tensor_scale={scaled.tensor_scale!r:.40}: must be a np.float32")
        return np.asarray(scaled.scales).reshape(-1)

    # --- arrays of other libraries -----------------------------------------------------------

    def _round_foreign(
        self, library: Library, x: Any, axis: int, drawn: tuple[Any, Any, Any], out: Any,
        threads: int | None,
    ) -> Any:  # fmt: skip
        if library.place(x) is Place.CUDA:
            from fpemu.scaling.on_device import round_array

            return round_array(library, self, x, axis, draws_for(self.element, *drawn), out)
        seed, offset, random_bits = drawn
        array = library.to_numpy(x)
        target = array if out is x else host_out(out, library)
        found = self.round(array, axis=axis, seed=seed, offset=offset, random_bits=random_bits,
                           out=target, threads=threads)  # fmt: skip
        return library.from_numpy(found, x) if out is None else out

    def _quantize_foreign(
        self, library: Library, x: Any, axis: int, drawn: tuple[Any, Any, Any], packed: bool,
        threads: int | None,
    ) -> Scaled:  # fmt: skip
        if library.place(x) is Place.CUDA:
            from fpemu.scaling.on_device import quantize_array

            return quantize_array(library, self, x, axis, draws_for(self.element, *drawn), packed)
        seed, offset, random_bits = drawn
        made = self.quantize(library.to_numpy(x), axis=axis, seed=seed, offset=offset,
                             random_bits=random_bits, packed=packed, threads=threads)  # fmt: skip
        codes, scales = (library.from_numpy(part, x) for part in (made.codes, made.scales))
        return replace(made, codes=codes, scales=scales)

    def _dequantize_foreign(self, library: Library, scaled: Scaled) -> Any:
        if library.place(scaled.codes) is Place.CUDA:
            from fpemu.scaling.on_device import dequantize_array

            return dequantize_array(library, scaled)
        codes, scales = (library.to_numpy(part) for part in (scaled.codes, scaled.scales))
        found = self.dequantize(replace(scaled, codes=codes, scales=scales))
        return library.from_numpy(found, scaled.codes)


#: What the parts of a recipe are.
_KINDS: tuple[tuple[str, Any, str], ...] = (
    ("name", str, "text"),
    ("block", Block, "a Block, as Block.of('1x32')"),
    ("rule", ScaleRule, "a rule, as ExponentRule()"),
    ("element", FloatElement | IntegerElement | Codebook, "an element, as FloatElement.of('fp4')"),
    ("rotation", Hadamard | None, "a Hadamard, or None"),
)


def _expect(what: str, array: Any, dtype: np.dtype[Any], shape: Any = None) -> None:
    """Refuse a part of a Scaled that is not as `quantize` makes it."""
    is_array = isinstance(array, np.ndarray | np.generic)
    if not is_array or array.dtype != dtype or (shape is not None and array.shape != shape):
        found = f"{array.dtype} of shape {array.shape}" if is_array else type(array).__name__
        of_shape = "" if shape is None else f" of shape {shape}"
        raise InputError(f"{what}: {found}; this recipe's are {dtype}{of_shape}, from quantize")


def _memory(laid: Lines, x: Array, out: Array | None) -> Array:
    """Where results go: to `out` if it lies as the lines do, to lines that are a copy, or anew."""
    if not np.may_share_memory(laid.lines, x):
        return laid.lines
    if out is not None and out.flags.c_contiguous and laid.lines.size == x.size:
        straight = laid.axis in (0, x.ndim - 1) if x.ndim < 2 else laid.axis == x.ndim - 1
        if straight:
            return out.reshape(laid.lines.shape)
    return np.empty_like(laid.lines)


def _along(array: Array, axis: int, change: Callable[[Array], Array]) -> Array:
    """Change an array along an axis by a function that works along the last one."""
    if array.ndim == 0:
        return change(array)
    return np.ascontiguousarray(np.moveaxis(change(np.moveaxis(array, axis, -1)), -1, axis))


def float32_of(x: Any) -> Array:
    """Return an array of float32 or narrower floats as float32; others are an InputError."""
    array, given = read_floats(x)
    if given == np.float64:
        raise InputError(
            "float64 would be rounded to float32 first, as scaled formats start from that: give "
            "x.astype(np.float32)"
        )
    return np.asarray(array, np.float32)
