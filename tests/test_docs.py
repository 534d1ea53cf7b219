"""The documents and docstrings do what they say: every example runs, every table is true.

    python tests/test_docs.py     writes the tables anew
"""

from __future__ import annotations

import ast
import doctest
import enum
import importlib
import inspect
import os
import pkgutil
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import fpemu
from fpemu.analysis.report.definitions import definitions
from fpemu.analysis.scales import TOLERANCE
from fpemu.errors import MissingExtraError
from fpemu.format import ALIASES
from fpemu.presets import PRESETS

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def document_id(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


each_document = pytest.mark.parametrize("path", DOCUMENTS, ids=document_id)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary working folder, for examples that write files."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


# --- blocks of a document: in order, in one folder and one namespace -------------------------


class Block(NamedTuple):
    language: str
    text: str
    file: str
    line: int  #: of the block's first line

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}"


_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(path: Path) -> Iterator[Block]:
    text = path.read_text(encoding="utf-8")
    for found in _FENCE.finditer(text):
        line = text.count("\n", 0, found.start()) + 2
        yield Block(found[1], found[2], document_id(path), line)


@each_document
def test_blocks_run_and_print_what_they_say(path: Path, folder: Path) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(path):
        if block.language == "console":
            for command, want in sessions(block):
                assert_prints(command, want, block.place)
        elif block.language == "python" and ">>>" in block.text:
            test = doctest.DocTestParser().get_doctest(
                block.text, names, block.place, block.file, block.line - 1
            )
            assert_doctest(test, doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
            names |= test.globs
        elif block.language == "python":
            padding = "\n" * (block.line - 1)  # a traceback names the document's line
            exec(compile(padding + block.text, block.file, "exec"), names)


def sessions(block: Block) -> Iterator[tuple[str, str]]:
    """The commands of a console block and what each prints."""
    before, *parts = re.split(r"^\$ ", block.text, flags=re.MULTILINE)
    assert not before.strip(), f"{block.place}: a console block begins with '$ '"
    for part in parts:
        command, _, want = part.partition("\n")
        yield command, want


def assert_prints(command: str, want: str, place: str) -> None:
    """Run a command line of fpemu; `...` in what it prints stands for anything, as in doctest.

    Without expected output only the exit code is checked: 0, or 2 where an error is shown.
    """
    program, *arguments = shlex.split(command)
    assert program == "fpemu", f"{place}: documents run fpemu only, not {command!r}"
    script = "from fpemu.analysis.cli import main; main(prog_name='fpemu')"
    terminal = {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb", "PYTHONIOENCODING": "utf-8"}
    here = {"PYTHONPATH": str(Path(fpemu.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], env=os.environ | terminal | here,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", timeout=120,
    )  # fmt: skip
    shown = f"{place}: $ {command}\nprinted (exit code {done.returncode})\n{done.stdout}"
    assert done.returncode == (2 if "Error: " in want else 0), shown
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    same = doctest.OutputChecker().check_output(want, done.stdout, flags)
    assert same or not want.strip(), f"{shown}\ninstead of\n{want}"


def assert_doctest(test: doctest.DocTest, flags: int = 0) -> None:
    printed: list[str] = []
    runner = doctest.DocTestRunner(optionflags=flags, verbose=False)
    runner.run(test, out=printed.append, clear_globs=False)
    assert not runner.failures, "".join(printed)


# --- docstrings --------------------------------------------------------------------------------


def modules() -> list[str]:
    found = pkgutil.walk_packages(fpemu.__path__, "fpemu.", onerror=lambda name: None)
    return ["fpemu", *sorted(module.name for module in found)]


@pytest.mark.parametrize("name", modules())
def test_docstring_examples_run(name: str, folder: Path) -> None:
    try:
        module = importlib.import_module(name)
    except MissingExtraError as missing:
        pytest.skip(str(missing))
    for test in doctest.DocTestFinder(exclude_empty=True).find(module):
        assert_doctest(test)


@pytest.mark.parametrize("name", fpemu.__all__)
def test_public_names_are_documented_with_an_example(name: str) -> None:
    thing = getattr(fpemu, name)
    if isinstance(thing, Mapping):  # a table, documented in docs/formats.md
        return
    text = inspect.getdoc(thing) or ""
    assert text, f"fpemu.{name} has no docstring"
    kinds = isinstance(thing, type) and issubclass(thing, enum.Enum | Exception)
    assert kinds or inspect.ismodule(thing) or ">>> " in text, f"fpemu.{name} has no example"


# --- tables that the code writes ---------------------------------------------------------------


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
    assert text, f"{document_id(source)} has no docstring"
    return " ".join(text.split("\n\n")[0].split()).replace("|", "\\|")


def casts_table() -> str:
    rows = (
        (f"`{p.name}`", f"`{p.cast}`", p.source, p.note) for p in PRESETS.values()
    )
    return table("preset", "cast", "source", "note", rows=rows)


TABLES: dict[str, Callable[[], str]] = {
    "casts": casts_table,
    "formats": formats_table,
    "aliases": aliases_table,
    "definitions": definitions_table,
    "modules": modules_table,
}

_TABLE = re.compile(r"(<!-- table: (\w+) -->\n)(.*?)(<!-- end of table -->)", re.DOTALL)


def with_tables(text: str) -> str:
    return _TABLE.sub(lambda found: f"{found[1]}{TABLES[found[2]]()}\n{found[4]}", text)


@each_document
def test_tables_are_what_the_code_says(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text == with_tables(text), "a table is out of date: run python tests/test_docs.py"


def test_every_table_is_in_a_document() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in DOCUMENTS)
    assert {name for _, name, *_ in _TABLE.findall(text)} == set(TABLES)


# --- links -------------------------------------------------------------------------------------

_LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


@each_document
def test_links_lead_to_files(path: Path) -> None:
    targets = [t for t in _LINK.findall(path.read_text(encoding="utf-8")) if "://" not in t]
    assert [t for t in targets if not (path.parent / t).exists()] == []


def test_documents_that_the_code_points_to_exist() -> None:
    sources = [*(ROOT / "fpemu").rglob("*.py"), *(ROOT / "analysis").rglob("*.py"),
               ROOT / "pyproject.toml"]  # fmt: skip
    named = {
        (name, source.relative_to(ROOT).as_posix())
        for source in sources
        for name in re.findall(r"docs/[\w.]+\.md", source.read_text(encoding="utf-8"))
    }
    assert [at for at in sorted(named) if not (ROOT / at[0]).exists()] == []


if __name__ == "__main__":
    for document in DOCUMENTS:
        document.write_text(with_tables(document.read_text(encoding="utf-8")), encoding="utf-8")
