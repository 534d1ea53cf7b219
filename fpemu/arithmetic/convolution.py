"""conv2d: convolution by the engine of matmul, as a matrix product of gathered windows."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from fpemu.arithmetic.accumulation import Accumulation
from fpemu.arithmetic.products import Sums, like_operands, matmul, read_factor
from fpemu.cast import Cast
from fpemu.errors import InputError, short
from fpemu.format import Format
from fpemu.libraries.library import host_array

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = ["conv2d"]

Array = np.ndarray[Any, Any]


def conv2d(
    x: ArrayLike, weight: ArrayLike, to: Accumulation | Cast | Format | str, *,
    stride: int | tuple[int, int] = 1, padding: int | tuple[int, int] = 0,
    dilation: int | tuple[int, int] = 1, groups: int = 1, **options: Unpack[Sums],
) -> Any:  # fmt: skip
    """Return a 2-d convolution (as in neural networks, not flipped), every partial sum rounded.

    >>> import numpy as np
    >>> from fpemu import arithmetic
    >>> x = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    >>> arithmetic.conv2d(x, np.ones((1, 1, 3, 3), np.float32), "e4m3fn")
    array([[[[48., 52.],
             [80., 96.]]]], dtype=float32)

    x: (batch, channels, height, width). weight: (outputs, channels / groups, height, width).
    stride, padding, dilation: one number, or (of rows, of columns); padding adds zeros, which
    are terms as others (an infinite weight makes NaN of them). A window's terms are summed by
    channel, row and column; to and options: as in `matmul`. Shapes that do not fit and float64
    are refused.
    """
    image, kernel = (_read(v, what) for v, what in ((x, "x"), (weight, "weight")))
    steps, edges, gaps = (_two(name, v, low) for name, v, low in (
        ("stride", stride, 1), ("padding", padding, 0), ("dilation", dilation, 1)))  # fmt: skip
    _check(image.shape, kernel.shape, groups)
    windows = _windows(image, kernel.shape[2:], steps, edges, gaps)
    batch, _, high, wide = windows.shape[:4]
    terms = math.prod(kernel.shape[1:])
    columns = windows.transpose(0, 1, 4, 5, 2, 3).reshape(batch, groups, terms, high * wide)
    rows = kernel.reshape(groups, kernel.shape[0] // groups, terms)
    found = matmul(rows, columns, to, **options)
    return like_operands([x, weight], found.reshape(batch, kernel.shape[0], high, wide))


def _read(x: Any, what: str) -> Array:
    array = np.asarray(host_array(x))
    read_factor(array, what)
    if array.ndim != 4:
        raise InputError(
            f"{what} has {array.ndim} axes: must have 4, (batch, channels, height, width)"
        )
    return array


def _two(name: str, value: Any, low: int) -> tuple[int, int]:
    pair = tuple(value) if isinstance(value, (tuple, list)) else (value, value)
    good = len(pair) == 2 and all(type(v) is int and v >= low for v in pair)
    if not good:
        raise InputError(f"{name}={short(value)}: must be an int of at least {low}, or two of them")
    return pair


def _check(image: tuple[int, ...], kernel: tuple[int, ...], groups: Any) -> None:
    if type(groups) is not int or groups < 1 or image[1] % groups or kernel[0] % groups:
        raise InputError(
            f"groups={short(groups)}: must divide the {image[1]} channels and {kernel[0]} outputs"
        )
    if kernel[1] * groups != image[1]:
        raise InputError(
            f"x has {image[1]} channels, weight takes {kernel[1]} in each of {groups} groups: "
            "they must be as many"
        )


def _windows(
    image: Array, size: tuple[int, ...], steps: tuple[int, int], edges: tuple[int, int],
    gaps: tuple[int, int],
) -> Array:  # fmt: skip
    """A view of (batch, channels, rows out, columns out, rows, columns of the window)."""
    padded = np.pad(image, ((0, 0), (0, 0), (edges[0],) * 2, (edges[1],) * 2))
    reach = tuple((n - 1) * gap + 1 for n, gap in zip(size, gaps, strict=True))
    if 0 in size or reach[0] > padded.shape[2] or reach[1] > padded.shape[3]:
        raise InputError(
            f"weight reaches over {list(reach)}: the padded x has only {list(padded.shape[2:])}"
        )
    view = np.lib.stride_tricks.sliding_window_view(padded, reach, axis=(2, 3))
    return view[:, :, :: steps[0], :: steps[1], :: gaps[0], :: gaps[1]]
