"""The CUDA kernels of scaled blocks to compile, by name, and the signatures they are launched with.

As in ptx_kernels.py nothing here imports the CUDA target before a kernel is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from ptx_kernels import _array, _tuple, _type

from fpemu.scaling import Recipe, find_recipe

__all__ = ["KERNELS", "BlockKernel", "built", "numbers"]


class BlockKernel(NamedTuple):
    """What tells one kernel from another; `str` names it."""

    kind: str  #: "block", "amax", "top", "scale", "kept", "apply", "clear", "pack", "rotate", ...
    recipe: str = ""
    verb: str = ""  #: "round", "encode" or "decode"
    group: int = 4  #: numbers of an access
    strided: bool = False

    def __str__(self) -> str:
        layout = "strided" if self.strided else "wide" if self.group == 4 else "single"
        return " ".join(part for part in (self.kind, self.recipe, self.verb, layout) if part)


_DRAWN = "1x16 two_level fp4:overflow=saturate,rounding=stochastic"

KERNELS = (
    *(BlockKernel("block", "mxfp8", verb) for verb in ("round", "encode")),
    BlockKernel("block", "mxfp8", "round", group=1),
    BlockKernel("block", "mxfp8", "round", group=1, strided=True),
    BlockKernel("block", "torchao.mxfp8.rceil", "encode"),
    BlockKernel("block", "nvfp4", "round"),
    BlockKernel("block", "torchao.nvfp4", "encode"),
    BlockKernel("block", _DRAWN, "encode"),
    BlockKernel("block", "te.block", "encode"),
    BlockKernel("block", "mxint8", "encode"),
    BlockKernel("block", "nf4", "encode"),
    BlockKernel("amax", "torchao.float8.rowwise"),
    BlockKernel("amax", "te.block.weight"),
    BlockKernel("amax", "te.block.weight", group=1, strided=True),
    *(BlockKernel("top", group=group) for group in (4, 1)),
    *(BlockKernel("scale", name) for name in (
        "te.current", "torchao.float8.tensorwise", "keras.int8", "nvfp4.weight",
    )),
    *(BlockKernel("kept", name) for name in ("mxfp8", "nvfp4")),
    BlockKernel("apply", "te.current", "round"),
    BlockKernel("apply", "torchao.float8.rowwise", "round"),
    BlockKernel("apply", "nvfp4.weight", "encode"),
    BlockKernel("apply", "mxfp8", "decode"),
    BlockKernel("apply", "nf4", "decode", group=1, strided=True),
    BlockKernel("clear"),
    *(BlockKernel(kind, "mxfp6_e2m3") for kind in ("pack", "unpack")),
    BlockKernel("rotate", "nvfp4.hadamard"),
    BlockKernel("restore", "nvfp4.hadamard", group=1, strided=True),
)  # fmt: skip


def built(kernel: BlockKernel) -> tuple[Any, Any]:
    """Return the kernel, not yet compiled, and its signature."""
    from numba.cuda import types

    loop, arguments = _MAKERS[kernel.kind](kernel)
    return loop, types.void(*arguments)


def numbers(kernel: BlockKernel) -> int:
    """How many numbers of a block each thread has."""
    segments = _segments(kernel)
    return int(segments.group * segments.rounds)


def _recipe(kernel: BlockKernel) -> Recipe:
    return find_recipe(kernel.recipe)


def _segments(kernel: BlockKernel) -> Any:
    from fpemu.scaling.device_layout import lay_out

    recipe = _recipe(kernel)
    shape = (256, 256, 2) if kernel.strided else (256, 260)  # with ends that are no whole blocks
    grid = lay_out(shape, recipe.block, 1, False)
    return grid.segments()._replace(group=kernel.group)


def _facts(kernel: BlockKernel) -> tuple[Any, Any]:
    from fpemu.kernels.cuda_numbers import Work
    from fpemu.scaling.facts import element_facts, scale_facts

    recipe = _recipe(kernel)
    work = Work(kernel.verb, element_facts(recipe.element, None), recipe.rule.divides_first,
                recipe.rule.divides)  # fmt: skip
    return scale_facts(recipe.rule, recipe.element), work


def _in_and_out(kernel: BlockKernel) -> list[Any]:
    verb = kernel.verb
    return [_array("u1" if verb == "decode" else "u4"), _array("u1" if verb == "encode" else "u4")]


def _stored(kernel: BlockKernel) -> Any:
    return _array("u1" if _recipe(kernel).rule.stored == np.uint8 else "u4")


def _layout() -> Any:
    from fpemu.kernels.cuda_segments import Layout

    return _tuple("u8", len(Layout._fields))


def _block(kernel: BlockKernel) -> tuple[Any, list[Any]]:
    from fpemu.kernels.cuda_blocks import block_kernel

    stored = _stored(kernel) if kernel.verb == "encode" else _array("u4")
    loop = block_kernel(*_facts(kernel), _segments(kernel))
    return loop, [*_in_and_out(kernel), stored, _array("u4"), _type("u4"), _layout()]


def _amax(kernel: BlockKernel) -> tuple[Any, list[Any]]:
    from fpemu.kernels.cuda_blocks import amax_kernel

    return amax_kernel(_segments(kernel)), [_array("u4"), _array("u4"), _layout()]


def _top(kernel: BlockKernel) -> tuple[Any, list[Any]]:
    from fpemu.kernels.cuda_blocks import top_kernel

    return top_kernel(kernel.group), [_array("u4"), _type("u8"), _array("u4")]


def _scale(kernel: BlockKernel) -> tuple[Any, list[Any]]:
    from fpemu.kernels.cuda_blocks import scale_kernel

    factors = [_array("u4")] * 3
    return scale_kernel(_facts(kernel)[0]), [*factors, _stored(kernel), _type("u8"), _type("u4")]


def _kept(kernel: BlockKernel) -> tuple[Any, list[Any]]:
    from fpemu.kernels.cuda_blocks import kept_kernel

    loop = kept_kernel(_facts(kernel)[0])
    return loop, [_stored(kernel), _array("u4"), _type("u8"), _type("u4")]


def _apply(kernel: BlockKernel) -> tuple[Any, list[Any]]:
    from fpemu.kernels.cuda_blocks import apply_kernel

    loop = apply_kernel(_facts(kernel)[1], _segments(kernel))
    return loop, [*_in_and_out(kernel), *[_array("u4")] * 3, _layout()]


def _clear(kernel: BlockKernel) -> tuple[Any, list[Any]]:
    from fpemu.kernels.cuda_blocks import clear_kernel

    return clear_kernel(), [_array("u4"), _type("u8")]


def _packing(kernel: BlockKernel) -> tuple[Any, list[Any]]:
    from fpemu.kernels import cuda_groups

    make = getattr(cuda_groups, f"{kernel.kind}_kernel")
    return make(_recipe(kernel).element.bits), [*[_array("u1")] * 2, *[_type("u8")] * 2]


def _rotation(kernel: BlockKernel) -> tuple[Any, list[Any]]:
    from fpemu.kernels.cuda_groups import rotate_kernel

    rotation = _recipe(kernel).rotation
    assert rotation is not None
    loop = rotate_kernel(rotation.size, kernel.strided, kernel.kind == "restore")
    return loop, [*[_array("u4")] * 3, *[_type("u8")] * 2]


_MAKERS: dict[str, Callable[[BlockKernel], tuple[Any, list[Any]]]] = {
    "block": _block,
    "amax": _amax,
    "top": _top,
    "scale": _scale,
    "kept": _kept,
    "apply": _apply,
    "clear": _clear,
    "pack": _packing,
    "unpack": _packing,
    "rotate": _rotation,
    "restore": _rotation,
}
