"""Hand-written PTX: every opcode that the interpreter knows, at the edges of its rules.

What each must give was worked out by hand from the PTX ISA.
"""

from __future__ import annotations

__all__ = ["CASES", "DECLARED", "ROWS", "function", "operation", "snippet"]

HIGH, ONES = 0x80000000, 0xFFFFFFFF
HIGH64, ONES64 = 1 << 63, (1 << 64) - 1

#: opcode -> (registers of the operands, then of the result; rows of inputs and the result).
#: h, r, d: 16, 32, 64 bits; p: a predicate.
CASES: dict[str, tuple[str, list[tuple[int, ...]]]] = {
    "add.s32": ("rrr", [(ONES, 1, 0), (0x7FFFFFFF, 1, HIGH), (5, ONES, 4)]),
    "add.u32": ("rrr", [(HIGH, HIGH, 0)]),
    "add.s64": ("ddd", [(ONES64, 2, 1), (ONES, 1, 1 << 32)]),
    "add.u16": ("hhh", [(0xFFFF, 2, 1)]),
    "sub.s32": ("rrr", [(0, 1, ONES), (HIGH, 1, 0x7FFFFFFF)]),
    "sub.s64": ("ddd", [(0, 1, ONES64), (1 << 32, 1, ONES)]),
    "mul.lo.s32": ("rrr", [(ONES, ONES, 1), (0x10000, 0x10000, 0), (0x12345, 0x6789A, 0x5CD58F82)]),
    "mul.lo.u64": ("ddd", [(ONES64, 3, ONES64 - 2), (ONES, ONES, 0xFFFFFFFE00000001)]),
    "mul.hi.u32": ("rrr", [(ONES, ONES, 0xFFFFFFFE), (HIGH, 2, 1)]),
    "mul.hi.s32": ("rrr", [(ONES, ONES, 0), (HIGH, 2, ONES), (HIGH, HIGH, 0x40000000)]),
    "mul.hi.u64": ("ddd", [(ONES64, ONES64, ONES64 - 1), (HIGH64, 2, 1), (ONES, ONES, 0)]),
    "mul.hi.s64": ("ddd", [(ONES64, ONES64, 0), (HIGH64, 2, ONES64), (HIGH64, HIGH64, 1 << 62)]),
    "mul.wide.u32": ("rrd", [(ONES, ONES, 0xFFFFFFFE00000001)]),
    "mul.wide.s32": ("rrd", [(ONES, ONES, 1), (ONES, 2, ONES64 - 1)]),
    "mul.wide.u16": ("hhr", [(0xFFFF, 0xFFFF, 0xFFFE0001)]),
    "mul.wide.s16": ("hhr", [(0xFFFF, 2, 0xFFFFFFFE)]),
    "mad.lo.s32": ("rrrr", [(ONES, 2, 5, 3), (0x10000, 0x10000, 7, 7)]),
    "mad.lo.u64": ("dddd", [(ONES64, 2, 5, 3)]),
    "mad.hi.u32": ("rrrr", [(ONES, ONES, 3, 1)]),
    "mad.wide.u32": ("rrdd", [(ONES, ONES, ONES64, 0xFFFFFFFE00000000)]),
    "mad.wide.s32": ("rrdd", [(ONES, 2, 5, 3)]),
    "and.b32": ("rrr", [(0xF0F0, 0xFF00, 0xF000)]),
    "or.b64": ("ddd", [(HIGH64, 1, HIGH64 | 1)]),
    "xor.b16": ("hhh", [(0xFFFF, 0x00FF, 0xFF00)]),
    "not.b32": ("rr", [(0, ONES), (0xF0F0F0F0, 0x0F0F0F0F)]),
    "not.b64": ("dd", [(ONES, ONES64 - ONES)]),
    "and.pred": ("ppp", [(1, 1, 1), (1, 0, 0)]),
    "or.pred": ("ppp", [(0, 0, 0), (1, 0, 1)]),
    "xor.pred": ("ppp", [(1, 1, 0), (1, 0, 1)]),
    "not.pred": ("pp", [(0, 1), (1, 0)]),
    "neg.s32": ("rr", [(1, ONES), (HIGH, HIGH)]),
    "abs.s32": ("rr", [(ONES, 1), (HIGH, HIGH), (7, 7)]),
    "shl.b32": ("rrr", [(1, 31, HIGH), (1, 32, 0), (ONES, 33, 0), (ONES, ONES, 0), (3, 0, 3)]),
    "shl.b64": ("drd", [(1, 63, HIGH64), (1, 64, 0), (1, 32, 1 << 32), (1, ONES, 0)]),
    "shl.b16": ("hrh", [(1, 15, 0x8000), (0xFFFF, 16, 0)]),
    "shr.u32": ("rrr", [(HIGH, 31, 1), (HIGH, 32, 0), (ONES, 64, 0), (ONES, ONES, 0)]),
    "shr.s32": ("rrr", [(HIGH, 31, ONES), (HIGH, 32, ONES), (HIGH, ONES, ONES), (7, 40, 0)]),
    "shr.u64": ("drd", [(HIGH64, 63, 1), (HIGH64, 64, 0), (ONES64, 32, ONES)]),
    "shr.s64": ("drd", [(HIGH64, 63, ONES64), (HIGH64, 64, ONES64), (HIGH64 - 1, 70, 0)]),
    "shr.b32": ("rrr", [(HIGH, 31, 1), (HIGH, 32, 0)]),
    "shr.u16": ("hrh", [(0x8000, 15, 1), (0xFFFF, 16, 0)]),
    "shr.s16": ("hrh", [(0x8000, 20, 0xFFFF)]),
    "shf.l.wrap.b32": ("rrrr", [(HIGH, 1, 1, 3), (5, 7, 32, 7), (HIGH, 0, 33, 1)]),
    "shf.l.clamp.b32": ("rrrr", [(HIGH, 1, 1, 3), (5, 7, 32, 5), (5, 7, 99, 5)]),
    "shf.r.wrap.b32": ("rrrr", [(2, 1, 1, HIGH | 1), (5, 7, 32, 5), (2, 1, 33, HIGH | 1)]),
    "shf.r.clamp.b32": ("rrrr", [(2, 1, 1, HIGH | 1), (5, 7, 32, 7), (5, 7, 99, 7)]),
    "bfe.u32": ("rrrr", [
        (0xABCD1234, 8, 8, 0x12), (ONES, 0, 32, ONES), (ONES, 4, 0, 0), (ONES, 28, 255, 0xF),
        (ONES, 32, 4, 0), (ONES, 256, 4, 0xF),
    ]),
    "bfe.s32": ("rrrr", [
        (0x0000F000, 12, 4, ONES), (0x00007000, 12, 4, 7), (HIGH, 28, 20, 0xFFFFFFF8),
        (ONES, 4, 0, 0), (HIGH, 40, 4, ONES), (0x7FFFFFFF, 40, 4, 0), (HIGH, 0, 255, HIGH),
    ]),
    "bfe.u64": ("drrd", [(ONES64, 60, 200, 0xF), (HIGH64, 63, 1, 1), (ONES64, 64, 1, 0)]),
    "bfe.s64": ("drrd", [(HIGH64, 60, 200, ONES64 - 7), (1, 0, 1, ONES64)]),
    "bfi.b32": ("rrrrr", [
        (0xF, 0, 28, 8, 0xF0000000), (0, ONES, 8, 8, 0xFFFF00FF), (ONES, 0, 0, 255, ONES),
        (ONES, 7, 4, 0, 7), (ONES, 7, 32, 4, 7), (ONES, 0, 256, 4, 0xF),
    ]),
    "bfi.b64": ("ddrrd", [
        (ONES64, 0, 32, 1, 1 << 32), (ONES64, 5, 64, 9, 5), (0, ONES64, 60, 99, ONES64 >> 4),
    ]),
    "prmt.b32": ("rrrr", [
        (0x03020100, 0x07060504, 0x7654, 0x07060504), (0x03020100, 0x07060504, 0x5410, 0x05040100),
        (0x00800000, 0, 0x222A, 0x808080FF), (0x00700000, 0, 0x222A, 0x70707000),
        (0x03020100, 0, 0xFFFF3210, 0x03020100),
    ]),
    "lop3.b32": ("rrrIr", [
        (0xF0, 0xCC, 0xAA, 0x80, 0x80), (0xF0, 0xCC, 0xAA, 0xFE, 0xFE),
        (0xF0, 0xCC, 0xAA, 0xE4, 0xE4), (0xF0, 0xCC, 0xAA, 0x96, 0x96),
    ]),
    "clz.b32": ("rr", [(0, 32), (1, 31), (HIGH, 0), (0x00010000, 15), (ONES >> 9, 9)]),
    "clz.b64": ("dr", [(0, 64), (1, 63), (HIGH64, 0), (1 << 32, 31)]),
    "popc.b32": ("rr", [(0, 0), (ONES, 32), (0x11, 2)]),
    "popc.b64": ("dr", [(ONES64, 64), (HIGH64, 1)]),
    "brev.b32": ("rr", [(1, HIGH), (0x0000000F, 0xF0000000)]),
    "brev.b64": ("dd", [(1, HIGH64)]),
    "min.u32": ("rrr", [(HIGH, 1, 1), (ONES, 0, 0)]),
    "min.s32": ("rrr", [(HIGH, 1, HIGH), (ONES, 0, ONES)]),
    "max.u32": ("rrr", [(HIGH, 1, HIGH), (ONES, 0, ONES)]),
    "max.s32": ("rrr", [(HIGH, 1, 1), (ONES, 0, 0)]),
    "min.u64": ("ddd", [(HIGH64, 1, 1), (1 << 32, 1, 1)]),
    "max.u64": ("ddd", [(HIGH64, 1, HIGH64), (1 << 32, 1, 1 << 32)]),
    "max.s64": ("ddd", [(HIGH64, 1, 1)]),
    "setp.eq.s32": ("rrp", [(ONES, ONES, 1), (1, 2, 0)]),
    "setp.ne.b32": ("rrp", [(ONES, ONES, 0), (1, 2, 1)]),
    "setp.lt.u32": ("rrp", [(HIGH, 1, 0), (1, HIGH, 1), (1, 1, 0)]),
    "setp.lt.s32": ("rrp", [(HIGH, 1, 1), (1, HIGH, 0), (1, 1, 0)]),
    "setp.le.s32": ("rrp", [(HIGH, 1, 1), (1, 1, 1)]),
    "setp.gt.u32": ("rrp", [(HIGH, 1, 1), (1, HIGH, 0)]),
    "setp.gt.s32": ("rrp", [(HIGH, 1, 0), (1, HIGH, 1), (ONES, 0, 0)]),
    "setp.ge.u32": ("rrp", [(1, 1, 1), (0, ONES, 0)]),
    "setp.lo.u32": ("rrp", [(HIGH, 1, 0), (1, HIGH, 1)]),
    "setp.ls.u32": ("rrp", [(1, 1, 1), (HIGH, 1, 0)]),
    "setp.hi.u32": ("rrp", [(HIGH, 1, 1), (1, 1, 0)]),
    "setp.hs.u32": ("rrp", [(1, 1, 1), (0, 1, 0)]),
    "setp.lt.u64": ("ddp", [(HIGH64, 1, 0), (1, 1 << 32, 1)]),
    "setp.lt.s64": ("ddp", [(HIGH64, 1, 1)]),
    "setp.lt.s16": ("hhp", [(0x8000, 1, 1)]),
    "setp.gt.and.u32": ("rrpp", [(2, 1, 1, 1), (2, 1, 0, 0), (1, 2, 1, 0)]),
    "setp.eq.or.s32": ("rrpp", [(2, 1, 1, 1), (2, 1, 0, 0)]),
    "setp.eq.xor.s32": ("rrpp", [(1, 1, 1, 0), (1, 1, 0, 1)]),
    "selp.b32": ("rrpr", [(3, 4, 1, 3), (3, 4, 0, 4)]),
    "selp.u64": ("ddpd", [(ONES64, 4, 1, ONES64), (3, 4, 0, 4)]),
    "mov.b32": ("rr", [(ONES, ONES)]),
    "mov.u64": ("dd", [(ONES64, ONES64)]),
    "cvt.u32.u64": ("dr", [(0x123456789ABCDEF0, 0x9ABCDEF0)]),
    "cvt.u64.u32": ("rd", [(ONES, ONES)]),
    "cvt.s64.s32": ("rd", [(ONES, ONES64), (5, 5)]),
    "cvt.u64.s32": ("rd", [(ONES, ONES64)]),
    "cvt.s64.u32": ("rd", [(ONES, ONES)]),
    "cvt.u16.u32": ("rh", [(0x12345678, 0x5678)]),
    "cvt.u32.u16": ("hr", [(0xFFFF, 0xFFFF)]),
    "cvt.s32.s16": ("hr", [(0x8000, 0xFFFF8000)]),
    "cvt.u32.u8": ("rr", [(0x123456F8, 0xF8)]),
    "cvt.s32.s8": ("rr", [(0x123456F8, 0xFFFFFFF8), (0x78, 0x78)]),
    "cvt.u8.u32": ("rr", [(0x1234F678, 0x78)]),
    "cvt.sat.u8.s32": ("rr", [(ONES, 0), (300, 255), (77, 77)]),
    "cvt.sat.s8.s32": ("rr", [(0xFFFFFF00, 0xFFFFFF80), (300, 127)]),
    "cvt.sat.s32.u32": ("rr", [(ONES, 0x7FFFFFFF)]),
    "cvt.sat.u32.s64": ("dr", [(ONES64, 0), (1 << 40, ONES)]),
    "mul.f32": ("rrr", [(0x40000000, 0x40400000, 0x40C00000), (0x00000001, 0x3F000000, 0),
                        (0x80000003, 0x3F000000, 0x80000002), (0x7F800000, 0, 0x7FFFFFFF),
                        (0x3F800001, 0x3F800001, 0x3F800002)]),
    "div.rn.f32": ("rrr", [(0x3F800000, 0x40400000, 0x3EAAAAAB), (0, 0, 0x7FFFFFFF),
                           (0x3F800000, HIGH, 0xFF800000), (0x00000003, 0x40000000, 0x00000002)]),
    "div.rn.f64": ("ddd", [(0x3FF0000000000000, 0x4008000000000000, 0x3FD5555555555555)]),
    "rcp.rn.f32": ("rr", [(0x40400000, 0x3EAAAAAB), (0x7F000000, 0x00400000), (HIGH, 0xFF800000)]),
    "copysign.f32": ("rrr", [(HIGH, 0x3F800000, 0xBF800000), (1, 0xFF800000, 0x7F800000)]),
    "cvt.f64.f32": ("rd", [(0x3F800000, 0x3FF0000000000000), (1, 0x36A0000000000000)]),
    "cvt.rn.f32.f64": ("dr", [(0x3FD5555555555555, 0x3EAAAAAB), (0x36A0000000000000, 1),
                              (0x7FEFFFFFFFFFFFFF, 0x7F800000)]),
    "setp.lt.f64": ("ddp", [(0x3FF0000000000000, 0x4008000000000000, 1), (ONES64, 0, 0),
                            (HIGH64, 0, 0)]),
    "selp.f64": ("ddpd", [(ONES64, 4, 1, ONES64), (3, 4, 0, 4)]),
    "cvt.rn.f32.u32": ("rr", [(1, 0x3F800000), (0x1000001, 0x4B800000), (0x1000003, 0x4B800002),
                              (ONES, 0x4F800000), (0x7FFFFF, 0x4AFFFFFE)]),
    "cvt.rn.f32.s32": ("rr", [(ONES, 0xBF800000), (HIGH, 0xCF000000)]),
}  # fmt: skip

BITS = {"h": 16, "r": 32, "d": 64, "p": 1}

#: One by one: an opcode and the number of its row.
ROWS = [(opcode, i) for opcode, (_, rows) in CASES.items() for i in range(len(rows))]

#: Registers by letter: `a` are operands, `z` the result; predicates come and go as numbers.
DECLARED = """
    .reg .pred %pa<9>; .reg .pred %pz;
    .reg .b16 %ha<9>; .reg .b16 %hz;
    .reg .b32 %ra<9>; .reg .b32 %rz; .reg .f32 %fz;
    .reg .b64 %da<9>; .reg .b64 %dz;
"""


def operation(opcode: str, letters: str, row: tuple[int, ...]) -> str:
    """The instruction between operands in registers a0, ... and the result in z."""
    given = [str(row[i]) if c == "I" else f"%{c}a{i}" for i, c in enumerate(letters[:-1])]
    z = letters[-1]
    if ".f32." in opcode and not opcode.endswith("f64"):
        return f"{opcode} %fz, {', '.join(given)}; mov.b32 %rz, %fz;"
    return f"{opcode} %{z}z, {', '.join(given)};"


def snippet(opcode: str, index: int, name: str = "f") -> str:
    """A function whose arguments are an opcode's operands."""
    letters, row = CASES[opcode][0], CASES[opcode][1][index]
    bits = [max(BITS[c], 32) if c != "h" else 16 for c in letters if c != "I"]
    parameters = ", ".join(f".param .b{b} {name}_{i}" for i, b in enumerate(bits[:-1]))
    lines = []
    for i, c in enumerate(c for c in letters[:-1] if c != "I"):
        register = f"%ra{i}" if c == "p" else f"%{c}a{i}"
        lines.append(f"ld.param.u{bits[i]} {register}, [{name}_{i}];")
        if c == "p":
            lines.append(f"setp.ne.s32 %pa{i}, %ra{i}, 0;")
    lines.append(operation(opcode, letters, row))
    if letters[-1] == "p":
        lines.append("selp.u32 %rz, 1, 0, %pz;")
    z = letters[-1].replace("p", "r")
    lines.append(f"st.param.b{bits[-1]} [result+0], %{z}z;")
    return function("\n    ".join(lines), parameters, bits[-1], name)


def function(body: str, parameters: str, bits: int = 32, name: str = "f") -> str:
    """A whole function of a body that keeps its result."""
    head = f".visible .func (.param .b{bits} result) {name}({parameters})"
    return f"{head}\n{{{DECLARED}    {body}\n    ret;\n}}\n"
