"""The PTX interpreter on hand-written snippets, on branches, and on what it must refuse."""

from __future__ import annotations

import numpy as np
import ptx_operations
import pytest
from ptx_cases import CASES, ROWS, function, snippet
from ptx_interpreter import UnknownPtx, parse


@pytest.mark.parametrize(("opcode", "index"), ROWS)
def test_edge_cases(opcode, index):
    letters, rows = CASES[opcode]
    *given, want = rows[index]
    given = [v for v, c in zip(given, letters, strict=False) if c != "I"]
    got = parse(snippet(opcode, index)).run(*given)
    assert got.shape == (1,)
    assert int(got[0]) == want, f"{opcode} {given}: {int(got[0]):#x}, want {want:#x}"


def test_lanes_are_those_of_single_runs():
    """Some more lanes than a block has, every opcode; the lanes repeat an opcode's rows."""
    for opcode, (letters, rows) in CASES.items():
        if "I" in letters:
            continue
        index = np.arange(8200) % len(rows)
        columns = [np.array(column, np.uint64)[index] for column in zip(*rows, strict=True)]
        got = parse(snippet(opcode, 0)).run(*columns[:-1])
        np.testing.assert_array_equal(got.astype(np.uint64), columns[-1].astype(np.uint64), opcode)


def test_every_known_opcode_has_a_case():
    assert {opcode.split(".")[0] for opcode in CASES} == set(ptx_operations._MAKERS)


# --- control flow ------------------------------------------------------------------------------

ONE = ".param .b32 f_0"
LOAD = "ld.param.u32 %ra0, [f_0]; setp.lt.u32 %pa0, %ra0, 10;"
KEEP = "st.param.b32 [result+0], %rz;"


def test_a_guard_leaves_other_lanes_as_they_were():
    f = parse(function(f"""{LOAD} mov.u32 %rz, 7;
        @%pa0 mov.u32 %rz, 1; @!%pa0 add.s32 %rz, %rz, 1; {KEEP}""", ONE))  # fmt: skip
    assert f.run(np.array([3, 30])).tolist() == [1, 8]


def test_branches_forwards():
    """If and else, and a second branch inside the first."""
    f = parse(function(f"""{LOAD} mov.u32 %rz, 0;
        @%pa0 bra $small;
        add.s32 %rz, %rz, 100;
        setp.gt.u32 %pa1, %ra0, 20;
        @%pa1 bra $end;
        add.s32 %rz, %rz, 50;
        bra.uni $end;
        $small: add.s32 %rz, %rz, 1;
        $end: add.s32 %rz, %rz, 1000; {KEEP}""", ONE))  # fmt: skip
    assert f.run(np.array([3, 15, 30])).tolist() == [1001, 1150, 1100]
    assert f.run(np.array([3])).tolist() == [1001]
    assert f.run(np.array([30])).tolist() == [1100]


def test_lanes_may_return_early():
    f = parse(function(f"{LOAD} mov.u32 %rz, 1; {KEEP} @%pa0 ret; mov.u32 %rz, 2; {KEEP}", ONE))
    assert f.run(np.array([3, 30])).tolist() == [1, 2]


def test_both_predicates_of_a_comparison():
    f = parse(function(f"""{LOAD} setp.gt.and.u32 %pa1|%pa2, %ra0, 5, %pa0;
        selp.u32 %ra1, 1, 0, %pa1; selp.u32 %ra2, 2, 0, %pa2; add.s32 %rz, %ra1, %ra2;
        {KEEP}""", ONE))  # fmt: skip
    assert f.run(np.array([3, 7, 12])).tolist() == [2, 1, 0]


def test_words_are_packed_and_unpacked():
    f = parse(function(f"""{LOAD} mov.b64 %da0, {{%ra0, 5}}; add.s64 %da0, %da0, 1;
        mov.b64 {{%ra1, %ra2}}, %da0; sub.s32 %rz, %ra2, %ra1; {KEEP}""", ONE))  # fmt: skip
    assert f.run(np.array([3, 0xFFFFFFFF])).tolist() == [1, 6]


def test_numbers_in_all_spellings():
    f = parse(function(f"""mov.u32 %ra0, 0x10; add.s32 %ra0, %ra0, -1; mov.f32 %fz, 0f3F800000;
        mov.b32 %ra1, %fz; add.s32 %rz, %ra0, %ra1; {KEEP}""", ""))  # fmt: skip
    assert f.run().tolist() == [0x3F80000F]


# --- what is refused ---------------------------------------------------------------------------

REFUSED = {
    "opcode": "popcount.b32 %rz, %ra0;",
    "modifier": "add.sat.s32 %rz, %ra0, 1;",
    "type": "add.f32 %fz, %fz, %fz;",
    "signed name of an unsigned order": "setp.lo.s32 %pz, %ra0, 1;",
    "order of bits": "setp.lt.b32 %pz, %ra0, 1;",
    "rounding": "cvt.rz.f32.u32 %fz, %ra0;",
    "conversion from a float": "cvt.rni.u32.f32 %rz, %fz;",
    "call": "call.uni (%rz), g, (%ra0);",
    "memory": "ld.global.u32 %rz, [%da0];",
    "no value": "add.s32 %rz, %ra0, %ra5;",
    "no declaration": "add.s32 %rz, %ra0, %xyz;",
    "special register": "mov.u32 %rz, %tid.x;",
    "width": "add.s64 %dz, %ra0, 1;",
    "width of the result": "add.s32 %dz, %ra0, 1;",
    "too few operands": "add.s32 %rz, %ra0;",
    "too many operands": "add.s32 %rz, %ra0, %ra0, %ra0;",
    "predicate as a word": "add.s32 %rz, %ra0, %pa0;",
    "word as a guard": "@%ra0 mov.u32 %rz, 1;",
    "branch backwards": "$again: @%pa0 bra $again;",
    "branch to nowhere": "bra $nowhere;",
    "return without a result": "@%pa0 ret;",
    "scope": "{ mov.u32 %rz, 1; }",
}


@pytest.mark.parametrize("line", REFUSED.values(), ids=REFUSED)
def test_what_is_not_known_is_refused(line):
    with pytest.raises(UnknownPtx):
        parse(function(f"{LOAD} {line} mov.u32 %rz, 0; {KEEP}", ONE)).run(np.array([3, 30]))


def test_the_error_names_the_opcode():
    with pytest.raises(UnknownPtx, match=r"vabsdiff4\.u32\.u32\.u32"):
        parse(function("vabsdiff4.u32.u32.u32 %rz, %ra0, %ra0, %ra0;", ONE))
