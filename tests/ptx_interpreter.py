"""Execute a PTX function without a GPU: integer instructions over NumPy lanes.

Written from the PTX ISA's description of each instruction. A register holds an unsigned word of
its width for every lane, a predicate a bool. An opcode, modifier or operand that is not known here
is an error with its text, and so are a register read before it was written, one of the wrong
width, and a branch backwards: nothing is guessed. Where a branch diverges, lanes wait at its label.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from ptx_operations import Operation, UnknownPtx, operation_of, raw, width_of

__all__ = ["Function", "UnknownPtx", "parse"]

Array = np.ndarray[Any, Any]

#: Lanes that run together: what a function's registers take then stays in the cache.
_BLOCK = 1 << 13

_STATEMENT = re.compile(r"\s*(?:(?P<label>[\w$]+):|(?P<text>[^;]*?);)", re.DOTALL)
_GUARD = r"(?:@(?P<no>!?)(?P<guard>%\w+)\s+)?"
_INSTRUCTION = re.compile(_GUARD + r"(?P<opcode>[a-z][\w.]*)\s*(?P<rest>.*)")
_OPERAND = re.compile(r"\{[^}]*\}|\[[^\]]*\]|[^,\s]+")
_POISON = 0xDEADBEEFDEADBEEF  # in lanes that did not write a register


class Instruction(NamedTuple):
    """One line: its guard, what it does and with what."""

    text: str
    guard: tuple[str, bool] | None  #: the predicate, and whether it is negated
    opcode: str
    operands: tuple[str, ...]
    operation: Operation | None  #: None: control flow and parameters


@dataclass(frozen=True)
class Function:
    """A parsed .func: call `run` with an array, or one number, for each parameter."""

    name: str
    parameters: dict[str, int]  #: name -> bits
    result: int  #: bits
    registers: dict[str, int]  #: name, or name without its number -> bits; 1 for a predicate
    body: tuple[Instruction | str, ...]  #: a string is a label

    @property
    def opcodes(self) -> set[str]:
        """What the function is made of."""
        return {line.opcode for line in self.body if not isinstance(line, str)}

    def run(self, *arguments: Any) -> Array:
        """The result for each lane; arguments broadcast."""
        if len(arguments) != len(self.parameters):
            raise UnknownPtx(f"{self.name} takes {len(self.parameters)}, not {len(arguments)}")
        words = [
            np.atleast_1d(np.asarray(a, f"u{bits // 8}"))
            for a, bits in zip(arguments, self.parameters.values(), strict=True)
        ]
        lanes = max((w.size for w in words), default=1)
        found = np.empty(lanes, f"u{self.result // 8}")
        for start in range(0, lanes, _BLOCK):
            part = slice(start, start + _BLOCK)
            given = [w if w.size == 1 else w[part] for w in words]
            found[part] = _Run(self, given, found[part].size).result()
        return found

    def width(self, register: str) -> int:
        """Bits of a register."""
        family = register if register in self.registers else register.rstrip("0123456789")
        if family not in self.registers:
            raise UnknownPtx(f"{self.name}: {register} is not declared")
        return self.registers[family]


# --- parsing -----------------------------------------------------------------------------------

_HEAD = re.compile(r"\.visible\s+\.func\s*\(\s*\.param\s+\.[busf](\d+)\s+\w+\s*\)\s*([\w$]+)\s*\(")


@lru_cache(maxsize=256)
def parse(ptx: str) -> Function:
    """Return the one visible function of a PTX module."""
    text = re.sub(r"//[^\n]*", "", ptx)
    heads = list(_HEAD.finditer(text))
    if len(heads) != 1:
        raise UnknownPtx(f"{len(heads)} functions with a result: one is wanted")
    head = heads[0]
    middle, end = text.index("{", head.end()), text.rindex("}")
    listed = text[head.end() : middle]
    parameters = {n: int(b) for b, n in re.findall(r"\.param\s+\.[busf](\d+)\s+([\w$]+)", listed)}
    if listed.count(".param") != len(parameters):
        raise UnknownPtx(f"parameters {listed.strip()!r}")
    registers: dict[str, int] = {}
    body: list[Instruction | str] = []
    inside = text[middle + 1 : end]
    if inside.rpartition(";")[2].strip():
        raise UnknownPtx(inside.rpartition(";")[2].strip())
    for found in _STATEMENT.finditer(inside):
        if found["label"]:
            body.append(found["label"])
        elif found["text"].startswith(".reg"):
            registers |= _declared(found["text"])
        else:
            body.append(_instruction(found["text"]))
    return Function(head[2], parameters, int(head[1]), registers, tuple(body))


def _declared(text: str) -> dict[str, int]:
    found = re.fullmatch(r"\.reg\s+\.(\w+)\s+([%\w<>,\s]+)", text)
    if found is None:
        raise UnknownPtx(text)
    names = [re.sub(r"<\d+>$", "", name.strip()) for name in found[2].split(",")]
    return dict.fromkeys(names, width_of(found[1]))


def _instruction(text: str) -> Instruction:
    found = _INSTRUCTION.fullmatch(" ".join(text.split()))
    if found is None:
        raise UnknownPtx(text)
    opcode = found["opcode"]
    plain = opcode in ("bra", "bra.uni", "ret") or opcode.startswith(("ld.param.", "st.param."))
    return Instruction(
        " ".join(text.split()),
        (found["guard"], found["no"] == "!") if found["guard"] else None,
        opcode,
        tuple(_OPERAND.findall(found["rest"].replace("|", ", "))),
        None if plain else operation_of(opcode),
    )


# --- running -----------------------------------------------------------------------------------


@dataclass
class _Run:
    """The registers of some lanes, and which of the lanes are under way."""

    function: Function
    arguments: list[Array]
    lanes: int
    registers: dict[str, Array] = field(default_factory=dict)
    active: Array | None = None  #: None: all
    waiting: dict[str, Array] = field(default_factory=dict)  #: label -> lanes that wait there
    passed: set[str] = field(default_factory=set)
    out: Array | None = None
    kept: Array | None = None  #: lanes that have a result

    def result(self) -> Array:
        for line in self.function.body:
            if isinstance(line, str):
                self.join(line)
            elif self.active is None or self.active.any():
                self.step(line)
        under_way = self.active is None or self.active.any() or self.waiting
        if under_way or self.out is None:
            raise UnknownPtx(f"{self.function.name}: some lanes do not return")
        return self.out

    def mask(self, line: Instruction) -> Array | None:
        """The lanes in which an instruction has an effect; None: all."""
        if line.guard is None:
            return self.active
        name, negated = line.guard
        taken = np.broadcast_to(self.read(name, "pred", line), (self.lanes,)) != negated
        return taken if self.active is None else taken & self.active

    def step(self, line: Instruction) -> None:
        mask = self.mask(line)
        if line.operation is not None:
            self.compute(line, line.operation, mask)
        elif line.opcode.startswith("bra"):
            self.branch(line.operands[0], mask)
        elif line.opcode == "ret":
            self.finish(mask)
        elif line.opcode.startswith("ld."):
            self.load(line, mask)
        else:
            self.keep(line, mask)

    def compute(self, line: Instruction, operation: Operation, mask: Array | None) -> None:
        writes, reads = operation.writes, operation.reads
        names = line.operands[: len(line.operands) - len(reads)]
        given = line.operands[len(names) :]
        if not 1 <= len(names) <= len(writes) or len(given) != len(reads):
            raise UnknownPtx(line.text)
        pairs = zip(given, reads, strict=True)
        results = operation.run(*(self.read(o, kind, line, operation.loose) for o, kind in pairs))
        results = results if isinstance(results, tuple) else (results,)
        for name, kind, value in zip(names, writes, results, strict=False):
            self.write(name, kind, value, mask, line, operation.loose)

    # registers and numbers

    def read(self, operand: str, kind: str, line: Instruction, loose: bool = False) -> Array:
        """An operand as an array of its type; loose: a wider register gives its low bits."""
        negated = operand.startswith("!")
        name = operand[1:] if negated else operand
        if name.startswith("{"):
            return self.pack(name, kind, line)
        if not name.startswith("%"):
            return _number(name, kind, line)
        if name not in self.registers:
            raise UnknownPtx(f"{line.text}: {name} has no value")
        value, bits = self.registers[name], self.function.width(name)
        if negated and kind == "pred":
            return ~value
        fits = bits == width_of(kind) or (loose and bits > width_of(kind))
        if negated or not fits or (bits == 1) != (kind == "pred"):
            raise UnknownPtx(f"{line.text}: {operand} as {kind}")
        return _typed(value, kind)

    def write(
        self, name: str, kind: str, value: Array, mask: Array | None, line: Instruction,
        loose: bool = False,
    ) -> None:  # fmt: skip
        """Set a register in some lanes; loose: a wider one is filled by the type's sign rule."""
        if name.startswith("{"):
            self.unpack(name, value, mask, line)
            return
        bits = self.function.width(name)
        if bits != width_of(kind):
            if not loose or bits < width_of(kind):
                raise UnknownPtx(f"{line.text}: {name} as {kind}")
            value = value.astype(f"{'i' if kind[0] == 's' else 'u'}{bits // 8}")
        value = raw(value, bits)
        if mask is not None:
            old = self.registers.get(name, _POISON >> (64 - bits) if bits > 1 else False)
            value = np.where(mask, value, np.asarray(old, value.dtype))
        self.registers[name] = value

    def pack(self, operand: str, kind: str, line: Instruction) -> Array:
        """{low, high} as one word."""
        names = _OPERAND.findall(operand[1:-1])
        bits = width_of(kind) // len(names)
        word = np.zeros(1, f"u{width_of(kind) // 8}")
        for i, name in enumerate(names):
            part = self.read(name, f"b{bits}", line).astype(word.dtype)
            word = word | part << word.dtype.type(i * bits)
        return word

    def unpack(self, operand: str, value: Array, mask: Array | None, line: Instruction) -> None:
        names = _OPERAND.findall(operand[1:-1])
        bits = 8 * value.itemsize // len(names)
        for i, name in enumerate(names):
            part = (value >> value.dtype.type(i * bits)).astype(f"u{bits // 8}")
            if name != "_":
                self.write(name, f"b{bits}", part, mask, line)

    # parameters

    def load(self, line: Instruction, mask: Array | None) -> None:
        kind = line.opcode.removeprefix("ld.param.")
        place = re.fullmatch(r"\[([\w$]+)(?:\+(\d+))?\]", line.operands[1])
        names = list(self.function.parameters)
        if place is None or place[1] not in names or not re.fullmatch(r"[busf]\d+", kind):
            raise UnknownPtx(line.text)
        value, offset = self.arguments[names.index(place[1])], int(place[2] or 0)
        if offset + width_of(kind) // 8 > value.itemsize:
            raise UnknownPtx(f"{line.text}: the parameter has {value.itemsize} bytes")
        value = value >> value.dtype.type(8 * offset)  # bytes lie in rising order
        self.write(line.operands[0], kind, _typed(value, kind), mask, line, loose=True)

    def keep(self, line: Instruction, mask: Array | None) -> None:
        kind = line.opcode.removeprefix("st.param.")
        if not re.fullmatch(r"[busf]\d+", kind) or width_of(kind) != self.function.result:
            raise UnknownPtx(line.text)
        value = self.read(line.operands[1], kind, line, loose=True)
        bits = self.function.result
        value = np.broadcast_to(raw(value, bits), (self.lanes,))
        old = np.full(1, _POISON >> (64 - bits), value.dtype) if self.out is None else self.out
        self.out = value if mask is None else np.where(mask, value, old)
        self.kept = self.every(mask) if self.kept is None else self.kept | self.every(mask)

    # control flow

    def branch(self, label: str, mask: Array | None) -> None:
        if label in self.passed or label not in self.function.body:
            raise UnknownPtx(f"bra {label}: not forwards")
        self.waiting[label] = self.waiting.get(label, False) | self.every(mask)
        self.leave(mask)

    def finish(self, mask: Array | None) -> None:
        if self.kept is None or (self.every(mask) & ~self.kept).any():
            raise UnknownPtx(f"{self.function.name}: some lanes return without a result")
        self.leave(mask)

    def leave(self, mask: Array | None) -> None:
        """These lanes go on no further, or not here."""
        self.active = self.every(self.active) & ~self.every(mask)

    def every(self, mask: Array | None) -> Array:
        return np.ones(self.lanes, bool) if mask is None else mask

    def join(self, label: str) -> None:
        self.passed.add(label)
        arrived = self.waiting.pop(label, None)
        if arrived is not None and self.active is not None:
            together = self.active | arrived
            self.active = None if together.all() else together


def _typed(word: Array, kind: str) -> Array:
    """The low bits of a word as an array of a PTX type."""
    if kind == "pred":
        return word
    bits = width_of(kind)
    letter = {"s": "i", "f": "f"}.get(kind[0], "u")
    return word.astype(f"u{bits // 8}", copy=False).view(f"{letter}{bits // 8}")


def _number(text: str, kind: str, line: Instruction) -> Array:
    """An immediate as one lane of a PTX type: -1, 0x7f, 0f3F800000, 0d..."""
    bits = width_of(kind)
    found = re.fullmatch(r"0[fF]([0-9a-fA-F]{8})|0[dD]([0-9a-fA-F]{16})|-?\d+U?|0[xX]\w+U?", text)
    if found is None or kind == "pred":
        raise UnknownPtx(f"{line.text}: {text}")
    if found[1] or found[2]:
        if bits != 4 * len(found[1] or found[2]):
            raise UnknownPtx(f"{line.text}: {text}")
        value = int(found[1] or found[2], 16)
    else:
        value = int(text.rstrip("U"), 0)
    return _typed(np.array([value % (1 << bits)], np.uint64), kind)

