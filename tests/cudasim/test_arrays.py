"""Arrays on a device through the public functions, in numba's simulator."""

from __future__ import annotations

import os

import ml_dtypes
import numpy as np
import pytest
from support import assert_same_bits, directed_inputs, sample, wide_range

import fpemu

pytestmark = pytest.mark.cudasim
if os.environ.get("NUMBA_ENABLE_CUDASIM") != "1":
    pytest.skip("the simulator needs NUMBA_ENABLE_CUDASIM=1", allow_module_level=True)
pytest.importorskip("numba_cuda", reason="needs numba-cuda: the extra cuda12 or cuda13")

from numba import cuda  # noqa: E402

X = wide_range(120, seed=4)


class Interface:
    """Nobody's array with the CUDA array interface; here, over the host's memory."""

    def __init__(self, array, **facts):
        self.array, self.facts = array, facts

    @property
    def __cuda_array_interface__(self):
        strides = None if self.array.flags.c_contiguous else self.array.strides
        return {
            "shape": self.array.shape,
            "strides": strides,
            "typestr": self.array.dtype.str,
            "data": (self.array.ctypes.data, False),
            "version": 3,
            **self.facts,
        }


MAKERS = {"numba": cuda.to_device, "interface": Interface}


def host(x):
    return x.copy_to_host()


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize("to", ["fp16", "e4m3fn", "fp4"])
def test_every_function_gives_what_the_host_gives(make, to):
    x = make(X)
    assert_same_bits(host(fpemu.round(x, to)), fpemu.round(X, to), X)
    codes = fpemu.encode(X, to)
    assert_same_bits(host(fpemu.encode(x, to)), codes, X)
    for dtype in (np.float32, np.float64, ml_dtypes.bfloat16 if to != "fp16" else np.float16):
        assert_same_bits(host(fpemu.decode(make(codes), to, dtype)), fpemu.decode(codes, to, dtype))
    assert fpemu.tally(x) == fpemu.tally(X)
    rounded, outcome = fpemu.round(x, to, count=True)
    want, counted = fpemu.round(X, to, count=True)
    assert outcome == counted
    assert_same_bits(host(rounded), want)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("to", ["bf16", "e5m2", "fp4"])
def test_narrow_floats(dtype, to):
    own = np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
    narrow = fpemu.decode(fpemu.encode(X, dtype), dtype, own)
    for got, want in [
        (fpemu.round(cuda.to_device(narrow), to), fpemu.round(narrow, to)),
        (fpemu.round(cuda.to_device(narrow), to, count=True)[0], fpemu.round(narrow, to)),
        (fpemu.encode(cuda.to_device(narrow), to), fpemu.encode(narrow, to)),
    ]:
        assert_same_bits(host(got), want, narrow)
    assert fpemu.tally(cuda.to_device(narrow)) == fpemu.tally(narrow)


def test_narrow_floats_of_a_bare_interface():
    narrow = fpemu.round(X, "fp16").astype(np.float16)
    got = fpemu.round(Interface(narrow), "e4m3fn")
    assert_same_bits(host(got), fpemu.round(narrow, "e4m3fn"), narrow)


def test_float64():
    x = sample(directed_inputs(fpemu.finfo("fp16"), np.float64), 300)
    assert_same_bits(host(fpemu.round(cuda.to_device(x), "fp16")), fpemu.round(x, "fp16"), x)
    options = {"rounding": "stochastic", "seed": 3}
    got = fpemu.round(cuda.to_device(x), "bf16", **options)
    assert_same_bits(host(got), fpemu.round(x, "bf16", **options), x)
    with pytest.raises(fpemu.FpemuError, match="tallies take float32"):
        fpemu.tally(cuda.to_device(x))


def test_stochastic_draws_go_on_across_blocks_of_two_to_the_32():
    options = {"rounding": "stochastic", "seed": 9, "offset": 2**32 - 70, "random_bits": 13}
    got = fpemu.round(cuda.to_device(X), "e4m3fn", **options)
    assert_same_bits(host(got), fpemu.round(X, "e4m3fn", **options), X)


# --- shapes, layouts, out= -----------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1,), (4, 5, 6)])
def test_shapes(shape):
    x = X[: int(np.prod(shape))].reshape(shape)
    got = fpemu.round(cuda.to_device(x), "fp16")
    assert_same_bits(host(got), np.asarray(fpemu.round(x, "fp16")).reshape(shape))
    assert fpemu.tally(cuda.to_device(x)).total == x.size


def test_fortran_order_is_kept_and_draws_refuse_it():
    x = cuda.to_device(np.asfortranarray(X.reshape(10, 12)))
    got = fpemu.round(x, "fp16")
    assert got.strides == x.strides
    assert_same_bits(host(got), fpemu.round(X.reshape(10, 12), "fp16"))
    with pytest.raises(fpemu.FpemuError, match="C order"):
        fpemu.round(x, "fp16", rounding="stochastic", seed=0)


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_strided_arrays_are_refused_where_no_library_can_copy_them(make):
    x = Interface(X[::2]) if make is Interface else cuda.to_device(X)[::2]
    with pytest.raises(fpemu.FpemuError, match="C order; give a contiguous copy"):
        fpemu.round(x, "fp16")


def test_a_mask_is_refused():
    with pytest.raises(fpemu.FpemuError, match="mask would be lost"):
        fpemu.round(Interface(X, mask=object()), "fp16")


def test_out_is_written_and_returned():
    x = cuda.to_device(X.copy())
    out = cuda.device_array(X.shape, np.float32)
    assert fpemu.round(x, "fp16", out=out) is out
    assert_same_bits(host(out), fpemu.round(X, "fp16"))
    assert fpemu.round(x, "fp16", out=x) is x
    assert_same_bits(host(x), fpemu.round(X, "fp16"))


@pytest.mark.parametrize(("out", "rule"), [
    (lambda: np.zeros(120, np.float32), "own library"),
    (lambda: cuda.device_array(120, np.float64), "the result is float32"),
    (lambda: cuda.device_array(119, np.float32), "the result is float32"),
])  # fmt: skip
def test_wrong_out_is_refused(out, rule):
    with pytest.raises(fpemu.FpemuError, match=rule):
        fpemu.round(cuda.to_device(X), "fp16", out=out())


def test_out_that_overlaps_in_part_is_refused():
    memory = cuda.to_device(np.concatenate([X, X]))
    with pytest.raises(fpemu.FpemuError, match="overlaps"):
        fpemu.round(memory[:120], "fp16", out=memory[60:180])


# --- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.int32, np.complex64, np.bool_])
def test_dtypes_that_are_no_floats_are_refused(dtype):
    with pytest.raises(fpemu.FpemuError, match="narrower floats"):
        fpemu.round(cuda.to_device(np.zeros(3, dtype)), "fp16")


def test_functions_that_stay_on_the_host_say_so():
    x = cuda.to_device(X)
    for work in (lambda: fpemu.spacing(x, "fp16"), lambda: fpemu.error(x, x),
                 lambda: fpemu.encode(x, "fp4", packed=True)):  # fmt: skip
        with pytest.raises(fpemu.FpemuError, match=r"host|CUDA device"):
            work()


def test_codes_of_another_width_are_refused():
    with pytest.raises(fpemu.FpemuError, match="codes of uint8"):
        fpemu.decode(cuda.to_device(np.zeros(3, np.int64)), "e4m3fn")


@pytest.mark.parametrize("name", ["fp6_e2m3", "binary6p3se", "tf32"])
def test_bits_above_a_code_are_not_looked_at(name):
    form = fpemu.finfo(name)
    codes = np.arange(0, 1 << form.bits, max(1, 1 << form.bits >> 6))
    codes = codes.astype(fpemu.encode(np.float32([1]), form).dtype)
    stray = codes | codes.dtype.type(1 << (8 * codes.itemsize - 1))
    got = fpemu.decode(cuda.to_device(stray), form)
    assert_same_bits(host(got), fpemu.decode(codes, form), stray)
