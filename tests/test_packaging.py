"""What people install: the wheel, the wheel of the sdist, an editable install."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import fpemu

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

#: What is part of the package in the two wings; caches are not.
PARTS = {".py", ".typed", ".j2", ".js", ".css", ".csv", ".gz", ".npz", ".txt", ".md", ".json"}


def run(*command: str, cwd: Path) -> str:
    done = subprocess.run(
        [sys.executable, *command], cwd=cwd, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def needs_backend() -> None:
    for package in ("hatchling", "editables"):
        pytest.importorskip(package, reason=f"{package}, of the build backend, is not installed")


def build(target: str, source: Path, into: Path) -> Path:
    needs_backend()
    run("-m", "hatchling", "build", "-t", target, "-d", str(into), cwd=source)
    [made] = into.iterdir()
    return made


def package_files() -> set[str]:
    """The files of the checkout that belong to the package, under their installed names."""
    wings = {"fpemu": ROOT / "fpemu", "fpemu/analysis": ROOT / "analysis"}
    return {
        f"{name}/{path.relative_to(folder).as_posix()}"
        for name, folder in wings.items()
        for path in folder.rglob("*")
        if path.is_file() and path.suffix in PARTS
        and "__pycache__" not in path.parts and folder / "analysis" not in path.parents
    }


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("sdist", ROOT, tmp_path_factory.mktemp("sdist"))


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        assert len(names) == len(set(names)), "a file is in the wheel twice"
        return {name: archive.read(name) for name in names}


def test_wheel_holds_the_package_once_and_nothing_else(wheel: Path) -> None:
    names = set(contents(wheel))
    info = {name for name in names if ".dist-info/" in name}
    assert names - info == package_files()
    assert any(name.endswith("licenses/LICENSE") for name in info)


def test_wheel_holds_what_is_not_code(wheel: Path) -> None:
    names = set(contents(wheel))
    assert "fpemu/py.typed" in names
    assert any(name.startswith("fpemu/analysis/report/templates/") for name in names)
    assert any(name.startswith("fpemu/analysis/data/") for name in names)


def test_sdist_builds_the_same_wheel(wheel: Path, sdist: Path, tmp_path: Path) -> None:
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    [source] = tmp_path.iterdir()
    again = build("wheel", source, tmp_path / "again")
    assert contents(again) == contents(wheel)


def test_editable_install_finds_both_wings_in_the_checkout(tmp_path: Path) -> None:
    needs_backend()
    made = tmp_path / "made"
    script = "import sys, hatchling.build as backend; backend.build_editable(sys.argv[1])"
    run("-c", script, str(made), cwd=ROOT)
    [editable] = made.iterdir()
    site = tmp_path / "site"
    with zipfile.ZipFile(editable) as archive:
        archive.extractall(site)
    # -S: without this environment's own packages, among which fpemu may be installed
    script = (
        "import importlib.util, site, sys; site.addsitedir(sys.argv[1]);"
        "[print(importlib.util.find_spec(name).origin) for name in ('fpemu', 'fpemu.analysis')]"
    )
    origins = run("-I", "-S", "-c", script, str(site), cwd=tmp_path).split()
    assert [Path(origin).resolve() for origin in origins] == [
        ROOT / "fpemu" / "__init__.py",
        ROOT / "analysis" / "__init__.py",
    ]


def test_the_link_that_serves_the_checkout_is_relative() -> None:
    link = ROOT / "fpemu" / "analysis"
    assert link.is_symlink()
    assert link.readlink() == Path("../analysis")


def test_versions_agree() -> None:
    assert PROJECT["version"] == fpemu.__version__


def test_changelog_names_the_version_or_what_is_not_released() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text()
    released = ".dev" not in PROJECT["version"]
    heading = f"## [{PROJECT['version']}]" if released else "## [Unreleased]"
    assert heading in changelog


def test_command_is_installed() -> None:
    assert PROJECT["scripts"] == {"fpemu": "fpemu.analysis.cli:main"}
