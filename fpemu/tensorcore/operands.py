"""Operands: matrices rounded to a format, their shapes matched, laid out for the loops."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fpemu.arrays import read_floats
from fpemu.cast import Cast, Rounding, Subnormals, make_cast
from fpemu.codes import decode, encode
from fpemu.errors import InputError
from fpemu.format import Format
from fpemu.kernels.cpu_aligned import ABOVE, ABSENT, exponent_loop

__all__ = ["Plane", "Shape", "Stack", "accumulator", "pair_of_casts", "plane", "rounded"]

Array = np.ndarray[Any, Any]


def pair_of_casts(to: Any) -> tuple[Cast, Cast]:
    """Return the casts of both operands: `to` is one, or a pair of them."""
    pair = tuple(to) if isinstance(to, tuple | list) else (to, to)
    if len(pair) != 2:
        raise InputError(f"to has {len(pair)} entries: give one cast, or a pair for a and b")
    first, second = (make_cast(each) for each in pair)
    for cast in (first, second):
        if cast.rounding is Rounding.STOCHASTIC:
            raise InputError(
                f"to={str(cast)!r}: operands are not rounded at random here; round them first with "
                "fpemu.round(x, ..., seed=...) and give the format"
            )
    return first, second


@dataclass(frozen=True)
class Shape:
    """Shapes of a product: batch dimensions, rows, products of a sum, columns."""

    batch: tuple[int, ...]
    rows: int
    depth: int
    columns: int

    @classmethod
    def of(cls, a: Array, b: Array) -> Shape:
        """Match two operands as numpy's matmul does."""
        for name, x in (("a", a), ("b", b)):
            if x.ndim < 2:
                raise InputError(
                    f"{name} of shape {x.shape}: must be a matrix or a stack of them; give "
                    f"{name}[None, :] or {name}[:, None]"
                )
        if a.shape[-1] != b.shape[-2]:
            raise InputError(
                f"a of shape {a.shape} and b of shape {b.shape}: a's columns ({a.shape[-1]}) must "
                f"be as many as b's rows ({b.shape[-2]})"
            )
        try:
            batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        except ValueError:
            raise InputError(
                f"a of shape {a.shape} and b of shape {b.shape}: the dimensions before the last "
                "two must be equal or 1"
            ) from None
        return cls(batch, a.shape[-2], a.shape[-1], b.shape[-1])

    @property
    def result(self) -> tuple[int, ...]:
        """The shape of the result."""
        return (*self.batch, self.rows, self.columns)

    def stacked(self, a: Array, b: Array) -> tuple[Stack, Stack]:
        """Return both operands as stacks; one b serves all rows of a."""
        if b.size == self.depth * self.columns:
            rows, columns = a.reshape(1, -1, self.depth), b.reshape(1, self.depth, self.columns)
            return Stack(rows, [0]), Stack(columns, [0])
        return self._stack(a), self._stack(b)

    def _stack(self, x: Array) -> Stack:
        matrices = x.reshape(-1, *x.shape[-2:])
        own = np.arange(len(matrices)).reshape(x.shape[:-2])
        return Stack(matrices, np.broadcast_to(own, self.batch).ravel().tolist())


class Stack(NamedTuple):
    """Matrices, each of them once, and which of them each product of the batch takes."""

    codes: Array  #: (matrix, row, column)
    which: list[int]

    @property
    def turned(self) -> Stack:
        """The same with rows and columns changed."""
        return self._replace(codes=self.codes.transpose(0, 2, 1))


@dataclass(frozen=True)
class Plane:
    """A stack of matrices as the loops take it: values and exponents, (matrix, row, column)."""

    values: Array
    exponents: Array
    which: list[int]

    @property
    def finite(self) -> bool:
        """Whether no value is infinite or NaN."""
        return bool(self.exponents.max(initial=ABSENT) < ABOVE)

    def __getitem__(self, product: int) -> tuple[Array, Array]:
        matrix = self.which[product]
        return self.values[matrix], self.exponents[matrix]


def rounded(x: Array, cast: Cast, subnormals: Subnormals, threads: int | None) -> Array:
    """Return the codes of floats rounded by a cast; FLUSH: a unit's subnormals are zero."""
    if subnormals is Subnormals.FLUSH:
        cast = cast.replace(subnormals=subnormals)
    return np.asarray(encode(x, cast, threads=threads))


def plane(stack: Stack, form: Format, wide: bool, threads: int | None) -> Plane:
    """Return a stack of matrices of codes as values and exponents, float32 or wider."""
    floats = np.float64 if wide else np.float32
    values = decode(np.ascontiguousarray(stack.codes), form, floats, threads=threads)
    exponents = np.empty(values.shape, np.int16)
    words = values.view(np.uint64 if wide else np.uint32)
    exponent_loop(wide)(words.reshape(-1), exponents.reshape(-1), form.emin)
    return Plane(values, exponents, stack.which)


def accumulator(
    c: Any, shape: tuple[int, ...], form: Format, subnormals: Subnormals, threads: int | None
) -> Array:
    """Return c in float64, rounded to the format in which it is held; zeros if it is None."""
    if c is None:
        return np.zeros(shape)
    codes = rounded(read_floats(c)[0], Cast(form), subnormals, threads)
    values: Array = decode(codes, form, np.float64, threads=threads)
    try:
        return np.array(np.broadcast_to(values, shape))
    except ValueError:
        raise InputError(
            f"c of shape {values.shape}: must broadcast to the result's shape {shape}"
        ) from None
