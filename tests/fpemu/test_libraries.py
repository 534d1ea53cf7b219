"""Arrays of other libraries: on the host here; on a device in tests/cudasim and tests/gpu."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
from support import assert_same_bits, wide_range

import fpemu
from fpemu import moments
from fpemu.libraries.library import Place, library_of

X = wide_range(600, seed=8)


@pytest.fixture
def torch():
    return pytest.importorskip("torch", reason="needs PyTorch")


@pytest.fixture
def jax():
    return pytest.importorskip("jax", reason="needs JAX")


# --- PyTorch on the CPU --------------------------------------------------------------------------


def test_a_tensor_gives_a_tensor_with_the_bits_of_an_array(torch):
    x = torch.from_numpy(X)
    for to in ("fp16", "e4m3fn", "e8m0"):
        got = fpemu.round(x, to)
        assert type(got) is torch.Tensor
        assert got.dtype == torch.float32
        assert_same_bits(got.numpy(), fpemu.round(X, to), X)
        assert_same_bits(fpemu.encode(x, to).numpy(), fpemu.encode(X, to), X)
    assert fpemu.tally(x) == fpemu.tally(X)
    assert moments.moments(x) == moments.moments(X)
    rounded, outcome = fpemu.round(x, "fp16", count=True)
    assert_same_bits(rounded.numpy(), fpemu.round(X, "fp16"))
    assert outcome == fpemu.round(X, "fp16", count=True)[1]


NARROW = ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz",
          "float8_e5m2fnuz", "float8_e8m0fnu"]  # fmt: skip


@pytest.mark.parametrize("name", NARROW)
def test_narrow_tensors_keep_their_dtype_where_it_holds_the_result(torch, name):
    own = np.dtype(getattr(ml_dtypes, name, None) or name)
    array = fpemu.decode(fpemu.encode(X, name, negative="abs"), name, own)
    x = torch.from_numpy(array.view(f"i{own.itemsize}")).view(getattr(torch, name))
    for to in (name, "fp4"):
        got, want = fpemu.round(x, to), fpemu.round(array, to)
        assert str(got.dtype) == f"torch.{want.dtype.name}"
        assert_same_bits(got.view(torch.int8).numpy(), want.view(np.int8).reshape(-1))
    assert fpemu.tally(x) == fpemu.tally(array)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
def test_decode_gives_tensors_of_torchs_dtypes(torch, dtype):
    codes = torch.arange(256, dtype=torch.int32).to(torch.uint8)
    own = np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
    got = fpemu.decode(codes, "e4m3fn", own)
    assert got.dtype == getattr(torch, dtype)
    assert_same_bits(got.double().numpy(), fpemu.decode(codes.numpy(), "e4m3fn", np.float64))


def test_layouts_views_and_scalars(torch):
    x = torch.from_numpy(X[:240].copy()).reshape(2, 3, 5, 8)
    last = x.contiguous(memory_format=torch.channels_last)
    assert fpemu.round(last, "fp16").is_contiguous(memory_format=torch.channels_last)
    assert_same_bits(fpemu.round(last, "fp16").numpy(), fpemu.round(x.numpy(), "fp16"))
    assert_same_bits(fpemu.round(x[:, ::2], "fp16").numpy(), fpemu.round(x.numpy()[:, ::2], "fp16"))
    assert fpemu.round(torch.tensor(0.1), "fp16").shape == ()
    assert fpemu.round(torch.zeros(0, 3), "fp16").shape == (0, 3)
    imaginary = torch.tensor([1 + 70000j]).conj().imag  # a view that stands for its negation
    assert fpemu.round(imaginary, "fp16").tolist() == [-np.inf]


def test_memory_is_shared_not_copied(torch):
    x = torch.zeros(3)
    assert np.shares_memory(library_of(x).to_numpy(x), x.numpy())
    out = torch.full((3,), 0.1)
    assert fpemu.round(out, "fp4", out=out) is out
    assert out.tolist() == [0.0, 0.0, 0.0]


def test_wrong_out(torch):
    x = torch.zeros(3)
    for out, rule in [(np.zeros(3, np.float32), "own library"), (torch.zeros(2), "shape"),
                      (torch.zeros(3, dtype=torch.float64), "dtype")]:  # fmt: skip
        with pytest.raises(fpemu.FpemuError, match=rule):
            fpemu.round(x, "fp16", out=out)
    memory = torch.zeros(6)
    with pytest.raises(fpemu.FpemuError, match="overlaps"):
        fpemu.round(memory[:4], "fp16", out=memory[2:])


def test_subclasses_and_parameters_are_tensors(torch):
    class Mine(torch.Tensor):
        pass

    x = torch.tensor([0.1]).as_subclass(Mine)
    assert library_of(x) is library_of(torch.zeros(1))
    with torch.no_grad():
        assert type(fpemu.round(torch.nn.Parameter(torch.tensor([0.1])), "fp4")) is torch.Tensor


def given_back(x):
    x.untyped_storage().resize_(0)
    return x


def fake():
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode():
        return sys.modules["torch"].zeros(2)


def raising(torch):
    class Raising(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            raise RuntimeError("no\nway")

    return Raising


def message(work):
    """The one line of the InputError that is raised."""
    with pytest.raises(fpemu.errors.InputError) as raised:
        work()
    text = str(raised.value)
    assert "\n" not in text
    return text


@pytest.mark.parametrize(("make", "rule"), [
    (lambda t: t.zeros(2, requires_grad=True), "fpemu.torch.round"),
    (lambda t: t.zeros(2, device="meta"), "device 'meta'"),
    (lambda t: t.zeros(2).to_sparse(), "dense tensors"),
    (lambda t: t.zeros(2, dtype=t.complex64), "x.real and x.imag"),
    (lambda t: t.zeros(2, dtype=t.int32), "convert"),
    (lambda t: t.zeros(2, dtype=t.bool), "convert"),
    (lambda t: t.zeros(2, dtype=t.uint8).view(t.float4_e2m1fn_x2), "float4_e2m1fn_x2"),
    (lambda t: given_back(t.zeros(2)), "without memory"),
    (lambda t: t._efficientzerotensor(2), "without memory"),
    (lambda t: fake(), "FakeTensor.*not at hand"),
    (lambda t: t.zeros(2).as_subclass(raising(t)), "RuntimeError: no"),
])  # fmt: skip
def test_tensors_that_cannot_be_taken(torch, make, rule):
    x = make(torch)
    text = message(lambda: fpemu.round(x, "fp16"))
    assert re.search(rule, text), text


def test_transformed_tensors_are_refused(torch):
    """Some of them would be read as whatever lies in memory."""
    work = lambda t: fpemu.round(t.detach(), "fp16")  # noqa: E731
    x = torch.zeros(2, 3)
    for transform in (torch.vmap, torch.func.functionalize):
        assert "plain tensor" in message(lambda transform=transform: transform(work)(x))
    assert "plain tensor" in message(lambda: torch.func.grad(lambda t: work(t).sum())(x))


def test_out_without_memory_or_with_another_meaning_is_refused(torch):
    x = torch.zeros(1)
    text = message(lambda: fpemu.round(x, "fp16", out=given_back(torch.zeros(1))))
    assert "without memory" in text
    number = torch.tensor([1 + 2j])
    out = number.conj().imag  # what is written there would have to be negated
    assert "negation" in message(lambda: fpemu.round(x, "fp16", out=out))
    assert number.tolist() == [1 + 2j]


def test_autograd_knows_that_out_was_written(torch):
    x = torch.ones(3, requires_grad=True)
    kept = x * 2  # for the gradient of its square
    loss = (kept * kept).sum()
    fpemu.round(torch.zeros(3), "fp16", out=kept.detach())
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_what_a_device_is_asked_for(torch):
    """The parts that need no device: dense copies, strides, new tensors."""
    library = library_of(torch.zeros(1))
    x = torch.arange(24.0).reshape(2, 3, 4)
    turned = x.permute(2, 0, 1)
    assert library.dense(turned, c_order=False).data_ptr() == turned.data_ptr()
    assert library.dense(turned, c_order=True).is_contiguous()
    strided = x[:, :, ::2]
    dense = library.dense(strided, c_order=False)
    assert dense.is_contiguous()
    assert dense.equal(strided)
    negated = torch._neg_view(x)
    assert library.dense(negated, c_order=False).equal(-x)
    assert not library.dense(negated, c_order=False).is_neg()
    new = library.empty(turned, np.dtype(np.uint8))
    assert library.strides(new) == library.strides(turned) == (1, 12, 4)
    assert new.dtype == torch.uint8
    other = library.new(turned, (5, 2), np.dtype(np.float32))
    assert (tuple(other.shape), other.dtype, other.device) == ((5, 2), torch.float32, x.device)
    assert library.memory(x) == (x.data_ptr(), 0, None)


# --- JAX on the CPU ------------------------------------------------------------------------------


def test_jax_arrays_give_jax_arrays(jax):
    x = jax.numpy.asarray(X)
    got = fpemu.round(x, "e4m3fn")
    assert isinstance(got, jax.Array)
    assert_same_bits(np.asarray(got), fpemu.round(X, "e4m3fn"), X)
    narrow = fpemu.round(x.astype(jax.numpy.bfloat16), "fp4")
    assert narrow.dtype == jax.numpy.bfloat16
    assert fpemu.encode(x, "fp4").dtype == np.uint8
    assert fpemu.tally(x) == fpemu.tally(X)


def test_jax_refusals(jax):
    x = jax.numpy.zeros(3)
    with pytest.raises(fpemu.FpemuError, match="pure_callback"):
        jax.jit(lambda v: fpemu.round(v, "fp16"))(x)
    with pytest.raises(fpemu.FpemuError, match=r"out|read-only"):
        fpemu.round(x, "fp16", out=jax.numpy.zeros(3))
    codes = jax.numpy.zeros(3, jax.numpy.uint8)
    with pytest.raises(fpemu.FpemuError, match="jax_enable_x64"):
        fpemu.decode(codes, "e4m3fn", np.float64)
    gone = jax.numpy.zeros(3)
    gone.delete()
    assert "deleted or donated" in message(lambda: fpemu.round(gone, "fp16"))
    assert "cannot be written to" in message(
        lambda: fpemu.encode(x, "fp4", out=jax.numpy.zeros(3, jax.numpy.uint8))
    )


def test_results_that_do_not_fit_their_sharding():
    """In a process of its own: JAX splits the host into devices only before its first use."""
    pytest.importorskip("jax", reason="needs JAX")
    code = """
import os
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
import jax, numpy as np, fpemu
from jax.sharding import NamedSharding, PartitionSpec
mesh = jax.sharding.Mesh(np.array(jax.devices()), ("a",))
x = jax.device_put(np.ones((4, 2), np.float32), NamedSharding(mesh, PartitionSpec(None, "a")))
assert fpemu.round(x, "fp16").sharding == x.sharding
try:
    fpemu.encode(x, "fp4", packed=True)  # one byte a row cannot lie on two devices
except fpemu.errors.InputError as refused:
    assert "np.asarray(x)" in str(refused) and "\\n" not in str(refused)
    print("refused")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "refused"


# --- DLPack, and what is no array ----------------------------------------------------------------


class Packed:
    """An array with DLPack and nothing else."""

    def __init__(self, array, device=None):
        self.array, self.device = array, device

    def __dlpack_device__(self):
        return self.device or self.array.__dlpack_device__()

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __array_namespace__(self):
        return np


def test_dlpack_on_the_host():
    got = fpemu.round(Packed(X), "fp16")
    assert_same_bits(got, fpemu.round(X, "fp16"))
    assert fpemu.tally(Packed(X)) == fpemu.tally(X)
    with pytest.raises(fpemu.FpemuError, match="type 4"):  # OpenCL
        fpemu.round(Packed(X, (4, 0)), "fp16")


class Lying(Packed):
    """A DLPack array that does not do what it says."""

    def __init__(self, device=None, capsule=None, space=None):
        super().__init__(X, device)
        self.capsule, self.space = capsule, space

    def __dlpack__(self, **options):
        if self.capsule:
            raise self.capsule
        return super().__dlpack__(**options)

    def __array_namespace__(self):
        return self.space


@pytest.mark.parametrize(("x", "rule"), [
    (Lying(device=5), "__dlpack_device__"),
    (Lying(device=("x", 0)), "__dlpack_device__"),
    (Lying(capsule=BufferError("no\nway")), "BufferError: no"),
    (Lying(space=object()), "from_dlpack"),
])  # fmt: skip
def test_broken_dlpack_is_refused_in_one_line(x, rule):
    assert rule in message(lambda: fpemu.round(x, "fp16"))


@pytest.mark.parametrize("x", [1.5, [1.0], np.float32(1), np.zeros(2), ml_dtypes.bfloat16(1), "x"],
                         ids=repr)  # fmt: skip
def test_what_numpy_reads_has_no_library(x):
    assert library_of(x) is None


class OnCuda:
    @property
    def __cuda_array_interface__(self):
        return {"shape": (2,), "typestr": "<f4", "data": (4096, False), "version": 3}


@pytest.mark.parametrize("work", [
    lambda x: fpemu.round(x, "fp16"), lambda x: fpemu.encode(x, "fp16"), fpemu.tally,
])  # fmt: skip
def test_cuda_without_the_extra_names_it(work, monkeypatch):
    real = importlib.util.find_spec
    lacks = lambda name: None if name == "numba_cuda" else real(name)  # noqa: E731
    monkeypatch.setattr(importlib.util, "find_spec", lacks)
    for name in [n for n in sys.modules if n.startswith("fpemu.kernels.cuda")]:
        monkeypatch.delitem(sys.modules, name)
    assert library_of(OnCuda()).place(OnCuda()) is Place.CUDA
    with pytest.raises(fpemu.errors.MissingExtraError, match=r"fpemu\[cuda12\].*fpemu\[cuda13\]"):
        work(OnCuda())


def test_no_framework_is_imported_for_numpys_arrays():
    code = (
        "import sys, numpy as np, fpemu\n"
        "fpemu.round(np.float32([1]), 'fp16'); fpemu.tally(np.float32([1]))\n"
        "print([n for n in ('torch', 'jax', 'cupy', 'numba.cuda') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
