"""Codes narrower than a byte, side by side: against numpy's own packbits, there and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fpemu
from fpemu.errors import InputError
from fpemu.testing import assert_same_bits

Array = np.ndarray[Any, Any]

NARROW = ["fp4", "e2m3", "e3m2", "binary3p2se", "binary5p3sf", "binary7p3ue", "binary4p2uf"]


def by_packbits(codes: Array, bits: int) -> Array:
    """The codes' own bits, least significant first, eight to a byte."""
    single = np.unpackbits(codes[..., None], axis=-1, bitorder="little")[..., :bits]
    return np.packbits(single.reshape(*codes.shape[:-1], -1), axis=-1, bitorder="little")


@pytest.mark.parametrize("name", NARROW)
def test_packed_codes_are_their_bits_in_order(name: str) -> None:
    form = fpemu.finfo(name)
    x = np.float32(np.random.default_rng(0).standard_normal((3, 5, 56 * 8)) * form.max / 3)
    x = x if form.signed else np.abs(x)
    packed = fpemu.encode(x, name, packed=True)
    assert packed.dtype == np.uint8
    assert packed.shape == (3, 5, 56 * form.bits)
    assert np.array_equal(packed, by_packbits(fpemu.encode(x, name), form.bits))
    assert_same_bits(fpemu.decode(packed, name, packed=True), fpemu.round(x, name))


def test_two_fp4_fill_a_byte_and_four_fp6_three() -> None:
    assert fpemu.encode(np.float32([0.5, -6]), "fp4", packed=True).tolist() == [0xF1]
    assert fpemu.encode(np.float32([7.5, 0, 0, 0]), "e2m3", packed=True).tolist() == [0x1F, 0, 0]
    assert fpemu.encode(np.float32([]), "fp4", packed=True).shape == (0,)


def test_out_takes_packed_codes() -> None:
    x = np.float32([[1, 2, 3, 4]])
    out = np.zeros((1, 2), np.uint8)
    assert fpemu.encode(x, "fp4", packed=True, out=out) is out
    assert np.array_equal(out, fpemu.encode(x, "fp4", packed=True))
    with pytest.raises(InputError, match=r"out of shape \(4,\): packed codes are uint8"):
        fpemu.encode(x, "fp4", packed=True, out=np.zeros(4, np.uint8))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: fpemu.encode(np.ones(3, np.float32), "fp4", packed=True), "multiple of 2"),
        (lambda: fpemu.encode(np.float32(1), "fp4", packed=True), "no codes"),
        (lambda: fpemu.encode(np.ones(6, np.float32), "e3m2", packed=True), "multiple of 4"),
        (lambda: fpemu.encode(np.ones(8, np.float32), "e5m2", packed=True), "has 8 bits: only"),
        (lambda: fpemu.decode(np.zeros(4, np.uint8), "e3m2", packed=True), "multiple of 3 bytes"),
        (lambda: fpemu.decode(np.zeros(3, np.uint16), "e3m2", packed=True), "must be uint8"),
    ],
)
def test_what_does_not_fill_bytes_is_refused(call: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        call()
