"""Arrays of any shape, stride and byte order, and where the results may go."""

from __future__ import annotations

import numpy as np
import pytest
from second_algorithm import second_codes, second_round
from support import assert_same_bits, wide_range

import fpemu
from fpemu.cast import Cast

BASE = wide_range(24 * 35, seed=5)


def read_only(x: np.ndarray) -> np.ndarray:
    x = x.copy()
    x.flags.writeable = False
    return x


LAYOUTS = {
    "contiguous": BASE,
    "matrix": BASE.reshape(24, 35),
    "fortran": np.asfortranarray(BASE.reshape(24, 35)),
    "transposed 3-d": BASE.reshape(4, 6, 35).transpose(2, 0, 1),
    "strided": BASE[::3],
    "negative strides": BASE[::-1],
    "negative strides 2-d": BASE.reshape(24, 35)[::-1, ::-2],
    "columns": BASE.reshape(24, 35)[:, 3:9],
    "broadcast": np.broadcast_to(BASE[:35], (7, 35)),
    "broadcast inside": np.broadcast_to(BASE[:24, None], (24, 5)),
    "0-d": np.array(BASE[3]),
    "empty": BASE[:0],
    "empty 2-d": np.empty((0, 5), np.float32),
    "empty inside": np.empty((3, 0, 2), np.float32),
    "one": BASE[5:6],
    "one of a stride": BASE[::800][:1],
    "ones": BASE[:4].reshape(1, 4, 1),
    "read-only": read_only(BASE),
    "unaligned": np.frombuffer(b"x" + BASE.tobytes(), np.uint8)[1:].view(np.float32),
    "big-endian": BASE.astype(">f4"),
    "field": np.rec.fromarrays([BASE, BASE], names="a,b")["a"],
}


def native(x: np.ndarray) -> np.ndarray:
    return np.array(x, x.dtype.newbyteorder("="), order="C", copy=True)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("width", [32, 64])
def test_layouts(layout, width):
    x = LAYOUTS[layout]
    if width == 64:
        with np.errstate(invalid="ignore"):
            x = x.astype(x.dtype.str.replace("4", "8"), copy=False)
    before = x.tobytes()
    want = second_round(Cast("e4m3fn"), native(x).reshape(-1)).reshape(x.shape)
    got = fpemu.round(x, "e4m3fn")
    assert isinstance(got, np.ndarray)
    assert got.dtype.isnative
    assert_same_bits(got, want, native(x), layout)
    assert got.flags.writeable
    assert not np.shares_memory(got, x)
    assert x.tobytes() == before
    codes = second_codes(Cast("e4m3fn"), native(x).reshape(-1)).reshape(x.shape)
    assert_same_bits(fpemu.encode(x, "e4m3fn"), codes.astype(np.uint8), native(x), layout)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_of_out(layout):
    """Any array of the right shape and dtype may be written to, in any layout."""
    x = np.ascontiguousarray(native(LAYOUTS[layout]).reshape(LAYOUTS[layout].shape))
    want = fpemu.round(x, "e4m3fn")
    outs = [np.empty(x.shape, np.float32), np.empty(x.shape, np.float32, order="F")]
    double = np.empty((*x.shape, 2), np.float32)
    outs += [double[..., 1]]
    for out in outs:
        assert fpemu.round(x, "e4m3fn", out=out) is out
        assert_same_bits(np.array(out), want, x, layout)
    codes = np.empty((*x.shape, 2), np.uint8)[..., 1]
    assert fpemu.encode(x, "e4m3fn", out=codes) is codes
    assert_same_bits(np.array(codes), fpemu.encode(x, "e4m3fn"), x, layout)


@pytest.mark.parametrize("layout", [k for k in LAYOUTS if "broadcast" not in k
                                    and k not in ("read-only", "big-endian", "unaligned")])
def test_out_may_be_x_itself(layout):  # fmt: skip
    x = LAYOUTS[layout]
    mine = np.empty_like(x)
    mine[...] = x
    if layout == "columns":  # a view again, not its copy
        mine = BASE.copy().reshape(24, 35)[:, 3:9]
    want = fpemu.round(mine, "e4m3fn")
    assert fpemu.round(mine, "e4m3fn", out=mine) is mine
    assert_same_bits(np.array(mine), want, x, layout)


def test_decode_takes_every_layout():
    codes = np.arange(256, dtype=np.uint8)
    want = fpemu.values("e4m3fn")
    for view in (codes, codes[::-1], codes[::3], codes.reshape(16, 16).T, codes[:0]):
        assert_same_bits(fpemu.decode(view, "e4m3fn"), want[view], view)
    for dtype in (np.uint16, np.int64, np.int8, ">u4"):
        few = codes[:100].astype(dtype)
        assert_same_bits(fpemu.decode(few, "e4m3fn"), want[:100], few)
    assert_same_bits(fpemu.decode(codes.reshape(2, 128), "e4m3fn"), want.reshape(2, 128))


def test_memory_order_of_the_result_follows_x():
    x = np.asfortranarray(BASE.reshape(24, 35))
    assert fpemu.round(x, "fp16").flags.f_contiguous
    assert fpemu.round(x.T, "fp16").flags.c_contiguous
