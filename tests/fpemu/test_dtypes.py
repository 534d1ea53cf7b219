"""Which dtype comes back, and what narrow floats become on their way."""

from __future__ import annotations

import warnings

import ml_dtypes
import numpy as np
import pytest
from second_algorithm import second_round
from support import ML_DTYPES, assert_same_bits, widened

import fpemu
from fpemu.cast import Cast
from fpemu.errors import InputError

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
