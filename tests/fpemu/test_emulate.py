"""round, encode and decode at the public edge: peers, scalars, threads, float64."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from second_algorithm import second_round
from support import ML_DTYPES, TABLED, assert_same_bits, directed_inputs, wide_range

import fpemu
from fpemu.cast import Cast
from fpemu.errors import InputError
from fpemu.kernels.pool import SMALL

X = np.float32([0.1, -3.3, 65519.0, 1e-8, np.inf, -np.inf, np.nan, -0.0, 300.0])


def ml_dtype(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, name))


def cast_by(dtype: np.dtype, x: np.ndarray) -> np.ndarray:
    """Through another library's dtype and back to float32."""
    with np.errstate(all="ignore"):
        return x.astype(dtype).astype(np.float32)


# --- against numpy and ml_dtypes -------------------------------------------------------------

NO_NAN = ["float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn"]


@pytest.mark.parametrize("name", [n for n in ML_DTYPES if n not in (*NO_NAN, "float8_e8m0fnu")])
def test_round_is_the_cast_of_ml_dtypes(name):
    x = np.concatenate([directed_inputs(fpemu.finfo(name)), wide_range(20_000)])
    assert_same_bits(fpemu.round(x, name), cast_by(ml_dtype(name), x), x, name)


def test_round_to_float16_is_the_cast_of_numpy():
    x = np.concatenate([directed_inputs(fpemu.finfo("float16")), wide_range(20_000)])
    assert_same_bits(fpemu.round(x, "float16"), cast_by(np.dtype(np.float16), x), x)
    x = directed_inputs(fpemu.finfo("float16"), np.float64)  # numpy rounds float64 once, too
    with np.errstate(all="ignore"):
        want = x.astype(np.float16).astype(np.float64)
    assert_same_bits(fpemu.round(x, "float16"), want, x)


@pytest.mark.parametrize("name", NO_NAN)
def test_fp6_and_fp4_differ_from_ml_dtypes_in_nan_alone(name):
    """ml_dtypes 0.6 gives NaN -0.0 (and -NaN +0.0); here it becomes the largest value, as PTX."""
    x = np.concatenate([directed_inputs(fpemu.finfo(name)), wide_range(20_000)])
    got, theirs = fpemu.round(x, name), cast_by(ml_dtype(name), x)
    nan = np.isnan(x)
    assert_same_bits(got[~nan], theirs[~nan], x[~nan], name)
    assert (got[nan] == fpemu.finfo(name).max).all()
    assert (theirs[nan] == 0).all()
    assert (np.signbit(theirs[nan]) != np.signbit(x[nan])).all()


def test_e8m0_differs_from_ml_dtypes_just_above_its_smallest_alone():
    """ml_dtypes 0.6 (and torch) round 2**-127 < x < 1.5 * 2**-127 up, away from the nearest."""
    x = np.concatenate([directed_inputs(fpemu.finfo("e8m0")), wide_range(20_000)])
    edge = np.arange(0x400001, 0x600000, 4093, dtype=np.uint32).view(np.float32)
    x = np.concatenate([x, edge, edge[-1:]])
    bits = x.view(np.uint32)
    known = (bits > 0x400000) & (bits < 0x600000)
    got = fpemu.encode(x, "e8m0")
    with np.errstate(all="ignore"):
        theirs = x.astype(ml_dtype("float8_e8m0fnu")).view(np.uint8)
    assert_same_bits(got[~known], theirs[~known], x[~known])
    assert (got[known] == 0).all()
    assert (theirs[known] == 1).all()


@pytest.mark.parametrize("name", [*ML_DTYPES, "float16"])
def test_encode_gives_the_codes_of_ml_dtypes_and_numpy(name):
    form = fpemu.finfo(name)
    x = fpemu.values(name)  # every value: no rounding, NaN canonical and quiet
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    finite = ~np.isnan(x)
    codes = np.arange(1 << form.bits).astype(fpemu.encode(x[:1], name).dtype)
    assert_same_bits(fpemu.encode(x, name)[finite], codes[finite], x[finite], name)
    assert_same_bits(x[finite].astype(dtype).view(codes.dtype), codes[finite], x[finite], name)


@pytest.mark.parametrize(
    ("name", "plus", "minus"),
    [("float16", 0x7E00, 0xFE00), ("bfloat16", 0x7FC0, 0xFFC0), ("tf32", 0x3FE00, 0x7FE00),
     ("e4m3fn", 0x7F, 0xFF), ("e5m2", 0x7E, 0xFE), ("e4m3fnuz", 0x80, 0x80), ("e8m0", 255, 255),
     ("fp4", 7, 7), ("float32", 0x7FC00000, 0xFFC00000)],
)  # fmt: skip
def test_encode_gives_the_canonical_quiet_nan_of_the_sign(name, plus, minus):
    nans = np.array([0x7F800001, 0x7FFFFFFF, 0xFF800001, 0xFFC00000], np.uint32).view(np.float32)
    assert fpemu.encode(nans, name).tolist() == [plus, plus, minus, minus]


def test_nan_results_are_quiet_and_keep_their_sign():
    nans = np.array([0x7F800001, 0xFF800001, 0x7FABCDEF], np.uint32).view(np.float32)
    for name in ("float16", "e4m3fn", "float32", "e4m3fnuz"):
        bits = fpemu.round(nans, name).view(np.uint32)
        assert [hex(b) for b in bits.tolist()] == ["0x7fc00000", "0xffc00000", "0x7fc00000"], name


def test_float32_to_float32_is_the_identity_on_numbers():
    x = np.concatenate([directed_inputs(fpemu.finfo("float32")), wide_range(50_000)])
    assert_same_bits(fpemu.round(x, "float32"), x, x)
    assert_same_bits(fpemu.round(x, "float32", rounding="up"), x, x)


# --- scalars and lists -----------------------------------------------------------------------


def test_scalars_give_scalars():
    for x, kind in ((0.1, np.float64), (np.float32(0.1), np.float32), (np.float64(0.1), np.float64),
                    (np.float16(0.1), np.float16)):  # fmt: skip
        got = fpemu.round(x, "e4m3fn")
        assert type(got) is kind
        assert got == 0.1015625
    got = fpemu.encode(1.0, "e4m3fn")
    assert type(got) is np.uint8
    assert got == 0x38
    assert fpemu.decode(0x38, "e4m3fn") == 1.0
    assert type(fpemu.decode(np.uint8(0x38), "e4m3fn")) is np.float32


def test_lists_of_floats_are_float64():
    got = fpemu.round([0.1, [0.2, 0.3][0]], "fp16")
    assert got.dtype == np.float64
    assert_same_bits(got, second_round(Cast("fp16"), np.array([0.1, 0.2])))
    assert fpemu.round([[0.1], [0.2]], "fp16").shape == (2, 1)
    assert fpemu.round([], "fp16").shape == (0,)
    assert fpemu.decode([], "fp16").shape == (0,)


def test_0_d_arrays_stay_arrays():
    got = fpemu.round(np.array(0.1, np.float32), "fp16")
    assert isinstance(got, np.ndarray)
    assert got.shape == ()
    assert fpemu.encode(np.array(0.1, np.float32), "fp16").shape == ()


class Wrapped:
    """What numpy reads through __array__, with a dtype of its own library or none."""

    def __init__(self, inside, **attributes):
        self.inside = inside
        vars(self).update(attributes)

    def __array__(self, dtype=None, copy=None):
        return self.inside


@pytest.mark.parametrize("wrap", [Wrapped, memoryview, lambda x: Wrapped(x, dtype="lib.float32")],
                         ids=["__array__", "memoryview", "foreign dtype"])  # fmt: skip
def test_what_has_an_array_inside_is_taken(wrap):
    assert_same_bits(fpemu.round(wrap(X), "fp16"), fpemu.round(X, "fp16"))


# --- values ----------------------------------------------------------------------------------


@pytest.mark.parametrize("form", TABLED, ids=str)
def test_values_are_the_decoded_codes(form):
    x = fpemu.values(form)
    assert x.dtype == np.float32
    assert x.shape == (1 << form.bits,)
    assert_same_bits(x, fpemu.decode(np.arange(1 << form.bits), form))
    assert np.nanmax(np.where(np.isinf(x), 0, x)) == form.max


def test_values_of_too_many_codes_are_refused():
    with pytest.raises(InputError, match=r"float32 has 2\*\*32 codes: too many to list"):
        fpemu.values("float32")


# --- threads ---------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [2 * SMALL - 1, 2 * SMALL, 3 * SMALL + 12345])
def test_results_do_not_depend_on_threads(size, monkeypatch):
    x = wide_range(size, seed=2)
    want = second_round(Cast("e5m2"), x)
    for threads in (None, 1, 2, 7):
        assert_same_bits(fpemu.round(x, "e5m2", threads=threads), want, x, threads)
    monkeypatch.setenv("FPEMU_THREADS", "3")
    assert_same_bits(fpemu.round(x, "e5m2"), want, x)
    out = x.copy()
    assert fpemu.round(out, "e5m2", out=out, threads=2) is out
    assert_same_bits(out, want, x)


@pytest.mark.parametrize("text", ["0", "-2", "many", "1.5"])
def test_fpemu_threads_must_be_a_whole_number(text, monkeypatch):
    monkeypatch.setenv("FPEMU_THREADS", text)
    with pytest.raises(InputError, match=f"FPEMU_THREADS='{text}': must be a whole number"):
        fpemu.round(np.zeros(2 * SMALL, np.float32), "fp16")
    fpemu.round(np.zeros(2 * SMALL, np.float32), "fp16", threads=1)  # given beside it: not read


def test_an_empty_fpemu_threads_is_none(monkeypatch):
    monkeypatch.setenv("FPEMU_THREADS", " ")
    fpemu.round(np.zeros(2 * SMALL, np.float32), "fp16")


# --- float64 ---------------------------------------------------------------------------------


def test_float64_is_rounded_once():
    """1 + 2**-11 + 2**-40 lies above a tie of float16; float32 cannot tell it from the tie."""
    x = np.array([1 + 2.0**-11 + 2.0**-40])
    assert fpemu.round(x, "fp16")[0] == 1.0009765625
    assert fpemu.round(x.astype(np.float32), "fp16")[0] == 1.0
    assert fpemu.round(np.array([1 + 2.0**-8 + 2.0**-50]), "bf16")[0] == 1.0078125
    assert fpemu.round(np.array([1e300, -1e300]), "bf16").tolist() == [np.inf, -np.inf]
    assert fpemu.round(np.array([5e-324]), "bf16", rounding="up")[0] == 2.0**-133


def test_float64_to_float32_is_numpys_cast():
    x = np.random.default_rng(3).integers(0, 1 << 64, 50_000, np.uint64).view(np.float64)
    x = np.concatenate([x, directed_inputs(fpemu.finfo("float32"), np.float64)])
    with np.errstate(all="ignore"):
        want = x.astype(np.float32).astype(np.float64)
    assert_same_bits(fpemu.round(x, "float32"), want, x)
