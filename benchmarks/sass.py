"""Machine code of the CUDA kernels, counted without a GPU, and what it means for an H200.

    python benchmarks/sass.py [--arch 80 90 100] [--json]

For each kernel and architecture: the instructions for one number inside the loop over groups (all
of them, then those of the integer units), registers, shared memory, and the share of the memory's
speed that the integer units allow. An H200 has 4.8 TB/s and 132 processors of 64 integer lanes at
1.98 GHz: 27.9 integer instructions in the time of 8 bytes. Stored and loaded bytes count alike.
Needs numba-cuda, ptxas and nvdisasm: see tests/ptx_toolchain.py.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from ptx_block_kernels import BlockKernel
from ptx_block_kernels import built as block_built
from ptx_block_kernels import numbers as block_numbers
from ptx_kernels import CASTS, MAIN, Kernel, built
from ptx_sass import barrier_loop, integer, wide_loop
from ptx_toolchain import ARCHITECTURES, assemble, kernel_ptx, missing

from fpemu.cast import Cast
from fpemu.codes import code_dtype

BYTES_A_SECOND = 4.8e12
INTEGERS_A_SECOND = 132 * 64 * 1.98e9

KERNELS = (
    *(Kernel("round", name) for name in MAIN),
    *(Kernel("round", cast) for cast in CASTS[len(MAIN) :]),
    *(Kernel("encode", name) for name in MAIN),
    *(Kernel("decode", name) for name in MAIN),
    Kernel("round", "float8_e4m3fn", general=True),
    Kernel("encode", "float8_e4m3fn", general=True),
    Kernel("decode", "float8_e4m3fn", general=True),
    Kernel("round", "float16", 64),
    Kernel("round", "float8_e5m2:rounding=stochastic", 64),
    Kernel("count", "float8_e4m3fn", wide=False),
    Kernel("count", "float8_e5m2:rounding=stochastic", wide=False),
    Kernel("tally"),
)


#: A block of a recipe in one pass.
BLOCKS = tuple(
    BlockKernel("block", name, verb)
    for name in ("mxfp8", "mxfp4", "nvfp4") for verb in ("round", "encode")
)  # fmt: skip


class Row(NamedTuple):
    """Figures of one kernel on one architecture; instructions are for one number."""

    kernel: str
    arch: str
    instructions: float
    integer: float
    registers: int
    shared: int
    bytes: int  #: of a number, loaded and stored
    share: float  #: of the memory's speed that the integer units allow on an H200


def bytes_of(kernel: Kernel) -> int:
    word = kernel.bits // 8
    if kernel.verb == "tally":
        return word
    if kernel.verb in ("encode", "decode"):
        return word + int(code_dtype(Cast.from_str(kernel.cast).format).itemsize)
    return 2 * word


def measure(kernel: Kernel, capability: tuple[int, int]) -> Row:
    made = assemble(kernel_ptx(*built(kernel), capability), capability)
    loop = wide_loop(made.instructions(), "LDG" if kernel.verb == "count" else ".128")
    group = 128 // kernel.bits if kernel.wide else 1
    group *= sum("LDG" in line for line in loop)  # the compiler may unroll it
    moved, done = bytes_of(kernel), integer(loop) / group
    budget = moved / BYTES_A_SECOND * INTEGERS_A_SECOND
    return Row(
        str(kernel), "sm_{}{}".format(*capability), len(loop) / group, done, made.registers,
        made.shared, moved, min(1.0, budget / done),
    )  # fmt: skip


def measure_block(kernel: BlockKernel, capability: tuple[int, int]) -> Row:
    """The same for a block's kernel; what is done once a block is shared out to its numbers."""
    made = assemble(kernel_ptx(*block_built(kernel), capability), capability)
    loop, count = barrier_loop(made.instructions()), block_numbers(kernel)
    moved, done = 8 if kernel.verb == "round" else 5, integer(loop) / count
    budget = moved / BYTES_A_SECOND * INTEGERS_A_SECOND
    return Row(
        str(kernel), "sm_{}{}".format(*capability), len(loop) / count, done, made.registers,
        made.shared, moved, min(1.0, budget / done),
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = {10 * major + minor: (major, minor) for major, minor in ARCHITECTURES}
    parser.add_argument("--arch", type=int, nargs="+", choices=names, default=[*names])
    parser.add_argument("--json", action="store_true", help="rows for a program to read")
    given = parser.parse_args()
    lack = missing()
    if lack is not None:
        sys.exit(lack)
    rows = [measure(kernel, names[arch]) for kernel in KERNELS for arch in given.arch]
    rows += [measure_block(kernel, names[arch]) for kernel in BLOCKS for arch in given.arch]
    if given.json:
        print(json.dumps([row._asdict() for row in rows], indent=1))
        return
    print(f"{'kernel':58} arch    all  integer  registers  shared  of H200's memory speed")
    for r in rows:
        print(f"{r.kernel:58} {r.arch:6} {r.instructions:5.2f} {r.integer:7.2f} {r.registers:9}"
              f" {r.shared:8} {r.share:12.0%}")  # fmt: skip


if __name__ == "__main__":
    main()
