"""The kernels of benchmarks/gpu.py, compiled and assembled without a GPU.

Each for one architecture: nothing in them depends on it but the instructions that they try.
"""

from __future__ import annotations

import re

import pytest
from on_gpu.instructions import INSTRUCTIONS, Instruction
from ptx_toolchain import ARCHITECTURES, assemble, kernel_ptx, missing

pytestmark = pytest.mark.ptx

HOPPER = (9, 0)


@pytest.fixture(scope="module", autouse=True)
def toolchain() -> None:
    reason = missing()
    if reason:
        pytest.skip(reason)


def signatures() -> dict[str, list[object]]:
    """The arguments of each kernel but the conversions'."""
    from fpemu.kernels.cuda_target import cuda

    t = cuda.types
    u8, u16, u32, u64, f32, f64 = t.uint8, t.uint16, t.uint32, t.uint64, t.float32, t.float64

    def array(kind: object, axes: int = 1) -> object:
        return t.Array(kind, axes, "C")

    pairs = ((u32, u32), (u8, u32), (u16, u16))
    differ = [t.void(array(a), array(b), u64, u32, u32, array(u64)) for a, b in pairs]
    second = t.void(array(f32), array(u32), u64, array(f64, 2), t.UniTuple(f64, 3),
                    t.UniTuple(u64, 2), array(f32), array(u32))  # fmt: skip
    return {
        "second": [second],
        "differ": differ,
        "fill": [t.void(array(u32), u64, u64, u64)],
        "repeat": [t.void(array(u32), u64, array(u32), u64)],
    }


def kernel_of(name: str) -> object:
    from on_gpu import compare, inputs, second

    makers = {
        "second": second.second_kernel,
        "differ": compare.differ_kernel,
        "fill": inputs.fill_kernel,
        "repeat": inputs.repeat_kernel,
    }
    return makers[name]()


@pytest.mark.parametrize("name", ["second", "differ", "fill", "repeat"])
def test_kernels_assemble(name: str) -> None:
    for signature in signatures()[name]:
        ptx = kernel_ptx(kernel_of(name), signature, HOPPER)
        made = assemble(ptx, HOPPER)
        assert (made.stack, made.spills) == (0, 0), made
        assert not re.search(r"\bcall\b", ptx)


def test_the_float64_arithmetic_rounds_by_one_addition_and_one_subtraction() -> None:
    """Exact only so: no part of it may be float32, approximate or flushed to zero."""
    ptx = kernel_ptx(kernel_of("second"), signatures()["second"][0], HOPPER)
    opcodes = re.findall(r"^\s+(?:@!?%p\d+ )?([a-z]\w*(?:\.\w+)*)\s", ptx, re.MULTILINE)
    floats = {o for o in opcodes if re.search(r"\.f(16|32)|ftz|approx", o)}
    assert floats <= {"cvt.f64.f32", "cvt.rn.f32.f64", "ld.global.f32", "st.global.f32"}, floats
    # the one product of the rest is by a power of two: fused or not, it is exact
    assert sum(o.startswith(("add", "sub")) and o.endswith("f64") for o in opcodes) <= 3
    assert {"add.f64", "sub.f64"} & {o.replace(".rn", "") for o in opcodes}


@pytest.mark.parametrize("instruction", INSTRUCTIONS, ids=lambda i: i.name)
def test_conversions_assemble(instruction: Instruction) -> None:
    from on_gpu.convert import cvt_kernel

    from fpemu.kernels.cuda_target import cuda

    words = cuda.types.Array(cuda.types.uint32, 1, "C")
    signature = cuda.types.void(words, words, cuda.types.uint64)
    capability = min(c for c in ARCHITECTURES if c >= instruction.capability)
    ptx = kernel_ptx(cvt_kernel(instruction), signature, capability)
    assert len(re.findall(rf"\b{re.escape(instruction.name)}\b", ptx)) == 1
    made = assemble(ptx, capability)
    assert (made.stack, made.spills) == (0, 0), made
