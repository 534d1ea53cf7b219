"""Every CUDA kernel, compiled and assembled for three architectures without a GPU."""

from __future__ import annotations

import re
from functools import cache

import pytest
from ptx_kernels import CASTS, KERNELS, MAIN, Kernel, built
from ptx_sass import integer, wide_loop
from ptx_toolchain import ARCHITECTURES, Assembled, assemble, kernel_ptx, missing

from fpemu.cast import Cast
from fpemu.kernels.params import Shape, params_of

pytestmark = [
    pytest.mark.ptx,
    pytest.mark.skipif(missing() is not None, reason=str(missing())),
]

#: With more, fewer than 1,536 threads of a processor can be under way.
REGISTERS = 40

#: Where the compiler for sm_100 unrolls a loop, which costs each thread one division: ptxas makes
#: a subroutine of it, so that elsewhere a division is refused as a call is.
DIVIDING = {
    *(Kernel(verb, "float8_e8m0fnu", 64) for verb in ("round", "encode")),
    Kernel("decode", "float8_e8m0fnu"),
    Kernel("decode", "float8_e4m3fnuz", 64),
    Kernel("tally"),
    *(Kernel(verb, wide=False) for verb in ("tally", "finish")),
}

#: The one float instruction, exact for what it is given: a distance of at most 24 bits.
FLOAT_OF = {"tally": {"cvt.rn.f32.u32"}}


@cache
def ptx_of(kernel: Kernel, capability: tuple[int, int]) -> str:
    """The PTX for an architecture; for sm_80 that of sm_90, which a test says is the same."""
    if capability == (8, 0):
        return ptx_of(kernel, (9, 0)).replace(".target sm_90", ".target sm_80")
    return kernel_ptx(*built(kernel), capability)


def opcodes(ptx: str) -> set[str]:
    found = set(re.findall(r"^\s*(?:@!?%\w+\s+)?([a-z][a-z0-9]*\.[\w.:]+)\s", ptx, re.MULTILINE))
    assert len(found) > 5, ptx
    return found


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_kernel(kernel):
    for capability in ARCHITECTURES:
        ptx = ptx_of(kernel, capability)
        check_target(ptx, capability)
        check_instructions(kernel, ptx)
        if capability != (10, 0) or kernel not in DIVIDING:
            assert not {op for op in opcodes(ptx) if op.split(".")[0] in ("div", "rem")}
        if kernel.wide:
            check_wide(kernel, ptx)
        check_resources(kernel, capability, assemble(ptx, capability))


def check_target(ptx: str, capability: tuple[int, int]) -> None:
    """The toolkit is 13.0, whose PTX is 9.0: what newer ones write driver 580 does not take."""
    assert re.search(r"^\.version 9\.0$", ptx, re.MULTILINE)
    assert re.search(r"^\.target sm_{}{}$".format(*capability), ptx, re.MULTILINE)
    assert re.search(r"^\.address_size 64$", ptx, re.MULTILINE)
    assert ptx.count(".entry") == 1


def check_instructions(kernel: Kernel, ptx: str) -> None:
    used = opcodes(ptx)
    assert not re.search(r"\bcall\b|\.local\b|\.func\b|__local_depot", ptx)
    floats = {op for op in used if re.search(r"\.(b?f16|tf32|f32|f64|e4m3|e5m2)", op)}
    floats |= {op for op in used if op.split(".")[0] in ("fma", "sqrt", "rcp", "ex2", "lg2")}
    assert floats <= FLOAT_OF.get(kernel.verb, set())


def check_wide(kernel: Kernel, ptx: str) -> None:
    """A group in one load and, elementwise, in one store: 128 bits of words; the tail singly."""
    group = 128 // kernel.bits
    loaded = code_bits(kernel) if kernel.verb == "decode" else kernel.bits
    stored = code_bits(kernel) if kernel.verb == "encode" else kernel.bits
    assert accesses(ptx, "ld") == {group * loaded, loaded}
    assert accesses(ptx, "st") == (set() if kernel.verb == "tally" else {group * stored, stored})


def accesses(ptx: str, verb: str) -> set[int]:
    """Bits of the loads or stores of the device's memory."""
    found = re.findall(rf"\s{verb}\.global(?:\.nc)?(?:\.v(\d))?\.[bus](\d+)\s", ptx)
    assert len(found) == len(re.findall(rf"\s{verb}\.global", ptx))
    return {int(count or 1) * int(bits) for count, bits in found}


def code_bits(kernel: Kernel) -> int:
    """Bits of the integers that carry a format's codes."""
    bits = Cast.from_str(kernel.cast).format.bits
    return 8 if bits <= 8 else 16 if bits <= 16 else 32


def check_resources(kernel: Kernel, capability: tuple[int, int], made: Assembled) -> None:
    assert (made.stack, made.spills) == (0, 0)
    assert 0 < made.registers <= REGISTERS
    assert made.shared <= 48 << 10  # what a block may have without asking


def test_the_kernels_take_every_shape():
    """Each part of the bodies is there and is left out, whatever the deepness."""
    shapes = {params_of(Cast.from_str(cast)).shape for cast in CASTS}
    for part in Shape._fields:
        assert {getattr(shape, part) for shape in shapes} == {False, True}, part
    kinds = {(shape.stochastic, shape.directed, shape.deep) for shape in shapes}
    assert len(kinds) == 6  # all but those both stochastic and directed


@pytest.mark.parametrize("kernel", [KERNELS[0], Kernel("tally")], ids=str)
def test_ampere_and_hopper_have_the_same_ptx(kernel):
    def names_apart(text: str) -> str:  # numba numbers what it compiles, and hashes that
        return re.sub(r"_ZN\w+|_smem_\d+|\.target sm_\d+", "", text)

    ampere = kernel_ptx(*built(kernel), (8, 0))
    assert ".target sm_80" in ampere
    assert names_apart(ampere) == names_apart(ptx_of(kernel, (9, 0)))


# --- machine code ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MAIN)
def test_round_is_bound_by_memory(name):
    """On H200 the 8 bytes of a number allow 27.9 integer instructions; see benchmarks/sass.py."""
    listing = assemble(ptx_of(Kernel("round", name), (9, 0)), (9, 0)).instructions()
    loop = wide_loop(listing)
    assert [i.split()[0] for i in loop if re.match(r"LDG|STG", i)] == ["LDG.E.128", "STG.E.128"]
    assert len(loop) <= 4 * 27, f"{len(loop)} instructions for four numbers"
    assert integer(loop) > 4 * 15, "this cannot be all of it"
    assert not [i for i in listing if re.search(r"\b(CALL|LDL|STL|MUFU|[FD](ADD|MUL|FMA))\b", i)]
