"""The documents and docstrings do what they say: every example runs, every table is true."""

from __future__ import annotations

import difflib
import doctest
import enum
import importlib
import importlib.util
import inspect
import os
import pkgutil
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from doc_tables import DOCUMENTS, ROOT, TABLES, table_names, with_tables

import fpemu
from fpemu.errors import MissingExtraError


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
    varies: bool  #: ```console varies: figures that another processor computes otherwise
    text: str
    file: str
    line: int  #: of the block's first line

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}"


_FENCE = re.compile(r"^```(\w*)( varies)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(path: Path) -> Iterator[Block]:
    text = path.read_text(encoding="utf-8")
    for found in _FENCE.finditer(text):
        line = text.count("\n", 0, found.start()) + 2
        yield Block(found[1], bool(found[2]), found[3], document_id(path), line)


_NEEDS_TORCH = re.compile(
    r"\bimport torch\b|\bfpemu\.torch\b|\bwatch\(|^\$ fpemu run ", re.MULTILINE
)


@each_document
def test_blocks_run_and_print_what_they_say(path: Path, folder: Path) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(path):
        runs = block.language in ("console", "python")
        if runs and _NEEDS_TORCH.search(block.text) and not importlib.util.find_spec("torch"):
            pytest.skip(f"from {block.place} on it needs PyTorch")
        if block.language == "console":
            for command, want in sessions(block):
                assert_prints(command, want, block)
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


def assert_prints(command: str, want: str, block: Block) -> None:
    """Run a command line of fpemu; `...` in what it prints stands for anything, as in doctest.

    Without expected output only the exit code is checked: 0, or 2 where a refusal is shown.
    """
    program, *arguments = shlex.split(command)
    assert program == "fpemu", f"{block.place}: documents run fpemu only, not {command!r}"
    script = "from fpemu.analysis.cli import main; main(prog_name='fpemu')"
    terminal = {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb", "PYTHONIOENCODING": "utf-8"}
    here = {"PYTHONPATH": str(Path(fpemu.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], env=os.environ | terminal | here,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", timeout=120,
    )  # fmt: skip
    shown = f"{block.place}: $ {command}\nprinted (exit code {done.returncode})\n{done.stdout}"
    assert done.returncode == (2 if want.startswith("fpemu: ") else 0), shown
    same = alike(want, done.stdout) if block.varies else matches(want, done.stdout)
    assert same or not want.strip(), f"{shown}\ninstead of\n{want}"


def matches(want: str, got: str) -> bool:
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    return doctest.OutputChecker().check_output(want, got, flags)


def alike(want: str, got: str) -> bool:
    """Whether two outputs are nearly the same words, whatever the figures."""
    a, b = (re.findall(r"[A-Za-z]+", text) for text in (want, got))
    return difflib.SequenceMatcher(a=a, b=b, autojunk=False).ratio() > 0.9


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
    except ModuleNotFoundError as missing:  # a part of a collector, imported by itself
        if missing.name != "torch":
            raise
        pytest.skip("needs PyTorch")
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


@each_document
def test_tables_are_what_the_code_says(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text == with_tables(text), "a table is out of date: run python tests/doc_tables.py"


def test_every_table_is_in_a_document() -> None:
    found = [name for path in DOCUMENTS for name in table_names(path.read_text(encoding="utf-8"))]
    assert sorted(found) == sorted(TABLES)


# --- links -------------------------------------------------------------------------------------

_LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


@each_document
def test_links_lead_to_files(path: Path) -> None:
    prose = _FENCE.sub("", path.read_text(encoding="utf-8"))  # in code, a[b](c) is no link
    targets = [t for t in _LINK.findall(prose) if "://" not in t]
    assert [t for t in targets if not (path.parent / t).exists()] == []


@each_document
def test_modules_that_the_text_names_exist(path: Path) -> None:
    prose = re.sub(r"^\|.*$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    named = re.findall(r"`(\w+(?:/\w+)*\.py)`", prose)
    assert [name for name in named if not list(ROOT.rglob(name))] == []


def test_documents_that_the_code_points_to_exist() -> None:
    sources = [*(ROOT / "fpemu").rglob("*.py"), *(ROOT / "analysis").rglob("*.py"),
               ROOT / "pyproject.toml"]  # fmt: skip
    named = {
        (name, source.relative_to(ROOT).as_posix())
        for source in sources
        for name in re.findall(r"docs/[\w.]+\.md", source.read_text(encoding="utf-8"))
    }
    assert [at for at in sorted(named) if not (ROOT / at[0]).exists()] == []
