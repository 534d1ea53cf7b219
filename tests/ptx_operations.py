"""What PTX instructions do, from the PTX ISA: opcode -> the types of its operands and a function.

Signed types come and go as signed arrays, all others as unsigned ones, predicates as bool.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Operation", "UnknownPtx", "operation_of", "raw", "width_of"]

Array = np.ndarray[Any, Any]


class UnknownPtx(AssertionError):
    """PTX that is not known here; whatever was tested fails."""


class Operation(NamedTuple):
    """An instruction's operand types, and what it does to arrays of them."""

    writes: tuple[str, ...]
    reads: tuple[str, ...]
    run: Callable[..., Any]
    loose: bool = False  #: registers may be wider than the types


def width_of(kind: str) -> int:
    """Bits of a PTX type."""
    if kind == "pred":
        return 1
    if kind[:1] not in "busf" or kind[1:] not in ("8", "16", "32", "64"):
        raise UnknownPtx(f"type .{kind}")
    return int(kind[1:])


def raw(value: Array, bits: int) -> Array:
    """The bits of an array of any type, as unsigned words or bools."""
    if bits == 1:
        return value
    if value.itemsize * 8 != bits:
        raise UnknownPtx(f"{value.dtype} is not {bits} bits")
    return value.view(f"u{bits // 8}")


@lru_cache(maxsize=1024)
def operation_of(opcode: str) -> Operation:
    """Return what an opcode with all its modifiers does."""
    name, *modifiers = opcode.split(".")
    if name not in _MAKERS:
        raise UnknownPtx(f"opcode {opcode}")
    made: Operation | None = _MAKERS[name](*modifiers) if modifiers else None
    if made is None:
        raise UnknownPtx(f"modifier of {opcode}")
    return made


# --- types -------------------------------------------------------------------------------------

_UNSIGNED, _SIGNED = ("u16", "u32", "u64"), ("s16", "s32", "s64")
_INTEGER = _UNSIGNED + _SIGNED
_BITS = ("b16", "b32", "b64")


def _dtype(kind: str) -> Any:
    return np.dtype(f"{'i' if kind[0] == 's' else 'u'}{width_of(kind) // 8}")


def _constant(value: int, dtype: Any) -> Array:
    """One lane: NumPy's scalars warn where words wrap, arrays do not."""
    return np.array([value], dtype)


def _one_of(kinds: tuple[str, ...], count: int, run: Callable[..., Any]) -> Any:
    """Operations of one type: opcode.type d, a, ..."""

    def make(*modifiers: str) -> Operation | None:
        if len(modifiers) != 1 or modifiers[0] not in kinds:
            return None
        return Operation(modifiers, modifiers * count, run)

    return make


# --- shifts and fields -------------------------------------------------------------------------


def shift_left(a: Array, amount: Array) -> Array:
    """Amounts beyond the width give 0."""
    width = 8 * a.itemsize
    return np.where(amount < width, a << np.minimum(amount, width - 1).astype(a.dtype), a ^ a)


def shift_right(a: Array, amount: Array) -> Array:
    """Amounts beyond the width give 0, or copies of the sign."""
    width = 8 * a.itemsize
    nothing = a >> a.dtype.type(width - 1) if a.dtype.kind == "i" else a ^ a
    return np.where(amount < width, a >> np.minimum(amount, width - 1).astype(a.dtype), nothing)


def _shift(kinds: tuple[str, ...], run: Callable[..., Any]) -> Any:
    def make(*modifiers: str) -> Operation | None:
        if len(modifiers) != 1 or modifiers[0] not in kinds:
            return None
        return Operation(modifiers, (modifiers[0], "u32"), run)

    return make


def _funnel(*modifiers: str) -> Operation | None:
    """shf: the 64 bits {b, a} shifted; .l gives the high word, .r the low one."""
    if len(modifiers) != 3 or modifiers[2] != "b32":
        return None
    side, mode = modifiers[:2]
    if side not in ("l", "r") or mode not in ("clamp", "wrap"):
        return None

    def run(a: Array, b: Array, c: Array) -> Array:
        n = (np.minimum(c, 32) if mode == "clamp" else c & np.uint32(31)).astype(np.uint64)
        both = b.astype(np.uint64) << np.uint64(32) | a
        moved = both << n >> np.uint64(32) if side == "l" else both >> n
        return (moved & np.uint64(0xFFFFFFFF)).astype(np.uint32)

    return Operation(("b32",), ("b32", "b32", "u32"), run)


def _low_mask(length: Array, dtype: Any) -> Array:
    """That many ones, at most a word's."""
    return ~shift_left(_constant(-1 % (1 << 8 * dtype.itemsize), dtype), length)


def extract(a: Array, position: Array, length: Array) -> Array:
    """bfe: bits beyond the word, and beyond the field, are copies of the field's top bit."""
    position, length = position & np.uint32(0xFF), length & np.uint32(0xFF)
    word = raw(a, 8 * a.itemsize)
    width = np.uint32(8 * a.itemsize)
    field = shift_right(word, position) & _low_mask(length, word.dtype)
    if a.dtype.kind == "u":
        return field
    top = np.minimum(position + length - np.minimum(length, 1), width - np.uint32(1))
    sign = (shift_right(word, top) & word.dtype.type(1)).astype(bool) & (length > 0)
    there = np.where(position < width, np.minimum(length, width - np.minimum(position, width)), 0)
    filled = field | ~_low_mask(there.astype(np.uint32), word.dtype)
    return np.where(sign, filled, field).view(a.dtype)


def insert(a: Array, b: Array, position: Array, length: Array) -> Array:
    """bfi: the low bits of a put into b."""
    position, length = position & np.uint32(0xFF), length & np.uint32(0xFF)
    mask = shift_left(_low_mask(length, a.dtype), position)
    return shift_left(a, position) & mask | b & ~mask


def _field(kinds: tuple[str, ...], words: int, run: Callable[..., Any]) -> Any:
    def make(*modifiers: str) -> Operation | None:
        if len(modifiers) != 1 or modifiers[0] not in kinds:
            return None
        return Operation(modifiers, modifiers * words + ("u32", "u32"), run)

    return make


# --- bits --------------------------------------------------------------------------------------


def leading_zeros(a: Array) -> Array:
    """clz, by halves; the width for 0."""
    width = 8 * a.itemsize
    count, rest, half = np.zeros(a.shape, np.uint32), a, width // 2
    while half:
        high = rest >> a.dtype.type(half)
        found = high != 0
        count = count + np.where(found, np.uint32(0), np.uint32(half))
        rest = np.where(found, high, rest)
        half //= 2
    return count + (rest == 0)


def _counted(run: Callable[[Array], Array]) -> Any:
    def make(*modifiers: str) -> Operation | None:
        return Operation(("u32",), modifiers, run) if modifiers in (("b32",), ("b64",)) else None

    return make


def reverse(a: Array) -> Array:
    """brev."""
    width, found = 8 * a.itemsize, a ^ a
    for bit in range(width):
        found |= (a >> a.dtype.type(bit) & a.dtype.type(1)) << a.dtype.type(width - 1 - bit)
    return found


def permute(a: Array, b: Array, selector: Array) -> Array:
    """prmt: bytes of {b, a} by the nibbles of a selector, whose fourth bit copies the sign."""
    both = b.astype(np.uint64) << np.uint64(32) | a
    found = np.zeros(1, np.uint64)
    for i in range(4):
        nibble = (selector >> np.uint32(4 * i) & np.uint32(0xF)).astype(np.uint64)
        byte = both >> (np.uint64(8) * (nibble & np.uint64(7))) & np.uint64(0xFF)
        sign = np.where(byte & np.uint64(0x80), np.uint64(0xFF), np.uint64(0))
        byte = np.where(nibble & np.uint64(8), sign, byte)
        found = found | byte << np.uint64(8 * i)
    return found.astype(np.uint32)


def look_up(a: Array, b: Array, c: Array, table: Array) -> Array:
    """lop3: any function of three bits, by its table of eight."""
    found = a ^ a
    for i in range(8):
        term = (a if i & 4 else ~a) & (b if i & 2 else ~b) & (c if i & 1 else ~c)
        found = found | np.where(table >> np.uint32(i) & np.uint32(1), term, a ^ a)
    return found


def _permute(*modifiers: str) -> Operation | None:
    return Operation(("b32",), ("b32",) * 3, permute) if modifiers == ("b32",) else None


def _look_up(*modifiers: str) -> Operation | None:
    reads = ("b32", "b32", "b32", "u32")
    return Operation(("b32",), reads, look_up) if modifiers == ("b32",) else None


# --- products ----------------------------------------------------------------------------------


def _wide(a: Array, b: Array) -> Array:
    twice = np.dtype(f"{a.dtype.kind}{2 * a.itemsize}")
    return a.astype(twice) * b.astype(twice)


def high_product(a: Array, b: Array) -> Array:
    """The upper half of a product of twice the width."""
    if a.itemsize < 8:
        return (_wide(a, b) >> (8 * a.itemsize)).astype(a.dtype)
    x, y = (v.view(np.uint64) for v in np.broadcast_arrays(a.copy(), b.copy()))
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    x0, x1, y0, y1 = x & low, x >> half, y & low, y >> half
    middle = x1 * y0 + (x0 * y0 >> half)
    cross = x0 * y1 + (middle & low)
    high = x1 * y1 + (middle >> half) + (cross >> half)
    if a.dtype.kind == "i":  # a negative factor was taken 2**64 too large
        high = high - np.where(a < 0, y, np.uint64(0)) - np.where(b < 0, x, np.uint64(0))
    return high.view(a.dtype)


_PRODUCTS: dict[str, Callable[[Array, Array], Array]] = {
    "lo": operator.mul,
    "hi": high_product,
    "wide": _wide,
}


def _multiply(*modifiers: str, added: bool = False) -> Operation | None:
    if modifiers == ("f32",) and not added:
        return Operation(modifiers, modifiers * 2, _rounded_once(operator.mul))
    if len(modifiers) != 2 or modifiers[0] not in _PRODUCTS or modifiers[1] not in _INTEGER:
        return None
    (part, kind), product = modifiers, _PRODUCTS[modifiers[0]]
    if part == "wide" and width_of(kind) == 64:
        return None
    result = f"{kind[0]}{2 * width_of(kind)}" if part == "wide" else kind
    if added:
        return Operation((result,), (kind, kind, result), lambda a, b, c: product(a, b) + c)
    return Operation((result,), (kind, kind), product)


def _multiply_add(*modifiers: str) -> Operation | None:
    return _multiply(*modifiers, added=True)


# --- floats ------------------------------------------------------------------------------------


def _rounded_once(run: Callable[..., Array]) -> Callable[..., Array]:
    """An operation of IEEE 754 to nearest; every NaN is the same."""

    def rounded(*values: Array) -> Array:
        with np.errstate(all="ignore"):
            found = run(*values)
        words = found.view(f"u{found.itemsize}")
        words[np.isnan(found)] = np.iinfo(words.dtype).max >> 1
        return found

    return rounded


def _divide(*modifiers: str) -> Operation | None:
    if modifiers not in (("rn", "f32"), ("rn", "f64")):
        return None
    return Operation(modifiers[1:], modifiers[1:] * 2, _rounded_once(operator.truediv))


def _reciprocal(*modifiers: str) -> Operation | None:
    if modifiers != ("rn", "f32"):
        return None
    return Operation(("f32",), ("f32",), _rounded_once(lambda a: np.float32(1) / a))


def _copy_sign(*modifiers: str) -> Operation | None:
    """copysign: the sign of a, the magnitude of b."""
    if modifiers != ("f32",):
        return None
    return Operation(("f32",), ("f32", "f32"), lambda a, b: np.copysign(b, a))


# --- comparisons -------------------------------------------------------------------------------

_EQUAL: dict[str, Any] = {"eq": operator.eq, "ne": operator.ne}
_ORDER: dict[str, Any] = {n: getattr(operator, n) for n in ("lt", "le", "gt", "ge")}
_SAME_ORDER = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}  # names for unsigned types
_JOIN: dict[str, Any] = {"and": operator.and_, "or": operator.or_, "xor": operator.xor}


def _comparison(name: str, kind: str) -> Any:
    if kind in _BITS:
        return _EQUAL.get(name)
    if kind == "f64" and name == "lt":
        return operator.lt
    if name in _SAME_ORDER:
        return _ORDER[_SAME_ORDER[name]] if kind in _UNSIGNED else None
    return {**_EQUAL, **_ORDER}.get(name) if kind in _INTEGER else None


def _set_predicate(*modifiers: str) -> Operation | None:
    """setp: p, and q with the comparison turned round."""
    if len(modifiers) not in (2, 3):
        return None
    compare = _comparison(modifiers[0], modifiers[-1])
    join = _JOIN.get(modifiers[1]) if len(modifiers) == 3 else lambda found, _: found
    if compare is None or join is None:
        return None

    def run(a: Array, b: Array, c: Any = None) -> tuple[Array, Array]:
        found = compare(a, b)
        return join(found, c), join(~found, c)

    reads = (modifiers[-1],) * 2 + ("pred",) * (len(modifiers) - 2)
    return Operation(("pred", "pred"), reads, run)


def _select(*modifiers: str) -> Operation | None:
    if len(modifiers) != 1 or modifiers[0] not in (*_BITS, *_INTEGER, "f32", "f64"):
        return None
    kind = modifiers[0]
    return Operation((kind,), (kind, kind, "pred"), lambda a, b, p: np.where(p, a, b))


# --- conversions -------------------------------------------------------------------------------


def _convert(*modifiers: str) -> Operation | None:
    """cvt between integers, saturating or not, from 32-bit integers to float32, and of floats."""
    *how, to, source = modifiers
    if modifiers in (("f64", "f32"), ("rn", "f32", "f64")):
        dtype = np.dtype(f"f{width_of(to) // 8}")
        return Operation((to,), (source,), _rounded_once(lambda a: a.astype(dtype)))
    if source not in (*_INTEGER, "u8", "s8"):
        return None
    if to == "f32":
        if how != ["rn"] or source not in ("u32", "s32"):
            return None
        return Operation(("f32",), (source,), lambda a: a.astype(np.float32))
    if to not in (*_INTEGER, "u8", "s8") or how not in ([], ["sat"]):
        return None
    dtype = _dtype(to)
    if not how:
        return Operation((to,), (source,), lambda a: a.astype(dtype), loose=True)
    low, high = (max(np.iinfo(dtype).min, np.iinfo(_dtype(source)).min),
                 min(np.iinfo(dtype).max, np.iinfo(_dtype(source)).max))  # fmt: skip
    return Operation((to,), (source,), lambda a: a.clip(low, high).astype(dtype), loose=True)


# --- the table ---------------------------------------------------------------------------------

_LOGIC = ("pred", *_BITS)
_ANY = (*_LOGIC, *_INTEGER, "f32", "f64")

_MAKERS: dict[str, Callable[..., Operation | None]] = {
    "mov": _one_of(_ANY, 1, lambda a: a),
    "add": _one_of(_INTEGER, 2, operator.add),
    "sub": _one_of(_INTEGER, 2, operator.sub),
    "min": _one_of(_INTEGER, 2, np.minimum),
    "max": _one_of(_INTEGER, 2, np.maximum),
    "neg": _one_of(_SIGNED, 1, np.negative),
    "abs": _one_of(_SIGNED, 1, np.abs),
    "and": _one_of(_LOGIC, 2, operator.and_),
    "or": _one_of(_LOGIC, 2, operator.or_),
    "xor": _one_of(_LOGIC, 2, operator.xor),
    "not": _one_of(_LOGIC, 1, operator.invert),
    "mul": _multiply,
    "div": _divide,
    "rcp": _reciprocal,
    "copysign": _copy_sign,
    "mad": _multiply_add,
    "shl": _shift(_BITS, shift_left),
    "shr": _shift((*_BITS, *_INTEGER), shift_right),
    "shf": _funnel,
    "bfe": _field(("u32", "u64", "s32", "s64"), 1, extract),
    "bfi": _field(("b32", "b64"), 2, insert),
    "prmt": _permute,
    "lop3": _look_up,
    "clz": _counted(leading_zeros),
    "popc": _counted(lambda a: np.bitwise_count(a).astype(np.uint32)),
    "brev": _one_of(("b32", "b64"), 1, reverse),
    "setp": _set_predicate,
    "selp": _select,
    "cvt": _convert,
}
