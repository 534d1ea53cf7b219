"""The CUDA kernels to compile, by name, and the signatures with which they are launched.

Nothing here imports the CUDA target before a kernel is asked for: the names serve as test ids
where it is not installed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

import fpemu
from fpemu.cast import Cast
from fpemu.codes import code_dtype
from fpemu.kernels.params import WORDS, Codes, Grid, Results, codes_of, general_shape, params_of

__all__ = ["CASTS", "KERNELS", "MAIN", "Kernel", "built"]

#: The formats whose speed is documented.
MAIN = ("float16", "bfloat16", "tf32", "float8_e4m3fn", "float8_e5m2")

#: Casts that between them need every part of the scalar bodies.
CASTS = (
    *MAIN,
    "float4_e2m1fn",  # neither inf nor NaN
    "float8_e4m3fnuz",  # no -0
    "float8_e8m0fnu",  # no sign, no zero, no fraction bits, deep
    "float8_e4m3fn:rounding=up",  # directed
    "bfloat16:rounding=toward_zero",
    "bfloat16:rounding=to_odd,overflow=saturate",
    "float8_e8m0fnu:rounding=up,zero=smallest",  # directed and deep
    "float16:rounding=nearest_away,subnormals=flush",
    "float8_e5m2:rounding=stochastic",
    "bfloat16:rounding=stochastic,overflow=saturate_keep_inf",
    "float8_e8m0fnu:rounding=stochastic",  # stochastic and deep
    "binary8p5uf:negative=abs",  # no sign
)


class Kernel(NamedTuple):
    """What tells one kernel from another; `str` names it."""

    verb: str  #: "round", "encode", "decode", "count", "tally", "clear" or "finish"
    cast: str = ""  #: a cast, or a format to decode; "": not needed
    bits: int = 32
    wide: bool = True  #: groups of elements in 128-bit accesses
    general: bool = False  #: constants at run time, for every cast of a shape

    def __str__(self) -> str:
        parts = [self.verb, self.cast, str(self.bits), "wide" if self.wide else "single"]
        return " ".join(p for p in [*parts, "general" * self.general] if p)


_ODD = ("float16", "bfloat16", "float8_e8m0fnu", "float8_e4m3fn:rounding=up",
        "bfloat16:rounding=stochastic")  # fmt: skip


def _kernels() -> Iterator[Kernel]:
    yield from (Kernel("round", cast) for cast in CASTS)
    yield from (Kernel("encode", cast) for cast in CASTS[::4])
    yield from (Kernel("round", cast, 64) for cast in _ODD[:3:2])
    yield Kernel("encode", "float8_e8m0fnu", 64)
    yield from (Kernel("round", cast, general=True) for cast in _ODD[2:])
    yield Kernel("round", "bfloat16:rounding=stochastic", 64, general=True)
    yield Kernel("encode", "bfloat16:rounding=stochastic", general=True)
    yield Kernel("round", "float16", wide=False)
    yield Kernel("encode", "float8_e4m3fn", 64, wide=False, general=True)
    yield from (Kernel("decode", name) for name in (*MAIN[:4:3], "float8_e8m0fnu"))
    yield Kernel("decode", "float8_e4m3fnuz", 64)
    yield from (Kernel("decode", "float8_e4m3fn", bits, general=True) for bits in (32, 64))
    yield Kernel("decode", "float8_e5m2", wide=False)
    yield from (Kernel("count", cast, wide=False) for cast in _ODD[1::3])
    yield Kernel("count", "bfloat16:rounding=stochastic", 64, wide=False)
    yield Kernel("tally")
    yield from (Kernel(verb, wide=False) for verb in ("tally", "clear", "finish"))


KERNELS = tuple(_kernels())


# --- making them -------------------------------------------------------------------------------


def built(kernel: Kernel) -> tuple[Any, Any]:
    """Return the kernel, not yet compiled, and its signature."""
    from numba.cuda import types

    makers = {"round": _elementwise, "encode": _elementwise, "decode": _decode, "count": _count}
    loop, arguments = makers.get(kernel.verb, _tally)(kernel)
    return loop, types.void(*arguments)


def _array(dtype: Any) -> Any:
    from numba.cuda import types

    return types.Array(_type(dtype), 1, "C")


def _type(dtype: Any) -> Any:
    from numba.cuda import types

    return getattr(types, np.dtype(dtype).name)


def _tuple(dtype: Any, count: int) -> Any:
    from numba.cuda import types

    return types.UniTuple(_type(dtype), count)


def _run_time(x: Any, out: Any, constants: Any) -> list[Any]:
    """Arguments of the elementwise kernels: x, out, size, first, keys, constants."""
    return [_array(x), _array(out), _type("u8"), _type("u4"), _tuple("u8", 6), constants]


def _elementwise(kernel: Kernel) -> tuple[Any, list[Any]]:
    from fpemu.kernels import cuda

    cast, word = Cast.from_str(kernel.cast), WORDS[kernel.bits].uint
    p = params_of(cast, kernel.bits, kernel.bits)
    rounds = kernel.verb == "round"
    if kernel.general:
        one = cuda.general_body(kernel.verb, kernel.bits, general_shape(p.shape))
        constants = _tuple(word, len(Grid._fields) + len(Results._fields))
    else:
        results = p.values if rounds else p.codes
        one = cuda.special_body(kernel.verb, kernel.bits, p.grid, results, p.shape)
        constants = _tuple("u4", 1)
    out = word if rounds else code_dtype(cast.format)
    return _loop(kernel, one), _run_time(word, out, constants)


def _decode(kernel: Kernel) -> tuple[Any, list[Any]]:
    from fpemu.kernels import cuda

    form, word = fpemu.finfo(kernel.cast), WORDS[kernel.bits].uint
    one = cuda.decode_body(kernel.bits, None if kernel.general else codes_of(form, kernel.bits))
    constants = _tuple(word, len(Codes._fields)) if kernel.general else _tuple("u4", 1)
    return _loop(kernel, one), _run_time(code_dtype(form), word, constants)


def _loop(kernel: Kernel, one: Any) -> Any:
    from fpemu.kernels import cuda

    if kernel.wide:
        return cuda.elementwise_kernel(one, 128 // kernel.bits)
    return cuda.single_kernel(one)


def _count(kernel: Kernel) -> tuple[Any, list[Any]]:
    from fpemu.kernels import cuda_count
    from fpemu.kernels.outcome import LIMITS
    from fpemu.outcomes import visible

    cast, word = Cast.from_str(kernel.cast), WORDS[kernel.bits].uint
    shapes = [general_shape(params_of(c, kernel.bits).shape) for c in (cast, visible(cast))]
    constants = _tuple(word, len(Grid._fields) + len(Results._fields))
    more = [constants, _tuple(word, 2 * LIMITS), _array("u8")]
    loop = cuda_count.count_kernel(kernel.bits, *shapes)
    return loop, [*_run_time(word, word, constants), *more]


def _tally(kernel: Kernel) -> tuple[Any, list[Any]]:
    from fpemu.kernels import cuda_tally

    size, counters = _type("u8"), _array("u8")
    if kernel.verb == "clear":
        return cuda_tally.clear_kernel(), [counters, size]
    if kernel.verb == "finish":
        return cuda_tally.finish_kernel(), [counters, _array("u1"), _array("u8")]
    return cuda_tally.tally_kernel(4 if kernel.wide else 1), [_array("u4"), size, counters]
