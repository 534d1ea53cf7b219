"""The one module that imports numba's CUDA target: jit, memory, launches.

What depends on the target's package is here and, for its instructions, in cuda_intrinsics.py, so
that another package for it is a change of these two files. With NUMBA_ENABLE_CUDASIM=1 the same
names come from numba's simulator.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from fpemu.errors import InputError, MissingExtraError

__all__ = [
    "SIMULATED",
    "THREADS",
    "Words",
    "cuda",
    "device_array",
    "device_of",
    "dlpack_view",
    "extending",
    "inner",
    "jit",
    "launch",
    "on_device_of",
    "pointer_of",
    "wait_for",
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

_DEFAULT_STREAM = 1  # as DLPack numbers it

_ONE_BY_ONE = threading.Lock()  # for what numba keeps in globals


def jit(kernel: Loop) -> Loop:
    """Compile a kernel when it is first launched; no fast math, so that nothing is contracted."""
    compiled: Loop = cuda.jit(kernel)
    return compiled


def inner(function: Loop) -> Loop:
    """Let kernels call a plain function, compiled into them."""
    if SIMULATED:
        return function
    return extending().register_jitable(function)  # type: ignore[no-any-return]


def extending() -> Any:
    """Return the target's module for intrinsics and for functions that kernels call."""
    return importlib.import_module("numba.cuda.extending")


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


def pointer_of(array: Any) -> int:
    """Return the address of a numba device array's memory; 0 without elements."""
    if SIMULATED:
        return array._ary.ctypes.data if math.prod(array.shape) else 0
    return int(array.device_ctypes_pointer.value or 0)


def dlpack_view(x: Any) -> Any:
    """Return a view, with ptr, shape, strides in elements and dtype, of a DLPack array's memory.

    The array's library waits until its work can be seen from the default stream.
    """
    views = importlib.import_module("cuda.core.utils")  # comes with numba-cuda
    return views.StridedMemoryView.from_dlpack(x, stream_ptr=_DEFAULT_STREAM)


def device_of(pointer: int, name: str) -> int | None:
    """Return the ordinal of the device that a pointer belongs to; None for the null pointer.

    A kernel that is given another device's pointer, or the host's, spoils the process for CUDA.
    """
    if SIMULATED or not pointer:
        return None
    driver = importlib.import_module("numba.cuda.cudadrv.driver")
    binding = driver.binding
    wanted = binding.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    try:
        return int(driver.driver.cuPointerGetAttribute(wanted, binding.CUdeviceptr(pointer)))
    except driver.CudaSupportError as wrong:
        said = " ".join(str(wrong).split())[:120]
        raise InputError(f"CUDA cannot be used here ({said}): copy the array to the host") from None
    except driver.CudaAPIError:
        raise InputError(
            f"{name} with the pointer {pointer:#x}: is not memory of a CUDA device; give its own"
        ) from None


def device_array(
    shape: tuple[int, ...], dtype: np.dtype[Any], order: str, stream: Any, device: int | None
) -> Any:
    """Return a new numba device array on a device, whose work goes into a stream.

    stream: an address, or a stream of numba's, which the array then keeps alive.
    """
    with _current(device):
        if isinstance(stream, int) and stream and not SIMULATED:
            stream = cuda.external_stream(stream)
        return cuda.device_array(shape, dtype, order=order, stream=stream)


@contextmanager
def _current(device: int | None) -> Iterator[None]:
    if device is None:
        yield
        return
    with cuda.gpus[device]:
        yield


@contextmanager
def on_device_of(words: Words) -> Iterator[Any]:
    """Work on the device of some memory; gives the stream in whose order it is used."""
    with _current(words.device):
        yield _stream_of(words)


def _stream_of(words: Words) -> Any:
    if SIMULATED:
        return 0
    return cuda.external_stream(words.stream) if words.stream else cuda.default_stream()


def wait_for(words: Words) -> None:
    """Wait until all that was begun in a piece of memory's stream is done."""
    with on_device_of(words) as stream:
        if not SIMULATED:
            stream.synchronize()


def launch(kernel: Loop, work: int, like: Words, *args: Any, threads: int = THREADS,
           blocks_a_processor: int = _BLOCKS_A_PROCESSOR, together: int = 1) -> None:  # fmt: skip
    """Run a kernel over `work` pieces of work, on the device and in the stream of `like`.

    Words among the arguments reach the kernel as arrays. together: threads that work together,
    a power of two: a block is a multiple of them.
    """
    with on_device_of(like) as stream:  # arrays too are made in the device's context
        given = [words_at(arg) if isinstance(arg, Words) else arg for arg in args]
        if SIMULATED:
            _simulate(kernel, given, max(together, 4))
            return
        processors = cuda.get_current_device().MULTIPROCESSOR_COUNT
        blocks = min(max(-(-work // threads), 1), processors * blocks_a_processor)
        _configured(kernel, (blocks, threads, stream))(*given)


def _simulate(kernel: Any, given: list[Any], threads: int) -> None:
    """Run a kernel in the simulator, where each thread is one of Python's.

    It replaces globals while a kernel runs, and so runs one at a time.
    """
    with _ONE_BY_ONE:
        kernel[2, threads](*given)


def _configured(kernel: Any, geometry: tuple[Any, ...]) -> Loop:
    """kernel[geometry], without numba's warning that a small grid leaves processors idle.

    It is meant for who chose the grid; a user who rounds a small array did not.
    """
    config = importlib.import_module("numba.cuda.dispatcher").config
    with _ONE_BY_ONE:  # or a second thread would take the 0 for what was told
        told = config.CUDA_LOW_OCCUPANCY_WARNINGS
        config.CUDA_LOW_OCCUPANCY_WARNINGS = 0
        try:
            return kernel[geometry]  # type: ignore[no-any-return]
        finally:
            config.CUDA_LOW_OCCUPANCY_WARNINGS = told
