"""add, subtract, multiply, divide, sqrt, fma: elementwise, each rounded once by a Cast."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import numpy as np

from fpemu.arithmetic.flags import Flags, Tininess, find_flags, read_tininess
from fpemu.arithmetic.operands import Operands, check_options, read_only, read_operands
from fpemu.arrays import check_out, result_dtype
from fpemu.cast import Cast, Negative, Overflow, Rounding, Subnormals, Zero, cast_of
from fpemu.elementwise import draws_of, run
from fpemu.format import Format
from fpemu.kernels.cpu_arithmetic import operation_loop
from fpemu.kernels.plan import plan
from fpemu.kernels.pool import run_chunks

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = ["Options", "add", "divide", "fma", "multiply", "round_results", "sqrt", "subtract"]

Array = np.ndarray[Any, Any]

_F32, _F64 = np.dtype(np.float32), np.dtype(np.float64)


class Options(TypedDict, total=False):
    """What every elementwise operation takes beside its operands and its cast."""

    rounding: Rounding | str | None  #: these five take the place of the cast's own rules
    overflow: Overflow | str | None
    subnormals: Subnormals | str | None
    negative: Negative | str | None
    zero: Zero | str | None
    seed: int | None  #: for stochastic rounding, with offset and random_bits, as in fpemu.round
    offset: int
    random_bits: int | None
    flags: bool  #: return (result, Flags)
    tininess: Tininess | str  #: of the underflow flag: "after" (unless given) or "before" rounding
    out: Any  #: where to write the result
    threads: int | None  #: at most so many


def add(
    a: ArrayLike, b: ArrayLike, to: Cast | Format | str, **options: Unpack[Options]
) -> Any:
    """Return a + b, rounded once.

    >>> import numpy as np
    >>> from fpemu import arithmetic
    >>> arithmetic.add(np.float32([2048, 2048]), np.float32([1, 1.001]), "fp16")
    array([2048., 2050.], dtype=float32)

    a, b: floats of shapes that broadcast together, taken as they are: round them first
    (`fpemu.round`) if they are to be of the format. to, options: see `Options`; the result is the
    cast of the exact sum, in every rounding mode (docs/arithmetic.md has the proof).
    The result is float64 if an operand is, a narrower float if all are that and it holds every
    result, else float32. An exact zero is +0, and -0 under rounding down, unless both operands
    are zeros of one sign (IEEE 754-2019, 6.3). inf - inf is NaN; NaN results are positive.
    Stochastic rounding sees the first 52 bits of the exact result.
    """
    return _operate("add", (a, b), to, **options)


def subtract(
    a: ArrayLike, b: ArrayLike, to: Cast | Format | str, **options: Unpack[Options]
) -> Any:
    """Return a - b, rounded once: the sum of a and -b, see `add`.

    >>> import numpy as np
    >>> from fpemu import arithmetic
    >>> arithmetic.subtract(np.float32(1), np.float32(2**-30), "bf16", rounding="down")
    np.float32(0.99609375)
    """
    return _operate("subtract", (a, b), to, **options)


def multiply(
    a: ArrayLike, b: ArrayLike, to: Cast | Format | str, **options: Unpack[Options]
) -> Any:
    """Return a * b, rounded once; see `add` for what it takes and gives.

    >>> import numpy as np
    >>> from fpemu import arithmetic
    >>> arithmetic.multiply(np.float32([300, 0]), np.float32([300, np.inf]), "fp16")
    array([inf, nan], dtype=float32)

    float64 operands must be of magnitude 2**-240 to 2**240, or 0, infinite or NaN.
    """
    return _operate("multiply", (a, b), to, **options)


def divide(
    a: ArrayLike, b: ArrayLike, to: Cast | Format | str, **options: Unpack[Options]
) -> Any:
    """Return a / b, rounded once; see `add` for what it takes and gives.

    >>> import numpy as np
    >>> from fpemu import arithmetic
    >>> arithmetic.divide(np.float32([1, 1, 0]), np.float32([3, -0.0, 0]), "fp16")
    array([0.33325195,       -inf,        nan], dtype=float32)

    x / 0 is infinite, 0 / 0 and inf / inf are NaN. float64 operands: as in `multiply`.
    """
    return _operate("divide", (a, b), to, **options)


def sqrt(x: ArrayLike, to: Cast | Format | str, **options: Unpack[Options]) -> Any:
    """Return the square root, rounded once; see `add` for what it takes and gives.

    >>> import numpy as np
    >>> from fpemu import arithmetic
    >>> arithmetic.sqrt(np.float32([2, -0.0, -1]), "e4m3fn")
    array([ 1.375, -0.   ,    nan], dtype=float32)

    float64 operands: as in `multiply`.
    """
    return _operate("sqrt", (x,), to, **options)


def fma(
    a: ArrayLike, b: ArrayLike, c: ArrayLike, to: Cast | Format | str, **options: Unpack[Options]
) -> Any:
    """Return a * b + c, rounded once: fused, the product is exact.

    >>> import numpy as np
    >>> from fpemu import arithmetic
    >>> a, c = np.float32(1 + 2**-10), np.float32(-1 - 2**-9)
    >>> arithmetic.fma(a, a, c, "fp16")
    np.float32(9.536743e-07)
    >>> arithmetic.add(arithmetic.multiply(a, a, "fp16"), c, "fp16")      # unfused
    np.float32(0.0)

    See `add` for what it takes and gives; 0 * inf + c is NaN. float64 operands: as in `multiply`.
    """
    return _operate("fma", (a, b, c), to, **options)


class _Call:
    """How the results of a call are rounded and where they go."""

    def __init__(
        self, operands: Operands, to: Cast | Format | str, *,
        rounding: Rounding | str | None = None, overflow: Overflow | str | None = None,
        subnormals: Subnormals | str | None = None, negative: Negative | str | None = None,
        zero: Zero | str | None = None, seed: int | None = None, offset: int = 0,
        random_bits: int | None = None, flags: bool = False,
        tininess: Tininess | str = Tininess.AFTER, out: Any = None, threads: int | None = None,
    ) -> None:  # fmt: skip
        self.operands, self.out, self.threads, self.flags = operands, out, threads, flags
        self.cast = cast_of(to, (rounding, overflow, subnormals, negative, zero))
        self.tininess = read_tininess(tininess)
        drawn = _F64 if operands.given == _F64 else _F32
        self.draws = draws_of(self.cast, drawn, seed, offset, random_bits)
        self.wanted = result_dtype(operands.given, self.cast.format)
        self.exact = np.empty(operands.shape)
        here = operands.host_out(out)
        self.target = None if out is None else check_out(here, self.exact, self.wanted)

    def round(self, x: Array, cast: Cast) -> Array:
        """Round float64 results to float64, with the call's random bits."""
        loop = plan("round", cast, 64, self.draws.bits if self.draws else 32)
        return run(loop, x, _F64, _F64, None, self.draws, self.threads)

    def finish(self) -> Any:
        """Round `exact` and return it as the caller wants it."""
        rounded = self.round(self.exact, self.cast)
        flags = self.raised(rounded) if self.flags else None  # before out, which an operand may be
        found = self.target
        if found is None:
            found = rounded.astype(self.wanted, copy=False)  # exact: it holds every result
        else:
            np.copyto(found, rounded, casting="unsafe")
        result = self.operands.result(found, self.out)
        return result if flags is None else (result, flags)

    def raised(self, rounded: Array) -> Flags:
        """Return the flags of the rounded results."""
        shaped = self.operands.shaped()
        return find_flags(self.exact, rounded, shaped, self.cast, self.tininess, self.round)


def _operate(
    name: str, values: tuple[Any, ...], to: Cast | Format | str, **options: Unpack[Options]
) -> Any:
    check_options(options, Options)
    call = _Call(read_operands(values, limited=name not in ("add", "subtract")), to, **options)
    down = call.cast.rounding is Rounding.DOWN
    _run(name, call.operands.flat, call.exact, down, call.threads)
    return call.finish()


def round_results(
    operands: Operands, results: Array, to: Cast | Format | str, **options: Unpack[Options]
) -> Any:
    """Round float64 results of operands as an operation's are; options: checked."""
    call = _Call(operands, to, **options)
    call.exact = results
    return call.finish()


def _run(
    name: str, flat: list[Array], exact: Array, down: bool, threads: int | None
) -> None:
    """Write each exact result, rounded to odd, to an array."""
    if name == "subtract":
        name, flat = "add", [flat[0], np.negative(flat[1])]
    if len({x.dtype for x in flat}) > 1:  # of each mixture a loop would be compiled
        flat = [x.astype(_F64) for x in flat]
    flat = [read_only(x) for x in flat]
    loop, target = operation_loop(name), exact.reshape(-1)

    def chunk(start: int, stop: int) -> None:
        loop(*(x[start:stop] for x in flat), target[start:stop], down)

    run_chunks(chunk, target.size, threads)
