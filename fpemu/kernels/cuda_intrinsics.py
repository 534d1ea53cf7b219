"""Instructions that numba does not make by itself: wide loads and stores, bits of a conversion.

Each has a stand-in of plain Python for the simulator.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from fpemu.kernels.cuda_target import SIMULATED, cuda, extending, inner

__all__ = ["float_bits", "leading_zeros", "load", "store"]

Loop = Callable[..., Any]


@cache
def load(count: int) -> Loop:
    """Return load(array, i): elements count * i, ... as a tuple, in one aligned access."""
    if SIMULATED:
        return lambda array, i: tuple(array[int(i) * count + k] for k in range(count))
    from llvmlite import ir

    types = cuda.types

    @extending().intrinsic
    def wide(typing, array, i):  # type: ignore[no-untyped-def]
        def code(context, builder, signature, args):  # type: ignore[no-untyped-def]
            place = _place(context, builder, signature, args, count)
            vector = builder.load(place)
            vector.align = count * array.dtype.bitwidth // 8
            lanes = (ir.Constant(ir.IntType(32), k) for k in range(count))
            parts = [builder.extract_element(vector, lane) for lane in lanes]
            return context.make_tuple(builder, signature.return_type, parts)

        return types.UniTuple(array.dtype, count)(array, i), code

    return wide  # type: ignore[no-any-return]


@cache
def store(count: int) -> Loop:
    """Return store(array, i, values): a tuple to elements count * i, ... in one aligned access."""
    if SIMULATED:

        def put(array: Any, i: Any, values: Any) -> None:
            for k in range(count):
                array[int(i) * count + k] = values[k]

        return put
    from llvmlite import ir

    types = cuda.types

    @extending().intrinsic
    def wide(typing, array, i, values):  # type: ignore[no-untyped-def]
        def code(context, builder, signature, args):  # type: ignore[no-untyped-def]
            place = _place(context, builder, signature, args, count)
            vector = ir.Constant(place.type.pointee, ir.Undefined)
            given = signature.args[2].dtype
            for k in range(count):
                part = builder.extract_value(args[2], k)
                part = context.cast(builder, part, given, array.dtype)
                vector = builder.insert_element(vector, part, ir.Constant(ir.IntType(32), k))
            builder.store(vector, place, align=count * array.dtype.bitwidth // 8)
            return context.get_dummy_value()

        return types.void(array, i, values), code

    return wide  # type: ignore[no-any-return]


@cache
def leading_zeros() -> Loop:
    """Return leading_zeros(v) of a uint32, as one; an instruction of its own on a device."""
    U = np.uint32

    def counted(v):  # type: ignore[no-untyped-def]
        return U(cuda.clz(v))

    return (lambda v: U(32 - int(v).bit_length())) if SIMULATED else inner(counted)


@cache
def float_bits() -> Loop:
    """Return float_bits(v): the bits of a uint32 as a float32; exact below 2**24."""
    if SIMULATED:
        return lambda v: np.array(v, np.float32).view(np.uint32)[()]
    from llvmlite import ir

    types = cuda.types

    @extending().intrinsic
    def bits_of(typing, v):  # type: ignore[no-untyped-def]
        def code(context, builder, signature, args):  # type: ignore[no-untyped-def]
            return builder.bitcast(builder.uitofp(args[0], ir.FloatType()), ir.IntType(32))

        return types.uint32(types.uint32), code

    return bits_of  # type: ignore[no-any-return]


def _place(context: Any, builder: Any, signature: Any, args: Any, count: int) -> Any:
    """The address of vector i of an array, as LLVM sees it."""
    from llvmlite import ir

    array = context.make_array(signature.args[0])(context, builder, args[0])
    vector = ir.VectorType(ir.IntType(signature.args[0].dtype.bitwidth), count)
    return builder.gep(builder.bitcast(array.data, vector.as_pointer()), [args[1]])
