"""round, quantize and dequantize by a recipe where an array lies on a CUDA device.

The counterpart of `recipe.py`: the same codes, scales and values, by the kernels of
`fpemu.kernels.cuda_blocks`. Only the largest magnitude of a tensor comes to the host, where a
scale of two levels depends on it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from fpemu.codes import dtype_of_bits
from fpemu.elementwise import Draws
from fpemu.errors import InputError
from fpemu.kernels.cpu_packing import group_of
from fpemu.kernels.cuda_blocks import (
    amax_kernel,
    apply_kernel,
    block_kernel,
    clear_kernel,
    kept_kernel,
    scale_kernel,
    top_kernel,
)
from fpemu.kernels.cuda_groups import CHUNK, pack_kernel, rotate_kernel, unpack_kernel
from fpemu.kernels.cuda_numbers import Work
from fpemu.kernels.cuda_target import Words, cuda, launch, on_device_of, words_at
from fpemu.kernels.random import BLOCK
from fpemu.libraries.library import Library
from fpemu.on_device import finish, floats_of, own_library, target_of, words_of
from fpemu.scaling.device_layout import Grid, lay_out
from fpemu.scaling.facts import element_facts, element_table, scale_facts
from fpemu.scaling.hadamard import Hadamard
from fpemu.scaling.rules import FixedRule

if TYPE_CHECKING:
    from fpemu.scaling.recipe import Recipe, Scaled

__all__ = ["dequantize_array", "largest", "quantize_array", "round_array"]

Array = np.ndarray[Any, Any]

U = np.uint32
L = np.uint64

_F32, _U8 = np.dtype(np.float32), np.dtype(np.uint8)


def round_array(
    library: Library, recipe: Recipe, x: Any, axis: Any, draws: Draws | None, out: Any
) -> Any:
    """Return what is left of an array, as one of its library, device and stream."""
    floats = _floats(library, x)
    grid = lay_out(library.shape(x), recipe.block, axis, draws is not None)
    target = target_of(library, floats, _F32, out, x)
    source = floats
    if recipe.rotation:
        source = own_library(floats).empty(floats, _F32)
        _rotate(recipe.rotation, floats, source, grid, back=False)
    made = target if source is floats else source
    _scaled(recipe, "round", source, made, grid, draws)
    if recipe.rotation:
        _rotate(recipe.rotation, made, target, grid, back=True)
    return finish(library, target, out)


def quantize_array(
    library: Library, recipe: Recipe, x: Any, axis: Any, draws: Draws | None, packed: bool
) -> Scaled:
    """Return an array's codes and scales, as arrays of its library, device and stream."""
    from fpemu.scaling.recipe import Scaled

    source = _floats(library, x)
    grid = lay_out(library.shape(x), recipe.block, axis, draws is not None)
    if recipe.rotation:
        rotated = own_library(source).empty(source, _F32)
        _rotate(recipe.rotation, source, rotated, grid, back=False)
        source = rotated
    codes = own_library(source).empty(source, dtype_of_bits(recipe.element.bits))
    scales, whole = _scaled(recipe, "encode", source, codes, grid, draws)
    if packed := packed and recipe.element.bits < 8:
        codes = _packed(codes, grid, recipe.element.bits)
    return Scaled(recipe, finish(library, codes, None), scales, whole, grid.axis, packed)


def dequantize_array(library: Library, scaled: Scaled) -> Any:
    """Return the float32 values that codes and scales on a device stand for."""
    recipe = scaled.recipe
    codes = library.dense(scaled.codes, True)
    _check_same(library, scaled, codes)
    if scaled.packed:
        codes = _unpacked(codes, scaled.axis, recipe.element.bits)
    own = own_library(codes)
    grid = lay_out(own.shape(codes), recipe.block, scaled.axis, False)
    if math.prod(library.shape(scaled.scales)) != grid.blocks:
        raise InputError(
            f"scales of shape {library.shape(scaled.scales)}: codes of shape {own.shape(codes)} "
            f"have {grid.blocks} blocks of {recipe.block}; give those that quantize returned"
        )
    target = own.empty(codes, _F32)
    facts = scale_facts(recipe.rule, recipe.element)
    decode = own.new(codes, (grid.blocks,), _F32)
    stored, words = words_of(library.dense(scaled.scales, True)), words_of(codes)
    if words.size:
        whole = _word(scaled.tensor_scale)
        launch(kept_kernel(facts), grid.blocks, words, stored, words_of(decode),
               L(grid.blocks), whole)  # fmt: skip
        work = Work("decode", element_facts(recipe.element, None), False, recipe.rule.divides)
        with on_device_of(words) as stream:
            table = _table(element_table(recipe.element, None, 0), decode, stream)
            _apply(work, words, words_of(target), (decode, decode), table, grid, 0)
    if recipe.rotation:
        _rotate(recipe.rotation, target, target, grid, back=True)
    return finish(library, target, None)


def largest(library: Library, x: Any) -> np.float32:
    """Return an array's largest magnitude, on the host; NaN if any number is NaN, 0 of none."""
    floats = _floats(library, x)
    with on_device_of(words_of(floats)) as stream:
        return _top(floats, stream)


# --- the work ----------------------------------------------------------------------------------


def _scaled(
    recipe: Recipe, verb: str, x: Any, made: Any, grid: Grid, draws: Draws | None
) -> tuple[Any, np.float32]:
    """Write values or codes to `made`; return scales as stored, and the tensor's."""
    rule, element = recipe.rule, recipe.element
    facts = scale_facts(rule, element)
    work = Work(verb, element_facts(element, draws), rule.divides_first, rule.divides)
    own, source = own_library(x), words_of(x)
    stored = own.new(x, grid.shape, np.dtype(rule.stored))
    first = draws.offset % BLOCK if draws else 0
    with on_device_of(source) as stream:
        table = _table(element_table(element, draws, grid.counted), x, stream)
        if grid.one_pass and not isinstance(rule, FixedRule):
            most = _top(x, stream) if rule.whole_first else np.float32(0)
            whole = _whole(recipe, most)
            _one_pass((facts, work), source, made, stored, table, whole, grid, first)
            return stored, whole
        amax, encode, decode = (own.new(x, (grid.blocks,), _F32) for _ in range(3))
        _find_amax(source, amax, grid, looks=not isinstance(rule, FixedRule))
        whole = _whole(recipe, _top(amax, stream) if rule.whole_first else np.float32(0))
        if grid.blocks:
            launch(scale_kernel(facts), grid.blocks, source, words_of(amax), words_of(encode),
                   words_of(decode), words_of(stored), L(grid.blocks), _word(whole))  # fmt: skip
        _apply(work, source, words_of(made), (encode, decode), table, grid, first)
    return stored, whole


def _one_pass(
    facts: tuple[Any, Work], source: Words, made: Any, stored: Any, table: Any,
    whole: np.float32, grid: Grid, first: int,
) -> None:  # fmt: skip
    if not source.size:
        return
    to = words_of(made)
    segments = grid.segments(source, to)
    kept = words_of(stored) if facts[1].verb == "encode" else source  # an argument all the same
    kernel = block_kernel(*facts, segments)
    launch(kernel, grid.units * segments.lanes, source, source, to, kept, table, _word(whole),
           grid.layout(first), together=segments.lanes)  # fmt: skip


def _find_amax(source: Words, amax: Any, grid: Grid, *, looks: bool) -> None:
    """Each block's largest magnitude, or zeros."""
    found = words_of(amax)
    if found.size:
        launch(clear_kernel(), found.size, source, found, L(found.size))
    if not source.size or not looks:
        return
    if grid.blocks == 1:
        _top_into(source, found)
        return
    segments = grid.segments(source)
    launch(amax_kernel(segments), grid.units * segments.lanes, source, source, found,
           grid.layout(0), together=segments.lanes)  # fmt: skip


def _apply(
    work: Work, source: Words, to: Words, factors: tuple[Any, Any], table: Any, grid: Grid,
    first: int,
) -> None:  # fmt: skip
    if source.size:
        segments = grid.segments(source, to)
        launch(apply_kernel(work, segments), grid.units * segments.lanes, source, source, to,
               *map(words_of, factors), table, grid.layout(first),
               together=segments.lanes)  # fmt: skip


def _top(x: Any, stream: Any) -> np.float32:
    """The largest magnitude of an array, on the host."""
    top = own_library(x).new(x, (1,), _F32)
    source, found = words_of(x), words_of(top)
    launch(clear_kernel(), 1, source, found, L(1))
    if source.size:
        _top_into(source, found)
    word = words_at(found).copy_to_host(stream=stream)
    if stream:
        stream.synchronize()
    return np.float32(word.view(np.float32)[0])


def _top_into(source: Words, found: Words) -> None:
    group = 4 if source.pointer % 16 == 0 else 1
    launch(top_kernel(group), -(-source.size // group), source, source, L(source.size), found)


def _whole(recipe: Recipe, most: np.float32) -> np.float32:
    with np.errstate(all="ignore"):
        return recipe.rule.whole(most, recipe.element)


def _table(table: Array | None, x: Any, stream: Any) -> Any:
    """An element's table on the device; x, unread, where it has none."""
    return words_of(x) if table is None else cuda.to_device(table, stream=stream)


def _word(value: np.float32) -> Any:
    return np.float32(value).view(np.uint32)


def _floats(library: Library, x: Any) -> Any:
    """x as float32, in C order."""
    if library.dtype(x) == np.float64:
        raise InputError(
            "float64 would be rounded to float32 first, as scaled formats start from that: "
            "convert it to float32"
        )
    return floats_of(library.dense(x, True))


# --- groups along the axis ---------------------------------------------------------------------


def _rotate(rotation: Hadamard, x: Any, out: Any, grid: Grid, *, back: bool) -> None:
    if grid.length % rotation.size:
        raise InputError(
            f"an axis of {grid.length} numbers: a Hadamard rotation takes multiples of "
            f"{rotation.size}; pad with zeros"
        )
    source = words_of(x)
    groups = source.size // rotation.size
    if not groups:
        return
    signs = [rotation.signs >> place & 1 for place in range(rotation.size)]
    with on_device_of(source) as stream:
        flips = cuda.to_device(np.array(signs, np.uint32) << U(31), stream=stream)
        kernel = rotate_kernel(rotation.size, grid.inner > 1, back)
        work = -(-source.size // CHUNK) * 256  # a block of threads for each chunk
        launch(kernel, work, source, source, words_of(out), flips, L(groups), L(grid.inner))


def _packed(codes: Any, grid: Grid, bits: int) -> Any:
    """Codes side by side in bytes along the axis."""
    count, size = group_of(bits)
    own = own_library(codes)
    if not own.shape(codes) or grid.length % count:
        raise InputError(
            f"{grid.length if own.shape(codes) else 'no'} codes of {bits} bits along the axis: "
            f"must be a multiple of {count} to fill whole bytes; pad with zeros"
        )
    octets = own.new(codes, _resized(own.shape(codes), grid.axis, count, size), _U8)
    _grouped(pack_kernel(bits), codes, octets, grid.inner, count)
    return octets


def _unpacked(octets: Any, axis: int, bits: int) -> Any:
    count, size = group_of(bits)
    own = own_library(octets)
    shape = own.shape(octets)
    if own.dtype(octets) != _U8 or not shape or shape[axis] % size:
        raise InputError(
            f"packed codes of shape {shape}: must be uint8 with a multiple of {size} bytes along "
            "the axis"
        )
    codes = own.new(octets, _resized(shape, axis, size, count), _U8)
    _grouped(unpack_kernel(bits), octets, codes, math.prod(shape[axis + 1 :]), size)
    return codes


def _resized(shape: tuple[int, ...], axis: int, old: int, new: int) -> tuple[int, ...]:
    return (*shape[:axis], shape[axis] // old * new, *shape[axis + 1 :])


def _grouped(kernel: Any, x: Any, out: Any, inner: int, count: int) -> None:
    source = words_of(x)
    groups = source.size // count
    if groups:
        launch(kernel, groups, source, source, words_of(out), L(groups), L(inner))


def _check_same(library: Library, scaled: Scaled, codes: Any) -> None:
    """Refuse scales that no kernel of the codes' device could read, and codes of another width."""
    width = _U8 if scaled.packed else dtype_of_bits(scaled.recipe.element.bits)
    kept = np.dtype(scaled.recipe.rule.stored)
    given = library.dtype(codes), library.dtype(scaled.scales)
    if given != (width, kept):
        raise InputError(
            f"codes of {given[0].name} and scales of {given[1].name}: {scaled.recipe.name} has "
            f"{width.name} and {kept.name}, as quantize gives"
        )


