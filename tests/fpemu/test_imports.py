"""Imports run one way, `import fpemu` stays light, and public names are what `__all__` says."""

from __future__ import annotations

import ast
import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

import fpemu
from fpemu import errors

ROOT = Path(fpemu.__file__).resolve().parent

#: None of these reaches one that stands after it.
ORDER = ["errors", "format", "cast", "rounding", "kernels", "libraries", "arrays", "codes",
         "emulate", "measures", "arithmetic", "tensorcore", "scaling", "policies", "torch",
         "analysis"]  # fmt: skip

#: Imports inside functions that run against the order.
LATE = {("fpemu.cast", "fpemu.emulate"), ("fpemu.cast", "fpemu.presets")}  # Cast.__call__, names

HEAVY = ["numba", "matplotlib", "torch", "jax", "ml_dtypes", "hypothesis", "rich", "click",
         "jinja2", "safetensors", "sqlite3"]  # fmt: skip


def sources() -> dict[str, ast.Module]:
    """Every module of both wings, parsed."""
    found = {}
    for folder, _, files in os.walk(ROOT, followlinks=True):  # analysis/ is a link in a checkout
        for file in sorted(f for f in files if f.endswith(".py")):
            path = Path(folder, file)
            parts = ["fpemu", *path.relative_to(ROOT).with_suffix("").parts]
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found[name] = ast.parse(path.read_text(), str(path))
    return found


SOURCES = sources()


def targets(node: ast.AST, module: str) -> set[str]:
    """The modules of ours that an import statement names."""
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, f"{module}: relative import"
        names = [f"{node.module}.{alias.name}" for alias in node.names]
        names = [name if name in SOURCES else str(node.module) for name in names]
    else:
        return set()
    return {name for name in names if name in SOURCES and name != module}


def is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def imports(module: str) -> tuple[set[str], set[str]]:
    """(imported with the module, imported inside its functions); for types: neither."""
    eager: set[str] = set()
    late: set[str] = set()

    def walk(node: ast.AST, into: set[str]) -> None:
        into |= targets(node, module)
        for child in ast.iter_child_nodes(node):
            if is_for_types(child):
                continue
            inner = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            walk(child, late if inner else into)

    walk(SOURCES[module], eager)
    return eager, late


GRAPH = {module: imports(module) for module in SOURCES}


def reached(module: str) -> set[str]:
    """All that importing a module brings, packages' __init__ left out."""
    found: set[str] = set()
    todo = [module]
    while todo:
        for target in GRAPH[todo.pop()][0] - found:
            found.add(target)
            todo.append(target)
    return found


def part(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


# --- one direction ---------------------------------------------------------------------------


@pytest.mark.parametrize("module", SOURCES)
def test_no_module_reaches_itself(module):
    assert module not in reached(module)


@pytest.mark.parametrize("module", [m for m in SOURCES if part(m) in ORDER])
def test_order(module):
    later = ORDER[ORDER.index(part(module)) + 1 :]
    assert not [m for m in reached(module) if part(m) in later]


@pytest.mark.parametrize("module", SOURCES)
def test_imports_inside_functions_go_the_same_way(module):
    for target in GRAPH[module][1]:
        against = module in reached(target)
        assert not against or (module, target) in LATE, f"{module} imports {target} late"


@pytest.mark.parametrize("module", [m for m in SOURCES if part(m) != "analysis"])
def test_the_library_knows_nothing_of_analysis(module):
    """`fpemu.analysis` is loaded by name, from a table, when somebody asks for it."""
    eager, late = GRAPH[module]
    assert not [m for m in eager | late if part(m) == "analysis"]


BODIES = {f"fpemu.kernels.{name}" for name in ("bits", "bucket", "random")}


@pytest.mark.parametrize("module", sorted(BODIES))
def test_scalar_bodies_import_each_other_alone(module):
    """So that every target, CUDA and the simulator among them, can build them."""
    eager, late = GRAPH[module]
    assert eager | late <= BODIES
    assert not GRAPH["fpemu.kernels.bits"][0]


def test_errors_import_nothing_of_ours():
    assert GRAPH["fpemu.errors"] == (set(), set())


@pytest.mark.parametrize("module", SOURCES)
def test_heavy_packages_are_imported_where_they_are_used(module):
    """Not with a module of the library, so that loading one never loads a framework."""
    if part(module) in ("analysis", "testing"):
        return
    tree = SOURCES[module]
    for node in tree.body:
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
        allowed = {"torch"} if part(module) == "torch" else set()  # loaded by who asks for it
        assert not {name.partition(".")[0] for name in names} & set(HEAVY) - allowed


# --- names -----------------------------------------------------------------------------------


def declared(module: str) -> list[str]:
    for node in SOURCES[module].body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
    return []


OURS = [m for m in SOURCES if part(m) != "analysis"]


@pytest.mark.parametrize("module", [m for m in OURS if declared(m)])
def test_all_is_sorted_and_exists(module):
    names = declared(module)
    kinds = [(not name.isupper(), name[0].islower(), name) for name in names]
    assert kinds == sorted(set(kinds))  # constants, classes, functions
    try:
        loaded = importlib.import_module(module)
    except errors.MissingExtraError as missing:
        pytest.skip(str(missing))
    except ModuleNotFoundError as missing:  # a part of a collector, imported by itself
        if missing.name != "torch":
            raise
        pytest.skip("needs PyTorch")
    assert [n for n in names if not hasattr(loaded, n)] == []


@pytest.mark.parametrize("module", SOURCES)
def test_private_names_stay_where_they_are(module):
    for node in ast.walk(SOURCES[module]):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("fpemu"):
            private = [a.name for a in node.names if a.name.startswith("_")]
            assert set(private) <= {"__version__"}


def test_the_public_surface():
    assert fpemu.__all__ == sorted(fpemu.__all__)
    fixed = {"Cast", "Format", "FpemuError", "NaN", "Outcome", "Overflow", "Rounding", "Tally",
             "analysis", "casts", "decode", "encode", "error", "finfo", "formats", "nextafter",
             "p3109", "round", "spacing", "tally", "testing", "values", "warmup"}  # fmt: skip
    assert fixed <= set(fpemu.__all__)
    for name in fpemu.__all__:
        assert getattr(fpemu, name) is not None
    assert set(fpemu.__all__) <= set(dir(fpemu))


def test_an_unknown_attribute_is_named():
    with pytest.raises(AttributeError, match="module 'fpemu' has no attribute 'rond'"):
        _ = fpemu.rond


def test_a_star_import_brings_the_public_names():
    code = "from fpemu import *; import fpemu; assert set(fpemu.__all__) <= set(dir())"
    subprocess.run([sys.executable, "-c", code], check=True)


# --- weight ----------------------------------------------------------------------------------


def loaded_by(code: str) -> set[str]:
    """Which heavy packages a fresh interpreter has loaded after some code."""
    code += f"\nimport sys; print(*[m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_import_fpemu_is_light():
    assert loaded_by("import fpemu; fpemu.formats, fpemu.finfo('fp16').max, dir(fpemu)") == set()


def test_naming_casts_is_light():
    assert loaded_by("import fpemu; fpemu.Cast('fp16', 'up'); fpemu.casts; fpemu.p3109(8, 4)") == (
        set()
    )


def test_rounding_loads_numba_alone():
    code = "import fpemu, numpy as np; fpemu.round(np.float32([1.5]), 'fp16')"
    assert loaded_by(code) <= {"numba"}


# --- errors ----------------------------------------------------------------------------------


def test_errors_are_one_tree():
    assert issubclass(errors.FpemuError, ValueError)
    children = [getattr(errors, n) for n in errors.__all__ if n.endswith("Error")]
    assert all(issubclass(child, errors.FpemuError) for child in children)
    assert issubclass(errors.MissingExtraError, ImportError)
    assert fpemu.FpemuError is errors.FpemuError
    drawn = [name for name in errors.__all__ if name.endswith("Error")]
    assert all(name in str(errors.__doc__) for name in drawn)


def test_did_you_mean():
    assert errors.did_you_mean("flaot16", ["float16", "bfloat16"]) == "did you mean 'float16'? "
    assert errors.did_you_mean("FLOAT16", ["float16"]) == "did you mean 'float16'? "
    assert errors.did_you_mean("zzz", ["float16"]) == ""


def test_nothing_else_is_raised_on_purpose():
    """Every `raise` of the library is of its own tree, or of Python's for its own protocols."""
    allowed = {"AttributeError", "AssertionError", "StopIteration"}
    for module in OURS:
        for node in ast.walk(SOURCES[module]):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
                name = ast.unparse(node.exc.func)
                known = name in errors.__all__ or name in allowed
                assert known, f"{module} raises {name}"
