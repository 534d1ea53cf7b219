"""Every CUDA kernel in numba's simulator, on directed inputs, against the second algorithm.

    NUMBA_ENABLE_CUDASIM=1 pytest -m cudasim

The simulator runs kernels as Python, thread by thread: it checks logic, indices and wrap-around,
but neither types nor what the compiler makes of them; tests/ptx does that.
"""

from __future__ import annotations

import os
import tokenize
from itertools import cycle

import numpy as np
import pytest
from second_algorithm import second_codes, second_round
from support import (
    ODD,
    TABLED,
    assert_same_bits,
    directed_inputs,
    every_cast,
    sample,
    wide_range,
    widened,
)

import fpemu
from fpemu.cast import Cast, Rounding
from fpemu.codes import code_dtype
from fpemu.kernels.params import WORDS, codes_of, general_shape, params_of
from fpemu.kernels.random import keys_of
from fpemu.rounding import value_of

pytestmark = pytest.mark.cudasim
if os.environ.get("NUMBA_ENABLE_CUDASIM") != "1":
    pytest.skip("the simulator needs NUMBA_ENABLE_CUDASIM=1", allow_module_level=True)
pytest.importorskip("numba_cuda", reason="needs numba-cuda: the extra cuda12 or cuda13")

from fpemu.kernels import cuda as loops  # noqa: E402
from fpemu.kernels import cuda_count, cuda_tally, cuda_target  # noqa: E402

FLOATS = {32: np.float32, 64: np.float64}
LIMIT = 2000  # inputs a kernel


def words_of(array: np.ndarray) -> cuda_target.Words:
    """An array's memory, as if it were a device's."""
    kind = np.dtype(f"u{array.itemsize}")
    return cuda_target.Words(array.ctypes.data, array.size, kind)


def run(verb: str, cast: Cast, x: np.ndarray, special: bool) -> np.ndarray:
    width = 8 * x.itemsize
    word = WORDS[width]
    out = np.empty(x.shape, word.uint if verb == "round" else code_dtype(cast.format))
    p = params_of(cast, width)
    results = p.values if verb == "round" else p.codes
    if special:
        loop = loops.special_loop(verb, width, p.grid, results, p.shape)
        loop(words_of(x), words_of(out))
    else:
        loop = loops.general_loop(verb, width, general_shape(p.shape))
        loop(words_of(x), words_of(out), np.array([*p.grid, *results], word.uint))
    return out.view(word.float) if verb == "round" else out


def check(cast: Cast, x: np.ndarray, special: bool) -> None:
    assert x.size <= LIMIT
    codes = second_codes(cast, x).astype(code_dtype(cast.format))
    assert_same_bits(run("encode", cast, x, special), codes, x, f"encode {cast}")
    assert_same_bits(run("round", cast, x, special), second_round(cast, x), x, f"round {cast}")


@pytest.mark.parametrize("width", [32, 64])
@pytest.mark.parametrize("form", TABLED, ids=str)
def test_special_kernels(form, width):
    """Nearest and, in turn, another cast of each format."""
    x = directed_inputs(form, FLOATS[width])
    casts = every_cast(form)
    for seed, cast in enumerate({casts[0], casts[(7 * form.bits) % len(casts)]}):
        check(cast, sample(x, 500, seed), special=True)


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "tf32"])
def test_the_main_formats(name):
    form = fpemu.finfo(name)
    check(Cast(form), sample(directed_inputs(form), LIMIT), special=True)


@pytest.mark.parametrize("width", [32, 64])
@pytest.mark.parametrize("form", TABLED, ids=str)
def test_general_kernels(form, width):
    """Every deterministic cast there is, a few inputs each."""
    x = directed_inputs(form, FLOATS[width])
    for seed, cast in enumerate(every_cast(form)):
        check(cast, sample(x, 8, seed), special=False)


@pytest.mark.parametrize("form", [*TABLED[:12], *ODD[:4]], ids=str)
def test_decode(form):
    codes = np.arange(1 << form.bits)
    codes = sample(codes, 500, form.bits).astype(code_dtype(form))
    for width, word in WORDS.items():
        want = np.array([float(value_of(form, int(code))) for code in codes], word.float)
        for facts in (codes_of(form, width), None):
            more = [] if facts else [np.array([*codes_of(form, width)], word.uint)]
            out = np.empty(codes.size, word.uint)
            loops.decode_loop(width, facts)(words_of(codes), words_of(out), *more)
            assert_same_bits(out.view(word.float), want, codes, f"decode {form}")


# --- pointers, tails, sizes ----------------------------------------------------------------------


@pytest.mark.parametrize("width", [32, 64])
@pytest.mark.parametrize(("start", "out_start"), [(0, 0), (1, 0), (0, 1), (2, 2), (3, 1)])
def test_every_tail_at_every_alignment(width, start, out_start):
    word = WORDS[width]
    x = directed_inputs(fpemu.finfo("fp16"), word.float)[:64]
    cast = Cast("float16")
    p = params_of(cast, width)
    loop = loops.special_loop("round", width, p.grid, p.values, p.shape)
    for size in (0, 1, 2, 3, 4, 5, 7, 8, 31, 33):
        part = words_of(x).part(start, start + size)
        out = np.full(64, 7, word.uint)
        loop(part, words_of(out).part(out_start, out_start + size))
        want = np.full(64, 7, word.uint)
        want[out_start:][:size] = second_round(cast, x[start:][:size]).view(word.uint)
        same = out == want
        nan = np.isnan(out.view(word.float)) & np.isnan(want.view(word.float))
        assert (same | nan).all(), (size, np.flatnonzero(~same))


# --- stochastic ----------------------------------------------------------------------------------


@pytest.mark.parametrize("build", ["special", "general"])
@pytest.mark.parametrize(("name", "n"), [("float16", 32), ("float8_e4m3fn", 5), ("e8m0", 13)])
def test_stochastic_rounding_is_that_of_the_exact_definition(name, n, build):
    from fpemu.kernels.random import build_draw
    from fpemu.rounding import round_exact

    cast = Cast(name, "stochastic", negative="abs" if name == "e8m0" else "nan")
    x = sample(directed_inputs(cast.format), 300, n)
    first, keys = np.uint32(2**32 - 400), keys_of(11, 3)
    p = params_of(cast, 32, n)
    out = np.empty(x.size, code_dtype(cast.format))
    if build == "special":
        loop, more = loops.special_loop("encode", 32, p.grid, p.codes, p.shape), []
    else:
        loop = loops.general_loop("encode", 32, general_shape(p.shape))
        more = [np.array([*p.grid, *p.codes], np.uint32)]
    loop(words_of(x), words_of(out), first, keys, *more)
    draw = build_draw(32, lambda function: function)
    spares = [int(draw(np.uint32(int(first) + i), keys, np.uint32(32 - n))) for i in range(x.size)]
    pairs = zip(x, spares, strict=True)
    want = [round_exact(cast, v, draw=2**n - 1 - s, random_bits=n).code for v, s in pairs]
    assert_same_bits(out, np.array(want, out.dtype), x, cast)


# --- tally ---------------------------------------------------------------------------------------

NORMAL = np.random.default_rng(1).normal(size=900).astype(np.float32)
DATA = {
    "normal": NORMAL,
    "relu": np.maximum(NORMAL, 0) * np.float32([1, -1])[np.arange(900) % 2],
    "wide": wide_range(900),
    "subnormal": np.random.default_rng(2).integers(0, 1 << 23, 500, np.uint32).view(np.float32),
    "huge": NORMAL * np.float32(5e37),
    "tiny": NORMAL * np.float32(1e-37),
    "special": directed_inputs(fpemu.finfo("fp4"))[-200:],
    "one": np.float32([2 - 2**-23]),
    "empty": np.zeros(0, np.float32),
    "misaligned": NORMAL[1:],
}


def slow_counts(x: np.ndarray) -> dict[tuple[int, int, int], int]:
    """(sign, exponent, slot) -> count of the finite non-zero numbers, from their fractions."""
    from collections import Counter
    from fractions import Fraction
    from math import frexp

    from fpemu.kernels.bucket import EDGES

    found: Counter[tuple[int, int, int]] = Counter()
    for value in widened(x).tolist():
        if value == 0 or value != value or abs(value) == float("inf"):
            continue
        significand, exponent = frexp(abs(value))
        s = Fraction(significand) * 2
        below = max(i for i, edge in enumerate(EDGES) if edge <= s)
        slot = 2 * below if EDGES[below] == s else 2 * below + 1
        found[value < 0, exponent - 1, slot] += 1
    return found


@pytest.mark.parametrize("name", DATA)
def test_tally(name):
    x = DATA[name]
    cells, low, specials = cuda_tally.count(words_of(x))
    where = np.argwhere(cells)
    got = {(bool(s), int(r) + low - 149, int(k)): int(cells[s, r, k]) for s, r, k in where}
    assert got == dict(slow_counts(x))
    signs = np.signbit(x)
    assert specials == (
        ((x == 0) & ~signs).sum(), ((x == 0) & signs).sum(),
        (x == np.inf).sum(), (x == -np.inf).sum(), np.isnan(x).sum(),
    )  # fmt: skip


def test_launches_of_a_tally_add_up(monkeypatch):
    monkeypatch.setattr(cuda_tally, "_LAUNCH", 100)
    x = DATA["wide"]
    parts = cuda_tally.count(words_of(x))
    monkeypatch.undo()
    whole = cuda_tally.count(words_of(x))
    assert np.array_equal(parts[0], whole[0])
    assert parts[1:] == whole[1:]


# --- counting while rounding ---------------------------------------------------------------------

COUNTED = [Cast("float16"), Cast("e4m3fn", overflow="saturate"), Cast("fp4", "toward_zero"),
           Cast("e8m0", negative="abs"), Cast("e4m3fn", "stochastic", "saturate")]  # fmt: skip


@pytest.mark.parametrize("cast", [c for c in COUNTED if c.rounding is not Rounding.STOCHASTIC],
                         ids=str)  # fmt: skip
def test_round_and_count(cast):
    from numba import cuda

    from fpemu.rounding import round_exact

    x = sample(directed_inputs(cast.format), 400)
    rounded, outcome = fpemu.round(cuda.to_device(x), cast, count=True)
    want = [round_exact(cast, v).outcome for v in x]
    assert outcome.to_json() == {"total": x.size} | {
        name: want.count(name) for name in outcome.to_json() if name != "total"
    }
    assert_same_bits(rounded.copy_to_host(), second_round(cast, x), x, cast)


def test_round_and_count_of_stochastic_casts():
    """The CPU's counts, which its own tests compare with the definition."""
    from numba import cuda

    cast = COUNTED[-1]
    x = sample(directed_inputs(cast.format), 400)
    options = {"seed": 5, "offset": 2**32 - 200, "count": True}
    rounded, outcome = fpemu.round(cuda.to_device(x), cast, **options)
    want, counted = fpemu.round(x, cast, **options)
    assert_same_bits(rounded.copy_to_host(), want, x, cast)
    assert outcome == counted


def test_counting_more_than_two_to_the_32(monkeypatch):
    """Launches beyond there have no draws whose index could go on."""
    starts = []

    def launch(kernel, work, like, x, out, size, first, *more):
        starts.append((int(first), int(size), x.pointer))

    monkeypatch.setattr(cuda_count, "launch", launch)
    x = cuda_target.Words(4096, 2**32 + 5, np.dtype(np.uint32))
    p = params_of(Cast("float16"), 32)
    shape, constants = general_shape(p.shape), np.array([*p.grid, *p.values], np.uint32)
    limits = np.zeros((2, 5), np.uint32)
    cuda_count.round_and_count(x, x, (shape, shape), (constants, constants), limits, 0, (0,) * 6)
    launches = [(0, 2**31, 4096), (2**31, 2**31, 4096 + 2**33), (0, 5, 4096 + 2**34)]
    assert starts == launches


# --- a new cast needs no new code ----------------------------------------------------------------


def test_formats_that_nobody_knows_yet():
    modes = cycle(r for r in Rounding if r is not Rounding.STOCHASTIC)
    for exponent, mantissa, mode in zip((2, 4, 6), (3, 1, 5), modes, strict=False):
        form = fpemu.Format("new", exponent, mantissa, 2 ** (exponent - 1), "none", inf=False)
        check(Cast(form, mode), sample(directed_inputs(form), 200), special=True)


def test_kernels_know_no_format_and_no_rounding_mode():
    """Words of the CUDA modules' code: only that draws are taken is known there."""
    from fpemu.catalog import FORMATS

    known = {*FORMATS, *(mode.value for mode in Rounding), *(mode.name for mode in Rounding)}
    for module in (loops, cuda_count, cuda_tally):
        with tokenize.open(module.__file__) as file:
            words = {t.string for t in tokenize.generate_tokens(file.readline) if t.type == 1}
        assert not words & (known - {"stochastic"}), module
