"""mma: a matrix product with the bits that a chip's matrix units give."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from fpemu.arrays import read_floats
from fpemu.cast import Cast
from fpemu.codes import encode
from fpemu.errors import InputError, short
from fpemu.format import Format
from fpemu.kernels.pool import thread_count
from fpemu.libraries.library import library_of
from fpemu.tensorcore.catalog import find_chip
from fpemu.tensorcore.chip import Chip, Unit
from fpemu.tensorcore.operands import Shape, accumulator, pair_of_casts, rounded
from fpemu.tensorcore.product import Product

__all__ = ["mma"]

Array = np.ndarray[Any, Any]

#: The NaN that tensor cores give, whatever NaN went in.
_NAN = np.uint32(0x7FFFFFFF)


def mma(
    a: Any,
    b: Any,
    c: Any = None,
    *,
    chip: Chip | str,
    to: Cast | Format | str | tuple[Any, Any],
    out: Format | str = "float32",
    promote: int | None = None,
    threads: int | None = None,
) -> Any:
    """Multiply matrices and add c, bit for bit as a chip's matrix units do.

    >>> import numpy as np
    >>> from fpemu import tensorcore
    >>> a = np.full((1, 4096), 0.3, np.float32)               # 0.3125 in E4M3
    >>> float(tensorcore.mma(a, a.T, chip="hopper", to="e4m3fn")[0, 0])     # 4096 * 0.3125^2 is 400
    386.625
    >>> float(tensorcore.mma(a, a.T, chip="hopper", to="e4m3fn", promote=128)[0, 0])
    400.0

    a: (..., M, K), b: (..., K, N), c: None or anything that broadcasts to the result; floats of any
    width. The dimensions before the last two match as in numpy.matmul. Returns float32 numbers of
    shape (..., M, N), as an array of the library of a, or else of b or c; CUDA arrays are refused.
    chip: a name of `fpemu.tensorcore.chips` (or of a product, "H100"), or a `Chip` of your own.
    to: the cast that operands go through on their way in, or a pair of them for a and b; numbers
    that the format holds stay as they are. "tf32" rounds to nearest even; float32 that is given to
    a tensor core unrounded is "tensorcore.tf32", what cuBLAS does "cublas.tf32".
    out: "float32" or "float16": the format of c, of the sums between steps and of the result; c is
    rounded to it, to nearest even. Only float16 products can be summed in float16.
    promote: start a new sum each so many products and add it to the total in float32, to nearest
    even, as DeepGEMM does with 128; a multiple of the products of a step, for out="float32".
    threads: at most so many; FPEMU_THREADS, or all processors.

    K = 0 gives c, or zeros; empty batches give empty results. A NaN operand, infinity times zero
    and infinities of both signs give NaN, which is 0x7FFFFFFF; overflow is infinite, also where
    the chip cuts. Sums of zero are +0. That is the published behaviour (arXiv 2511.10909): the
    recordings hold no such values. InputError: a format that the chip does not have, shapes that
    do not match. Source: the `source` of the chip's record; `Chip.verified` says what recordings
    of real chips were compared with.
    """
    casts = pair_of_casts(to)
    forms = (casts[0].format, casts[1].format)
    unit = find_chip(chip).unit(*forms, out)
    span = _span(promote, unit)
    if threads is not None:
        threads = thread_count(threads)
    x, y = read_floats(a)[0], read_floats(b)[0]
    shape = Shape.of(x, y)
    tiny = unit.sum.subnormals
    sums = accumulator(c, shape.result, unit.out, tiny, threads)
    if sums.size and shape.depth:
        codes = (rounded(x, casts[0], tiny, threads), rounded(y, casts[1], tiny, threads))
        sums = Product.of(codes, forms, shape, unit.sum, threads).added_to(sums, span)
    result = _float32(sums, threads)
    for given in (a, b, c):
        library = library_of(given)
        if library is not None:
            return library.from_numpy(result, given)
    return result


def _span(promote: Any, unit: Unit) -> int | None:
    """Check after how many products a new sum begins."""
    if promote is None:
        return None
    try:
        span = operator.index(promote)
    except TypeError:
        span = 0
    group = unit.sum.group
    if isinstance(promote, bool) or span < 1 or span % group:
        raise InputError(
            f"promote={short(promote)}: must be a multiple of {group}, the products of a step here"
        )
    if unit.out.name != "float32":
        raise InputError(
            f"promote={span} with out={unit.out.name!r}: promoted sums are float32; give "
            "out='float32'"
        )
    return span


def _float32(sums: Array, threads: int | None) -> Array:
    """Return float64 numbers that are float32, with the chip's NaN, as such: by their bits."""
    words = np.asarray(encode(sums, "float32", threads=threads))
    words[np.isnan(sums)] = _NAN
    return words.view(np.float32)
