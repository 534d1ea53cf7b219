"""What the CUDA kernels of scaled blocks do to one number, a group of them, and a scale."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from fpemu.cast import Cast
from fpemu.kernels.cuda import decode_body as body_of_codes
from fpemu.kernels.cuda import special_body
from fpemu.kernels.cuda_intrinsics import arithmetic, float_bits
from fpemu.kernels.cuda_target import inner
from fpemu.kernels.element import (
    BookFacts,
    ElementBodies,
    ElementFacts,
    FloatFacts,
    IntegerFacts,
    build_book,
    build_integer,
)
from fpemu.kernels.params import codes_of, params_of
from fpemu.kernels.scale import ScaleFacts, build_kept, build_scale

__all__ = ["Work", "element_bodies", "group_body", "kept_body", "number_body", "scale_body"]

Loop = Callable[..., Any]

U = np.uint32
L = np.uint64

_MAGNITUDE, _SIGN = U(0x7FFFFFFF), U(0x80000000)


class Work(NamedTuple):
    """What is done to each number once its block's factors are known."""

    verb: str  #: "round", "encode" or "decode"
    element: ElementFacts
    divides_first: bool  #: by the factor, before the element
    divides: bool  #: by the factor, after it


@cache
def element_bodies(element: ElementFacts) -> ElementBodies:
    """Return an element's bodies, compiled for CUDA."""
    if isinstance(element, IntegerFacts):
        return build_integer(element, arithmetic().times, float_bits(), inner)
    if isinstance(element, BookFacts):
        return build_book(element, inner)
    p = params_of(element.cast, 32, element.random_bits)
    words = special_body("round", 32, p.grid, p.values, p.shape)
    codes = special_body("encode", 32, p.grid, p.codes, p.shape)
    values = body_of_codes(32, codes_of(element.cast.format, 32))
    drawn = _drawn if p.shape.stochastic else _undrawn
    return ElementBodies(drawn(words), drawn(codes), _undrawn(values))


def _undrawn(one: Loop) -> Loop:
    none, keys = U(0), (L(0),) * 6

    def body(x, n, table):  # type: ignore[no-untyped-def]
        return U(one(x, n, none, keys, none))

    return inner(body)


def _drawn(one: Loop) -> Loop:
    """With random bits; table: three keys for each 2^32 numbers."""
    none = U(0)

    def body(x, n, table):  # type: ignore[no-untyped-def]
        at = U(U(L(n >> L(32))) * U(3))
        k0, k1, k2 = L(table[at]), L(table[U(at + U(1))]), L(table[U(at + U(2))])
        keys = (k0, k1, k2, k0, k0, k0)
        return U(one(x, U(L(n & L(0xFFFFFFFF))), none, keys, none))

    return inner(body)


@cache
def number_body(work: Work) -> Loop:
    """Return one(v, n, encode, decode, table): a number's result."""
    bodies = element_bodies(work.element)
    times, over = arithmetic().times, arithmetic().over
    before = over if work.divides_first else times
    after = over if work.divides else times
    round_body, encode_body, decode_body = bodies

    def scaled(v, encode):  # type: ignore[no-untyped-def]
        # NaN keeps the number's sign, which a device's arithmetic drops
        return U(U(U(before(v, encode)) & _MAGNITUDE) | U(v & _SIGN))

    share = inner(scaled)

    def rounded(v, n, encode, decode, table):  # type: ignore[no-untyped-def]
        return U(after(U(round_body(share(v, encode), n, table)), decode))

    def encoded(v, n, encode, decode, table):  # type: ignore[no-untyped-def]
        return U(encode_body(share(v, encode), n, table))

    def decoded(v, n, encode, decode, table):  # type: ignore[no-untyped-def]
        return U(after(U(decode_body(U(v), n, table)), decode))

    return inner({"round": rounded, "encode": encoded, "decode": decoded}[work.verb])


@cache
def group_body(work: Work, group: int) -> Loop:
    """Return many(values, n, encode, decode, table): a group's results."""
    one = number_body(work)

    def four(v, n, encode, decode, table):  # type: ignore[no-untyped-def]
        return (
            one(v[0], n, encode, decode, table),
            one(v[1], L(n + L(1)), encode, decode, table),
            one(v[2], L(n + L(2)), encode, decode, table),
            one(v[3], L(n + L(3)), encode, decode, table),
        )

    def single(v, n, encode, decode, table):  # type: ignore[no-untyped-def]
        return (one(v[0], n, encode, decode, table),)

    return inner({4: four, 1: single}[group])


@cache
def scale_body(scale: ScaleFacts) -> Loop:
    """Return scale(amax, whole) -> (encode, decode, stored), compiled for CUDA."""
    return build_scale(scale, arithmetic(), _e4m3(), inner)


@cache
def kept_body(scale: ScaleFacts) -> Loop:
    """Return kept(stored, whole) -> decode, compiled for CUDA."""
    return build_kept(scale, arithmetic(), _e4m3(), inner)


@cache
def _e4m3() -> tuple[Loop, Loop]:
    """encode and decode of the scales of blocks in E4M3."""
    bodies = element_bodies(FloatFacts(Cast.from_str("float8_e4m3fn:overflow=saturate")))
    encode_body, decode_body, none = bodies.encode, bodies.decode, (U(0),)

    def encode(x):  # type: ignore[no-untyped-def]
        return encode_body(x, L(0), none)

    def decode(code):  # type: ignore[no-untyped-def]
        return decode_body(code, L(0), none)

    return inner(encode), inner(decode)
