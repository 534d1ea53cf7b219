"""The one module that imports numba's CUDA target: jit, wide loads and stores, launches.

Everything that depends on the target's package is here, so that another package for it is a
change of this file. With NUMBA_ENABLE_CUDASIM=1 the same names come from numba's simulator.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from fpemu.errors import MissingExtraError

__all__ = [
    "SIMULATED",
    "Words",
    "cuda",
    "float_bits",
    "inner",
    "jit",
    "launch",
    "leading_zeros",
    "load",
    "on_device_of",
    "store",
    "words_at",
]

Loop = Callable[..., Any]


def _import() -> Any:
    if importlib.util.find_spec("numba_cuda") is None:
        raise MissingExtraError(
            "arrays on a CUDA device need the package numba-cuda: pip install 'fpemu[cuda12]' or "
            "'fpemu[cuda13]', after the CUDA version of the library that made the array; or copy "
            "the array to the host"
        )
    if not hasattr(np, "row_stack"):  # numba-cuda 0.30 still asks for what numpy 2.5 dropped
        vars(np)["row_stack"] = np.vstack
    return importlib.import_module("numba.cuda")


#: numba's CUDA target. Kernels must call it through a module global of this name: the simulator
#: replaces the global while a kernel runs.
cuda: Any = _import()

SIMULATED: bool = not hasattr(cuda, "as_cuda_array")

#: Threads of a block; with up to 32 registers each a processor of 2,048 threads is full.
THREADS = 256
_BLOCKS_A_PROCESSOR = 8


def jit(kernel: Loop) -> Loop:
    """Compile a kernel when it is first launched; no fast math, so that nothing is contracted."""
    compiled: Loop = cuda.jit(kernel)
    return compiled


def inner(function: Loop) -> Loop:
    """Let kernels call a plain function, compiled into them."""
    if SIMULATED:
        return function
    return _extending().register_jitable(function)  # type: ignore[no-any-return]


def _extending() -> Any:
    return importlib.import_module("numba.cuda.extending")


# --- wide loads and stores ---------------------------------------------------------------------


@cache
def load(count: int) -> Loop:
    """Return load(array, i): elements count * i, ... as a tuple, in one aligned access."""
    if SIMULATED:
        return lambda array, i: tuple(array[int(i) * count + k] for k in range(count))
    from llvmlite import ir
    types = cuda.types

    @_extending().intrinsic
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

    @_extending().intrinsic
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

    @_extending().intrinsic
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


# --- memory and launches -----------------------------------------------------------------------


class Words(NamedTuple):
    """Contiguous elements in a device's memory, and the stream in whose order they are used."""

    pointer: int
    size: int
    dtype: np.dtype[Any]
    stream: int = 0  #: address of a cudaStream_t; 0 is the default stream
    device: int | None = None  #: ordinal; None: the current one

    def part(self, start: int, stop: int) -> Words:
        """Return elements start to stop."""
        there = self.pointer + start * self.dtype.itemsize
        return self._replace(pointer=there, size=stop - start)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": (self.size,),
            "typestr": self.dtype.str,
            "data": (self.pointer, False),
            "version": 3,
        }


def words_at(words: Words) -> Any:
    """Return a numba device array over a piece of memory, without a copy."""
    if not SIMULATED:
        return cuda.as_cuda_array(words, sync=False)
    fakes = importlib.import_module("numba.cuda.cudadrv.devicearray")
    # the simulator's device is the host
    octets: Any = ctypes.c_ubyte * (words.size * words.dtype.itemsize)
    return fakes.FakeCUDAArray(np.frombuffer(octets.from_address(words.pointer), words.dtype))


@contextmanager
def on_device_of(words: Words) -> Iterator[Any]:
    """Work on the device of some memory; gives the stream in whose order it is used."""
    if words.device is None:
        yield _stream_of(words)
        return
    with cuda.gpus[words.device]:
        yield _stream_of(words)


def _stream_of(words: Words) -> Any:
    if SIMULATED:
        return 0
    return cuda.external_stream(words.stream) if words.stream else cuda.default_stream()


def launch(kernel: Loop, work: int, like: Words, *args: Any, threads: int = THREADS,
           blocks_a_processor: int = _BLOCKS_A_PROCESSOR) -> None:  # fmt: skip
    """Run a kernel over `work` pieces of work, on the device and in the stream of `like`."""
    with on_device_of(like) as stream:
        if SIMULATED:  # each thread is one of Python's
            blocks, threads = 2, 4
        else:
            processors = cuda.get_current_device().MULTIPROCESSOR_COUNT
            blocks = min(max(-(-work // threads), 1), processors * blocks_a_processor)
        _configured(kernel, (blocks, threads, stream))(*args)


def _configured(kernel: Any, geometry: tuple[Any, ...]) -> Loop:
    """kernel[geometry], without numba's warning that a small grid leaves processors idle.

    It is meant for who chose the grid; a user who rounds a small array did not.
    """
    if SIMULATED:
        return kernel[geometry]  # type: ignore[no-any-return]
    config = importlib.import_module("numba.cuda.dispatcher").config
    told = config.CUDA_LOW_OCCUPANCY_WARNINGS
    config.CUDA_LOW_OCCUPANCY_WARNINGS = 0
    try:
        return kernel[geometry]  # type: ignore[no-any-return]
    finally:
        config.CUDA_LOW_OCCUPANCY_WARNINGS = told
