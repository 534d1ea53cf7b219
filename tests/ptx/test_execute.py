"""The compiled scalar functions, executed by the interpreter, on directed and random inputs.

They are compared with the second algorithm, which shares nothing with the kernels, with the exact
definition, or with what is written here from the definition in plain NumPy.
"""

from __future__ import annotations

import numpy as np
import ptx_functions as ptx
import pytest
from ptx_kernels import CASTS
from ptx_toolchain import missing
from second_algorithm import grid, second_codes, second_round, table
from support import (
    ODD,
    TABLED,
    WIDE,
    assert_same_bits,
    directed_inputs,
    every_cast,
    sample,
    wide_range,
)

import fpemu
from fpemu.cast import Cast, Negative, Rounding, Subnormals
from fpemu.codes import code_dtype
from fpemu.kernels.bucket import EDGES, FINE, SLOT_OF_FINE
from fpemu.kernels.outcome import OUTCOMES
from fpemu.kernels.params import general_shape, params_of
from fpemu.limits import word_limits
from fpemu.outcomes import visible
from fpemu.rounding import round_exact, value_of

pytestmark = [
    pytest.mark.ptx,
    pytest.mark.skipif(missing() is not None, reason=str(missing())),
]

FLOATS = {32: np.float32, 64: np.float64}
MILLION = 1 << 20
KEYS = (0x9E3779B9, 0x7F4A7C15, 0xF39CC060, 0x5CEDC834, 0x1082276B, 0xF3A27251)

compilers = pytest.mark.parametrize("target", ptx.COMPILERS, ids=lambda c: "sm_{}{}".format(*c))


def random_words(bits: int, count: int = MILLION, seed: int = 0) -> np.ndarray:
    """Floats of all bit patterns."""
    top = (1 << bits) - 1
    drawn = np.random.default_rng(seed).integers(0, top, count, f"u{bits // 8}", endpoint=True)
    return drawn.view(FLOATS[bits])


def check(verb: str, cast: Cast, x: np.ndarray, words: np.ndarray, codes: np.ndarray) -> None:
    """Compare what a function made of x with the codes it must make."""
    if verb == "encode":
        dtype = code_dtype(cast.format)
        assert (words >> (8 * dtype.itemsize - 1) <= 1).all(), f"{cast}: bits above the code"
        assert_same_bits(words.astype(dtype), codes.astype(dtype), x, f"encode {cast}")
    else:
        values = table(cast.format)[codes].astype(x.dtype)
        assert_same_bits(words.view(x.dtype), values, x, f"round {cast}")
        nans = np.abs(words.view(x.dtype)[np.isnan(values)]).view(words.dtype)
        quiet = np.array(np.nan, x.dtype).view(words.dtype)
        assert (nans == quiet).all(), f"{cast}: another NaN than {quiet:#x}"


# --- round and encode --------------------------------------------------------------------------

#: Each verb and width on one of the compilers, and which half of the casts: each verb sees all.
GENERAL = [("round", 32, (9, 0), 0), ("encode", 32, (10, 0), 1), ("round", 64, (10, 0), 1),
           ("encode", 64, (9, 0), 0)]  # fmt: skip


@pytest.mark.parametrize(("verb", "bits", "target", "half"), GENERAL)
def test_every_cast_of_every_format(verb, bits, target, half):
    """Functions with run-time constants: directed inputs."""
    for form in TABLED:
        x = directed_inputs(form, FLOATS[bits])
        for seed, cast in enumerate(every_cast(form)[half::2]):
            some = x if form.bits <= 8 else sample(x, 2000, seed)
            shape = general_shape(params_of(cast, bits).shape)
            check(verb, cast, some, ptx.general(verb, cast, shape, some, target),
                  second_codes(cast, some))  # fmt: skip


@pytest.mark.parametrize(("verb", "bits", "target", "half"), GENERAL)
def test_every_cast_of_wide_formats(verb, bits, target, half):
    """Against the exact definition: no table has so many codes."""
    for form in WIDE:
        x = directed_inputs(form, FLOATS[bits])
        for seed, cast in enumerate(every_cast(form)[half::2]):
            some = sample(x, 25, seed)
            shape = general_shape(params_of(cast, bits).shape)
            words = ptx.general(verb, cast, shape, some, target)
            codes = [round_exact(cast, v).code for v in some]
            if verb == "encode":
                assert_same_bits(words, np.array(codes, words.dtype), some, cast)
            else:
                values = np.array([float(value_of(form, c)) for c in codes], some.dtype)
                assert_same_bits(words.view(some.dtype), values, some, cast)


DETERMINISTIC = [Cast.from_str(text) for text in CASTS if "stochastic" not in text]
SPECIAL = [(cast, 32) for cast in DETERMINISTIC] + [
    (Cast("float16"), 64), (Cast("tf32", "up"), 64), (Cast("e8m0", "down", negative="abs"), 64),
    (Cast("e4m3fnuz"), 64), (Cast(ODD[0], "to_odd"), 32), (Cast(ODD[2], "nearest_away"), 32),
]  # fmt: skip


@pytest.mark.parametrize(("cast", "bits"), SPECIAL, ids=str)
def test_a_cast_with_its_constants_built_in(cast, bits):
    """Directed and a million random inputs; round by one compiler, encode by the other."""
    index = SPECIAL.index((cast, bits))
    x = np.concatenate([directed_inputs(cast.format, FLOATS[bits]), random_words(bits, seed=index)])
    codes = second_codes(cast, x)
    for verb, target in zip(("round", "encode"), ptx.COMPILERS[:: 1 - index % 2 * 2], strict=True):
        words = ptx.elementwise(verb, cast, x, target)
        check(verb, cast, x, words, codes)


# --- stochastic --------------------------------------------------------------------------------


def drawn_words(index: np.ndarray, keys: tuple[int, ...]) -> np.ndarray:
    """Wellons' three-multiplication hash with keys between its rounds, in wrapping words."""
    h = index.astype(np.uint32) ^ np.uint32(keys[0])
    h ^= h >> np.uint32(17)
    h *= np.uint32(0xED5AD4BB)
    h ^= np.uint32(keys[1])
    h ^= h >> np.uint32(11)
    h *= np.uint32(0xAC4C1B51)
    h ^= np.uint32(keys[2])
    h ^= h >> np.uint32(15)
    h *= np.uint32(0x31848BAB)
    return h ^ (h >> np.uint32(14))


def draws_of(index: np.ndarray, n: int, bits: int) -> np.ndarray:
    """The n-bit draws of elements, as uint64: the complement of the hash's top n bits."""
    words = drawn_words(index, KEYS[:3]).astype(np.uint64)
    if bits == 64:
        words = words << np.uint64(32) | drawn_words(index, KEYS[3:])
    return np.uint64((1 << n) - 1) - (words >> np.uint64(bits - n))


def stochastic_codes(cast: Cast, x: np.ndarray, draws: np.ndarray, n: int) -> np.ndarray:
    """The definition in float64: away if floor(discarded fraction * 2**n) + draw >= 2**n."""
    form = cast.format
    nearest = cast.replace(rounding="nearest_even")
    codes = second_codes(nearest, x).astype(np.int64)  # right for the specials
    with np.errstate(invalid="ignore"):  # signalling NaNs
        a = np.abs(x.astype(np.float64))
    points = grid(form)[: form.max_code + 2]
    taken = form.signed | (x > 0) | (cast.negative is Negative.ABS)
    ordinary = (a > 0) & (a < points[-1]) & taken
    a, minus, draws = a[ordinary], np.signbit(x[ordinary]) & form.signed, draws[ordinary]
    low = np.searchsorted(points, a, side="right") - 1
    below, above = points[np.maximum(low, 0)], points[np.maximum(low, 0) + 1]
    part = np.floor((a - below) / (above - below) * 2.0**n).clip(0).astype(np.uint64)
    total = part + draws
    carries = total < part if n == 64 else total >= np.uint64(1 << n)
    code = np.where(low < 0, 0, low + carries)  # without zero, the smallest is the least
    over = second_codes(nearest, np.array([points[-1], -points[-1]]))
    if cast.subnormals is Subnormals.FLUSH:
        code = np.where(code < form.min_normal_code, 0, code)
    signed = code + (minus & (form.minus_zero | (code > 0))) * (1 << form.magnitude_bits)
    codes[ordinary] = np.where(code > form.max_code, over[minus.astype(int)], signed)
    return codes


DRAWING = [Cast.from_str(text) for text in CASTS if "stochastic" in text]
STOCHASTIC = [(cast, 32, n) for cast in DRAWING for n in (32, 13)] + [
    (Cast("float16", "stochastic", subnormals="flush"), 64, 64),
    (Cast("e4m3fnuz", "stochastic", "saturate"), 64, 20),
    (Cast("binary8p5uf", "stochastic", negative="abs"), 32, 1),
]


@pytest.mark.parametrize(("cast", "bits", "n"), STOCHASTIC, ids=str)
def test_the_second_stochastic_algorithm_is_the_definition(cast, bits, n):
    x = sample(directed_inputs(cast.format, FLOATS[bits]), 400, n)
    draws = draws_of(np.arange(x.size), n, bits)
    draws[::3], draws[1::7] = (1 << n) - 1, 0
    want = [round_exact(cast, v, draw=int(d), random_bits=n).code for v, d in zip(x, draws)]  # noqa: B905
    assert_same_bits(stochastic_codes(cast, x, draws, n), np.array(want, np.int64), x, cast)


@pytest.mark.parametrize(("cast", "bits", "n"), STOCHASTIC, ids=str)
def test_stochastic(cast, bits, n):
    """Built-in constants round a million numbers, run-time ones encode some of them."""
    index = STOCHASTIC.index((cast, bits, n))
    target, other = ptx.COMPILERS[:: 1 - index % 2 * 2]
    x = np.concatenate([random_words(bits), directed_inputs(cast.format, FLOATS[bits])])
    first = 0xFFFF0000  # the index wraps
    codes = stochastic_codes(cast, x, draws_of(first + np.arange(x.size), n, bits), n)
    words = ptx.elementwise("round", cast, x, target, n=n, first=first, keys=KEYS)
    check("round", cast, x, words, codes)
    x, codes = x[-20_000:], codes[-20_000:]
    moved = (first + words.size - x.size) % (1 << 32)
    shape = general_shape(params_of(cast, bits).shape)
    words = ptx.general("encode", cast, shape, x, other, n=n, first=moved, keys=KEYS)
    check("encode", cast, x, words, codes)


@compilers
@pytest.mark.parametrize("bits", [32, 64])
def test_random_words(bits, target):
    index = np.concatenate([np.arange(1000), (1 << 32) - 1 - np.arange(1000)])
    index = np.concatenate([index, np.random.default_rng(1).integers(0, 1 << 32, MILLION)])
    draw = ptx.draw(bits, target)
    for n in (bits, bits - 9, 1):
        spare = draw(index, *KEYS, bits - n)
        want = np.uint64((1 << n) - 1) - draws_of(index, n, bits)
        assert_same_bits(spare, want.astype(spare.dtype), index, n)


# --- decode ------------------------------------------------------------------------------------


@compilers
@pytest.mark.parametrize("bits", [32, 64])
def test_decode_of_every_code(bits, target):
    for form in TABLED:
        codes = np.arange(1 << form.bits)
        want = table(form).astype(FLOATS[bits])
        assert_same_bits(ptx.decode(form, codes, bits, target), want, codes, form)


@pytest.mark.parametrize("name", ["float16", "bfloat16", "e4m3fn", "e8m0", "e4m3fnuz", "fp4"])
def test_decode_of_a_format_with_its_constants_built_in(name):
    form, target = fpemu.finfo(name), ptx.COMPILERS[len(name) % 2]
    codes = np.arange(1 << form.bits)
    got = ptx.decode(form, codes, 32, target, special=True)
    assert_same_bits(got, table(form).astype(np.float32), codes, name)


@compilers
def test_decode_of_wide_formats(target):
    for form in WIDE:
        top = (1 << form.bits) - 1
        drawn = np.random.default_rng(1).integers(0, top, 300, endpoint=True)
        near = [0, 1, form.max_code, form.min_normal_code, form.min_normal_code - 1, top, top >> 1]
        codes = np.concatenate([drawn, near])
        want = np.array([float(value_of(form, int(c))) for c in codes], np.float32)
        assert_same_bits(ptx.decode(form, codes, 32, target), want, codes, form)


# --- outcomes ----------------------------------------------------------------------------------

COUNTED = [Cast("float16"), Cast("e4m3fn", "up", "saturate"), Cast("e8m0"), Cast(ODD[1]),
           Cast("fp4", "toward_zero"), Cast("e5m2", subnormals="flush")]  # fmt: skip


def limits_of(cast: Cast, x: np.ndarray) -> np.ndarray:
    """The five limits of each number, by its sign."""
    return word_limits(cast, 8 * x.itemsize)[0][np.signbit(x).astype(int)].T


@compilers
@pytest.mark.parametrize("bits", [32, 64])
def test_outcomes_are_those_of_the_definition(bits, target):
    for seed, cast in enumerate(COUNTED):
        x = sample(directed_inputs(cast.format, FLOATS[bits]), 500, seed)
        rounded, word = second_round(visible(cast), x), f"u{x.itemsize}"
        found = ptx.kind(bits, target)(x.view(word), rounded.view(word), *limits_of(cast, x))
        same = {"saturated": "beyond", "overflow": "beyond"}
        outcomes = [round_exact(cast, v).outcome for v in x]
        want = np.array([OUTCOMES.index(same.get(o, o)) for o in outcomes], found.dtype)
        assert_same_bits(found, want, x, cast)


@pytest.mark.parametrize(("bits", "target"), [(32, (9, 0)), (64, (10, 0))])
def test_outcomes_of_a_million_numbers(bits, target):
    """Written as conditions on floats; the second word is anything, as a draw may make it."""
    cast = Cast("float16")
    x, rounded = random_words(bits), np.abs(random_words(bits, seed=1))
    rounded[::2] = second_round(cast, x[::2])
    word = f"u{x.itemsize}"
    found = ptx.kind(bits, target)(x.view(word), rounded.view(word), *limits_of(cast, x))
    with np.errstate(invalid="ignore"):
        a, r = np.abs(x), np.abs(rounded)
        form = cast.format
        under, beyond = form.smallest_subnormal / 2, form.max + 2.0 ** (form.emax - 11)
        conditions = [np.isnan(x), np.isinf(x), a == 0, (a >= beyond) | ~(r <= form.max),
                      r == 0, r < form.smallest_normal]  # fmt: skip
    assert under > 0
    names = ["nan", "inf", "zero", "beyond", "underflow", "subnormal"]
    want = np.select(conditions, [OUTCOMES.index(n) for n in names], OUTCOMES.index("normal"))
    assert_same_bits(found, want.astype(found.dtype), x)


# --- the tally's places ------------------------------------------------------------------------


def slots(x: np.ndarray) -> np.ndarray:
    """The slot of each significand: 2 * i at edge i, 2 * i + 1 above it."""
    edges = np.array([float(edge) for edge in EDGES])
    number = np.searchsorted(edges, x, side="right") - 1
    return 2 * number + (edges[number] != x)


def tally_inputs() -> np.ndarray:
    """Every edge and its neighbours in some binades, the specials, and random words."""
    edges = np.array([int(edge * (1 << 23)) - (1 << 23) for edge in EDGES])
    near = (edges[:, None] + np.arange(-2, 3)).clip(0, (1 << 23) - 1).ravel()
    fields = np.array([0, 1, 2, 64, 126, 127, 191, 192, 193, 254, 255])
    words = (fields[:, None] << 23 | near).ravel().astype(np.uint32)
    subnormal = (near >> np.arange(24)[:, None]).ravel().astype(np.uint32)
    special = directed_inputs(fpemu.finfo("float16")).view(np.uint32)
    plus = np.concatenate([words, subnormal, special & np.uint32(0x7FFFFFFF)])
    return np.concatenate([plus, plus | np.uint32(1 << 31), wide_range(MILLION).view(np.uint32)])


@compilers
def test_places_in_the_window(target):
    """A row of fine slots for each of 64 exponent fields from `lowest` on; the last for others."""
    words = tally_inputs()
    near, outside, _ = ptx.tally_places(target)
    half = 64 * FINE + 1
    field, sign = (words >> np.uint32(23) & np.uint32(0xFF)).astype(int), words >> np.uint32(31)
    significands = 1 + (words & np.uint32(0x7FFFFF)) / 2.0**23
    for lowest in (1, 100, 192):
        inside = (field >= lowest) & (field < lowest + 64)
        place = near(words, 256 - lowest).astype(int)
        assert_same_bits(outside(words, 256 - lowest) == 0, inside, words)
        assert_same_bits(place // half, sign.astype(int), words)
        row, fine = np.divmod(place % half, FINE)
        assert ((place % half == half - 1) == ~inside).all()
        assert_same_bits(row[inside], field[inside] - lowest, words[inside])
        assert_same_bits(SLOT_OF_FINE[fine[inside]].astype(int), slots(significands[inside]))


@compilers
def test_places_in_memory(target):
    """A row for each sign and exponent field, then one for each binade of the subnormals."""
    words = tally_inputs()
    far = ptx.tally_places(target)[2]
    row, fine = np.divmod(far(words).astype(int), FINE)
    sign, field = (words >> np.uint32(31)).astype(int), (words >> np.uint32(23) & 0xFF).astype(int)
    with np.errstate(invalid="ignore"):
        fraction, exponent = np.frexp(words.view(np.float32).astype(np.float64))
    subnormal = (field == 0) & (words & np.uint32(0x7FFFFF) > 0)
    want = np.where(subnormal, 512 + 23 * sign + exponent - 1 + 149, 256 * sign + field)
    assert_same_bits(row, want, words)
    plain = 1 + (words & np.uint32(0x7FFFFF)) / 2.0**23
    significands = np.where(subnormal, 2 * np.abs(fraction), plain)
    assert_same_bits(SLOT_OF_FINE[fine].astype(int), slots(significands), words)


def test_the_casts_take_every_part_of_the_bodies():
    shapes = {params_of(cast, bits).shape for cast, bits in SPECIAL}
    shapes |= {params_of(cast, bits, n).shape for cast, bits, n in STOCHASTIC}
    for part in next(iter(shapes))._fields:
        assert {getattr(shape, part) for shape in shapes} == {False, True}, part
    roundings = {cast.rounding for cast, *_ in [*SPECIAL, *STOCHASTIC]}
    assert roundings == set(Rounding)
