"""Kernels of one conversion instruction, and fpemu.encode against them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np

import fpemu
from fpemu.kernels.cuda_target import cuda, jit, launch, words_at
from on_gpu.compare import Check, Comparison, words_in
from on_gpu.instructions import Instruction

__all__ = ["against_instruction", "cvt_kernel"]

U = np.uint32
L = np.uint64


@cache
def converter(instruction: Instruction) -> Any:
    """Return convert(word) -> word, the instruction itself."""
    from llvmlite import ir
    from numba.cuda.extending import intrinsic

    types = cuda.types

    @intrinsic
    def convert(typing, word):
        def code(context, builder, signature, args):
            kind = ir.FunctionType(ir.IntType(32), [ir.FloatType()])
            assembly = ir.InlineAsm(kind, instruction.assembly, "=r,f")
            return builder.call(assembly, [builder.bitcast(args[0], ir.FloatType())])

        return types.uint32(types.uint32), code

    return convert


@cache
def cvt_kernel(instruction: Instruction) -> Any:
    """Return kernel(x, out, size): the code of every uint32 pattern, right-aligned."""
    convert = converter(instruction)
    form = instruction.cast.format
    down, mask = U(instruction.shift), U((1 << form.bits) - 1)
    ask_nan, nan = instruction.nan, U(form.nan_code)

    def kernel(x, out, size):
        i = L(cuda.grid(1))
        while i < size:
            code = U(U(convert(x[i]) >> down) & mask)
            asked = ask_nan or U(x[i] & U(0x7FFFFFFF)) <= U(0x7F800000)
            out[i] = code if asked else nan
            i = L(i + L(cuda.gridsize(1)))

    return jit(kernel)


def against_instruction(instruction: Instruction, chunks: Iterator[tuple[int, Any]]) -> list[Check]:
    """Compare fpemu.encode with an instruction on every chunk; NaNs count as equal."""
    cast = instruction.cast
    form = cast.format
    left_out = "" if instruction.nan else ", NaN left out"
    comparison = Comparison(f"{instruction.name}: encode{left_out}")
    infinite = form.max_code + int(form.inf)
    for _, words in chunks:
        want = cuda.device_array(words.size, np.uint32)
        like = words_in(words)
        launch(cvt_kernel(instruction), words.size, like, words_at(like), want, L(words.size))
        got = fpemu.encode(words.view(np.float32), cast)
        comparison.add(words, got, want, nan_above=infinite, mask=(1 << form.magnitude_bits) - 1)
    return [comparison.check()]
