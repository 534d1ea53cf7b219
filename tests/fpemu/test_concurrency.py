"""Threads, forked processes, and code elsewhere that changes the processor's float mode."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pytest
from second_algorithm import second_round
from support import assert_same_bits, directed_inputs, wide_range

import fpemu
from fpemu.cast import Cast
from fpemu.kernels.pool import SMALL

LARGE = 2 * SMALL + 999


def in_new_process(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# --- threads ---------------------------------------------------------------------------------


def test_many_threads_round_at_once():
    """Small and large arrays, several casts; some loops are first built while others run."""
    casts = [Cast(name, mode) for name in ("float16", "e4m3fn", "e8m0", "bfloat16")
             for mode in ("nearest_even", "up")]  # fmt: skip
    few = wide_range(5000)
    want = {cast: second_round(cast, few) for cast in casts}
    start = threading.Barrier(8)

    def work(k: int) -> None:
        start.wait()
        for turn in range(9):
            cast, size = casts[(k + turn) % len(casts)], (7, 5000, LARGE)[(k + turn) % 3]
            got = fpemu.round(np.resize(few, size), cast)
            assert_same_bits(got[:5000], want[cast][:size], few[:size], cast)
            assert_same_bits(got[-7:], np.resize(want[cast], size)[-7:], what=cast)

    with ThreadPoolExecutor(8) as many:
        for done in [many.submit(work, k) for k in range(8)]:
            done.result()


def test_threads_that_start_together_share_the_loops():
    """Or each would compile its own, one after the other: seconds turn into a minute."""
    code = """
import sys, threading
from concurrent.futures import ThreadPoolExecutor
from fpemu import Cast
from fpemu.kernels import cpu, params
p = params.params_of(Cast("float16"))
shape = params.general_shape(p.shape)
start = threading.Barrier(8)
sys.setswitchinterval(1e-6)
def loops(_):
    start.wait()
    return (cpu.general_loop("round", 32, shape), cpu.decode_loop(32, None),
            cpu.special_loop("round", 32, p.grid, p.values, p.shape))
with ThreadPoolExecutor(8) as many:
    print(*(len(set(made)) for made in zip(*many.map(loops, range(8)))))
"""
    assert in_new_process(code) == "1 1 1\n"


def test_threads_may_warm_up_the_same_cast():
    x = directed_inputs(fpemu.finfo("e5m2"))

    def work(_: int) -> np.ndarray:
        fpemu.warmup("e5m2:to_odd,overflow=saturate_keep_inf")
        return fpemu.round(x, "e5m2:to_odd,overflow=saturate_keep_inf")

    with ThreadPoolExecutor(4) as many:
        for got in many.map(work, range(4)):
            assert_same_bits(got, second_round(Cast("e5m2", "to_odd", "saturate_keep_inf"), x), x)


def test_large_arrays_may_be_rounded_from_inside_a_pool_of_ones_own():
    x = wide_range(LARGE, 1)
    want = second_round(Cast("float16"), x)
    with ThreadPoolExecutor(3) as mine:
        for got in mine.map(lambda _: fpemu.round(x, "float16", threads=2), range(6)):
            assert_same_bits(got, want, x)


# --- fork ------------------------------------------------------------------------------------

FORK = """
import os, sys, hashlib, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # 3.12: fork beside threads, the case at hand
import numpy as np, fpemu
x = np.random.default_rng(0).integers(0, 2**32, {size}, np.uint32).view(np.float32)
def digest():
    return hashlib.sha256(fpemu.round(x, "e4m3fn", threads=2).tobytes()).hexdigest()
before = digest()  # the pool's threads exist from here on; a child has none of them
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_rounds_large_arrays():
    code = FORK.format(size=LARGE) + """
for _ in range(3):
    child = os.fork()
    if child == 0:
        os._exit(0 if digest() == before else 3)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0, status
assert digest() == before
print("fine")
"""
    assert in_new_process(code) == "fine\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_pool_of_processes_works():
    code = FORK.format(size=LARGE) + """
import multiprocessing
def work(_):
    return digest()
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert set(pool.map(work, range(4))) == {before}
print("fine")
"""
    assert in_new_process(code) == "fine\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_fork_while_threads_are_rounding():
    code = FORK.format(size=LARGE) + """
import threading
stop = threading.Event()
def busy():
    while not stop.is_set():
        digest()
threads = [threading.Thread(target=busy) for _ in range(2)]
for t in threads: t.start()
for _ in range(5):
    child = os.fork()
    if child == 0:
        os._exit(0 if digest() == before else 3)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0, status
stop.set()
for t in threads: t.join()
print("fine")
"""
    assert in_new_process(code) == "fine\n"


# --- flush-to-zero ---------------------------------------------------------------------------


def _set_mxcsr():
    """Return set(bits) -> old bits, for x86's control register of this thread."""
    import numba
    from llvmlite import ir
    from numba.core import cgutils, types
    from numba.extending import intrinsic

    @intrinsic
    def exchange(typing, new):
        def code(context, builder, signature, arguments):
            word = ir.IntType(32)
            void = ir.FunctionType(ir.VoidType(), [ir.IntType(8).as_pointer()])
            store = cgutils.get_or_insert_function(builder.module, void, "llvm.x86.sse.stmxcsr")
            load = cgutils.get_or_insert_function(builder.module, void, "llvm.x86.sse.ldmxcsr")
            cell = cgutils.alloca_once(builder, word)
            raw = builder.bitcast(cell, ir.IntType(8).as_pointer())
            builder.call(store, [raw])
            old = builder.load(cell)
            builder.store(arguments[0], cell)
            builder.call(load, [raw])
            return old

        return types.uint32(types.uint32), code

    @numba.njit
    def swap(bits):
        return exchange(bits)

    return lambda bits: int(swap(np.uint32(bits)))


@contextmanager
def flushed_by_mxcsr():
    if platform.machine().lower() not in ("x86_64", "amd64"):
        pytest.skip(f"MXCSR is x86's, this is {platform.machine()}")
    swap = _set_mxcsr()
    old = swap(0x1F80)
    swap(old | 0x8040)  # FTZ and DAZ
    try:
        yield
    finally:
        swap(old)


@contextmanager
def flushed_by_torch():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if not torch.set_flush_denormal(True):
        pytest.skip("torch cannot set flush-to-zero on this processor")
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


def flushes() -> bool:
    """Whether this thread's arithmetic treats float32 subnormals as zero."""
    return not (np.full(4, 1e-40, np.float32) * np.ones(4, np.float32)).any()


def results(x: np.ndarray, wide: np.ndarray, threads: int) -> list[np.ndarray]:
    """What the library makes of float32 subnormals, in every verb and on threads."""
    return [
        *(fpemu.round(x, c, threads=threads) for c in ("bfloat16", "bfloat16:up", "e8m0")),
        fpemu.encode(x, "bfloat16", threads=threads),
        fpemu.round(x, "tf32:stochastic", seed=1, threads=threads),
        fpemu.encode(wide, "bfloat16:up"),
        fpemu.values("bfloat16"),
        fpemu.decode(np.arange(1 << 16), "bfloat16", np.float64),
    ]


@pytest.mark.parametrize("flushed", [flushed_by_mxcsr, flushed_by_torch])
def test_flush_to_zero_elsewhere_changes_nothing(flushed):
    subnormals = np.arange(1, 0x800000, 8009, dtype=np.uint32)
    x = np.resize(subnormals, 2 * SMALL + 1).view(np.float32)
    wide = x[:8000].astype(np.float64)
    want = results(x, wide, 1)
    assert not flushes()
    with flushed():
        assert flushes()
        got = results(x, wide, 5)  # a pool that is new, so that its threads inherit the mode
    assert not flushes()
    for a, b in zip(got, want, strict=True):
        same = a.tobytes() == b.tobytes()  # on bytes: comparing floats would flush them
        assert same, f"{a[:5]!r} for {b[:5]!r}"


# --- environment -----------------------------------------------------------------------------


def test_no_writable_cache_is_needed(tmp_path):
    """A read-only install for a user without a home: loops are compiled, in memory."""
    code = (
        "import numpy as np, fpemu\n"
        "print(fpemu.round(np.float32([0.1]), 'fp4')[0])"
    )
    blocked = tmp_path / "file"
    blocked.write_text("")
    environment = {"HOME": str(blocked), "XDG_CACHE_HOME": str(blocked / "x"),
                   "NUMBA_CACHE_DIR": str(blocked / "y")}  # fmt: skip
    assert in_new_process(code, **environment) == "0.0\n"


@pytest.mark.parametrize("threads", ["1", "3"])
def test_fpemu_threads_is_read_from_the_environment(threads):
    code = (
        "import threading, numpy as np, fpemu\n"
        f"fpemu.round(np.ones({LARGE}, np.float32), 'fp16')\n"
        "print(sum(t.name.startswith('fpemu') for t in threading.enumerate()))"
    )
    count = int(in_new_process(code, FPEMU_THREADS=threads))
    assert count == 0 if threads == "1" else 1 <= count <= 3
