"""What scan refuses: pickles, special files, damaged and hostile ones; always in one line."""

from __future__ import annotations

import io
import json
import os
import pickle
import socket
import struct
import subprocess
import sys
import tarfile
import time
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fpemu
from fpemu.analysis import scan
from fpemu.analysis.checkpoints import archives, safetensors
from fpemu.analysis.checkpoints.contents import tensors_of
from fpemu.errors import InputError

ROOT = Path(fpemu.__file__).parents[1]


def refused(path: Any, *words: str) -> str:
    """Scan, and return the one line that it is refused with."""
    with pytest.raises(InputError) as caught:
        scan(path, formats=["fp16"])
    message = str(caught.value)
    assert "\n" not in message
    assert message.isprintable()
    assert len(message) < 600
    for word in words:
        assert word in message, message
    return message


def small(path: Path, name: str = "w", dtype: str = "F32") -> bytes:
    """Write a safetensors file of four numbers, and return its bytes."""
    facts = {name: {"dtype": dtype, "shape": [4], "data_offsets": [0, 16]}}
    header = json.dumps(facts).encode()
    data = len(header).to_bytes(8, "little") + header + np.arange(4, dtype=np.float32).tobytes()
    path.write_bytes(data)
    return data


# --- no pickle is executed ---------------------------------------------------------------------


class Evil:
    """Unpickled, it makes a folder."""

    def __init__(self, marker: Path) -> None:
        self.marker = str(marker)

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.marker,)


def evil_npy(path: Path, evil: Evil) -> None:
    np.save(path, np.array([evil], object), allow_pickle=True)


def evil_npz(path: Path, evil: Evil) -> None:
    with path.open("wb") as file:
        np.savez(file, good=np.float32([1]), bad=np.array([evil], object), allow_pickle=True)


def evil_fields(path: Path, evil: Evil) -> None:
    array = np.zeros(1, [("a", "<f4"), ("b", "O")])
    array["b"] = [evil]
    np.save(path, array, allow_pickle=True)


def evil_pickle(path: Path, evil: Evil) -> None:
    path.write_bytes(pickle.dumps({"w": evil}))


def evil_torch(path: Path, evil: Evil) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch writes the file")
    torch.save({"w": torch.ones(3), "e": evil}, path)


def evil_old_torch(path: Path, evil: Evil) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch writes the file")
    torch.save({"w": torch.ones(3), "e": evil}, path, _use_new_zipfile_serialization=False)


def evil_zip(path: Path, evil: Evil) -> None:
    """An archive made by hand, whose only member is the pickle."""
    pytest.importorskip("torch", reason="PyTorch reads the file")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(evil))
        archive.writestr("archive/version", "3\n")
        archive.writestr("archive/byteorder", sys.byteorder)


def evil_tar(path: Path, evil: Evil) -> None:
    with tarfile.open(path, "w") as archive:
        data = pickle.dumps(evil)
        info = tarfile.TarInfo("pickle")
        info.size = len(data)
        archive.addfile(info, io.BytesIO(data))


@pytest.mark.parametrize(
    ("write", "suffix"),
    [(evil_npy, ".npy"), (evil_npz, ".npz"), (evil_fields, ".npy"), (evil_pickle, ".pt"),
     (evil_pickle, ".safetensors"), (evil_pickle, ".npy"), (evil_torch, ".pt"),
     (evil_torch, ".npz"), (evil_old_torch, ".pth"), (evil_zip, ".bin"), (evil_tar, ".pt")],
)  # fmt: skip
def test_no_pickle_is_executed(
    write: Callable[[Path, Evil], None], suffix: str, tmp_path: Path
) -> None:
    marker, path = tmp_path / "marker", tmp_path / f"model{suffix}"
    write(path, Evil(marker))
    refused(path, "pickle", "safetensors")
    assert not marker.exists()


def test_the_evil_object_would_have_made_its_marker(tmp_path: Path) -> None:
    evil_npy(tmp_path / "a.npy", Evil(tmp_path / "marker"))
    np.load(tmp_path / "a.npy", allow_pickle=True)
    assert (tmp_path / "marker").is_dir()


def test_no_setting_of_pytorch_makes_it_execute_pickles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    evil_torch(tmp_path / "a.pt", Evil(tmp_path / "marker"))
    refused(tmp_path / "a.pt", "pickle")
    assert not (tmp_path / "marker").exists()


def test_old_torch_files_are_refused_even_if_harmless(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch writes the file")
    torch.save({"w": torch.ones(3)}, tmp_path / "a.pt", _use_new_zipfile_serialization=False)
    refused(tmp_path / "a.pt", "pickle", "safetensors")


# --- what is no file ---------------------------------------------------------------------------


@pytest.mark.parametrize("link", [False, True])
@pytest.mark.parametrize("sort", ["pipe", "socket", "device", "folder", "loop", "nothing"])
def test_special_files(sort: str, link: bool, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's path must be short
    path = Path("special.safetensors")
    words = {"pipe": "a pipe", "socket": "a socket", "device": "a device",
             "folder": "without a checkpoint", "loop": "cannot be read",
             "nothing": "No such file"}  # fmt: skip
    if sort == "pipe":
        os.mkfifo(path)
    elif sort == "socket":
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(str(path))
    elif sort == "device":
        path.symlink_to("/dev/zero")
    elif sort == "folder":
        path.mkdir()
    elif sort == "loop":
        path.symlink_to(path)
    if link:
        Path("link.npz").symlink_to(path)
        path = Path("link.npz")
    refused(path, words[sort], str(path))


def test_a_pipe_among_the_files_of_a_folder(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.safetensors")
    refused(tmp_path, "a pipe")


@pytest.mark.parametrize("path", ["", "a\0b", 3, None, b"\xff\xfe", ["x", 3], []])
def test_paths_that_are_none(path: Any) -> None:
    refused(path)


@pytest.mark.parametrize(
    ("data", "words"),
    [(b"", "is empty"), (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
     (b"SQLite format 3\0" + bytes(90), "fpemu report"), (b"\x89HDF\r\n\x1a\n", "HDF5"),
     (b"GGUF" + bytes(40), "GGUF"), (b"hello world, not a checkpoint", "no checkpoint"),
     (bytes(100), "no checkpoint"), (b"PK\x05\x06" + bytes(18), "empty archive")],
)  # fmt: skip
def test_other_files(data: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(data)
    refused(tmp_path / "a.bin", words)


# --- damaged safetensors -----------------------------------------------------------------------


def header(text: str | bytes, data: bytes = b"") -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    return len(raw).to_bytes(8, "little") + raw + data


def entry(dtype: str = "F32", shape: str = "[1]", offsets: str = "[0,4]") -> str:
    return f'{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}'


BAD = {
    "no json": header("{nope}"),
    "a list": header("[]"),
    "a number": header("{} 3"),
    "not utf-8": header(b'{"\xff":1}'),
    "half a header": header("{}")[:9],
    "a huge header": struct.pack("<Q", 2**63) + b"{}" + bytes(50),
    "a header over the limit": struct.pack("<Q", 100_000_001) + b"{}" + bytes(50),
    "a header beyond the file": struct.pack("<Q", 1000) + b"{}" + bytes(50),
    "deep": header("{" + '"a":[' * 50_000, bytes(8)),
    "trailing data": header(f'{{"a":{entry()}}}', bytes(5)),
    "missing data": header(f'{{"a":{entry()}}}', bytes(3)),
    "a gap": header(f'{{"a":{entry(offsets="[4,8]")}}}', bytes(8)),
    "overlap": header(f'{{"a":{entry()},"b":{entry(offsets="[2,6]")}}}', bytes(6)),
    "the same bytes": header(f'{{"a":{entry()},"b":{entry()}}}', bytes(4)),
    "backwards": header(f'{{"a":{entry(offsets="[4,0]")}}}', bytes(4)),
    "wrong size": header(f'{{"a":{entry(shape="[2]")}}}', bytes(4)),
    "negative": header(f'{{"a":{entry(shape="[-1]", offsets="[0,-4]")}}}', bytes(4)),
    "a fraction": header(f'{{"a":{entry(shape="[1.0]")}}}', bytes(4)),
    "true as a size": header(f'{{"a":{entry(shape="[true]")}}}', bytes(4)),
    "a product that wraps": header(
        f'{{"a":{entry(shape="[4294967296,4294967296,4]", offsets="[0,0]")}}}'
    ),
    "an unknown dtype": header(f'{{"a":{entry("Q99")}}}', bytes(4)),
    "half a byte": header(f'{{"a":{entry("F4", "[3]", "[0,2]")}}}', bytes(2)),
    "no dtype": header('{"a":{"shape":[1],"data_offsets":[0,4]}}', bytes(4)),
    "an entry that is a list": header('{"a":[]}'),
    "metadata that is no text": header('{"__metadata__":{"a":1}}'),
    "three offsets": header(f'{{"a":{entry(offsets="[0,4,4]")}}}', bytes(4)),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_safetensors_are_refused_here_and_by_the_library(what: str, tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(BAD[what])
    refused(path, "checkpoint")
    assert not library_takes(path)


def library_takes(path: Path) -> bool:
    library = pytest.importorskip("safetensors", reason="safetensors judges the file")
    try:
        with library.safe_open(str(path), "np") as file:
            file.keys()
    except Exception:
        return False
    return True


_PARTS = ["{", "}", "[", "]", ",", ":", '"', "0", "1", "4", "8", "-", "F32", "F16", "BOOL", " ",
          '"a"', '"b"', "shape", "dtype", "data_offsets", "[0,4]", "[4,8]", "[]", "[1]", "[2,1]",
          "1e2", "\\u00e9", "é", "\x00"]  # fmt: skip


@settings(max_examples=200)
@given(st.data())
def test_damaged_headers_are_judged_as_the_library_does(tmp_path_factory: Any, data: Any) -> None:
    """Pieces of a good header replaced by others; the numbers behind it longer or shorter."""
    good = f'{{"a":{entry()},"b":{entry("F16", "[2]", "[4,8]")},"__metadata__":{{"k":"v"}}}}'
    text = good
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(text)))
        length = data.draw(st.integers(0, 6))
        text = text[:at] + data.draw(st.sampled_from(["", *_PARTS])) + text[at + length :]
    size = data.draw(st.sampled_from([8, 8, 8, 7, 4, 9, 0]))
    path = tmp_path_factory.getbasetemp() / "damaged.safetensors"
    path.write_bytes(header(text, bytes(size)))
    if written_twice(text):
        refused(path, "twice")
        return
    try:
        with tensors_of(str(path)):
            taken = True
    except InputError:
        taken = False
    assert taken == library_takes(path), (text, size)


def written_twice(text: str) -> bool:
    """A key that is there twice: refused here, and the library takes the last one."""
    twice = False

    def look(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal twice
        twice |= len(dict(pairs)) < len(pairs)
        return dict(pairs)

    try:
        json.loads(text, object_pairs_hook=look)
    except ValueError:
        return False
    return twice


def test_a_header_of_too_many_things(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safetensors, "_TOKENS", 1000)
    (tmp_path / "a.safetensors").write_bytes(header('{"a":[' + "[]," * 1000 + "[]]}"))
    refused(tmp_path / "a.safetensors", "more names and numbers")


# --- damaged files of the other kinds ----------------------------------------------------------


def good_npy(path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, np.arange(50, dtype=np.float32))


def good_npz(path: Path) -> None:
    with path.open("wb") as file:
        np.savez_compressed(file, a=np.arange(50, dtype=np.float32), b=np.ones(3))


def good_torch(path: Path) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch writes the file")
    torch.save({"a": torch.arange(50.0)}, path)


@pytest.mark.parametrize("write", [small, good_npy, good_npz, good_torch])
def test_a_file_cut_anywhere_is_refused(write: Any, tmp_path: Path) -> None:
    path = tmp_path / "a"
    write(path)
    whole = path.read_bytes()
    assert scan(path, formats=["fp16"]).tensors
    for length in sorted({*range(1, 20), *range(20, len(whole), max(1, len(whole) // 25))}):
        path.write_bytes(whole[:length])
        refused(path)


@pytest.mark.parametrize("write", [good_npz, good_torch])
def test_changed_bytes_never_raise_anything_else(write: Any, tmp_path: Path) -> None:
    path, random = tmp_path / "a", np.random.default_rng(0)
    write(path)
    whole = path.read_bytes()
    for _ in range(60):
        data = bytearray(whole)
        for at in random.integers(0, len(data), 3):
            data[at] = random.integers(0, 256)
        path.write_bytes(data)
        try:
            scan(path, formats=["fp16"], threads=1)
        except InputError as error:
            message = str(error)
        else:
            message = ""  # three bytes that nobody reads
        assert "\n" not in message


@pytest.mark.parametrize(
    "header_text",
    ["{'descr': '<f4', 'fortran_order': False}", "{'descr': '<f4', 'fortran_order': False, "
     "'shape': (2,), 'x': 1}", "{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}",
     "{'descr': '<f4', 'fortran_order': False, 'shape': (2.0,)}",
     "{'descr': 'nonsense', 'fortran_order': False, 'shape': (2,)}",
     "{'descr': [('a',)], 'fortran_order': False, 'shape': (2,)}",
     "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999, 99999999999)}",
     "__import__('os').mkdir('marker')", "(" * 900, "[" * 5000, "3"],
)  # fmt: skip
def test_bad_npy_headers(header_text: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    raw = header_text.encode() + b"\n"
    data = b"\x93NUMPY\x01\x00" + len(raw).to_bytes(2, "little") + raw + bytes(8)
    (tmp_path / "a.npy").write_bytes(data)
    refused(tmp_path / "a.npy", "damaged")
    assert not (tmp_path / "marker").exists()


def test_npy_with_more_behind_its_array(tmp_path: Path) -> None:
    with (tmp_path / "a.npy").open("wb") as file:
        np.save(file, np.ones(3))
        np.save(file, np.ones(3))
    refused(tmp_path / "a.npy", "promises")


@pytest.mark.parametrize("method", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_npz_packed_otherwise(method: int, tmp_path: Path) -> None:
    array = io.BytesIO()
    np.save(array, np.ones(3))
    with zipfile.ZipFile(tmp_path / "a.npz", "w", method) as archive:
        archive.writestr("a.npy", array.getvalue())
    refused(tmp_path / "a.npz", "packed as numpy does not")


def test_npz_with_a_wrong_checksum(tmp_path: Path) -> None:
    with (tmp_path / "a.npz").open("wb") as file:
        np.savez(file, a=np.arange(1000, dtype=np.float32))
    data = bytearray((tmp_path / "a.npz").read_bytes())
    data[2000] ^= 1
    (tmp_path / "a.npz").write_bytes(data)
    refused(tmp_path / "a.npz", "CRC")


def test_npz_with_a_member_twice(tmp_path: Path) -> None:
    array = io.BytesIO()
    np.save(array, np.ones(3))
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("a.npy", array.getvalue())
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("a.npy", array.getvalue())
    refused(tmp_path / "a.npz", "twice")


def test_an_archive_with_a_huge_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good_npz(tmp_path / "a.npz")
    monkeypatch.setattr(archives, "_DIRECTORY_LIMIT", 50)
    refused(tmp_path / "a.npz", "more names")


def test_torch_tensors_that_repeat_or_hold_nothing(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch writes the file")
    many = torch.ones(1).expand(10**12)
    torch.save({"many": many, "meta": torch.ones(3, device="meta"), "q": torch.arange(3),
                "good": torch.ones(2), "z": torch.ones(2, dtype=torch.complex64),
                "sparse": torch.ones(3).to_sparse()}, tmp_path / "a.pt")  # fmt: skip
    found = scan(tmp_path / "a.pt", formats=["fp16"])
    assert [row.name for row in found.tensors] == ["good"]
    reasons = {row.name: row.reason for row in found.uncounted}
    assert "repeats its values" in reasons["many"]
    assert set(reasons) == {"many", "meta", "q", "z", "sparse"}


# --- indexes and names -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("index", "words"),
    [("{", "no JSON"), ("[]", "weight_map"), ('{"weight_map":{}}', "weight_map"),
     ('{"weight_map":{"w":3}}', "weight_map"), ('{"weight_map":{"w":"../a.safetensors"}}',
     "not in its own folder"), ('{"weight_map":{"w":"/etc/passwd"}}', "not in its own folder"),
     ('{"weight_map":{"w":"gone.safetensors"}}', "missing"),
     ('{"weight_map":{"w":"a.safetensors","v":"a.safetensors"}}', "'v'"),
     ('{"weight_map":{"w":"a.safetensors","w":"b.safetensors"}}', "twice"),
     ("[" * 100_000, "no JSON")],
)  # fmt: skip
def test_bad_indexes(index: str, words: str, tmp_path: Path) -> None:
    small(tmp_path / "a.safetensors")
    path = tmp_path / "m.safetensors.index.json"
    path.write_text(index)
    refused(path, words)
    refused(tmp_path, words)


def test_one_name_in_two_shards(tmp_path: Path) -> None:
    small(tmp_path / "a.safetensors")
    small(tmp_path / "b.safetensors")
    refused(tmp_path, "twice")


@pytest.mark.parametrize(
    "name", ["\x1b[31mred\x07", "a\nb\r\n", "[bold]x[/bold]", "<script>alert(1)</script>", "",
             "   ", "\u202eevil", "\ud800", "{{ 7*7 }}", "x" * 100_000, "../../etc/passwd", "é日"],
)  # fmt: skip
def test_hostile_names(name: str, tmp_path: Path) -> None:
    from rich.console import Console

    from fpemu.analysis.checkpoints import html, text

    small(tmp_path / "a.safetensors", name)
    found = scan(tmp_path / "a.safetensors", formats=["fp16"])
    [record] = found.trace.records()
    assert record.name.isprintable()
    assert len(record.name) <= 1000
    page = io.StringIO()
    text.render(found, Console(file=page, width=100, no_color=True))
    assert "\x1b" not in page.getvalue()
    assert "\u202e" not in page.getvalue()
    if name.startswith("["):
        assert "[bold]x[/bold]" in page.getvalue()
    shown = html.render(found)
    assert "<script>alert" not in shown
    json.dumps(found.to_json(), allow_nan=False).encode()


# --- memory ------------------------------------------------------------------------------------

_PEAK = """
import re, sys
from fpemu.analysis import scan
peaks = []
for path in sys.argv[1:]:
    scan(path, formats=["fp16"])
    status = open('/proc/self/status').read()  # ru_maxrss begins at the parent's
    peaks.append(int(re.search(r'VmHWM:\\s+(\\d+) kB', status)[1]) // 1024)
print(*peaks)
"""


def peak_growth(first: Path, then: Path) -> int:
    """Mebibytes that scanning another file adds to the peak of a process."""
    done = subprocess.run(
        [sys.executable, "-c", _PEAK, str(first), str(then)], check=True, capture_output=True,
        text=True, env=os.environ | {"PYTHONPATH": str(ROOT), "FPEMU_THREADS": "2"},
    )  # fmt: skip
    small_peak, large_peak = map(int, done.stdout.split())
    assert large_peak < 1024
    return large_peak - small_peak


def sparse(path: Path, dtype: str, size: int) -> None:
    shape = size * 8 // {"F32": 32, "BF16": 16, "F64": 64}[dtype]
    text = header(json.dumps({"w": {"dtype": dtype, "shape": [shape], "data_offsets": [0, size]}}))
    with path.open("wb") as file:
        file.write(text)
        file.truncate(len(text) + size)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("dtype", ["F32", "BF16", "F64"])
def test_memory_of_a_large_tensor(dtype: str, tmp_path: Path) -> None:
    sparse(tmp_path / "small.safetensors", dtype, 1 << 24)
    sparse(tmp_path / "large.safetensors", dtype, 1 << 28)
    growth = peak_growth(tmp_path / "small.safetensors", tmp_path / "large.safetensors")
    assert growth < 100


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_of_a_large_torch_file(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch writes the file")
    torch.save({"w": torch.zeros(1 << 22)}, tmp_path / "small.pt")
    torch.save({"w": torch.zeros(1 << 25), "v": torch.zeros(1 << 13, 1 << 12).t()[1:]},
               tmp_path / "large.pt")  # fmt: skip
    assert (tmp_path / "large.pt").stat().st_size > 1 << 28
    assert peak_growth(tmp_path / "small.pt", tmp_path / "large.pt") < 100


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_of_a_packed_archive(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "small.npz", w=np.zeros(1 << 22, np.float32))
    np.savez_compressed(tmp_path / "large.npz", w=np.zeros(1 << 26, np.float32))
    assert (tmp_path / "large.npz").stat().st_size < 1 << 20
    assert peak_growth(tmp_path / "small.npz", tmp_path / "large.npz") < 100


# --- hostile shapes, headers and containers ----------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "data"),
    [("[" + ",".join([str(2**63)] * 300) + "]", "[0,0]"), ("[0,18446744073709551615]", "[0,0]"),
     ("[" + ",".join([str(2**52)] * 200_000) + "]", "[0,0]"), (f"[{2**53},0]", "[0,0]")],
    ids=["5,700 digits", "a side of 2^64", "200,000 sides", "a side of 2^53"],
)  # fmt: skip
def test_shapes_whose_product_nobody_can_write(shape: str, data: str, tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(header(f'{{"a":{entry(shape=shape, offsets=data)}}}'))
    begun = time.perf_counter()
    refused(path, "damaged", "'a'")
    assert time.perf_counter() - begun < 20


def test_an_empty_tensor_may_have_large_sides(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(header(f'{{"a":{entry(shape=f"[{2**52},{2**52},0]", offsets="[0,0]")}}}'))
    [row] = scan(path, formats=["fp16"]).tensors
    assert (row.values, row.shape) == (0, (2**52, 2**52, 0))


@pytest.mark.parametrize(
    "text",
    ["{'descr': '<f4', 'fortran_order': False, 'shape': (0x" + "f" * 8000 + ",)}",
     "{'descr': 0x" + "f" * 8000 + ", 'fortran_order': False, 'shape': (2,)}",
     "{'descr': [('a', 0x" + "f" * 8000 + ")], 'fortran_order': False, 'shape': (2,)}",
     "{[]: 1}", "{{1}, 2}", f"{{'descr': '<f4', 'fortran_order': False, 'shape': (0, {10**30})}}"],
)  # fmt: skip
def test_npy_headers_that_python_cannot_print_or_hash(text: str, tmp_path: Path) -> None:
    raw = text.encode() + b"\n"
    (tmp_path / "a.npy").write_bytes(
        b"\x93NUMPY\x01\x00" + len(raw).to_bytes(2, "little") + raw + bytes(8)
    )
    refused(tmp_path / "a.npy", "damaged")


def test_a_torch_file_whose_members_are_compressed(tmp_path: Path) -> None:
    """Mapped, its bytes would be read as they lie: numbers that nobody saved."""
    torch = pytest.importorskip("torch", reason="PyTorch writes the file")
    torch.save({"w": torch.ones(1000)}, tmp_path / "a.pt")
    with (
        zipfile.ZipFile(tmp_path / "a.pt") as archive,
        zipfile.ZipFile(tmp_path / "b.pt", "w", zipfile.ZIP_DEFLATED) as packed,
    ):
        for name in archive.namelist():
            packed.writestr(name, archive.read(name))
    refused(tmp_path / "b.pt", "compressed", "save it again")


def test_torch_lists_that_double_each_time(tmp_path: Path, monkeypatch: Any) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch writes the file")
    from fpemu.analysis.checkpoints import torch as reader

    monkeypatch.setattr(reader, "_OBJECTS", 10_000)
    doubled: list[Any] = []
    for _ in range(30):
        doubled = [doubled, doubled]
    torch.save({"w": torch.ones(2), "x": doubled}, tmp_path / "a.pt")
    refused(tmp_path / "a.pt", "10,000 objects")


def test_nested_torch_tensors_are_listed(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch writes the file")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the prototype that they are
        nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    torch.save({"n": nested, "w": torch.ones(2)}, tmp_path / "a.pt")
    found = scan(tmp_path / "a.pt", formats=["fp16"])
    assert [row.name for row in found.tensors] == ["w"]
    assert "nested" in found.uncounted[0].reason


_SHRINKS = """
import os, sys
from fpemu.analysis import scan
from fpemu.errors import InputError
try:
    scan(sys.argv[1], formats=["fp16"], progress=lambda *told: os.truncate(sys.argv[1], 4096))
except InputError as error:
    print(error)
"""


@pytest.mark.parametrize("suffix", [".pt", ".npy", ".npz"])
def test_a_file_that_shrinks_while_it_is_read(suffix: str, tmp_path: Path) -> None:
    """Of a mapped file the system would end the process."""
    path, values = tmp_path / f"a{suffix}", np.ones(1 << 21, np.float32)
    if suffix == ".pt":
        torch = pytest.importorskip("torch", reason="PyTorch writes the file")
        torch.save({"a": torch.ones(1000), "b": torch.from_numpy(values)}, path)
    elif suffix == ".npy":
        np.save(path, values)
    else:
        np.savez(path, a=values[:10], b=values)
    done = subprocess.run(
        [sys.executable, "-c", _SHRINKS, str(path)], capture_output=True, text=True, timeout=120,
        env=os.environ | {"PYTHONPATH": str(ROOT), "FPEMU_THREADS": "1"}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"checkpoint {str(path)!r}: ")
    assert done.stdout.count("\n") == 1


def test_messages_stay_short(tmp_path: Path) -> None:
    refused("x" * 5000, "cannot be read")
    with (tmp_path / "a.npz").open("wb") as file:
        np.savez(file, **{f"{k}{'x' * 1200}": np.float32([1]) for k in range(10)})
    with pytest.raises(InputError, match="no tensor is called so") as caught:
        scan(tmp_path / "a.npz", names="z" * 3000)
    assert len(str(caught.value)) < 600


def test_no_pattern_at_all_is_refused(tmp_path: Path) -> None:
    small(tmp_path / "a.safetensors")
    with pytest.raises(InputError, match="at least one pattern"):
        scan(tmp_path / "a.safetensors", names=[])
