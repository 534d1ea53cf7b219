"""The tally, against real casts, the exact definition and a count in float64 written apart.

The count in float64 (`counted`) rounds on a grid by division and shares nothing with the slots,
the kernels or the definition; products of float32 and 2**k are exact there.
"""

from __future__ import annotations

import functools
import itertools
import pickle
import zlib
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import DETERMINISTIC, ML_DTYPES, ODD, WIDE, every_cast, p3109_formats, wide_range

import fpemu
from fpemu import Cast, Outcome, Tally
from fpemu.cast import Overflow, Rounding, Subnormals
from fpemu.errors import FpemuError, InputError
from fpemu.kernels import bucket, count
from fpemu.limits import cell_limits
from fpemu.outcomes import outcome_of, visible
from fpemu.rounding import round_exact, value_of

Array = np.ndarray[Any, Any]

SCALES = [2.0**k for k in (*range(-40, 16), -300, -130, 100, 300)]
FIELDS = ("nan", "inf", "zero", "invalid", "saturated", "overflow", "underflow", "subnormal",
          "normal")  # fmt: skip


# --- data ------------------------------------------------------------------------------------


def wide() -> Array:
    """Half normal, half spread over the exponents; both signs, zeros, infinities and NaNs."""
    random = np.random.default_rng(1)
    with np.errstate(over="ignore"):
        spread = np.float32(np.exp2(random.normal(0, 24, 1500)) * random.choice([-1, 1], 1500))
    special = np.float32([0, -0.0, np.inf, -np.inf, np.nan, 0])
    return np.concatenate([np.float32(random.standard_normal(1500)), spread, special])


def subnormal() -> Array:
    """float32's subnormals, of all lengths."""
    random = np.random.default_rng(2)
    words = random.integers(1, 1 << 23, 1500) >> random.integers(0, 23, 1500)
    return (words.astype(np.uint32) | np.uint32(1 << 31) * random.integers(0, 2, 1500)).astype(
        np.uint32
    ).view(np.float32)


def ties() -> Array:
    """Every value of up to 8 significant bits, the slots' edges, and their neighbours."""
    random = np.random.default_rng(3)
    edges = [int((e - 1) * (1 << 23)) for e in bucket.EDGES]
    fractions = np.array([*edges, *range(0, 1 << 23, 1 << 16), *range(0, 1 << 23, 3 << 19)])
    fractions = (fractions[:, None] + np.arange(-1, 2)).ravel() % (1 << 23)
    fields = random.integers(1, 255, (fractions.size, 4))
    fields[:, :3] = random.integers(100, 150, (fractions.size, 3))
    words = (fields << 23 | fractions[:, None]).ravel()
    return (words | random.integers(0, 2, words.size) << 31).astype(np.uint32).view(np.float32)


DATA = {"wide": wide(), "subnormal": subnormal(), "ties": ties()}


# --- counting another way --------------------------------------------------------------------


def counted(x: Array, cast: Cast, scale: float = 1.0) -> Outcome:
    """What the cast does to x * scale, in float64."""
    with np.errstate(over="ignore"):
        return _counted(np.ldexp(np.float64(x), int(np.log2(scale))), cast)


def _counted(y: Array, cast: Cast) -> Outcome:
    form = cast.format
    found = {"nan": np.isnan(y), "inf": np.isinf(y), "zero": y == 0}
    rest = ~(found["nan"] | found["inf"] | found["zero"])
    found["invalid"] = rest & (y < 0) & (not form.signed)
    rest &= ~found["invalid"]
    y = np.where(rest, y, 1.0)
    r = np.abs(_on_grid(y, cast))
    beyond = rest & (r > form.max)
    saturates = np.zeros(y.shape, bool)
    saturates[:] = cast.overflow is not Overflow.IEEE
    if cast.rounding in (Rounding.TOWARD_ZERO, Rounding.TO_ODD):
        saturates[:] = True
    if cast.rounding in (Rounding.UP, Rounding.DOWN):
        saturates |= (y < 0) == (cast.rounding is Rounding.UP)
    found["saturated"], found["overflow"] = beyond & saturates, beyond & ~saturates
    rest &= ~beyond
    small = r < form.smallest_normal
    if form.zero:
        found["underflow"] = rest & small & ((r == 0) | (cast.subnormals is Subnormals.FLUSH))
    else:
        found["underflow"] = rest & (np.abs(y) < form.smallest_normal)
    rest &= ~found["underflow"]
    found["subnormal"], found["normal"] = rest & small, rest & ~small
    return Outcome(y.size, *(int(found[name].sum()) for name in FIELDS))


def _on_grid(y: Array, cast: Cast) -> Array:
    form = cast.format
    exponents = np.maximum(np.frexp(y)[1] - 1, form.emin)
    quantum = np.ldexp(1.0, exponents - form.mantissa_bits)
    steps = np.abs(y) / quantum
    down, up = np.floor(steps), np.ceil(steps)
    odd = down % 2 == 1
    if form.mantissa_bits == 0:  # codes count binades
        odd = (exponents - form.emin + int(form.zero)) * (down > 0) % 2 == 1
    match cast.rounding:
        case Rounding.NEAREST_EVEN:
            odd |= not form.zero  # E8M0's ties go up
            away = (steps - down > 0.5) | ((steps - down == 0.5) & odd)
        case Rounding.NEAREST_AWAY:
            away = steps - down >= 0.5
        case Rounding.TOWARD_ZERO:
            away = np.zeros(y.shape, bool)
        case Rounding.UP:
            away = y > 0
        case Rounding.DOWN:
            away = y < 0
        case Rounding.TO_ODD:
            away = ~odd
    with np.errstate(over="ignore"):
        return np.where(away, up, down) * quantum


def by_definition(numbers: Iterator[Fraction | float], cast: Cast) -> Outcome:
    """Count with the exact definition, number by number."""
    found = [round_exact(cast, number).outcome for number in numbers]
    return Outcome(len(found), *(found.count(name) for name in FIELDS))


def scaled(x: Array, k: int) -> Iterator[Fraction]:
    return (Fraction(float(v)) * Fraction(2) ** k for v in x)


def main_casts() -> list[Cast]:
    """Every rounding of every format of the table, and the other rules with some."""
    more = [
        Cast(form, rounding, overflow, subnormals)
        for form in fpemu.formats.values()
        for rounding, overflow, subnormals in (
            ("nearest_even", "saturate", "flush"),
            ("up", "saturate_keep_inf", "keep"),
            ("to_odd", "ieee", "flush"),
        )
    ]
    plain = [Cast(f, rounding) for f in fpemu.formats.values() for rounding in DETERMINISTIC]
    return list(dict.fromkeys(plain + more + [Cast("e8m0", negative="abs", zero="smallest")]))


# --- outcomes --------------------------------------------------------------------------------


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("form", fpemu.formats)
def test_every_format_at_60_scales(form: str, data: str) -> None:
    x, cast = DATA[data], Cast(form)
    outcomes = fpemu.tally(x).outcomes(cast, SCALES)
    assert len(outcomes) == 60
    for scale, outcome in zip(SCALES, outcomes, strict=True):
        assert outcome == counted(x, cast, scale), f"{cast} at {scale}"


@pytest.mark.parametrize("data", DATA)
def test_every_rounding_and_rule(data: str) -> None:
    x = DATA[data][::3]
    t = fpemu.tally(x)
    for cast, k in itertools.product(main_casts(), (-149, -17, -1, 0, 9, 140)):
        assert t.outcome(cast, 2.0**k) == counted(x, cast, 2.0**k), f"{cast} at 2**{k}"


def test_against_the_definition() -> None:
    for number, cast in enumerate(main_casts()):
        for x in DATA.values():
            part = x[np.isfinite(x)][number::150]
            k = number % 61 - 30
            assert fpemu.tally(part).outcome(cast, 2.0**k) == by_definition(scaled(part, k), cast)


def test_counted_by_real_casts() -> None:
    """ml_dtypes' casts of products that float32 holds."""
    for name, x, k in itertools.product(ML_DTYPES, DATA.values(), (-8, 0, 12)):
        dtype, form = np.dtype(getattr(ml_dtypes, name)), fpemu.finfo(name)
        with np.errstate(all="ignore"):
            product = x * np.float32(2.0**k)
            exact = np.isfinite(product) & (np.float64(product) == np.float64(x) * 2.0**k)
            part = x[exact & (x != 0)]
            q = np.float64(product[exact & (x != 0)].astype(dtype))
        outcome = fpemu.tally(part).outcome(name, 2.0**k)
        lost = ~np.isfinite(q)
        if form.zero:
            assert outcome.underflow == (q == 0).sum(), f"{name} at 2**{k}"
        if form.has_nan:
            assert outcome.overflow + outcome.invalid == lost.sum(), f"{name} at 2**{k}"
        small = (np.abs(q) < form.smallest_normal) & (q != 0)
        assert outcome.subnormal == small.sum(), f"{name} at 2**{k}"


def test_formats_off_the_edges_are_refused_and_all_others_are_exact() -> None:
    forms = [*p3109_formats(range(3, 9)), *ODD, *WIDE]
    x = np.concatenate([DATA["ties"][::5], DATA["subnormal"][::9], DATA["wide"][::9]])
    t = fpemu.tally(x)
    refused = []
    for form in forms:
        for rounding in DETERMINISTIC:
            rules = {} if form.signed or form.has_nan else {"negative": "abs"}
            cast = Cast(form, rounding, **rules)
            try:
                outcomes = t.outcomes(cast, [1.0, 2.0**-9, 2.0**20])
            except InputError:
                refused.append(form.name)
                continue
            expected = [counted(x, cast, scale) for scale in (1.0, 2.0**-9, 2.0**20)]
            assert outcomes == expected, str(cast)
    assert "e8m22fn" in refused
    assert "float32" not in refused


@given(st.data())
def test_a_users_format_is_exact_or_refused(data: st.DataObject) -> None:
    """Its own limits and the float32 numbers around them find a slot that is not uniform."""
    bits, mantissa = data.draw(st.integers(1, 8)), data.draw(st.integers(0, 23))
    bias = data.draw(st.integers(-10, 140))
    nan = data.draw(st.sampled_from(["top_code", "minus_zero", "none", "top_binade"]))
    inf = nan == "top_binade" or (nan != "none" and data.draw(st.booleans()))
    rounding = data.draw(st.sampled_from(DETERMINISTIC))
    try:
        cast = Cast(fpemu.Format("mine", bits, mantissa, bias, nan, inf), rounding)
        cell_limits(cast)
    except FpemuError:
        return
    form = cast.format
    k = data.draw(st.integers(-60, 60))
    near = [form.smallest_subnormal, form.smallest_subnormal / 2, form.smallest_normal, form.max]
    near += [form.max * (1 + 2.0**-i) for i in (3, 9, 24)]
    near += [form.smallest_normal - form.smallest_subnormal * f for f in (0.25, 0.5, 1)]
    with np.errstate(over="ignore", under="ignore"):
        words = np.ldexp(np.array(near), -k).astype(np.float32).view(np.uint32).astype(np.int64)
    words = (words[:, None] + np.arange(-2, 3)).clip(0, 0x7F7FFFFF).ravel().astype(np.uint32)
    x = np.concatenate([words.view(np.float32), -words.view(np.float32)])
    assert fpemu.tally(x).outcome(cast, 2.0**k) == by_definition(scaled(x, k), cast), str(cast)


def test_outcome_of_no_data() -> None:
    assert Tally().outcome("fp16") == Outcome()
    assert Outcome().lost_fraction == 0.0 == Outcome().underflow_fraction


def test_outcome_fractions_and_sum() -> None:
    outcome = Outcome(10, 1, 1, 2, 1, 1, 1, 1, 1, 1)
    assert (outcome.nonzero, outcome.lost) == (6, 4)
    assert outcome.lost_fraction == 4 / 6
    assert outcome.underflow_fraction == 1 / 6
    assert (outcome + outcome).total == 20
    assert outcome.to_json()["zero"] == 2
    with pytest.raises(TypeError):
        outcome + 1  # type: ignore[operator]


@pytest.mark.parametrize("scale", [0.0, -2.0, 3.0, 0.1, np.inf, np.nan, 2.0**301, 2.0**-301,
                                   10**400, "2", None, 1j, [2.0]])  # fmt: skip
def test_scales_that_are_no_power_of_two_are_refused(scale: Any) -> None:
    with pytest.raises(InputError, match="power of two"):
        Tally().outcome("fp16", scale)


@pytest.mark.parametrize("scale", [2, np.float32(0.5), np.int64(4), 2.0**-300, 2.0**300,
                                   Fraction(1, 4)])  # fmt: skip
def test_scales_of_any_number_type(scale: Any) -> None:
    assert Tally().outcome("fp16", scale) == Outcome()


def test_a_refusal_names_the_way_out() -> None:
    with pytest.raises(InputError, match=r"e8m22fn.*near .*count=True"):
        Tally().outcome(WIDE[1])


def test_stochastic_casts_are_refused() -> None:
    with pytest.raises(InputError, match=r"stochastic.*count=True"):
        Tally().outcome(Cast("fp16", "stochastic"))


# --- counts ----------------------------------------------------------------------------------


def slots_of(x: Array) -> Array:
    """The histogram by comparing with every edge."""
    y = np.abs(np.float64(x[np.isfinite(x) & (x != 0)]))
    negative = np.signbit(x[np.isfinite(x) & (x != 0)])
    significands, exponents = np.frexp(y)
    edges = np.array([float(e) for e in bucket.EDGES])
    edge = np.searchsorted(edges, significands * 2, side="right") - 1
    slots = 2 * edge + (edges[edge] != significands * 2)
    histogram = np.zeros((2, 277, bucket.SLOTS), np.int64)
    np.add.at(histogram, (negative.astype(int), exponents - 1 + 149, slots), 1)
    return histogram


@pytest.mark.parametrize("size", [0, 1, 3, 1000, count.DIRECT - 1, count.DIRECT, 50_001])
def test_histogram_of_every_kind_of_word(size: int) -> None:
    x = np.concatenate([wide_range(size), *DATA.values()])[: max(size, 0)]
    t = fpemu.tally(x)
    np.testing.assert_array_equal(t.histogram, slots_of(x))
    finite = x[np.isfinite(x) & (x != 0)]
    exponents = np.frexp(np.float64(finite))[1] - 1 + 149
    np.testing.assert_array_equal(t.exponents(), np.bincount(exponents, minlength=277))
    assert (t.total, t.nan, t.inf, t.zero) == (
        size, np.isnan(x).sum(), np.isinf(x).sum(), (x == 0).sum(),
    )  # fmt: skip
    if finite.size:
        assert t.amax_exponent == Tally.EXPONENTS[exponents.max()]
        assert t.amin_exponent == Tally.EXPONENTS[exponents.min()]
    else:
        assert t.amax_exponent is None is t.amin_exponent


def test_every_significand_has_its_slot() -> None:
    """All slots of both loops, at the edges, their neighbours and among subnormals."""
    words = np.float32([float(e) for e in bucket.EDGES]).view(np.uint32).astype(np.int64)
    x = (words[:, None] + np.arange(-3, 4)).ravel().astype(np.uint32).view(np.float32)
    tiny = np.arange(1, 5000, dtype=np.uint32).view(np.float32)
    for each in (x, x * np.float32(2.0**-126), tiny):
        np.testing.assert_array_equal(fpemu.tally(each).histogram, slots_of(each))
        many = np.tile(each, -(-count.DIRECT // each.size))
        np.testing.assert_array_equal(fpemu.tally(many).histogram, slots_of(many))


def test_scalar_bodies_as_plain_python() -> None:
    bodies = bucket.build(np.uint32, lambda function: function)
    for word in DATA["ties"][:300].view(np.uint32):
        distance = bodies.left(word)
        bits = bodies.float_bits(distance)
        assert np.float32(distance).view(np.uint32) == bits
        got = bucket.SLOT_OF_FINE[bodies.fine(bits)]
        assert slots_of(np.array([word]).view(np.float32)).any((0, 1)).nonzero()[0] == got


def test_counters_are_flushed_before_they_wrap(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.tile(DATA["wide"], 10)
    expected = fpemu.tally(x)
    monkeypatch.setattr(count, "CAPACITY", 7001)
    assert fpemu.tally(x) == expected
    assert count.CAPACITY < 1 << 32


def test_threads_and_shards_agree() -> None:
    x = wide_range(700_000)
    one = fpemu.tally(x, threads=1)
    assert one == fpemu.tally(x, threads=3)
    assert one == sum(fpemu.tally(part) for part in np.array_split(x, 7))


@given(st.lists(st.integers(0, (1 << 32) - 1)), st.lists(st.integers(0, (1 << 32) - 1)))
def test_tally_of_joined_data_is_the_sum(first: list[int], second: list[int]) -> None:
    a, b = (np.array(part, np.uint32).view(np.float32) for part in (first, second))
    joined = np.concatenate([a, b])
    total = fpemu.tally(a) + fpemu.tally(b)
    assert total == fpemu.tally(joined) == fpemu.tally(joined[::-1])
    assert hash(total) == hash(fpemu.tally(joined))
    assert total == fpemu.tally(b) + fpemu.tally(a)
    assert Tally.from_bytes(total.to_bytes()) == total == pickle.loads(pickle.dumps(total))


def test_equality_sees_every_part() -> None:
    parts = [[1.0], [-1.0], [2.0], [1.5], [0.0], [-0.0], [np.inf], [-np.inf], [np.nan], []]
    tallies = [fpemu.tally(np.float32(part)) for part in parts]
    for a, b in itertools.product(range(len(parts)), repeat=2):
        assert (tallies[a] == tallies[b]) is (a == b)
    assert tallies[0] != 1
    assert repr(tallies[0]) == "<Tally of 1: 0 zero, 0 inf, 0 nan, 2**0..2**0>"


def test_a_tally_cannot_be_changed() -> None:
    t = fpemu.tally(np.float32([1.0]))
    t.histogram[:] = 7
    assert t.histogram.sum() == 1
    with pytest.raises(ValueError):
        t._cells[0] = 1


# --- input -----------------------------------------------------------------------------------


def test_layouts() -> None:
    x = np.float32(np.random.default_rng(5).standard_normal((60, 40)))
    expected = fpemu.tally(np.ascontiguousarray(x[::2, ::-3]))
    frozen = x[::2, ::-3].copy()
    frozen.flags.writeable = False
    for same in (x[::2, ::-3], frozen, np.asfortranarray(frozen), frozen.astype(">f4"),
                 frozen[None, ..., None], np.moveaxis(frozen, 0, 1)):  # fmt: skip
        assert fpemu.tally(same) == expected
    assert fpemu.tally(np.float32(3)).total == 1 == fpemu.tally(np.array(3, np.float32)).total
    assert fpemu.tally(np.zeros((0, 3), np.float32)) == Tally()


@pytest.mark.parametrize("name", ["float16", *ML_DTYPES])
def test_narrow_floats_widen(name: str) -> None:
    dtype = np.dtype(getattr(ml_dtypes, name, np.float16))
    x = np.arange(256, dtype=np.uint8).repeat(dtype.itemsize).view(dtype)
    if dtype.itemsize == 1:
        x = np.arange(1 << fpemu.finfo(name).bits, dtype=np.uint8).view(dtype)
    with np.errstate(invalid="ignore"):
        assert fpemu.tally(x) == fpemu.tally(x.astype(np.float32))


@pytest.mark.parametrize(
    ("x", "way"),
    [
        (np.ones(3), "x.astype(np.float32)"),
        ([1.0, 2.0], "x.astype(np.float32)"),
        (np.arange(3), "x.astype(np.float32)"),
        (np.ones(3, bool), "x.astype(np.float32)"),
        (np.ones(3, np.complex64), "x.real"),
        (np.array([None]), "np.array"),
        (np.array(["1"]), "float array"),
    ],
)
def test_other_input_is_refused_with_the_way_out(x: Any, way: str) -> None:
    with pytest.raises(InputError) as wrong:
        fpemu.tally(x)
    assert way in str(wrong.value)
    assert "\n" not in str(wrong.value)


@pytest.mark.parametrize("threads", [0, -1, 1.5, "2"])
def test_threads_are_checked(threads: Any) -> None:
    with pytest.raises(InputError, match="threads"):
        fpemu.tally(np.ones(3, np.float32), threads=threads)


# --- bytes -----------------------------------------------------------------------------------


def normals() -> Array:
    return np.random.default_rng(0).standard_normal(1_000_000, np.float32)


def over_30_binades() -> Array:
    random = np.random.default_rng(0)
    return np.float32(normals() * np.exp2(random.uniform(-15, 15, 1_000_000)))


@pytest.mark.parametrize("data", [normals, over_30_binades])
def test_bytes_of_a_typical_tensor(data: Any) -> None:
    t = fpemu.tally(data())
    packed = t.to_bytes()
    assert len(packed) <= 4096
    assert Tally.from_bytes(packed) == t


def test_bytes_of_the_largest_counts() -> None:
    t = fpemu.tally(np.float32([1, -3, 1e-45, np.inf, 0]))
    for _ in range(60):
        t = t + t
    assert Tally.from_bytes(t.to_bytes()) == t
    assert Tally.from_bytes(bytearray(Tally().to_bytes())) == Tally()
    with pytest.raises(InputError, match=r"2\*\*63"):
        functools.reduce(lambda a, _: a + a, range(3), t)


@pytest.mark.parametrize(
    "data",
    [
        b"", b"fp", b"fpT", b"fpT\x01", b"fpT\x02abc", b"PK\x03\x04", "text", None, 7,
        b"fpT\x01" + zlib.compress(b""),
        b"fpT\x01" + zlib.compress(bytes(1 << 24)),
        b"fpT\x01" + zlib.compress(b"\xff" * 400),
    ],
)  # fmt: skip
def test_hostile_bytes_are_refused(data: Any) -> None:
    with pytest.raises(InputError) as wrong:
        Tally.from_bytes(data)
    assert "\n" not in str(wrong.value)


def test_damaged_bytes_are_refused() -> None:
    packed = fpemu.tally(DATA["wide"]).to_bytes()
    for cut in range(0, len(packed), 7):
        with pytest.raises(InputError):
            Tally.from_bytes(packed[:cut])
    payload = bytearray(zlib.decompress(packed[4:]))
    for at, bit in itertools.product(range(45), (0, 3, 7)):  # the head, with a valid checksum
        damaged = payload.copy()
        damaged[at] ^= 1 << bit
        try:
            read = Tally.from_bytes(packed[:4] + zlib.compress(damaged))
        except InputError:
            continue
        assert Tally.from_bytes(read.to_bytes()) == read  # another tally, but a tally
    with pytest.raises(InputError):
        Tally.from_bytes(packed + b"x")


# --- counting what a rounding did ------------------------------------------------------------


def rounded(x: Array, cast: Cast, draws: list[int] | None = None) -> Array:
    values = []
    for i, number in enumerate(x):
        code = round_exact(cast, float(number), draw=draws[i] if draws else 0).code
        values.append(float(value_of(cast.format, code)))
    return np.array(values, x.dtype)


def probe(form: fpemu.Format, dtype: Any) -> Array:
    """Numbers around the limits of a format."""
    limits = [form.smallest_subnormal, form.smallest_normal, form.max, 1.0]
    factors = [0.3, 0.5, 0.50001, 0.75, 0.99, 1, 1.02, 1.0625, 1.5, 2, 40]
    with np.errstate(over="ignore", under="ignore"):
        x = np.array([a * b for a in limits for b in factors], dtype)
    x = np.concatenate([x, np.array([0, np.inf, np.nan, np.nextafter(dtype(form.max), dtype(0))])])
    return np.concatenate([x, -x]).astype(dtype)


@pytest.mark.parametrize("form", [*fpemu.formats.values(), *ODD], ids=str)
def test_outcome_of_every_cast(form: fpemu.Format) -> None:
    for number, cast in enumerate(every_cast(form)):
        x = probe(form, np.float64 if number % 5 == 0 else np.float32)
        expected = by_definition(map(float, x), cast)
        assert outcome_of(x, rounded(x, cast), cast) == expected, str(cast)


@pytest.mark.parametrize("form", [*fpemu.formats.values(), *ODD], ids=str)
def test_outcome_of_stochastic_casts(form: fpemu.Format) -> None:
    x = np.tile(probe(form, np.float32), 3)
    draws = np.random.default_rng(0).integers(0, 1 << 32, x.size).tolist()
    for cast in every_cast(form, [Rounding.STOCHASTIC]):
        try:
            seen = visible(cast)
        except InputError:
            assert form.name == "high"  # its grid cannot be continued in float32
            continue
        found = [
            round_exact(cast, float(v), draw=d).outcome for v, d in zip(x, draws, strict=True)
        ]
        expected = Outcome(x.size, *(found.count(name) for name in FIELDS))
        assert outcome_of(x, rounded(x, seen, draws), cast) == expected, str(cast)


def test_outcome_of_arrays_that_differ() -> None:
    x = np.ones((2, 3), np.float32)
    for q in (x[0], x.astype(np.float64)):
        with pytest.raises(InputError, match="alike"):
            outcome_of(x, q, "fp16")
