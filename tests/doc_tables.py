"""The tables in the documents, as the code has them.

    python tests/doc_tables.py     writes them anew, between their markers
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import fpemu
from fpemu.analysis.report.definitions import definitions
from fpemu.analysis.scales import TOLERANCE
from fpemu.catalog import ALIASES
from fpemu.presets import PRESETS
from fpemu.tensorcore.catalog import CHIPS
from fpemu.tensorcore.sums import AlignedSum, Sum

__all__ = ["DOCUMENTS", "ROOT", "TABLES", "table_names", "with_tables"]

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def table(*head: str, rows: Iterator[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def formats_table() -> str:
    rows = (
        (f"`{name}`", str(f.bits), f"{f.exponent_bits} + {f.mantissa_bits}", str(f.bias),
         value(f.max), value(f.smallest_normal), value(f.smallest_subnormal),
         f.nan.value.replace("_", " "), yes(f.inf), yes(f.minus_zero))
        for name, f in fpemu.formats.items()
    )  # fmt: skip
    return table("name", "bits", "exponent + mantissa", "bias", "largest", "smallest normal",
                 "smallest", "NaN", "infinity", "-0", rows=rows)  # fmt: skip


def value(number: float) -> str:
    """A power of two as one, anything else in 8 digits."""
    significand, exponent = number.hex().split("p")
    return f"2^{int(exponent)}" if float.fromhex(significand) == 1 else f"{number:.8g}"


def yes(flag: bool) -> str:
    return "yes" if flag else "no"


def aliases_table() -> str:
    names = {of: [alias for alias in ALIASES if ALIASES[alias] == of] for of in fpemu.formats}
    rows = ((f"`{name}`", ", ".join(map("`{}`".format, also))) for name, also in names.items())
    return table("name", "also found as", rows=(row for row in rows if row[1]))


def definitions_table() -> str:
    words = definitions(fpemu.Cast("float16"), TOLERANCE)
    return table("word", "meaning", rows=((word.term, word.meaning) for word in words))


def modules_table() -> str:
    """Every module of both wings and the first line of its docstring, package by package."""
    paths = [path for wing in ("fpemu", "analysis") for path in (ROOT / wing).rglob("*.py")]
    own = sorted(
        (path.relative_to(ROOT) for path in paths if ROOT / "fpemu/analysis" not in path.parents),
        key=lambda path: (path.parts[0] != "fpemu", path.parent, path.name),
    )
    first_lines = ((f"`{path.as_posix()}`", first_line(ROOT / path)) for path in own)
    return table("module", "", rows=first_lines)


def first_line(source: Path) -> str:
    text = ast.get_docstring(ast.parse(source.read_text(encoding="utf-8")))
    assert text, f"{source} has no docstring"
    return " ".join(text.split("\n\n")[0].split()).replace("|", "\\|")


def casts_table() -> str:
    rows = ((f"`{p.name}`", f"`{p.cast}`", p.source, p.note) for p in PRESETS.values())
    return table("preset", "cast", "source", "note", rows=rows)


def chips_table() -> str:
    """What each chip's matrix units take, and how they add."""
    rows = (
        (f"`{chip.name}`", ", ".join(f"`{form.name}`" for form in unit.formats), unit.out.name,
         str(unit.sum.group), *sum_words(unit.sum), "yes" if unit.verified else "not verified")
        for chip in CHIPS.values()
        for unit in chip.units
    )  # fmt: skip
    return table("chip", "operands", "sum", "products a step", "each term keeps", "at least",
                 "the sum keeps", "recordings", rows=rows)  # fmt: skip


def sum_words(rule: Sum) -> tuple[str, str, str]:
    """What terms keep, the least exponent, and what the sum keeps."""
    if not isinstance(rule, AlignedSum):
        return "see below", "", "float32, nearest"
    how = "cut" if rule.rounding is fpemu.Rounding.TOWARD_ZERO else "nearest"
    kept = f"{rule.result.mantissa_bits} bits, {how}"
    least = "" if rule.least_exponent <= -300 else f"2^{rule.least_exponent}"
    return f"{rule.fraction_bits} bits", least, kept + (", then + c" if rule.separate else "")


TABLES: dict[str, Callable[[], str]] = {
    "formats": formats_table,
    "aliases": aliases_table,
    "casts": casts_table,
    "definitions": definitions_table,
    "modules": modules_table,
    "chips": chips_table,
}

_TABLE = re.compile(r"(<!-- table: (\w+) -->\n)(.*?)(<!-- end of table -->)", re.DOTALL)


def with_tables(text: str) -> str:
    return _TABLE.sub(lambda found: f"{found[1]}{TABLES[found[2]]()}\n{found[4]}", text)


def table_names(text: str) -> list[str]:
    return [name for _, name, *_ in _TABLE.findall(text)]


if __name__ == "__main__":
    for document in DOCUMENTS:
        document.write_text(with_tables(document.read_text(encoding="utf-8")), encoding="utf-8")
