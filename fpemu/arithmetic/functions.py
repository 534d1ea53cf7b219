"""exp, log, tanh and the like: computed in float64, rounded once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from fpemu.arithmetic.operands import check_options, read_operands
from fpemu.arithmetic.operations import Options, round_results
from fpemu.cast import Cast
from fpemu.errors import InputError, short
from fpemu.format import Format

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = ["FUNCTIONS", "evaluate"]

Array = np.ndarray[Any, Any]


def _sigmoid(x: Array) -> Array:
    small = np.exp(-np.abs(x))  # no overflow on either side
    return np.asarray(np.where(x >= 0, 1.0, small) / (1.0 + small))


def _rsqrt(x: Array) -> Array:
    return np.asarray(1.0 / np.sqrt(x))


#: Name -> function of float64 arrays, for `evaluate`.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1,
    "log": np.log, "log2": np.log2, "log10": np.log10, "log1p": np.log1p,
    "sin": np.sin, "cos": np.cos, "tan": np.tan,
    "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh,
    "arcsin": np.arcsin, "arccos": np.arccos, "arctan": np.arctan, "arctan2": np.arctan2,
    "cbrt": np.cbrt, "hypot": np.hypot, "power": np.power,
    "rsqrt": _rsqrt, "sigmoid": _sigmoid,
}  # fmt: skip


def evaluate(
    function: str | Callable[..., Any], *operands: ArrayLike, to: Cast | Format | str,
    **options: Unpack[Options],
) -> Any:  # fmt: skip
    """Return a function of each element, computed in float64 and rounded once.

    >>> import numpy as np
    >>> from fpemu import arithmetic
    >>> arithmetic.evaluate("exp", np.float32([0, 1, 12]), to="fp16")
    array([1.     , 2.71875,     inf], dtype=float32)
    >>> arithmetic.evaluate(lambda x: x / (1 + np.exp(-x)), np.float32([1, -1]), to="bf16")
    array([ 0.73046875, -0.26953125], dtype=float32)

    function: a name of `FUNCTIONS`, or a function of float64 arrays of one shape. to, options: as
    in `fpemu.arithmetic.add`, but for `flags` and `tininess`, which need an exact result.
    Not always correctly rounded: float64 errs by about 2**-52 of the result, so that a result so
    close to a midpoint of the format (or, in the directed modes and to_odd, to a value) may go to
    the other side: for float16 about one result in 2**40. numpy's last bits may differ between
    processors. Outside of a function's domain the result is NaN; at poles it is infinite.
    """
    for name in ("flags", "tininess"):
        if options.pop(name, None):  # type: ignore[misc]
            raise InputError(f"{name}: needs an exact result; a function's is float64's")
    work = FUNCTIONS.get(function) if isinstance(function, str) else function
    if not callable(work):
        raise InputError(
            f"function {short(function)}: must be one of {list(FUNCTIONS)}, or callable"
        )
    check_options(options, Options)
    wanted = getattr(work, "nin", len(operands) or 1)  # a second operand would be numpy's out
    if len(operands) != wanted:
        raise InputError(f"function {function!r}: takes {wanted} operands, not {len(operands)}")
    read = read_operands(operands, limited=False)
    with np.errstate(all="ignore"):
        found = np.asarray(work(*(x.astype(np.float64) for x in read.shaped())))
    if found.shape != read.shape or found.dtype != np.float64:
        raise InputError(
            f"function gave {found.dtype.name}{list(found.shape)}: must give one float64 for each "
            f"element of {list(read.shape)}"
        )
    found = np.where(np.isnan(found), np.nan, found)  # positive
    return round_results(read, found, to, **options)
