"""Instructions that numba does not make by itself: wide loads and stores, float32 on its bits.

Each has a stand-in of plain Python for the simulator.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from fpemu.kernels.cuda_target import SIMULATED, cuda, extending, inner

__all__ = ["Arithmetic", "arithmetic", "float_bits", "leading_zeros", "load", "store"]

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


class Arithmetic(NamedTuple):
    """float32 operations on bit patterns (uint32), each rounded once, to nearest, ties to even.

    A product must not go into a sum directly: the compiler would fuse them, with one rounding.
    """

    times: Loop  #: (a, b) -> a * b
    over: Loop  #: (a, b) -> a / b
    plus: Loop  #: (a, b) -> a + b
    minus: Loop  #: (a, b) -> a - b
    wide_over: Loop  #: (float64 a, b, float64 least) -> a / max(b, least) in float64, then rounded


@cache
def arithmetic() -> Arithmetic:
    """Return the operations, subnormals and all; what is NaN has no payload to rely on."""
    if SIMULATED:
        return _simulated_arithmetic()
    operations = {"times": "fmul", "over": "fdiv", "plus": "fadd", "minus": "fsub"}
    made = {name: _on_bits(instruction) for name, instruction in operations.items()}
    return Arithmetic(**made, wide_over=_wide_over())


def _on_bits(instruction: str) -> Loop:
    """An operation of LLVM's on two float32 that come as bits."""
    from llvmlite import ir

    types = cuda.types

    @extending().intrinsic
    def operation(typing, a, b):  # type: ignore[no-untyped-def]
        def code(context, builder, signature, args):  # type: ignore[no-untyped-def]
            floats = [builder.bitcast(arg, ir.FloatType()) for arg in args]
            return builder.bitcast(getattr(builder, instruction)(*floats), ir.IntType(32))

        return types.uint32(types.uint32, types.uint32), code

    return operation  # type: ignore[no-any-return]


def _wide_over() -> Loop:
    from llvmlite import ir

    types = cuda.types

    @extending().intrinsic
    def wide(typing, a, b, least):  # type: ignore[no-untyped-def]
        def code(context, builder, signature, args):  # type: ignore[no-untyped-def]
            divisor = builder.fpext(builder.bitcast(args[1], ir.FloatType()), ir.DoubleType())
            small = builder.fcmp_ordered("<", divisor, args[2])  # NaN is not, and stays
            divisor = builder.select(small, args[2], divisor)
            quotient = builder.fptrunc(builder.fdiv(args[0], divisor), ir.FloatType())
            return builder.bitcast(quotient, ir.IntType(32))

        return types.uint32(types.float64, types.uint32, types.float64), code

    return wide  # type: ignore[no-any-return]


def _simulated_arithmetic() -> Arithmetic:
    def floating(v: Any) -> Any:
        return np.uint32(v).view(np.float32)

    def on_bits(operation: Any) -> Loop:
        def worked(a: Any, b: Any) -> Any:
            with np.errstate(all="ignore"):
                return operation(floating(a), floating(b)).view(np.uint32)

        return worked

    def wide(a: Any, b: Any, least: Any) -> Any:
        with np.errstate(all="ignore"):
            quotient = np.float64(a) / np.maximum(np.float64(floating(b)), least)
            return np.float32(quotient).view(np.uint32)

    times, over, plus, minus = map(on_bits, (np.multiply, np.divide, np.add, np.subtract))
    return Arithmetic(times, over, plus, minus, wide)


def _place(context: Any, builder: Any, signature: Any, args: Any, count: int) -> Any:
    """The address of vector i of an array, as LLVM sees it."""
    from llvmlite import ir

    array = context.make_array(signature.args[0])(context, builder, args[0])
    vector = ir.VectorType(ir.IntType(signature.args[0].dtype.bitwidth), count)
    return builder.gep(builder.bitcast(array.data, vector.as_pointer()), [args[1]])
