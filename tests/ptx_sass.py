"""Machine code of a kernel: the loop over groups of elements, and what runs in it."""

from __future__ import annotations

import re

__all__ = ["barrier_loop", "integer", "wide_loop"]

#: What the integer units do not run: memory, control, the scalar unit, constants by float units.
_OTHER = re.compile(
    r"LD|ST|ATOM|RED|BRA|BSSY|BSYNC|EXIT|RET|NOP|WARPSYNC|BAR|S2R|CS2R|HFMA2|I2F|R2UR|VOTE|U[A-Z]"
)


def wide_loop(listing: tuple[str, ...], access: str = ".128") -> list[str]:
    """The instructions on the shortest way through the first loop that holds a 128-bit access.

    listing: instructions and labels in order. The shortest way is that of ordinary numbers: what
    they branch around is not on it. access: what tells the loop, if not that.
    """
    code: list[str] = []
    labels: dict[str, int] = {}
    for line in listing:
        if line.endswith(":"):
            labels[line[:-1]] = len(code)
        else:
            code.append(line)
    for last, line in enumerate(code):
        first = _target(line, labels)
        if first is not None and first <= last:
            way = _shortest(code, labels, first, last)
            if any(access in code[i] for i in way):
                return [code[i] for i in way]
    raise AssertionError(f"no loop with {access}")


def barrier_loop(listing: tuple[str, ...]) -> list[str]:
    """The instructions of the loop with a barrier, but those that find places by division.

    Rows in one piece need none; and what only calls for a quotient's rare cases does not count.
    """
    last = next(i for i, line in enumerate(listing) if "BAR.SYNC" in line)
    labels = {line[:-1]: i for i, line in enumerate(listing) if line.endswith(":")}
    while (first := _target(listing[last], labels)) is None or first > last:
        last += 1
    kept: list[str] = []
    block: list[str] = []
    for line in listing[first : last + 1]:
        if not line.endswith(":"):
            block.append(line)
        if line.endswith(":") or "BRA" in line:
            rare = any(re.search(r"\bI2F|\bCALL", of) for of in block)
            kept += [] if rare else block
            block = []
    return kept


def integer(instructions: list[str]) -> int:
    """How many of some instructions the integer units run."""
    return sum(not _OTHER.match(_bare(line)) for line in instructions)


def _bare(line: str) -> str:
    """Without its guard."""
    return re.sub(r"^@!?U?P\w+ ", "", line)


def _target(line: str, labels: dict[str, int]) -> int | None:
    found = re.match(r"BRA\S*.*`\((\.L_\w+)\)", _bare(line))
    return labels[found[1]] if found else None


def _shortest(code: list[str], labels: dict[str, int], first: int, last: int) -> list[int]:
    """The shortest way from one instruction to another, both included; empty if there is none."""
    came: dict[int, int] = {first: first}
    front = [first]
    while front and last not in came:
        reached = []
        for i in front:
            for following in _following(code, labels, i):
                if following not in came and following < len(code):
                    came[following] = i
                    reached.append(following)
        front = reached
    if last not in came:
        return []
    way = [last]
    while way[-1] != first:
        way.append(came[way[-1]])
    return way[::-1]


def _following(code: list[str], labels: dict[str, int], i: int) -> list[int]:
    line, target = code[i], _target(code[i], labels)
    guarded = line.startswith("@") or re.match(r"BRA\S* !?U?P\d", line)
    if target is not None:
        return [target, i + 1] if guarded else [target]
    return [] if re.match(r"EXIT|RET", line) else [i + 1]
