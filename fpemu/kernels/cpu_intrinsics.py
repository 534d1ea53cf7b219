"""What numba does not make by itself on a CPU: a float's bits inside a loop, a vector's maximum.

Each is a plain function that is given its machine code by `overload`: a loop that closes over an
intrinsic itself would be pickled with a random number, and never be found in the disk cache.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

__all__ = ["bits_of", "float_of", "largest"]

Loop = Callable[..., Any]


@cache
def bits_of() -> Loop:
    """Return bits(x): a float32's bits, as uint32."""

    def bits(x):  # type: ignore[no-untyped-def]
        return np.float32(x).view(np.uint32)

    return _given(bits, _cast("float32", "uint32"))


@cache
def float_of() -> Loop:
    """Return number(bits): the float32 of a uint32."""

    def number(x):  # type: ignore[no-untyped-def]
        return np.uint32(x).view(np.float32)

    return _given(number, _cast("uint32", "float32"))


def _given(plain: Loop, fast: Loop) -> Loop:
    from numba.extending import overload

    @overload(plain)
    def typed(x):  # type: ignore[no-untyped-def]
        return lambda x: fast(x)

    return plain


def _cast(source: str, target: str) -> Loop:
    """Return an intrinsic that takes 32 bits of one type for another."""
    from numba import types
    from numba.extending import intrinsic

    def cast(typing, value):  # type: ignore[no-untyped-def]
        def code(context, builder, signature, args):  # type: ignore[no-untyped-def]
            return builder.bitcast(args[0], context.get_value_type(signature.return_type))

        return getattr(types, target)(getattr(types, source)), code

    made: Loop = intrinsic(cast)
    return made


@cache
def largest(count: int) -> Loop:
    """Return largest(words, i): the largest of words[i], ..., words[i + count - 1] without signs.

    words: flat uint32 in one piece. One reduction of a vector: LLVM leaves the loop of few steps
    that says the same as a chain of maxima, six times as slow.
    """
    from numba.extending import overload

    magnitude = np.uint32(0x7FFFFFFF)
    reduce = _reduction(count)

    def largest(words, i):  # type: ignore[no-untyped-def]
        return (words[i : i + count] & magnitude).max()

    @overload(largest)
    def typed(words, i):  # type: ignore[no-untyped-def]
        return lambda words, i: reduce(words, i)

    return largest


def _reduction(count: int) -> Loop:
    """Return the intrinsic behind `largest`."""
    from llvmlite import ir
    from numba import types
    from numba.core.cgutils import get_or_insert_function
    from numba.extending import intrinsic

    word = ir.IntType(32)
    vector = ir.VectorType(word, count)
    function_of: Loop = get_or_insert_function  # untyped in some versions of numba

    def reduce(typing, words, i):  # type: ignore[no-untyped-def]
        def code(context, builder, signature, args):  # type: ignore[no-untyped-def]
            array = context.make_array(signature.args[0])(context, builder, args[0])
            place = builder.gep(array.data, [args[1]])
            loaded = builder.load(builder.bitcast(place, vector.as_pointer()))
            loaded.align = 4
            sizes = builder.and_(loaded, ir.Constant(vector, [0x7FFFFFFF] * count))
            kind = ir.FunctionType(word, [vector])
            name = f"llvm.vector.reduce.umax.v{count}i32"
            return builder.call(function_of(builder.module, kind, name), [sizes])

        return types.uint32(words, types.intp), code

    made: Loop = intrinsic(reduce)
    return made
