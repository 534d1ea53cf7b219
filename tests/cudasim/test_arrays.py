"""Arrays on a device through the public functions, in numba's simulator."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from types import SimpleNamespace

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

from fpemu.kernels import cuda_target  # noqa: E402

X = wide_range(120, seed=4)
SMALL = np.linspace(-3, 3, 24, dtype=np.float32)  # what every dtype can hold


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


@pytest.mark.parametrize(("x", "out", "rule"), [
    (X.reshape(10, 12), np.zeros((10, 12), np.float32, "F"), "another order"),
    (np.asfortranarray(X.reshape(10, 12)), np.zeros((10, 12), np.float32), "another order"),
    (X[:60], np.zeros(120, np.float32)[::2], "C order"),
    (X, np.zeros(120, np.float32)[::-1], "C order"),
], ids=range(4))  # fmt: skip
def test_out_of_another_layout_is_refused_and_left_alone(x, out, rule):
    device = cuda.to_device(np.ascontiguousarray(out))
    device._ary = out  # the simulator's own array, as a view that is not in C order
    with pytest.raises(fpemu.FpemuError, match=rule):
        fpemu.round(cuda.to_device(x), "fp16", out=device)
    assert not out.any()


def test_strides_of_single_elements_do_not_count():
    x = X.copy().reshape(1, 120)
    odd = Interface(x, strides=(4000, 4))
    assert_same_bits(host(fpemu.round(odd, "fp16")), fpemu.round(x, "fp16"))
    want = fpemu.round(x, "e4m3fn")
    assert_same_bits(host(fpemu.round(cuda.to_device(x), "e4m3fn", out=odd_device(x))), want)
    assert fpemu.round(odd, "e4m3fn", out=odd) is odd
    assert_same_bits(x, want)


def odd_device(x):
    device = cuda.to_device(x)
    device._ary = np.lib.stride_tricks.as_strided(device._ary, x.shape, (4000, 4))
    return device


def test_out_in_another_stream_or_on_another_device_is_refused(monkeypatch):
    x, out = Interface(X, stream=8), np.zeros(120, np.float32)
    with pytest.raises(fpemu.FpemuError, match="another stream"):
        fpemu.round(x, "fp16", out=Interface(out, stream=16))
    assert fpemu.round(Interface(X), "fp16", out=Interface(out, stream=1)) is not None  # both: 0
    out[:] = 0
    ordinals = iter(range(100))
    monkeypatch.setattr(cuda_target, "device_of", lambda *_: next(ordinals))
    with pytest.raises(fpemu.FpemuError, match="another device"):
        fpemu.round(Interface(X), "fp16", out=Interface(out))
    assert not out.any()


def test_results_are_in_the_stream_that_an_interface_names():
    """So that a copy of the result waits for the kernel, and a second kernel for the first."""
    for x in (SMALL, SMALL.astype(np.float16)):
        assert fpemu.round(Interface(x, stream=8), "e4m3fn").stream == 8
        assert fpemu.encode(Interface(x, stream=8), "e4m3fn").stream == 8


# --- what an object says of itself ---------------------------------------------------------------

NOT_THERE = object()


class Lying(Interface):
    @property
    def __cuda_array_interface__(self):
        facts = super().__cuda_array_interface__
        return {name: fact for name, fact in facts.items() if fact is not NOT_THERE}


class Raising:
    @property
    def __cuda_array_interface__(self):
        raise RuntimeError("no\nway")


LIES = [
    *[{name: NOT_THERE} for name in ("shape", "typestr", "data")],
    *[{"shape": shape} for shape in ((-1,), 5, ("a",), (2.5,), (2, -2))],
    *[{"typestr": name} for name in (None, "zz", b"<f4", "<V2", ">f4", ">f2")],
    *[{"data": data} for data in (None, 5, ("x", False), (None, False), (0, False), (-4, False))],
    {"data": (X.ctypes.data + 1, False)},  # not aligned
    *[{"strides": strides} for strides in ("x", 8, (4, 4), (-4,), (0,), (2,))],
    {"stream": "x"},
]


@pytest.mark.parametrize("facts", LIES, ids=str)
@pytest.mark.parametrize("verb", ["round", "encode", "tally"])
def test_broken_interfaces_are_refused_in_one_line(verb, facts):
    more = () if verb == "tally" else ("fp16",)
    with pytest.raises(fpemu.errors.InputError) as raised:
        getattr(fpemu, verb)(Lying(X, **facts), *more)
    assert "\n" not in str(raised.value)


def test_an_interface_that_raises_or_is_read_only():
    with pytest.raises(fpemu.errors.InputError, match="RuntimeError: no"):
        fpemu.round(Raising(), "fp16")
    out = np.zeros(120, np.float32)
    with pytest.raises(fpemu.errors.InputError, match="read-only"):
        fpemu.round(Interface(X), "fp16", out=Interface(out, data=(out.ctypes.data, True)))
    assert not out.any()


def test_swapped_bytes_are_refused():
    for dtype in (">f4", ">f2"):
        with pytest.raises(fpemu.FpemuError, match="swapped"):
            fpemu.round(cuda.to_device(SMALL.astype(dtype)), "e4m3fn")


OUTSIDE = """
import fpemu, importlib
class Lie:
    __cuda_array_interface__ = {"shape": (2,), "typestr": "<f4", "data": (4096, False),
                                "version": 3}
for work in (lambda: fpemu.round(Lie(), "fp16"), lambda: fpemu.tally(Lie())):
    try:
        work()
    except fpemu.errors.InputError as refused:
        print("\\n" in str(refused), "not memory of a CUDA device" in str(refused) or
              "CUDA cannot be used here" in str(refused))
driver = importlib.import_module("numba.cuda.cudadrv.driver").driver
driver.cuPointerGetAttribute = lambda attribute, pointer: (attribute.name, int(pointer)) == (
    "CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL", 4096) and 3
print(importlib.import_module("fpemu.kernels.cuda_target").device_of(4096, "x"))
"""


def test_pointers_that_are_no_devices():
    """Outside of the simulator, where there may be a driver or none."""
    environment = {k: v for k, v in os.environ.items() if k != "NUMBA_ENABLE_CUDASIM"}
    done = subprocess.run([sys.executable, "-c", OUTSIDE], capture_output=True, text=True,
                          check=True, env=environment)  # fmt: skip
    assert done.stdout.split() == ["False", "True", "False", "True", "3"]


# --- DLPack alone --------------------------------------------------------------------------------


class Packed:
    """Nobody's array with DLPack alone, which says that it lies on a CUDA device."""

    def __init__(self, array):
        self.array = array

    def __dlpack_device__(self):
        return 2, 0

    def __dlpack__(self, **options):
        raise AssertionError("only a device's own code can read it")


@pytest.fixture
def viewed(monkeypatch):
    """The view that cuda.core would make of it on a device."""

    def view(x):
        a = x.array
        strides = tuple(step // a.itemsize for step in a.strides)
        return SimpleNamespace(ptr=a.ctypes.data, shape=a.shape, strides=strides, dtype=a.dtype)

    monkeypatch.setattr(cuda_target, "dlpack_view", view)


@pytest.mark.usefixtures("viewed")
@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_dlpack_on_a_device(dtype):
    x = SMALL.astype(dtype)
    assert_same_bits(host(fpemu.round(Packed(x), "e4m3fn")), fpemu.round(x, "e4m3fn"))
    assert fpemu.tally(Packed(x)) == fpemu.tally(x)
    codes = fpemu.encode(x, "e5m2")
    assert_same_bits(host(fpemu.encode(Packed(x), "e5m2")), codes)
    assert_same_bits(host(fpemu.decode(Packed(codes), "e5m2")), fpemu.decode(codes, "e5m2"))
    with pytest.raises(fpemu.FpemuError, match="C order"):
        fpemu.round(Packed(x[::2]), "fp16")


@pytest.mark.usefixtures("viewed")
def test_dlpack_on_a_device_is_only_read():
    with pytest.raises(fpemu.FpemuError, match="only read"):
        fpemu.round(Packed(X), "fp16", out=Packed(X.copy()))


# --- threads -------------------------------------------------------------------------------------


def test_threads_that_call_at_once():
    x = cuda.to_device(X[:40].copy())
    want, errors = fpemu.round(X[:40], "fp16"), []

    def work():
        try:
            assert_same_bits(host(fpemu.round(x, "fp16")), want)
            assert fpemu.tally(x).total == 40
        except Exception as wrong:
            errors.append(wrong)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


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
