"""sum, dot and matmul: sums of products in any format and order, rounded at every step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import numpy as np

from fpemu.arithmetic.accumulation import Accumulation, Order, read_accumulation
from fpemu.arithmetic.engine import draws_for, multiply_batches, multiply_matrices
from fpemu.arithmetic.operands import check_options, check_range, read_operand
from fpemu.arrays import result_dtype
from fpemu.cast import Cast
from fpemu.errors import InputError
from fpemu.format import Format
from fpemu.kernels.pool import thread_count
from fpemu.libraries.library import library_of

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = ["Sums", "dot", "like_operands", "matmul", "read_factor", "sum"]

Array = np.ndarray[Any, Any]

_F32, _F64 = np.dtype(np.float32), np.dtype(np.float64)


class Sums(TypedDict, total=False):
    """What every sum takes beside its operands; see `Accumulation` for the first five."""

    product: Cast | Format | str | None  #: "exact" unless given: fused
    order: Order | str | None
    block: int | None
    splits: int | None
    outer: Cast | Format | str | None
    seed: int | None  #: for stochastic rounding
    random_bits: int | None
    threads: int | None  #: at most so many


def sum(
    x: ArrayLike, to: Accumulation | Cast | Format | str, *,
    axis: int | Sequence[int] | None = None, **options: Unpack[Sums],
) -> Any:  # fmt: skip
    """Return the sum along an axis, every partial sum rounded.

    >>> import numpy as np
    >>> from fpemu import arithmetic
    >>> x = np.full(4096, 0.1, np.float32)
    >>> arithmetic.sum(x, "fp16"), arithmetic.sum(x, "fp16", order="pairwise")
    (np.float32(256.0), np.float32(409.5))

    x: floats; its numbers are taken as they are, not rounded first. axis: one, several, or all
    (None; in C order). float64 numbers must be of magnitude 2**-240 to 2**240, 0, infinite or NaN.
    to: the Cast of the partial sums or an `Accumulation`; `Sums` lists the
    options. The result has x's dtype if that holds every sum, else float32; float64 for float64.
    The sum of nothing is +0; NaN results are positive.
    """
    settings = dict(options)
    array, given = read_operand(x, "x")
    check_range(array)
    terms, shape = _columns(array, axis)
    ones = np.ones((1, terms.shape[0]), _F32)
    how, seed, bits, threads = _settings(to, settings)
    found = multiply_matrices(ones, terms, how, draws_for(how, seed, bits), threads).reshape(shape)
    wanted = result_dtype(given or _F64, how.total.format)
    return like_operands([x], found.astype(wanted, copy=False))


def dot(
    a: ArrayLike, b: ArrayLike, to: Accumulation | Cast | Format | str, **options: Unpack[Sums]
) -> Any:
    """Return the sum of products of two vectors, every partial sum rounded.

    >>> import numpy as np
    >>> from fpemu import arithmetic
    >>> a = np.float32([1.125, 1.375])
    >>> arithmetic.dot(a, a, "e4m3fn")                          # fused
    np.float32(3.25)
    >>> arithmetic.dot(a, a, "e4m3fn", product="e4m3fn")        # products are rounded too
    np.float32(3.0)

    a, b: one axis each, of one length. Otherwise as `matmul`.
    """
    left, right = np.shape(a), np.shape(b)
    if len(left) != 1 or left != right:
        raise InputError(
            f"dot of shapes {left} and {right}: must be two vectors of one length; matmul takes "
            "matrices"
        )
    return matmul(a, b, to, **options)


def matmul(
    a: ArrayLike, b: ArrayLike, to: Accumulation | Cast | Format | str, **options: Unpack[Sums]
) -> Any:
    """Return the matrix product, every partial sum rounded, in the order and formats chosen.

    >>> import numpy as np
    >>> from fpemu import arithmetic
    >>> a = np.float32([[1, 2**-11, 2**-11]])
    >>> b = np.ones((3, 1), np.float32)
    >>> arithmetic.matmul(a, b, "fp16")                         # each small term is lost
    array([[1.]], dtype=float32)
    >>> arithmetic.matmul(a, b, "fp16", block=1, outer="float32")
    array([[1.0009766]], dtype=float32)

    a, b: float32 or narrower, shapes as for `np.matmul` (vectors, matrices, batches of them that
    broadcast); their numbers are taken as they are. float64 is refused: its products would not
    be exact. to: the Cast of the partial sums or an `Accumulation`; `Sums` lists the options.
    Each partial sum is the cast of the exact a * b + sum, or of the rounded product + sum.
    The result has the operands' dtype if they share one that holds every sum, else float32.
    K = 0 gives +0; inf - inf, 0 * inf and NaN give a positive NaN.
    Stochastic rounding draws for each output, term and rounding by itself from the seed.
    """
    settings = dict(options)
    (left, one), (right, other) = read_factor(a, "a"), read_factor(b, "b")
    shape = _product_shape(left.shape, right.shape)
    how, seed, bits, threads = _settings(to, settings)
    found = multiply_batches(left, right, how, draws_for(how, seed, bits), threads).reshape(shape)
    wanted = result_dtype(one if one == other else _F32, how.total.format)
    return like_operands([a, b], found.astype(wanted, copy=False))


# --- shapes ------------------------------------------------------------------------------------


def _columns(array: Array, axis: Any) -> tuple[Array, tuple[int, ...]]:
    """The terms along the first axis, one column an output; and the result's shape."""
    axes = tuple(range(array.ndim)) if axis is None else axis
    try:
        axes = np.lib.array_utils.normalize_axis_tuple(axes, array.ndim)
    except (TypeError, ValueError):
        raise InputError(
            f"axis={axis!r}: must be different axes of x, which has {array.ndim}"
        ) from None
    kept = [i for i in range(array.ndim) if i not in axes]
    shape = tuple(array.shape[i] for i in kept)
    terms = array.transpose(*axes, *kept).reshape(
        math.prod(array.shape[i] for i in axes), math.prod(shape)
    )
    return np.ascontiguousarray(terms), shape


def read_factor(x: Any, what: str) -> tuple[Array, np.dtype[Any]]:
    """Return a float32 array, of one axis at least, and the dtype that counts."""
    array, given = read_operand(x, what)
    if array.dtype == _F64:
        raise InputError(
            f"{what} is float64: products of float64 numbers are not exact in float64; give "
            "float32 or narrower"
        )
    if array.ndim == 0:
        raise InputError(f"{what} has no axis: multiply scalars with fpemu.arithmetic.multiply")
    return array, given or _F32


def _product_shape(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    depth = b[-2] if len(b) > 1 else b[0]
    try:
        if a[-1] != depth:
            raise ValueError
        batch = np.broadcast_shapes(a[:-2], b[:-2])
    except ValueError:
        raise InputError(
            f"matmul of shapes {a} and {b}: the last axis of a and the last but one of b must be "
            "as long, and the axes before them broadcast"
        ) from None
    return (*batch, *a[-2:-1], *(b[-1:] if len(b) > 1 else ()))


def _settings(
    to: Any, options: dict[str, Any]
) -> tuple[Accumulation, Any, Any, int | None]:
    check_options(options, Sums)
    seed, bits, threads = (options.pop(n, None) for n in ("seed", "random_bits", "threads"))
    if threads is not None:
        thread_count(threads)
    return read_accumulation(to, options), seed, bits, threads


def like_operands(values: list[Any], found: Array) -> Any:
    """Return what was found as the first operand with a library has it; without axes, a scalar."""
    for x in values:
        library = library_of(x)
        if library is not None:
            return library.from_numpy(found, x)
    return found if found.ndim else found[()]
