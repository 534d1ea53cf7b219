"""Cases: each thing that is timed, and how it is set up just before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

import fpemu
from fpemu.analysis.bench.pairs import Load, batch
from fpemu.analysis.bench.peers import Calls, Peer, installed
from fpemu.analysis.bench.sample import sample
from fpemu.cast import Cast
from fpemu.kernels.plan import plan
from fpemu.kernels.pool import run_chunks

__all__ = ["CALL_SIZES", "FORMATS", "GENERAL", "MODES", "VERBS", "Case", "Setup", "cases"]

FORMATS = ("float16", "bfloat16", "tf32", "float8_e4m3fn", "float8_e5m2")
VERBS = ("round", "encode", "decode")
MODES = ("toward_zero", "up", "nearest_away", "to_odd", "stochastic")
#: Elements of the small calls.
CALL_SIZES = (1, 1024)
#: What the build with run-time parameters is called beside the special one.
GENERAL = "fpemu, general"

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Setup:
    """What to measure."""

    to: tuple[str, ...] = FORMATS  #: names of formats
    size: int = 1 << 24  #: elements
    repeats: int = 15  #: pairs at most
    threads: int = 1
    seed: int = 0
    modes: bool = False  #: the other rounding modes too
    float64: bool = False  #: float64 input too
    peers: bool = True  #: other libraries beside
    cpu_time: bool = False  #: the thread's CPU time in place of time on the wall


class Arrays:
    """The arrays that all cases share, made when first asked for."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup

    @cached_property
    def x(self) -> Array:
        return sample(self.setup.size, self.setup.seed)

    @cached_property
    def out(self) -> Array:
        return np.zeros_like(self.x)

    @cached_property
    def x64(self) -> Array:
        # widened float32 values alone would leave the low bits zero
        return self.x.astype(np.float64) * (1 + 2.0**-40)

    @cached_property
    def out64(self) -> Array:
        return np.zeros_like(self.x64)


Loads = tuple[Load, Load]  # what is timed, and its baseline


@dataclass(frozen=True)
class Case:
    """One cell of a table."""

    verb: str  #: which table
    who: str  #: a library, or fpemu in one of its modes
    to: str | None  #: a format's name
    size: int
    prepare: Callable[[Arrays], Loads | None]  #: None: this library lacks the format


def cases(setup: Setup) -> list[Case]:
    """Return the cells of all tables, in order; nothing is run or allocated yet."""
    found = [*_verbs(setup), *_statistics(setup)]
    found += _modes(setup) if setup.modes else []
    found += _float64(setup) if setup.float64 else []
    return [*found, *_calls(setup)]


def _copy(x: Array, out: Array) -> Load:
    return Load(lambda: np.copyto(out, x), x.size)


# --- the three verbs, float32 ----------------------------------------------------------------


def _verbs(setup: Setup) -> Iterator[Case]:
    for verb in VERBS:
        for who, calls in _whos(setup):
            if who == GENERAL and verb != "round":
                continue
            largest = next((p.largest for p in installed() if p.name == who), None)
            size = min(setup.size, largest or setup.size)
            for to in setup.to:
                yield Case(verb, who, to, size, _verb(verb, calls, to, size))


Prepare = Callable[[str, Array, Array, int], Calls | None]


def _whos(setup: Setup) -> list[tuple[str, Prepare]]:
    ours: list[tuple[str, Prepare]] = [("fpemu", _special), (GENERAL, _general)]
    return ours + [(peer.name, _peer(peer)) for peer in (installed() if setup.peers else [])]


def _peer(peer: Peer) -> Prepare:
    return lambda to, x, out, threads: peer.prepare(fpemu.finfo(to), x, out, threads)


def _verb(verb: str, prepare: Prepare, to: str, size: int) -> Callable[[Arrays], Loads | None]:
    def build(arrays: Arrays) -> Loads | None:
        x, out = arrays.x[:size], arrays.out[:size]
        calls = prepare(to, x, out, arrays.setup.threads)
        if calls is None:
            return None
        return Load(getattr(calls, verb), size), _copy(arrays.x, arrays.out)

    return build


def _special(to: str, x: Array, out: Array, threads: int) -> Calls:
    fpemu.warmup(to, dtype=x.dtype)
    codes = fpemu.encode(x, to, threads=threads)
    return Calls(
        lambda: fpemu.round(x, to, out=out, threads=threads),
        lambda: fpemu.encode(x, to, out=codes, threads=threads),
        lambda: fpemu.decode(codes, to, x.dtype, out=out, threads=threads),
    )


def _general(to: str, x: Array, out: Array, threads: int) -> Calls:
    """A plan that no other caller has made hot, so that it stays with run-time parameters."""
    words, results = x.view(np.uint32), out.view(np.uint32)

    def run() -> None:
        fresh = plan.__wrapped__("round", Cast(to), 32, 32)
        run_chunks(lambda a, b: fresh.run(words[a:b], results[a:b]), x.size, threads)

    return Calls(run, run, run)


# --- statistics ------------------------------------------------------------------------------


def _statistics(setup: Setup) -> Iterator[Case]:
    from fpemu.moments import moments
    from fpemu.tallies import tally

    def timed(call: Callable[[Arrays], object]) -> Callable[[Arrays], Loads]:
        return lambda arrays: (
            Load(lambda: call(arrays), setup.size),
            _copy(arrays.x, arrays.out),
        )

    def numpys(arrays: Arrays) -> object:
        return arrays.x.mean(dtype=np.float64), arrays.x.std(dtype=np.float64), arrays.x.max()

    threads = setup.threads
    yield Case("tally", "fpemu", None, setup.size, timed(lambda a: tally(a.x, threads=threads)))
    yield Case("moments", "fpemu", None, setup.size, timed(lambda a: moments(a.x)))
    if setup.peers:
        yield Case("moments", "numpy (mean, std, max)", None, setup.size, timed(numpys))


# --- other rounding modes, float64 -----------------------------------------------------------


def _modes(setup: Setup) -> Iterator[Case]:
    for mode in MODES:
        for to in setup.to:
            yield Case("modes", mode, to, setup.size, _mode(Cast(to, mode), setup))


def _mode(cast: Cast, setup: Setup) -> Callable[[Arrays], Loads]:
    def build(arrays: Arrays) -> Loads:
        fpemu.warmup(cast)
        seed = setup.seed if cast.rounding.value == "stochastic" else None

        def call() -> object:
            return fpemu.round(
                arrays.x, cast, seed=seed, out=arrays.out, threads=setup.threads
            )

        return Load(call, setup.size), _copy(arrays.x, arrays.out)

    return build


def _float64(setup: Setup) -> Iterator[Case]:
    for who, prepare in _whos(setup):
        largest = next((p.largest for p in installed() if p.name == who), None)
        size = min(setup.size, largest or setup.size)
        for to in setup.to if who != GENERAL else ():
            yield Case("float64", who, to, size, _double(prepare, to, size))


def _double(prepare: Prepare, to: str, size: int) -> Callable[[Arrays], Loads | None]:
    def build(arrays: Arrays) -> Loads | None:
        x, out = arrays.x64[:size], arrays.out64[:size]
        calls = prepare(to, x, out, arrays.setup.threads)
        if calls is None:
            return None
        return Load(calls.round, size), _copy(arrays.x64, arrays.out64)

    return build


# --- small calls -----------------------------------------------------------------------------


def _calls(setup: Setup) -> Iterator[Case]:
    for size in CALL_SIZES:
        for who, prepare in [("np.copyto", _nothing), *_whos(setup)]:
            for to in setup.to if who != GENERAL else ():
                yield Case("call", who, to, size, _call(prepare, to, size))


def _nothing(to: str, x: Array, out: Array, threads: int) -> Calls:
    def copy() -> None:
        np.copyto(out, x)

    return Calls(copy, copy, copy)


def _call(prepare: Prepare, to: str, size: int) -> Callable[[Arrays], Loads | None]:
    def build(arrays: Arrays) -> Loads | None:
        x = arrays.x[:size].copy()
        out = np.zeros_like(x)
        calls = _small(to, x, out) if prepare is _special else prepare(to, x, out, 1)
        if calls is None:
            return None
        return batch(Load(calls.round, size)), batch(_copy(x, out))

    return build


def _small(to: str, x: Array, out: Array) -> Calls:
    fpemu.warmup(to)

    def run() -> object:
        return fpemu.round(x, to, out=out)

    return Calls(run, run, run)
