"""The hand-written PTX against NVIDIA's assembler: it takes them, and folds constants alike.

ptxas works out what instructions on known operands give. So one kernel stores every hand-written
case's result, and the constants that it stores are read from its machine code.
"""

from __future__ import annotations

import re

import numpy as np
import ptx_toolchain
import pytest
from ptx_cases import CASES, DECLARED, ROWS, operation, snippet

pytestmark = [
    pytest.mark.ptx,
    pytest.mark.skipif(ptx_toolchain.missing() is not None, reason=str(ptx_toolchain.missing())),
]

HEAD = ".version 9.0\n.target sm_80\n.address_size 64\n"
TYPES = {"h": "u16", "r": "u32", "d": "u64"}

#: Where ptxas leaves the work, or a part of it, to the machine.
NOT_FOLDED = {"prmt.b32", "lop3.b32", "mul.hi.u64", "mul.hi.s64", "mad.hi.u32", "mul.f32",
              "copysign.f32"}  # fmt: skip

#: What it makes a program of, with branches, even where operands are constants.
PROGRAMS = {"div.rn.f32", "div.rn.f64", "rcp.rn.f32"}


def test_the_snippets_are_ptx():
    text = "".join(snippet(opcode, i, f"f{n}") for n, (opcode, i) in enumerate(ROWS))
    ptx_toolchain.assemble(HEAD + text, (8, 0))


def stored(opcode: str, index: int, place: int) -> str:
    """PTX that stores the result of a case, whose operands are constants."""
    letters, row = CASES[opcode][0], CASES[opcode][1][index]
    lines = []
    for i, (c, v) in enumerate(zip(letters[:-1], row, strict=False)):
        if c == "p":
            lines.append(f"mov.u32 %ra{i}, {v}; setp.ne.s32 %pa{i}, %ra{i}, 0;")
        elif c != "I":
            lines.append(f"mov.{TYPES[c]} %{c}a{i}, {v};")
    lines.append(operation(opcode, letters, row))
    z = letters[-1]
    if z in "ph":
        lines.append("selp.u32 %rz, 1, 0, %pz;" if z == "p" else "cvt.u32.u16 %rz, %hz;")
        z = "r"
    lines.append(f"st.global.{TYPES[z]} [%da8+{8 * place}], %{z}z;")
    return "\n".join(lines)


def constants_stored(sass: tuple[str, ...]) -> dict[int, int]:
    """Address -> the constant that straight-line machine code stores there."""
    known: dict[str, int | None] = {"RZ": 0}
    found = {}
    for line in sass:
        opcode, *operands = re.split(r"[ ,]+", line.replace(".reuse", ""))
        assert not opcode.startswith("@") or "BRA" in line, f"not straight-line: {line}"
        if opcode.startswith("STG"):
            address = re.search(r"\.64(?:\+(0x[0-9a-f]+))?\]", line)
            first = operands[-1]
            pair = [first, f"R{int(first[1:]) + 1}"] if first != "RZ" else ["RZ", "RZ"]
            words = [known.get(r) for r in pair[: 1 + (".64" in opcode)]]
            if address and None not in words:
                place = int(address[1] or "0", 16)
                found[place] = sum(w << 32 * i for i, w in enumerate(words) if w is not None)
        elif operands and re.fullmatch(r"R\d+", operands[0]):
            wide = "64" in opcode or "WIDE" in opcode or opcode.startswith("CS2R")
            if wide:
                known[f"R{int(operands[0][1:]) + 1}"] = None
            known[operands[0]] = constant(opcode, operands[1:], known)
    return found


def constant(opcode: str, operands: list[str], known: dict[str, int | None]) -> int | None:
    """What a move of a constant or a known register moves; None for all else."""
    if opcode in ("MOV", "IMAD.MOV.U32") and operands[:-1] in ([], ["RZ", "RZ"]):
        last = operands[-1]
        return int(last, 16) % (1 << 32) if "0x" in last[:3] else known.get(last)
    if opcode.startswith("HFMA2") and operands[:2] == ["-RZ", "RZ"]:  # two halves, as floats
        high, low = (int(np.array(float(v), np.float16).view(np.uint16)) for v in operands[2:])
        return high << 16 | low
    return None


def test_ptxas_folds_them_to_the_same_results():
    rows = [(n, opcode, i) for n, (opcode, i) in enumerate(ROWS) if opcode not in PROGRAMS]
    body = "\n".join(stored(opcode, i, n) for n, opcode, i in rows)
    start = "ld.param.u64 %da8, [k_0]; cvta.to.global.u64 %da8, %da8;"
    text = f"{HEAD}.visible .entry k(.param .u64 k_0)\n{{{DECLARED}{start}\n{body}\nret;\n}}\n"
    found = constants_stored(ptx_toolchain.assemble(text, (8, 0)).instructions())
    wrong, left = [], set()
    for n, opcode, i in rows:
        want = CASES[opcode][1][i][-1]
        if 8 * n not in found:
            left.add(opcode)
        elif found[8 * n] != want:
            wrong.append(f"{opcode} {CASES[opcode][1][i]}: ptxas gives {found[8 * n]:#x}")
    assert not wrong, wrong
    assert left <= NOT_FOLDED
    assert len(found) > 200
