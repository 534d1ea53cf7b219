"""round, encode and decode at the public edge: peers, layouts, dtypes, out=, threads, refusals."""

from __future__ import annotations

import warnings

import ml_dtypes
import numpy as np
import pytest
from second_algorithm import second_codes, second_round
from support import ML_DTYPES, TABLED, assert_same_bits, directed_inputs, wide_range, widened

import fpemu
from fpemu.cast import Cast
from fpemu.errors import InputError
from fpemu.kernels.pool import SMALL


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


# --- dtypes in and out -----------------------------------------------------------------------

X = np.float32([0.1, -3.3, 65519.0, 1e-8, np.inf, -np.inf, np.nan, -0.0, 300.0])


@pytest.mark.parametrize(
    ("dtype", "to", "result"),
    [
        ("float32", "e4m3fn", "float32"),
        ("float64", "e4m3fn", "float64"),
        ("float16", "float16", "float16"),
        ("float16", "e4m3fn", "float16"),
        ("float16", "e5m2", "float16"),
        ("float16", "bfloat16", "float32"),
        ("float16", "e8m0", "float32"),
        ("bfloat16", "bfloat16", "bfloat16"),
        ("bfloat16", "e4m3fn", "bfloat16"),
        ("bfloat16", "float16", "float32"),
        ("bfloat16", "tf32", "float32"),
        ("bfloat16", "e8m0", "bfloat16"),
        ("float8_e5m2", "fp4", "float8_e5m2"),
        ("float8_e5m2", "e4m3fn", "float32"),
        ("float8_e4m3fn", "e2m3", "float8_e4m3fn"),
        ("float8_e4m3fn", "e5m2", "float32"),
        ("float8_e4m3fnuz", "fp4", "float32"),  # fp4 has -0, fnuz has none
        ("float6_e3m2fn", "fp4", "float6_e3m2fn"),
        ("float4_e2m1fn", "e5m2", "float32"),
        ("float8_e8m0fnu", "e8m0", "float8_e8m0fnu"),
        ("float8_e8m0fnu", "bfloat16", "float32"),
    ],
)
def test_result_dtypes(dtype, to, result):
    with np.errstate(all="ignore"):
        x = X.astype(np.dtype(getattr(ml_dtypes, dtype, dtype)))
    got = fpemu.round(x, to)
    assert got.dtype.name == result
    assert got.shape == x.shape
    wide = x.astype(np.float64 if dtype == "float64" else np.float32)
    want = second_round(Cast(to), wide)
    assert_same_bits(widened(got), widened(want), wide, f"{dtype} to {to}")
    out = np.empty_like(got)
    assert fpemu.round(x, to, out=out) is out
    assert out.tobytes() == got.tobytes()


@pytest.mark.parametrize("name", ["float16", *ML_DTYPES])
def test_every_code_of_a_narrow_dtype_widens_exactly(name):
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    form = fpemu.finfo(name)
    x = np.arange(1 << form.bits, dtype=f"u{dtype.itemsize}").view(dtype)
    with warnings.catch_warnings():  # signalling NaNs among them are no reason to warn
        warnings.simplefilter("error")
        got = fpemu.round(x, "bfloat16")
        own = fpemu.round(x, name)
    with np.errstate(invalid="ignore"):
        wide = x.astype(np.float32)
    assert_same_bits(widened(got), widened(second_round(Cast("bfloat16"), wide)), wide, name)
    assert own.dtype == dtype
    same = ~np.isnan(wide)
    assert own[same].tobytes() == x[same].tobytes()


def test_encode_takes_narrow_dtypes():
    x = X.astype(np.float16)
    assert_same_bits(fpemu.encode(x, "e4m3fn"), fpemu.encode(x.astype(np.float32), "e4m3fn"), x)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_decode_to_other_dtypes(dtype):
    wanted = np.dtype(getattr(ml_dtypes, dtype, dtype))
    codes = np.arange(256, dtype=np.uint8)
    got = fpemu.decode(codes, "e4m3fn", wanted)
    assert got.dtype == wanted
    assert_same_bits(widened(got), widened(fpemu.values("e4m3fn")), codes)


@pytest.mark.parametrize(("name", "dtype"), [("e5m2", "float8_e4m3fn"), ("bfloat16", "float16"),
                                             ("tf32", "bfloat16"), ("fp16", "int32")])  # fmt: skip
def test_decode_refuses_dtypes_that_do_not_hold_every_value(name, dtype):
    wanted = np.dtype(getattr(ml_dtypes, dtype, dtype))
    with pytest.raises(InputError, match=f"dtype {dtype}: cannot hold every value"):
        fpemu.decode(np.uint8([0]), name, wanted)


@pytest.mark.parametrize(("form", "dtype"), [("fp4", "uint8"), ("e8m0", "uint8"),
                         ("binary12p5", "uint16"), ("fp16", "uint16"), ("tf32", "uint32"),
                         ("float32", "uint32")])  # fmt: skip
def test_code_dtypes(form, dtype):
    assert fpemu.encode(X, form).dtype == dtype


# --- layouts ---------------------------------------------------------------------------------

BASE = wide_range(24 * 35, seed=5)


def read_only(x: np.ndarray) -> np.ndarray:
    x = x.copy()
    x.flags.writeable = False
    return x


LAYOUTS = {
    "contiguous": BASE,
    "matrix": BASE.reshape(24, 35),
    "fortran": np.asfortranarray(BASE.reshape(24, 35)),
    "transposed 3-d": BASE.reshape(4, 6, 35).transpose(2, 0, 1),
    "strided": BASE[::3],
    "negative strides": BASE[::-1],
    "negative strides 2-d": BASE.reshape(24, 35)[::-1, ::-2],
    "columns": BASE.reshape(24, 35)[:, 3:9],
    "broadcast": np.broadcast_to(BASE[:35], (7, 35)),
    "broadcast inside": np.broadcast_to(BASE[:24, None], (24, 5)),
    "0-d": np.array(BASE[3]),
    "empty": BASE[:0],
    "empty 2-d": np.empty((0, 5), np.float32),
    "empty inside": np.empty((3, 0, 2), np.float32),
    "one": BASE[5:6],
    "one of a stride": BASE[::800][:1],
    "ones": BASE[:4].reshape(1, 4, 1),
    "read-only": read_only(BASE),
    "unaligned": np.frombuffer(b"x" + BASE.tobytes(), np.uint8)[1:].view(np.float32),
    "big-endian": BASE.astype(">f4"),
    "field": np.rec.fromarrays([BASE, BASE], names="a,b")["a"],
}


def native(x: np.ndarray) -> np.ndarray:
    return np.array(x, x.dtype.newbyteorder("="), order="C", copy=True)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("width", [32, 64])
def test_layouts(layout, width):
    x = LAYOUTS[layout]
    if width == 64:
        with np.errstate(invalid="ignore"):
            x = x.astype(x.dtype.str.replace("4", "8"), copy=False)
    before = x.tobytes()
    want = second_round(Cast("e4m3fn"), native(x).reshape(-1)).reshape(x.shape)
    got = fpemu.round(x, "e4m3fn")
    assert isinstance(got, np.ndarray)
    assert got.dtype.isnative
    assert_same_bits(got, want, native(x), layout)
    assert got.flags.writeable
    assert not np.shares_memory(got, x)
    assert x.tobytes() == before
    codes = second_codes(Cast("e4m3fn"), native(x).reshape(-1)).reshape(x.shape)
    assert_same_bits(fpemu.encode(x, "e4m3fn"), codes.astype(np.uint8), native(x), layout)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_of_out(layout):
    """Any array of the right shape and dtype may be written to, in any layout."""
    x = np.ascontiguousarray(native(LAYOUTS[layout]).reshape(LAYOUTS[layout].shape))
    want = fpemu.round(x, "e4m3fn")
    outs = [np.empty(x.shape, np.float32), np.empty(x.shape, np.float32, order="F")]
    double = np.empty((*x.shape, 2), np.float32)
    outs += [double[..., 1]]
    for out in outs:
        assert fpemu.round(x, "e4m3fn", out=out) is out
        assert_same_bits(np.array(out), want, x, layout)
    codes = np.empty((*x.shape, 2), np.uint8)[..., 1]
    assert fpemu.encode(x, "e4m3fn", out=codes) is codes
    assert_same_bits(np.array(codes), fpemu.encode(x, "e4m3fn"), x, layout)


@pytest.mark.parametrize("layout", [k for k in LAYOUTS if "broadcast" not in k
                                    and k not in ("read-only", "big-endian", "unaligned")])
def test_out_may_be_x_itself(layout):  # fmt: skip
    x = LAYOUTS[layout]
    mine = np.empty_like(x)
    mine[...] = x
    if layout == "columns":  # a view again, not its copy
        mine = BASE.copy().reshape(24, 35)[:, 3:9]
    want = fpemu.round(mine, "e4m3fn")
    assert fpemu.round(mine, "e4m3fn", out=mine) is mine
    assert_same_bits(np.array(mine), want, x, layout)


def test_decode_takes_every_layout():
    codes = np.arange(256, dtype=np.uint8)
    want = fpemu.values("e4m3fn")
    for view in (codes, codes[::-1], codes[::3], codes.reshape(16, 16).T, codes[:0]):
        assert_same_bits(fpemu.decode(view, "e4m3fn"), want[view], view)
    for dtype in (np.uint16, np.int64, np.int8, ">u4"):
        few = codes[:100].astype(dtype)
        assert_same_bits(fpemu.decode(few, "e4m3fn"), want[:100], few)
    assert_same_bits(fpemu.decode(codes.reshape(2, 128), "e4m3fn"), want.reshape(2, 128))


def test_memory_order_of_the_result_follows_x():
    x = np.asfortranarray(BASE.reshape(24, 35))
    assert fpemu.round(x, "fp16").flags.f_contiguous
    assert fpemu.round(x.T, "fp16").flags.c_contiguous


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


# --- what is refused -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.arange(3), r"dtype int64: .*convert with x.astype\(np.float32\)"),
        (np.arange(3, dtype=np.uint8), "dtype uint8: .*astype"),
        (np.array([True]), "dtype bool: .*astype"),
        (5, "dtype int64: .*astype"),
        ([1, 2], "dtype int64: .*astype"),
        (np.array([1j]), r"dtype complex128: .*pass x.real and x.imag"),
        (np.array([1, None], object), r"dtype object: .*dtype=np.float64"),
        (None, "dtype object"),
        ("abc", "dtype str"),
        (np.array(["1.5"]), "dtype str.*: .*convert"),
        (np.array(["2020-01-01"], "M8[D]"), "dtype datetime64"),
        (np.array([1.0], np.longdouble), r"dtype (longdouble|float128).*astype\(np.float64\)"),
        (np.ma.masked_array([1.0], [True]), r"masked array: .*x.filled"),
        ([[1.0, 2.0], [3.0]], "list: cannot be read as an array.*rectangular"),
        ({"a": 1.0}, "dtype object"),
        (np.zeros(2, [("a", "f4")]), "dtype"),
    ],
    ids=lambda value: None if isinstance(value, str) else type(value).__name__,
)
@pytest.mark.parametrize("verb", [fpemu.round, fpemu.encode], ids=["round", "encode"])
def test_inputs_that_are_refused(verb, x, message):
    with pytest.raises(InputError, match=message) as caught:
        verb(x, "fp16")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("codes", "form", "message"),
    [
        (np.float32([1.0]), "fp16", "codes of dtype float32: must be unsigned integers"),
        (np.array([True]), "fp16", "codes of dtype bool"),
        (np.array([16], np.uint8), "fp4", "code 16: float4_e2m1fn has codes 0 to 15"),
        ([3, 300, 400], "e4m3fn", "code 300: .*0 to 255"),
        ([-1], "e4m3fn", "code -1: .*0 to 255"),
        (np.array([-1], np.int8), "e4m3fn", "code -1: "),
        (np.array([1 << 19], np.uint32), "tf32", "code 524288: .*0 to 524287"),
        (np.array([1 << 40], np.uint64), "float32", "code 1099511627776"),
        ("abc", "fp16", "codes of dtype"),
    ],
)
def test_codes_that_are_refused(codes, form, message):
    with pytest.raises(InputError, match=message):
        fpemu.decode(codes, form)


def overlapping(start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
    base = np.zeros(100, np.float32)
    return base[:50], base[start:stop]


@pytest.mark.parametrize(
    ("x", "out", "message"),
    [
        (X, np.empty(3, np.float32), r"out has shape \(3,\): the result has \(9,\)"),
        (X, np.empty((9, 1), np.float32), r"out has shape \(9, 1\)"),
        (X, np.empty(9, np.float64), "out has dtype float64: the result is float32"),
        (X, np.empty(9, np.int32), "out has dtype int32: the result is float32"),
        (X, np.empty(9, ">f4"), "out has dtype >f4: the result is float32"),
        (X.astype(np.float64), np.empty(9, np.float32), "the result is float64"),
        (X, read_only(X), "out is read-only"),
        (X, [0.0] * 9, "out=list: must be a numpy array"),
        (*overlapping(1, 51), "out overlaps x in part"),
        (*overlapping(49, 99), "out overlaps x in part"),
        (BASE[:25].reshape(5, 5), BASE[:25].reshape(5, 5).T, "out overlaps x in part"),
        (BASE[:10], BASE[9::-1], "out overlaps x in part"),
        (BASE[:10:2], BASE[:5], "out overlaps x in part"),
    ],
)
def test_outs_that_are_refused(x, out, message):
    before = np.array(out).tobytes()
    with pytest.raises(InputError, match=message):
        fpemu.round(x, "fp16", out=out)
    assert np.array(out).tobytes() == before  # nothing is written half


def test_outs_beside_x_are_taken():
    base = np.zeros(100, np.float32)
    fpemu.round(base[:50], "fp16", out=base[50:])
    fpemu.round(base[::2], "fp16", out=base[1::2])  # interleaved, no element in common


def test_encode_and_decode_check_out_too():
    with pytest.raises(InputError, match="out has dtype uint16: the result is uint8"):
        fpemu.encode(X, "e4m3fn", out=np.empty(9, np.uint16))
    with pytest.raises(InputError, match=r"out has shape \(2,\)"):
        fpemu.decode(np.uint8([1]), "e4m3fn", out=np.empty(2, np.float32))
    codes = np.zeros(40, np.uint8)
    with pytest.raises(InputError, match="overlaps"):
        fpemu.decode(codes[:10], "e4m3fn", out=codes.view(np.float32))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threads": 0}, "threads=0: must be an int, 1 or more"),
        ({"threads": -1}, "threads=-1"),
        ({"threads": 1.5}, "threads=1.5"),
        ({"threads": True}, "threads=True"),
        ({"rounding": "nearest"}, "unknown rounding 'nearest'"),
        ({"overflow": "clip"}, "unknown overflow 'clip'"),
        ({"subnormals": "ftz"}, "unknown subnormals 'ftz'"),
        ({"rounding": "stochastic"}, "needs a seed"),
        ({"rounding": "stochastic", "seed": -1}, "seed=-1: must be an int from 0"),
        ({"rounding": "stochastic", "seed": 1.5}, "seed=1.5"),
        ({"rounding": "stochastic", "seed": True}, "seed=True"),
        ({"rounding": "stochastic", "seed": 2**64}, "seed=18446744073709551616"),
        ({"rounding": "stochastic", "seed": 0, "offset": -1}, "offset=-1"),
        ({"rounding": "stochastic", "seed": 0, "random_bits": 0}, "random_bits=0.* 1 to 32"),
        ({"rounding": "stochastic", "seed": 0, "random_bits": 33}, "random_bits=33.* 1 to 32"),
    ],
)
def test_options_that_are_refused(options, message):
    with pytest.raises(fpemu.FpemuError, match=message):
        fpemu.round(X, "fp16", **options)


def test_formats_that_are_refused():
    with pytest.raises(fpemu.FpemuError, match="ambiguous"):
        fpemu.round(X, "e4m3")
    with pytest.raises(fpemu.FpemuError, match="unknown format"):
        fpemu.encode(X, "fp17")
    with pytest.raises(fpemu.FpemuError, match="unknown format"):
        fpemu.decode(np.uint8([1]), "fp17")


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
