"""round, encode, decode and tally where an array lies on a CUDA device.

The counterpart of `elementwise.py`: the same plans over the device's memory. Floats narrower than
float32 are widened and narrowed there by the codes of their own formats. Nothing is copied to the
host but a finished tally.

Arrays in between are let go before the kernels that use them have run: the allocators of PyTorch
and CuPy keep the order of the stream, numba's waits for the device before it frees, and for JAX we
wait ourselves. A pool put in numba's place (RMM's) must keep that order too.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fpemu.arrays import narrow_format, result_dtype
from fpemu.cast import Cast
from fpemu.elementwise import Draws, blocks_of
from fpemu.errors import InputError
from fpemu.format import Format
from fpemu.kernels.outcome import OUTCOMES
from fpemu.kernels.params import WORDS, general_shape, params_of
from fpemu.kernels.plan import Plan, decode_plan, plan
from fpemu.libraries.library import Library, Place, library_of, out_of
from fpemu.outcomes import Outcome, outcome_from, visible

__all__ = [
    "decode_array",
    "encode_array",
    "finish",
    "floats_of",
    "own_library",
    "round_array",
    "round_counted",
    "tally_array",
    "target_of",
    "words_of",
]

_F32, _F64 = np.dtype(np.float32), np.dtype(np.float64)


def round_array(library: Library, x: Any, cast: Cast, draws: Draws | None, out: Any) -> Any:
    """Return a rounded array of the same library, on the same device and stream."""
    given = library.dtype(x)
    wanted = result_dtype(given, cast.format)
    floats = floats_of(library.dense(x, draws is not None))
    target = target_of(library, floats, wanted, out, x)
    made = _wide(target, floats, own_library(floats).dtype(floats))
    _run(_plan("round", floats, cast, draws), floats, made, draws)
    _narrow(made, target)
    return finish(library, target, out)


def round_counted(
    library: Library, x: Any, cast: Cast, draws: Draws | None, out: Any
) -> tuple[Any, Outcome]:
    """Return the rounded array and what became of the numbers, in one pass."""
    from fpemu.kernels.cuda_count import round_and_count
    from fpemu.limits import word_limits

    wanted = result_dtype(library.dtype(x), cast.format)
    floats = floats_of(library.dense(x, draws is not None))
    target = target_of(library, floats, wanted, out, x)
    made = _wide(target, floats, own_library(floats).dtype(floats))
    bits = 8 * own_library(floats).dtype(floats).itemsize
    both = [params_of(c, bits, draws.bits if draws else 32) for c in (cast, visible(cast))]
    shapes = (general_shape(both[0].shape), general_shape(both[1].shape))
    constants = [np.array([*p.grid, *p.values], WORDS[bits].uint) for p in both]
    bounds, beyond = word_limits(cast, bits)
    source, to = words_of(floats), words_of(made)
    counts = np.zeros((2, len(OUTCOMES)), np.int64)
    for start, stop, first, keys in _blocks(source.size, draws):
        counts += round_and_count(
            source.part(start, stop), to.part(start, stop), shapes, (constants[0], constants[1]),
            bounds, first, keys,
        )  # fmt: skip
    _narrow(made, target)
    return finish(library, target, out), outcome_from(counts, beyond)


def encode_array(
    library: Library, x: Any, cast: Cast, draws: Draws | None, out: Any, dtype: np.dtype[Any]
) -> Any:
    """Return the codes of the rounded array."""
    floats = floats_of(library.dense(x, draws is not None))
    target = target_of(library, floats, dtype, out, x)
    _run(_plan("encode", floats, cast, draws), floats, target, draws)
    return finish(library, target, out)


def decode_array(
    library: Library, codes: Any, form: Format, wanted: np.dtype[Any], out: Any
) -> Any:
    """Return the values of codes; bits above the format's own are not looked at."""
    dense = library.dense(codes, False)
    floats = _F64 if wanted == _F64 else _F32
    target = target_of(library, dense, wanted, out, codes)
    made = _wide(target, dense, floats)
    _run(decode_plan(form, 8 * floats.itemsize, "cuda"), dense, made, None)
    _narrow(made, target)
    return finish(library, target, out)


def tally_array(library: Library, x: Any) -> Any:
    """Return the counts of an array's float32 numbers, as `kernels.count.count` does."""
    from fpemu.kernels.cuda_tally import count

    if library.dtype(x) == _F64:
        raise InputError(
            "dtype float64: tallies take float32 numbers; convert it if you accept that rounding"
        )
    floats = floats_of(library.dense(x, False))
    return count(words_of(floats))


# --- parts -------------------------------------------------------------------------------------


def own_library(x: Any) -> Library:
    """An array's library: results for a bare interface are numba's arrays."""
    found = library_of(x)
    assert found is not None
    return found


def words_of(x: Any) -> Any:
    """Return a dense array's memory as unsigned words of its elements' size."""
    from fpemu.kernels.cuda_target import Words

    library = own_library(x)
    pointer, stream, device = library.memory(x)
    size = library.dtype(x).itemsize
    if pointer % size:  # reading it would spoil the whole process for CUDA
        raise InputError(
            f"memory at {pointer:#x}: is not aligned for elements of {size} bytes; give a copy"
        )
    return Words(pointer, math.prod(library.shape(x)), np.dtype(f"u{size}"), stream, device)


def floats_of(dense: Any) -> Any:
    """A dense array as float32 or float64; narrower floats are decoded to float32."""
    dtype = own_library(dense).dtype(dense)
    if dtype in (_F32, _F64):
        return dense
    own = narrow_format(dtype)
    if own is None:
        raise InputError(
            f"dtype {dtype.name}: fpemu works on float32 or float64 arrays and on narrower "
            "floats; convert it first"
        )
    wide = own_library(dense).empty(dense, _F32)
    _run(decode_plan(own, 32, "cuda"), dense, wide, None)
    return wide


def _wide(target: Any, like: Any, floats: np.dtype[Any]) -> Any:
    """What a loop writes floats to: the target, or an array of floats if it is of narrower ones."""
    own = narrow_format(own_library(target).dtype(target))
    return target if own is None else own_library(like).empty(like, floats)


def _narrow(made: Any, target: Any) -> None:
    """Encode what `_wide` made to its target; exact, as the target's dtype holds every result."""
    if made is not target:
        own = narrow_format(own_library(target).dtype(target))
        assert own is not None
        _run(_plan("encode", made, Cast(own), None), made, target, None)


def _plan(verb: str, x: Any, cast: Cast, draws: Draws | None) -> Plan:
    bits = 8 * own_library(x).dtype(x).itemsize
    return plan(verb, cast, bits, draws.bits if draws else 32, "cuda")


def _run(loop: Plan, x: Any, made: Any, draws: Draws | None) -> None:
    source, to = words_of(x), words_of(made)
    if draws is None:
        loop.run(source, to)
        return
    for start, stop, first, keys in _blocks(source.size, draws):
        loop.run(source.part(start, stop), to.part(start, stop), first, keys)


def _blocks(size: int, draws: Draws | None) -> Any:
    """Yield (start, stop, first, keys): `blocks_of`, or all at once where nothing is drawn."""
    if draws is None:
        yield 0, size, np.uint32(0), (np.uint64(0),) * 6
        return
    yield from blocks_of(draws, 0, size)


def target_of(library: Library, like: Any, dtype: np.dtype[Any], out: Any, x: Any) -> Any:
    """Where results are written: `out` itself if it lies as `like` does, else a new array."""
    if out is None:
        return own_library(like).empty(like, dtype)
    out_of(out, library, Place.CUDA)
    lengths = library.shape(out)
    if library.dtype(out) != dtype or lengths != own_library(like).shape(like):
        raise InputError(
            f"out is {library.dtype(out).name}{list(lengths)}: the result is {dtype.name}"
            f"{list(own_library(like).shape(like))}; give that"
        )
    steps = zip(lengths, library.strides(out), strict=True)
    if 0 not in lengths and any(length > 1 and step == 0 for length, step in steps):
        raise InputError("out repeats its own memory (a stride of 0): give an array of its own")
    there, here = words_of(out), words_of(like)
    if here.size and (there.device, there.stream) != (here.device, here.stream):
        raise InputError(
            "out is used on another device or in another stream than x: give one on x's own "
            "(numba: out.bind(x.stream))"
        )
    if library.strides(out) != own_library(like).strides(like):
        return own_library(like).empty(like, dtype)
    if out is not x and _overlap(there, words_of(x)):
        raise InputError("out overlaps x in part: give out=x itself or an array apart from it")
    return out


def _overlap(a: Any, b: Any) -> bool:
    """Whether two pieces of memory share some bytes but are not the same piece."""
    ends = [w.pointer + w.size * w.dtype.itemsize for w in (a, b)]
    same = (a.pointer, ends[0]) == (b.pointer, ends[1])
    return not same and a.size > 0 and a.pointer < ends[1] and b.pointer < ends[0]


def finish(library: Library, target: Any, out: Any) -> Any:
    """Return the result once it is where it was wanted."""
    if out is not None and target is not out:
        library.copy(target, out)
    if library.waits:
        from fpemu.kernels.cuda_target import wait_for

        wait_for(words_of(target))
    return target if out is None else out
