"""Speed of every kernel, beside a device-to-device copy of as many bytes, by CUDA events.

Public functions are timed as a user calls them. A figure is a median over pairs: the copy, then
the work, several calls of each between two events, so that the host's part of a call hides behind
the device's. Functions that return counts wait for the device; for them a second row takes the
difference between a whole array and half of it, in which a call's fixed cost is gone.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import fpemu
from fpemu.codes import code_dtype
from fpemu.kernels.cuda_target import cuda
from fpemu.kernels.plan import decode_plan, plan
from fpemu.scaling import find_recipe
from on_gpu import FORMATS
from on_gpu.compare import words_in
from on_gpu.inputs import repeat
from on_gpu.sweep import build

__all__ = ["Arrays", "Case", "Row", "allocate", "cases", "data", "elements", "measure"]

Array = np.ndarray[Any, Any]

_CALLS = 4  #: between two events
_BLOCK = 1 << 22  #: numbers made on the host; the device repeats them, its caches hold fewer
_BYTES_AN_ELEMENT = 24  #: input, output, the copy's two arrays, and what calls allocate


@dataclass(frozen=True)
class Row:
    """Median times of one kernel and of the copy beside it."""

    what: str
    elements: int
    bytes: int  #: read and written
    seconds: float
    copy_seconds: float
    share: float  #: median over pairs of copy's time / work's time

    @property
    def gigabytes_a_second(self) -> float:
        """10**9 bytes read and written in a second."""
        return self.bytes / self.seconds / 1e9

    def to_json(self) -> dict[str, Any]:
        """Return the figures as a JSON-ready dict."""
        return {**vars(self), "gigabytes_a_second": self.gigabytes_a_second}


@dataclass(frozen=True)
class Arrays:
    """Device memory for all cases."""

    x: Any  #: float32
    out: Any  #: float32
    source: Any  #: uint8, copied from
    target: Any  #: uint8, copied to


@dataclass(frozen=True)
class Case:
    """A row to be measured: what a call does to n elements, and which bytes it moves."""

    what: str
    bytes_an_element: float
    call: Callable[[Arrays, int], None]
    data: str = "normal"
    share_of_array: float = 1.0  #: elements, as a part of the float32 array's
    fixed: bool = False  #: also without a call's fixed cost


def elements(free: int, most: int = 1 << 29) -> int:
    """Return how many elements to time: a power of two that fits half of the free memory."""
    fit = max(free // 2 // _BYTES_AN_ELEMENT, 1 << 16)
    return min(most, 1 << (fit.bit_length() - 1))


def allocate(n: int) -> Arrays:
    """Return arrays for n float32 elements."""
    return Arrays(
        cuda.device_array(n, np.float32), cuda.device_array(n, np.float32),
        cuda.device_array(4 * n, np.uint8), cuda.device_array(4 * n, np.uint8),
    )  # fmt: skip


def data(kind: str, size: int = _BLOCK) -> Array:
    """Return float32 of a kind: "normal"; "relu", half zeros; "wide", over many binades."""
    random = np.random.default_rng(0)
    normal = random.standard_normal(size, np.float32)
    if kind == "relu":
        return np.maximum(normal, np.float32(0))
    if kind == "wide":
        exponents = np.rint(random.normal(0, 16, size)).clip(-140, 120).astype(np.int32)
        return np.ldexp(normal, exponents)
    return normal


# --- what is timed -----------------------------------------------------------------------------


def cases() -> Iterator[Case]:
    """Yield all cases; a cast's loops are built when its case is first called."""
    for name in FORMATS:
        yield Case(f"round {name}", 8, _round(name, special=True))
    yield Case("round float8_e4m3fn, general", 8, _round("float8_e4m3fn", special=False))
    for name in FORMATS:
        width = code_dtype(fpemu.finfo(name)).itemsize
        yield Case(f"encode {name}", 4 + width, _encode(name))
    for name in FORMATS:
        width = code_dtype(fpemu.finfo(name)).itemsize
        yield Case(f"decode {name}", width + 4, _decode(name))
    for name in ("bfloat16", "float8_e4m3fn"):
        yield Case(f"round {name}, stochastic", 8, _stochastic(name))
    for name in ("mxfp8", "nvfp4", "te.current", "torchao.float8.rowwise"):
        yield Case(f"round {name}", 8, _recipe(name))  # a second pass of some does not count
    for name in ("mxfp8", "nvfp4"):
        yield Case(f"encode {name}", 5, _quantize(name))
    for name in ("float16", "float8_e4m3fn"):
        yield Case(f"round {name}, float64", 16, _round64(name), share_of_array=0.5)
    for kind in ("normal", "relu", "wide"):
        yield Case(f"tally, {kind}", 4, _tally, data=kind, fixed=True)
    for kind in ("normal", "wide"):
        yield Case(f"round and count float8_e4m3fn, {kind}", 8, _count, data=kind, fixed=True)


def _round(name: str, special: bool) -> Callable[[Arrays, int], None]:
    cast = fpemu.Cast(name)

    def call(arrays: Arrays, n: int) -> None:
        if special:
            build_once(cast)
        else:  # every time: a plan that has seen enough elements gets the cast's own loop
            build(cast, False)
            _built.clear()
        fpemu.round(arrays.x[:n], cast, out=arrays.out[:n])

    return call


def _encode(name: str) -> Callable[[Arrays, int], None]:
    cast = fpemu.Cast(name)
    dtype = code_dtype(cast.format)

    def call(arrays: Arrays, n: int) -> None:
        build_once(cast)
        fpemu.encode(arrays.x[:n], cast, out=arrays.out.view(dtype)[:n])

    return call


def _decode(name: str) -> Callable[[Arrays, int], None]:
    form = fpemu.finfo(name)
    dtype = code_dtype(form)

    def call(arrays: Arrays, n: int) -> None:
        decode_plan(form, 32, "cuda").specialise()
        fpemu.decode(arrays.x.view(dtype)[:n], form, out=arrays.out[:n])

    return call


def _stochastic(name: str) -> Callable[[Arrays, int], None]:
    cast = fpemu.Cast(name, "stochastic")

    def call(arrays: Arrays, n: int) -> None:
        build_once(cast)
        fpemu.round(arrays.x[:n], cast, seed=1, out=arrays.out[:n])

    return call


#: Recipes see rows of so many numbers.
_ROW = 4096


def _rows(array: Any, n: int) -> Any:
    width = min(n, _ROW)
    return array[:n].reshape(n // width, width)


def _recipe(name: str) -> Callable[[Arrays, int], None]:
    recipe = find_recipe(name)

    def call(arrays: Arrays, n: int) -> None:
        recipe.round(_rows(arrays.x, n), out=_rows(arrays.out, n))

    return call


def _quantize(name: str) -> Callable[[Arrays, int], None]:
    recipe = find_recipe(name)

    def call(arrays: Arrays, n: int) -> None:
        recipe.quantize(_rows(arrays.x, n))

    return call


def _round64(name: str) -> Callable[[Arrays, int], None]:
    cast = fpemu.Cast(name)

    def call(arrays: Arrays, n: int) -> None:
        plan("round", cast, 64, 32, "cuda").specialise()
        x, out = arrays.x.view(np.float64), arrays.out.view(np.float64)
        fpemu.round(x[:n], cast, out=out[:n])

    return call


def _tally(arrays: Arrays, n: int) -> None:
    fpemu.tally(arrays.x[:n])


def _count(arrays: Arrays, n: int) -> None:
    fpemu.round(arrays.x[:n], "float8_e4m3fn", count=True, out=arrays.out[:n])


_built: list[fpemu.Cast] = []


def build_once(cast: fpemu.Cast) -> None:
    """Build a cast's own loops, unless the last call built them."""
    if _built != [cast]:
        build(cast, True)
        _built[:] = [cast]


# --- timing ------------------------------------------------------------------------------------


def measure(case: Case, arrays: Arrays, repeats: int) -> Iterator[Row]:
    """Yield a case's row, and for those of a fixed cost the row without it."""
    _fill(arrays, case.data)
    n = int(arrays.x.size * case.share_of_array)
    whole = _pairs(case, arrays, n, repeats)
    yield _row(case.what, case, n, whole)
    if case.fixed:
        half = _pairs(case, arrays, n // 2, repeats)
        lean = [
            (max(a[0] - b[0], 1e-9), max(a[1] - b[1], 1e-9))
            for a, b in zip(whole, half, strict=True)
        ]
        yield _row(f"{case.what}, without the fixed cost", case, n - n // 2, lean)


def _fill(arrays: Arrays, kind: str) -> None:
    words = words_in(arrays.x)
    repeat(words, data(kind, min(_BLOCK, words.size)).view(np.uint32))


def _row(what: str, case: Case, n: int, pairs: list[tuple[float, float]]) -> Row:
    seconds = statistics.median(work for work, _ in pairs)
    copied = statistics.median(copy for _, copy in pairs)
    share = statistics.median(copy / work for work, copy in pairs)
    return Row(what, n, int(n * case.bytes_an_element), seconds, copied, share)


def _pairs(case: Case, arrays: Arrays, n: int, repeats: int) -> list[tuple[float, float]]:
    """Seconds of the work and of the copy, each pair taken one after the other."""
    half = int(n * case.bytes_an_element) // 2  # a copy reads as much as it writes
    source, target = arrays.source[:half], arrays.target[:half]

    def copy() -> None:
        target.copy_to_device(source)

    def work() -> None:
        case.call(arrays, n)

    work()  # compiles
    pairs = []
    for _ in range(repeats):
        copied = _seconds(copy)
        pairs.append((_seconds(work), copied))
    return pairs


def _seconds(call: Callable[[], None]) -> float:
    """Seconds of one of several calls, by CUDA events in the default stream."""
    start, end = cuda.event(), cuda.event()
    call()
    start.record()
    for _ in range(_CALLS):
        call()
    end.record()
    end.synchronize()
    return max(start.elapsed_time(end), 1e-6) / 1e3 / _CALLS
