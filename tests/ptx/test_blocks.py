"""The CUDA kernels of scaled blocks, compiled and assembled for three architectures without a GPU.

Unlike the other kernels these multiply and divide floats, by correctly rounded instructions, none
of which may be fused with another; and each thread divides for its place, if rows have ends.
"""

from __future__ import annotations

import re
from functools import cache

import numpy as np
import ptx_functions as ptx
import pytest
from ptx_block_kernels import KERNELS, BlockKernel, built
from ptx_toolchain import ARCHITECTURES, assemble, kernel_ptx, missing
from support import assert_same_bits, wide_range

from fpemu.scaling import find_recipe

pytestmark = [
    pytest.mark.ptx,
    pytest.mark.skipif(missing() is not None, reason=str(missing())),
]

#: With more, fewer than 1,536 threads of a processor can be under way; draws take more.
REGISTERS, DRAWING = 40, 56

#: Float operations of each kind of kernel; each is rounded once, or changes no bit but the sign.
MOVES = {"mov", "ld", "st", "selp", "copysign", "abs", "neg"}
PRODUCTS = {"mul.f32"}
QUOTIENTS = {"div.rn.f32", "rcp.rn.f32"}
WIDE = {"cvt.f64.f32", "cvt.rn.f32.f64", "div.rn.f64", "setp.lt.f64"}
ALLOWED = {
    "block": PRODUCTS | QUOTIENTS | {"cvt.rn.f32.u32"},
    "scale": PRODUCTS | QUOTIENTS | WIDE | {"add.f32"},
    "kept": PRODUCTS | QUOTIENTS,
    "apply": PRODUCTS | QUOTIENTS | {"cvt.rn.f32.u32"},
    "rotate": {"add.f32", "sub.f32", "mul.f32"},
    "restore": {"add.f32", "sub.f32", "mul.f32"},
}


@cache
def ptx_of(kernel: BlockKernel, capability: tuple[int, int]) -> str:
    """The PTX for an architecture; sm_80 has that of sm_90, as test_compile.py says."""
    if capability == (8, 0):
        return ptx_of(kernel, (9, 0)).replace(".target sm_90", ".target sm_80")
    return kernel_ptx(*built(kernel), capability)


def opcodes(ptx: str) -> set[str]:
    return set(re.findall(r"^\s*(?:@!?%\w+\s+)?([a-z][a-z0-9]*\.[\w.:]+)\s", ptx, re.MULTILINE))


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_kernel(kernel):
    for capability in ARCHITECTURES:
        ptx = ptx_of(kernel, capability)
        assert ptx.count(".entry") == 1
        assert not re.search(r"\bcall\b|\.local\b|\.func\b|__local_depot", ptx)
        floats = {op for op in opcodes(ptx) if re.search(r"\.(b?f16|tf32|f32|f64)", op)}
        floats |= {op for op in opcodes(ptx) if op.split(".")[0] in ("fma", "sqrt", "ex2", "lg2")}
        floats = {op for op in floats if op.split(".")[0] not in MOVES}
        assert floats <= ALLOWED.get(kernel.kind, set())
        made = assemble(ptx, capability)
        assert (made.stack, made.spills) == (0, 0)
        assert 0 < made.registers <= (DRAWING if "stochastic" in kernel.recipe else REGISTERS)
        assert made.shared <= 48 << 10


@pytest.mark.parametrize("kernel", [k for k in KERNELS if k.kind in ("block", "apply")], ids=str)
def test_numbers_are_moved_in_groups(kernel):
    """Of four, 128 bits of words and 32 of codes, where they lie side by side."""
    ptx = ptx_of(kernel, (9, 0))
    loaded, stored = (8 if kernel.verb == verb else 32 for verb in ("decode", "encode"))
    assert kernel.group * loaded in accesses(ptx, "ld")
    assert kernel.group * stored in accesses(ptx, "st")
    if kernel.group == 4 and kernel.kind == "block" and kernel.recipe != "nf4":
        assert accesses(ptx, "ld") <= {4 * loaded, 32}  # 32: what is looked up
        assert kernel.verb != "round" or accesses(ptx, "st") == {4 * stored}


def accesses(ptx: str, verb: str) -> set[int]:
    """Bits of the loads or stores of the device's memory."""
    found = re.findall(rf"\s{verb}\.global(?:\.nc)?(?:\.v(\d))?\.[busf](\d+)\s", ptx)
    assert len(found) == len(re.findall(rf"\s{verb}\.global", ptx))
    return {int(count or 1) * int(bits) for count, bits in found}


def test_products_and_sums_are_not_fused():
    """In machine code either: only what divides, which ends in exact steps, may fuse."""
    for kernel in (BlockKernel("block", "mxfp8", "round"), BlockKernel("rotate", "nvfp4.hadamard")):
        listing = assemble(ptx_of(kernel, (9, 0)), (9, 0)).instructions()
        floats = [line for line in listing if re.search(r"\b[FD](ADD|MUL)\b", line)]
        assert floats
        assert not [line for line in listing if re.search(r"\b[FD]FMA\b|\bLDL\b|\bSTL\b", line)]


def test_one_barrier_and_two_reads_a_number():
    """The second read of a number comes from the first cache; it is written once."""
    listing = assemble(ptx_of(BlockKernel("block", "mxfp8", "round"), (9, 0)), (9, 0))
    code = [line for line in listing.instructions() if re.search(r"BAR\.SYNC|[LS](DG|TG)\.", line)]
    assert sum("BAR.SYNC" in line for line in code) == 1
    assert sum("LDG.E.128" in line for line in code) == 4  # two groups of four for each thread
    assert sum("STG.E.128" in line for line in code) == 2


# --- what the compiler made of scalar bodies, executed -------------------------------------------

#: Between them every way to a scale.
RULES = ("mxfp8", "mxfp4.fit", "torchao.mxfp8.even", "torchao.mxfp6_e2m3.ceil",
         "torchao.mxfp8.rceil", "te.mxfp8", "te.current", "te.block", "deepseek",
         "deepgemm.e8m0", "torchao.float8.tensorwise", "nvfp4", "torchao.nvfp4")  # fmt: skip


def magnitudes() -> np.ndarray:
    """Largest magnitudes of blocks: all binades and beside, NaN and infinity."""
    powers = np.arange(1 << 8, dtype=np.uint32) << np.uint32(23)
    beside = (powers[1:, None] + np.arange(-3, 4)).astype(np.uint32)
    elements = np.float32([448, 6, 57344, 28, 7.5]).view(np.uint32) & np.uint32(0x7FFFFF)
    fractions = [powers | e + np.uint32(d) for e in elements for d in (0, 1)]
    fractions += [powers | e - np.uint32(1) for e in elements]
    words = np.concatenate([powers, beside.ravel(), *fractions, np.arange(99, dtype=np.uint32),
                            np.abs(wide_range(20_000, seed=5)).view(np.uint32)])  # fmt: skip
    return words.astype(np.uint32).view(np.float32)


def on_compilers(names: tuple[str, ...]) -> pytest.MarkDecorator:
    """Every name on one of the compilers inside the toolkit, every third on the other too."""
    old, new = ptx.COMPILERS
    cases = [(name, old) for name in names] + [(name, new) for name in names[::3]]
    ids = [f"{name}-sm_{target[0]}{target[1]}" for name, target in cases]
    return pytest.mark.parametrize(("name", "target"), cases, ids=ids)


@on_compilers(RULES)
def test_scales_are_those_of_the_rules(name, target):
    """Of `fpemu.scaling.rules`, which works on arrays; what is NaN has no sign to keep."""
    recipe, amax = find_recipe(name), magnitudes()
    with np.errstate(all="ignore"):
        whole = recipe.rule.whole(np.float32(7000), recipe.element)
        want = recipe.rule.scales(amax, recipe.element, whole)
    for part, wanted in enumerate(want):
        got = ptx.scale(name, part, target)(amax.view(np.uint32), whole.view(np.uint32))
        if wanted.dtype == np.float32:
            assert_same_bits(got.view(np.float32), wanted, amax, f"{name} {want._fields[part]}")
        else:
            some = ~np.isnan(want.decode)
            assert_same_bits(got[some].astype(np.uint8), wanted[some], amax[some])
            assert (got[~some] & 0x7F == 0x7F).all()


@on_compilers(("mxfp8", "mxfp8_e5m2", "mxfp4", "mxint8", "mxint6.fit"))
def test_numbers_are_scaled_rounded_and_scaled_back(name, target):
    recipe = find_recipe(name)
    x = np.concatenate([wide_range(50_000, seed=6), np.float32([0, -0.0, np.inf, np.nan, 0.5])])
    for encode, decode in ((np.float32(0.25), np.float32(4)), (np.float32(2**100), np.float32(0))):
        with np.errstate(all="ignore"):
            scaled = x * encode
            codes = recipe.element.encode(scaled.copy(), None)
            rounded = scaled.copy()
            recipe.element.round(rounded, None)
            values = rounded * decode
        words = [v.view(np.uint32) for v in (x, encode, decode)]
        assert_same_bits(ptx.number(name, "round", target)(*words).view(np.float32), values, x)
        got = ptx.number(name, "encode", target)(*words)
        assert_same_bits(got.astype(codes.dtype), codes, x)
