"""Cases: each thing that is timed, and how it is set up just before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

import fpemu
from fpemu.analysis.bench import ours, scaled
from fpemu.analysis.bench.pairs import Load, batch
from fpemu.analysis.bench.peers import Array, Calls, Peer, installed
from fpemu.analysis.bench.setup import CALL_SIZES, MODES, Arrays, Setup
from fpemu.cast import Cast, Rounding
from fpemu.format import Format

__all__ = ["GENERAL", "VERBS", "Case", "cases"]

VERBS = ("round", "encode", "decode")
#: What the build with run-time parameters is called beside the special one.
GENERAL = "fpemu general"

Loads = tuple[Load, Load]  # what is timed, and its baseline


@dataclass(frozen=True)
class Case:
    """One cell of a table."""

    verb: str  #: which table
    who: str  #: a library, or fpemu in one of its modes
    to: str | None  #: a format's name
    size: int  #: elements a call
    prepare: Callable[[Arrays], Loads | None]  #: None: this library lacks the format


def cases(setup: Setup) -> list[Case]:
    """Return the cells of all tables, in order; nothing is run or allocated yet."""
    found = [*_verbs(setup), *_statistics(setup)]
    found += _modes(setup) if setup.modes else []
    found += _float64(setup) if setup.float64 else []
    found += _scaled(setup) if setup.scaled else []
    return [*found, *_calls(setup)]


def _copy(x: Array, out: Array) -> Load:
    return Load(lambda: np.copyto(out, x), x.size)


# --- the verbs of every library ----------------------------------------------------------------

_FPEMU = Peer("fpemu", ours.special)


def _peers(setup: Setup) -> list[Peer]:
    return installed() if setup.peers else []


def _verbs(setup: Setup) -> Iterator[Case]:
    for verb in VERBS:
        general = [Peer(GENERAL, ours.general)] if verb == "round" else []
        for peer in (_FPEMU, *general, *_peers(setup)):
            for to in setup.to:
                yield _case(verb, verb, peer, to, setup)


def _float64(setup: Setup) -> Iterator[Case]:
    for peer in (_FPEMU, *_peers(setup)):
        for to in setup.to:
            yield _case("float64", "round", peer, to, setup)


def _case(table: str, verb: str, peer: Peer, to: str, setup: Setup) -> Case:
    size = min(setup.size, peer.largest or setup.size)

    def prepare(arrays: Arrays) -> Loads | None:
        x, out = (arrays.x64, arrays.out64) if table == "float64" else (arrays.x, arrays.out)
        calls = peer.prepare(fpemu.finfo(to), x[:size], out[:size], setup.threads)
        return None if calls is None else (Load(getattr(calls, verb), size), _copy(x, out))

    return Case(table, peer.name, to, size, prepare)


# --- statistics ------------------------------------------------------------------------------


def _statistics(setup: Setup) -> Iterator[Case]:
    from fpemu.moments import moments

    def case(verb: str, who: str, call: Callable[[Array], object]) -> Case:
        def prepare(arrays: Arrays) -> Loads:
            return Load(lambda: call(arrays.x), setup.size), _copy(arrays.x, arrays.out)

        return Case(verb, who, None, setup.size, prepare)

    threads = setup.threads
    yield case("tally", "fpemu", lambda x: fpemu.tally(x, threads=threads))
    yield case("moments", "fpemu", lambda x: moments(x, threads=threads))
    if setup.peers:
        wide = np.float64
        yield case("moments", "numpy: mean, std, max",
                   lambda x: (x.mean(dtype=wide), x.std(dtype=wide), x.max()))  # fmt: skip


# --- other rounding modes --------------------------------------------------------------------


def _modes(setup: Setup) -> Iterator[Case]:
    for mode in MODES:
        for to in setup.to:
            yield Case("modes", mode, to, setup.size, _mode(Cast(to, mode), setup))


def _mode(cast: Cast, setup: Setup) -> Callable[[Arrays], Loads]:
    seed = setup.seed if cast.rounding is Rounding.STOCHASTIC else None

    def prepare(arrays: Arrays) -> Loads:
        x, out = arrays.x, arrays.out
        fpemu.warmup(cast)

        def call() -> object:
            return fpemu.round(x, cast, seed=seed, out=out, threads=setup.threads)

        return Load(call, setup.size), _copy(x, out)

    return prepare


# --- scaled formats --------------------------------------------------------------------------


def _scaled(setup: Setup) -> Iterator[Case]:
    for verb in scaled.VERBS:
        for scaler in scaled.scalers(setup.peers):
            for recipe in scaled.RECIPES:
                yield Case(verb, scaler.name, recipe, setup.size, _scale(verb, scaler, recipe))


def _scale(verb: str, scaler: scaled.Scaler, recipe: str) -> Callable[[Arrays], Loads]:
    def prepare(arrays: Arrays) -> Loads:
        x, out = arrays.x, arrays.out
        calls = scaler.prepare(recipe, x, out, arrays.setup.threads)
        return Load(calls[verb], x.size), _copy(x, out)

    return prepare


# --- small calls -----------------------------------------------------------------------------


def _copyto(form: Format, x: Array, out: Array, threads: int) -> Calls:
    copy = _copy(x, out).call
    return Calls(copy, copy, copy)


def _calls(setup: Setup) -> Iterator[Case]:
    for size in CALL_SIZES:
        for peer in (Peer("np.copyto", _copyto), Peer("fpemu", ours.small), *_peers(setup)):
            for to in setup.to:
                yield Case("call", peer.name, to, size, _call(peer, to, size))


def _call(peer: Peer, to: str, size: int) -> Callable[[Arrays], Loads | None]:
    def prepare(arrays: Arrays) -> Loads | None:
        x = arrays.x[:size].copy()
        out = np.zeros_like(x)
        calls = peer.prepare(fpemu.finfo(to), x, out, 1)
        return None if calls is None else (batch(Load(calls.round, size)), batch(_copy(x, out)))

    return prepare
