"""The scalar bodies and their loops, against the exact definition and the second algorithm.

The bodies run as plain Python (with each Cast's own shape, as the special build has it) and
compiled. Few loops are compiled: the general ones, which serve every Cast, and a dozen special.
"""

from __future__ import annotations

import numpy as np
import pytest
from second_algorithm import second_codes, second_round, table
from support import (
    ODD,
    P3109,
    TABLED,
    WIDE,
    assert_same_bits,
    directed_inputs,
    every_cast,
    sample,
    wide_range,
)

import fpemu
from fpemu.cast import Cast, Rounding
from fpemu.codes import code_dtype
from fpemu.kernels import bits, cpu, plan, pool, random
from fpemu.kernels.params import WORDS, codes_of, general_shape, params_of
from fpemu.rounding import round_exact, value_of

FLOATS = {32: np.float32, 64: np.float64}


def run_loop(verb: str, cast: Cast, x: np.ndarray, *, special: bool = False) -> np.ndarray:
    """Apply one loop to float32 or float64, past the choice that `plan` makes."""
    width = 8 * x.itemsize
    word = WORDS[width]
    out = np.empty(x.shape, word.uint if verb == "round" else code_dtype(cast.format))
    p = params_of(cast, width)
    results = p.values if verb == "round" else p.codes
    if special:
        cpu.special_loop(verb, width, p.grid, results, p.shape)(x.view(word.uint), out)
    else:
        constants = np.array([*p.grid, *results], word.uint)
        loop = cpu.general_loop(verb, width, general_shape(p.shape))
        loop(x.view(word.uint), out, constants)
    return out.view(word.float) if verb == "round" else out


def exact_codes(cast: Cast, x: np.ndarray, draws=None, n: int = 32) -> np.ndarray:
    draws = np.zeros(x.size, np.uint64) if draws is None else draws
    pairs = zip(x, draws, strict=True)
    codes = [round_exact(cast, v, draw=int(d), random_bits=n).code for v, d in pairs]
    return np.array(codes, code_dtype(cast.format))


def values_of(form: fpemu.Format, codes: np.ndarray, dtype) -> np.ndarray:
    known = {code: float(value_of(form, code)) for code in set(codes.tolist())}
    return np.array([known[code] for code in codes.tolist()], dtype)


# --- compiled, in bulk -----------------------------------------------------------------------


@pytest.mark.parametrize("width", [32, 64])
@pytest.mark.parametrize("form", TABLED, ids=str)
def test_general_loops_on_directed_inputs(form, width):
    """Every deterministic Cast of every format; 8 bits: each value, midpoint and neighbour."""
    x = directed_inputs(form, FLOATS[width])
    assert x.size <= 20_000
    for cast in every_cast(form):
        codes = second_codes(cast, x)
        got = run_loop("encode", cast, x)
        assert_same_bits(got, codes.astype(got.dtype), x, f"encode {cast}")
        values = table(form)[codes].astype(x.dtype)
        assert_same_bits(run_loop("round", cast, x), values, x, f"round {cast}")


@pytest.mark.parametrize("width", [32, 64])
@pytest.mark.parametrize("form", WIDE, ids=str)
def test_general_loops_of_wide_formats(form, width):
    x = directed_inputs(form, FLOATS[width])
    for seed, cast in enumerate(every_cast(form)):
        some = sample(x, 200, seed)
        codes = exact_codes(cast, some)
        assert_same_bits(run_loop("encode", cast, some), codes, some, f"encode {cast}")
        values = values_of(form, codes, x.dtype)
        assert_same_bits(run_loop("round", cast, some), values, some, f"round {cast}")


@pytest.mark.parametrize("form", TABLED, ids=str)
def test_general_loops_on_the_exact_definition(form):
    """A sample straight from the definition, so that no mistake of the second algorithm hides."""
    x = directed_inputs(form)
    for seed, cast in enumerate(every_cast(form)):
        some = np.concatenate([sample(x, 20, seed), wide_range(5, seed)])
        codes = exact_codes(cast, some)
        assert_same_bits(run_loop("encode", cast, some), codes, some, f"encode {cast}")


SPECIAL = [
    Cast("float16"),
    Cast("bfloat16", "toward_zero"),
    Cast("tf32", "nearest_away", subnormals="flush"),
    Cast("e4m3fn"),
    Cast("e4m3fn", "up", "saturate"),
    Cast("e5m2", "to_odd", "saturate_keep_inf"),
    Cast("e4m3fnuz", "down"),
    Cast("fp4"),
    Cast("e8m0"),
    Cast("e8m0", "nearest_away", "saturate", negative="abs", zero="smallest"),
    Cast("binary8p1ue", "down", negative="abs"),
    Cast(ODD[0], "to_odd"),
]


@pytest.mark.parametrize("cast", SPECIAL, ids=str)
def test_special_loops(cast):
    x = np.concatenate([directed_inputs(cast.format), wide_range(10_000)])
    both = [("round", second_round), ("encode", second_codes)]
    for verb, want in both[: 1 + SPECIAL.index(cast) % 2]:  # each costs a compilation
        got = run_loop(verb, cast, x, special=True)
        assert_same_bits(got, want(cast, x).astype(got.dtype), x, f"{verb} {cast}")


@pytest.mark.parametrize("cast", [Cast("float16"), Cast("e8m0", "up")], ids=str)
def test_special_loops_of_float64(cast):
    x = directed_inputs(cast.format, np.float64)
    got = run_loop("round", cast, x, special=True)
    assert_same_bits(got, second_round(cast, x), x, cast)


def test_special_casts_cover_every_part_of_the_bodies():
    shapes = [params_of(cast).shape for cast in SPECIAL]
    for part in ("deep", "directed", "zeroless", "inf_apart", "nan_apart"):
        assert {getattr(shape, part) for shape in shapes} == {False, True}, part


# --- plain Python ----------------------------------------------------------------------------

PLAIN = {width: bits.build(word.uint, word.mantissa, lambda f: f) for width, word in WORDS.items()}


def plain(verb: str, cast: Cast, x: np.ndarray, draws=None, n: int = 32) -> np.ndarray:
    """A body, uncompiled, word by word; any wrap-around is a warning and so an error.

    It takes a draw as its complement.
    """
    width = 8 * x.itemsize
    word = WORDS[width]
    p = params_of(cast, width, n)
    results = p.values if verb == "round" else p.codes
    body = getattr(PLAIN[width], verb)
    spare = np.zeros(x.size, word.uint) if draws is None else word.uint((1 << n) - 1) - draws
    found = [
        body(a, r, p.grid, results, p.shape) for a, r in zip(x.view(word.uint), spare, strict=True)
    ]
    return np.array(found, word.uint)


@pytest.mark.parametrize("form", [*TABLED, *WIDE], ids=str)
def test_plain_bodies(form):
    inputs = {width: directed_inputs(form, FLOATS[width]) for width in (32, 64)}
    for seed, cast in enumerate(every_cast(form)):
        for width, count in ((32, 12), (64, 4)):
            x = sample(inputs[width], count, seed)
            codes = exact_codes(cast, x)
            assert_same_bits(plain("encode", cast, x).astype(codes.dtype), codes, x, cast)
            got = plain("round", cast, x).view(x.dtype)
            assert_same_bits(got, values_of(form, codes, x.dtype), x, cast)


@pytest.mark.parametrize("name", ["float16", "bfloat16", "e4m3fn", "e5m2", "fp4", "e8m0"])
def test_plain_bodies_on_more_inputs(name):
    cast = Cast(name)
    x = sample(directed_inputs(cast.format), 1500)
    assert_same_bits(plain("round", cast, x).view(x.dtype), second_round(cast, x), x, cast)


# --- stochastic ------------------------------------------------------------------------------


def some_draws(n: int, size: int, dtype) -> np.ndarray:
    top = (1 << n) - 1
    edges = [0, top, top >> 1, (top >> 1) + 1, 1, top - 1]
    more = np.random.default_rng(n).integers(0, top, size, np.uint64, endpoint=True)
    return np.where(np.arange(size) % 2, more, np.resize(np.array(edges, np.uint64), size)).astype(
        dtype
    )


WIDTHS = [(32, n) for n in (1, 2, 13, 23, 31, 32)] + [(64, n) for n in (1, 13, 32, 53, 63, 64)]


@pytest.mark.parametrize(("width", "n"), WIDTHS)
def test_plain_stochastic_bodies(width, n):
    forms = [*TABLED[:14], *P3109[:5], *ODD, *WIDE]
    for seed, form in enumerate(forms):
        casts = every_cast(form, [Rounding.STOCHASTIC])
        cast = casts[seed % len(casts)]
        x = sample(directed_inputs(form, FLOATS[width]), 30, seed + n)
        draws = some_draws(n, x.size, WORDS[width].uint)
        codes = exact_codes(cast, x, draws, n)
        got = plain("encode", cast, x, draws, n).astype(codes.dtype)
        assert_same_bits(got, codes, x, f"{cast} n={n}")
        got = plain("round", cast, x, draws, n).view(x.dtype)
        assert_same_bits(got, values_of(form, codes, x.dtype), x, f"{cast} n={n}")


def definition_draws(seed: int, offset: int, size: int, n: int, width: int) -> list[int]:
    """The draws of a stream, from the plain Python source."""
    draw = random.build_draw(width, lambda f: f)
    found = []
    for index in range(offset, offset + size):
        block, inside = divmod(index, random.BLOCK)
        spare = int(draw(np.uint32(inside), random.keys_of(seed, block), width - n))
        found.append((1 << n) - 1 - spare)
    return found


@pytest.mark.parametrize(("width", "n"), [(32, 32), (32, 5), (64, 64), (64, 13)])
@pytest.mark.parametrize("form", [TABLED[0], TABLED[3], TABLED[13], ODD[0], WIDE[1]], ids=str)
def test_compiled_stochastic_loops(form, width, n):
    x = sample(directed_inputs(form, FLOATS[width]), 400)
    for cast in every_cast(form, [Rounding.STOCHASTIC])[:3]:
        codes = exact_codes(cast, x, definition_draws(9, 1000, x.size, n, width), n)
        options = {"seed": 9, "offset": 1000, "random_bits": n}
        assert_same_bits(fpemu.encode(x, cast, **options), codes, x, cast)
        values = values_of(form, codes, x.dtype)
        assert_same_bits(fpemu.round(x, cast, **options), values, x, cast)


def test_special_stochastic_loops_are_the_general_ones():
    cast = Cast("e4m3fn", "stochastic")
    x = directed_inputs(cast.format)
    p = params_of(cast, 32, 13)
    keys = random.keys_of(4, 0)
    made = np.empty(x.size, np.uint32)
    cpu.special_loop("round", 32, p.grid, p.values, p.shape)(
        x.view(np.uint32), made, np.uint64(0), keys
    )
    want = fpemu.round(x, cast, seed=4, random_bits=13)
    assert_same_bits(made.view(np.float32), want, x, cast)


# --- decode ----------------------------------------------------------------------------------


@pytest.mark.parametrize("form", TABLED, ids=str)
def test_decode_of_every_code(form):
    codes = np.arange(1 << form.bits).astype(code_dtype(form))
    want = table(form)
    assert_same_bits(fpemu.decode(codes, form), want.astype(np.float32), codes, form)
    assert_same_bits(fpemu.decode(codes, form, np.float64), want, codes, form)


@pytest.mark.parametrize("form", WIDE, ids=str)
def test_decode_of_wide_formats(form):
    top = (1 << form.bits) - 1
    drawn = np.random.default_rng(1).integers(0, top, 500, endpoint=True)
    near = [0, 1, 2, form.max_code, form.max_code - 1, form.min_normal_code, top, top >> 1]
    codes = np.concatenate([drawn, near, [form.min_normal_code - 1]]).astype(np.uint32)
    want = values_of(form, codes, np.float32)
    assert_same_bits(fpemu.decode(codes, form), want, codes, form)


@pytest.mark.parametrize("form", [*TABLED, *WIDE], ids=str)
@pytest.mark.parametrize("width", [32, 64])
def test_plain_decode(form, width):
    word = WORDS[width]
    codes = sample(np.arange(1 << min(form.bits, 19)), 60)
    facts = codes_of(form, width)
    got = np.array([PLAIN[width].decode(word.uint(c), facts, True) for c in codes], word.uint)
    assert_same_bits(got.view(word.float), values_of(form, codes, word.float), codes, form)


def test_special_decode_loop():
    for form in (fpemu.finfo("e4m3fn"), fpemu.finfo("e8m0"), fpemu.finfo("fp16")):
        codes = np.arange(1 << form.bits).astype(code_dtype(form))
        out = np.empty(codes.size, np.uint32)
        cpu.decode_loop(32, codes_of(form))(codes, out)
        assert_same_bits(out.view(np.float32), table(form).astype(np.float32), codes, form)


# --- plans, pool, cache ----------------------------------------------------------------------


def test_a_plan_gets_its_own_loop_once_it_is_hot(monkeypatch):
    monkeypatch.setattr(plan, "HOT", 1000)
    plan.forget()
    cast = Cast("float16")
    loop = plan.plan("round", cast, 32, 32)
    x = directed_inputs(cast.format)[:600]
    for special in (False, True, True):
        out = np.empty(x.size, np.uint32)
        loop.run(x.view(np.uint32), out)
        assert (loop._special is not None) == special
        assert_same_bits(out.view(np.float32), second_round(cast, x), x)
    plan.forget()


def test_chunks_cover_every_element_once():
    for size in (0, 1, pool.SMALL, 2 * pool.SMALL, 2 * pool.SMALL + 1, 5 * pool.SMALL + 777):
        for threads in (1, 2, 3, 7):
            seen = np.zeros(size, np.int64)

            def mark(start: int, stop: int, seen: np.ndarray = seen) -> None:
                seen[start:stop] += 1

            pool.run_chunks(mark, size, threads)
            assert (seen == 1).all(), (size, threads)


def test_an_error_in_a_chunk_reaches_the_caller():
    def fail(start: int, stop: int) -> None:
        raise ZeroDivisionError(f"{start}")

    with pytest.raises(ZeroDivisionError):
        pool.run_chunks(fail, 4 * pool.SMALL, 2)


def test_loops_hold_the_stamp_of_the_kernel_sources():
    """numba's disk cache sees no change in the files of called functions: the stamp does."""
    from fpemu.kernels.compile import source_stamp

    p = params_of(Cast("float16"))
    loop = cpu.general_loop("round", 32, general_shape(p.shape)).py_func
    cells = dict(zip(loop.__code__.co_freevars, loop.__closure__, strict=True))
    assert cells["stamp"].cell_contents == source_stamp()
