"""What round, encode and decode refuse: one line with the value, the rule and the way out."""

from __future__ import annotations

import numpy as np
import pytest
from support import wide_range

import fpemu
from fpemu.errors import InputError

X = np.float32([0.1, -3.3, 65519.0, 1e-8, np.inf, -np.inf, np.nan, -0.0, 300.0])
BASE = wide_range(100)


def read_only(x: np.ndarray) -> np.ndarray:
    x = x.copy()
    x.flags.writeable = False
    return x



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
        ([[1.0, 2.0], [3.0]], "list: cannot be taken.*rectangular"),
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
