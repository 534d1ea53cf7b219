"""Scanned checkpoints against the arrays that other libraries wrote, counted directly."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fpemu
from fpemu.analysis import scan
from fpemu.analysis.checkpoints import counting, histogram
from fpemu.analysis.checkpoints.encodings import Encoding, Room, floats
from fpemu.analysis.checkpoints.kinds import kind_of
from fpemu.analysis.scales import safe_scales
from fpemu.analysis.trace import Trace
from fpemu.analysis.what_if import whatif
from fpemu.cast import make_cast
from fpemu.errors import InputError
from fpemu.moments import Moments, moments
from fpemu.rounding import round_exact

Array = np.ndarray[Any, Any]

#: safetensors dtype -> the type of numpy or ml_dtypes that it stores.
WHOLE = {
    "F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16,
    "F8_E4M3": ml_dtypes.float8_e4m3fn, "F8_E5M2": ml_dtypes.float8_e5m2,
    "F8_E4M3FNUZ": ml_dtypes.float8_e4m3fnuz, "F8_E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
    "F8_E8M0": ml_dtypes.float8_e8m0fnu,
}  # fmt: skip


def values(seed: int, n: int, spread: float = 20.0) -> Array:
    """Magnitudes over many binades, both signs, with zeros, NaN and infinity among them."""
    rng = np.random.default_rng(seed)
    x = np.exp2(rng.uniform(-spread, spread / 2, n)) * rng.choice([-1, 1], n)
    x[rng.integers(0, n, n // 10)] = 0.0
    x[: min(n, 3)] = (np.nan, np.inf, -np.inf)[: min(n, 3)]
    return x.astype(np.float32)


def write_safetensors(path: Path, tensors: dict[str, tuple[str, tuple[int, ...], bytes]]) -> None:
    """Write dtype, shape and bytes of each tensor, with the format's own library."""
    library = pytest.importorskip("safetensors", reason="safetensors writes the file")
    kept = {name: np.frombuffer(data, np.uint8) for name, (_, _, data) in tensors.items()}
    names = {"F32": "float32", "F16": "float16", "BF16": "bfloat16", "F64": "float64",
             "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu",
             "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz",
             "I64": "int64", "BOOL": "bool", "C64": "complex64"}  # fmt: skip
    specs = {
        name: library.TensorSpec(
            dtype=names[dtype], shape=list(shape), data_ptr=kept[name].ctypes.data,
            data_len=len(data),
        )
        for name, (dtype, shape, data) in tensors.items()
    }  # fmt: skip
    path.write_bytes(library.serialize(specs))


def by_hand(path: Path, tensors: dict[str, tuple[str, tuple[int, ...], bytes]]) -> None:
    """Write a safetensors file as its document says, for dtypes that no library writes."""
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    data = b"".join(data for _, _, data in tensors.values())
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def assert_counted(found: Any, name: str, x: Array) -> None:
    """A tensor's record in the trace is what its numbers, widened by numpy, give."""
    [record] = found.trace.records(name=name)
    wide = np.asarray(x).astype(np.float32).ravel()
    assert record.tally == fpemu.tally(wide)
    assert record.tally.total == wide.size
    assert_moments(record.moments, moments(wide))


def assert_moments(got: Moments, want: Moments) -> None:
    assert (got.count, got.amax, got.smallest_nonzero) == (
        want.count, want.amax, want.smallest_nonzero
    )  # fmt: skip
    for power, field in enumerate(("mean", "m2", "m3", "m4"), 1):
        a, b = getattr(got, field), getattr(want, field)
        room = 1e-9 * abs(b) + 1e-12 * want.count * want.amax**power
        assert (math.isnan(a) and math.isnan(b)) or abs(a - b) <= room, field


# --- kinds of files ----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", WHOLE)
def test_safetensors_of_every_whole_dtype(dtype: str, tmp_path: Path) -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        x = np.abs(values(1, 3000)).astype(WHOLE[dtype])
        x[1500:] = (-values(2, 1500)).astype(WHOLE[dtype])
    write_safetensors(
        tmp_path / "a.safetensors",
        {"w": (dtype, (30, 100), x.tobytes()), "empty": (dtype, (0, 4), b"")},
    )
    found = scan(tmp_path / "a.safetensors", formats=["fp16"])
    assert_counted(found, "w", x)
    w = next(row for row in found.tensors if row.name == "w")
    assert (w.dtype, w.shape, w.values, w.octets) == (dtype, (30, 100), 3000, x.nbytes)
    assert next(row for row in found.tensors if row.name == "empty").values == 0


@pytest.mark.parametrize(
    ("dtype", "peer", "bits"),
    [("F4", ml_dtypes.float4_e2m1fn, 4), ("F6_E2M3", ml_dtypes.float6_e2m3fn, 6),
     ("F6_E3M2", ml_dtypes.float6_e3m2fn, 6)],
)  # fmt: skip
def test_packed_dtypes_bit_by_bit(dtype: str, peer: Any, bits: int, tmp_path: Path) -> None:
    """Codes laid side by side from the lowest bit on, by one large integer."""
    codes = np.random.default_rng(3).integers(0, 1 << bits, 4 * 77)
    number = sum(int(code) << bits * place for place, code in enumerate(codes))
    data = number.to_bytes(len(codes) * bits // 8, "little")
    by_hand(tmp_path / "p.safetensors", {"w": (dtype, (4, 77), data)})
    found = scan(tmp_path / "p.safetensors", formats=["fp16"])
    assert_counted(found, "w", codes.astype(np.uint8).view(peer).astype(np.float32))


def test_the_library_reads_packed_files_that_are_written_by_hand(tmp_path: Path) -> None:
    library = pytest.importorskip("safetensors", reason="safetensors reads the file")
    by_hand(tmp_path / "p.safetensors", {"w": ("F4", (4, 6), bytes(12)),
                                         "v": ("F6_E2M3", (4,), bytes(3))})  # fmt: skip
    with library.safe_open(str(tmp_path / "p.safetensors"), "np") as file:
        assert file.get_slice("w").get_shape() == [4, 6]
        assert file.get_slice("v").get_dtype() == "F6_E2M3"


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f2", ">f2", "<f8", ">f8"])
def test_npz(save: Callable[..., None], dtype: str, tmp_path: Path) -> None:
    x = values(4, 2001, 8.0).astype(dtype)  # exact in float16's range or rounded by numpy here
    fortran = np.asfortranarray(x[:2000].reshape(40, 50))
    save(tmp_path / "a.npz", **{"layer/w": x, "t": fortran, "scalar": np.array(2.0, dtype)})
    found = scan(str(tmp_path / "a.npz"), formats=["fp16"])
    assert [row.name for row in found.tensors] == ["layer/w", "t", "scalar"]
    assert_counted(found, "layer/w", x)
    assert_counted(found, "t", fortran)
    assert found.tensors[2].shape == ()
    assert found.tensors[2].amax == 2.0


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_npy_of_every_version(version: tuple[int, int], tmp_path: Path) -> None:
    x = values(5, 500)
    with (tmp_path / "weights.npy").open("wb") as file:
        np.lib.format.write_array(file, x, version=version)
    found = scan(tmp_path / "weights.npy", formats=["fp16"])
    assert_counted(found, "weights", x)


def torch_types(torch: Any) -> list[Any]:
    return [torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.float8_e4m3fn,
            torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz]  # fmt: skip


def test_torch_files(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch writes the file")
    x = torch.from_numpy(values(6, 3000, 10.0))
    model = {str(dtype): x.to(dtype) for dtype in torch_types(torch)}
    model["view"] = x.reshape(50, 60).t()[3:40:2]
    model["parameter"] = torch.nn.Parameter(x[:10])
    model["zero_d"] = torch.tensor(3.0)
    state = {0: {"step": torch.tensor(9.0), "exp_avg": x[:7] * 2}}
    torch.save({"model": model, "optimizer": {"state": state}, "epoch": 3}, tmp_path / "c.pt")
    found = scan(tmp_path / "c.pt", formats=["fp16"])
    for name, tensor in model.items():
        assert_counted(found, f"model.{name}", tensor.detach().float().numpy())
    assert_counted(found, "optimizer.state.0.exp_avg", state[0]["exp_avg"].numpy())
    kinds = {row.name: row.kind for row in found.tensors}
    assert kinds["optimizer.state.0.exp_avg"] == "optimizer_state"
    assert kinds["model.view"] == "weight"


def test_a_torch_file_of_packed_pairs(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch writes the file")
    if not hasattr(torch, "float4_e2m1fn_x2"):
        pytest.skip("this PyTorch has no float4_e2m1fn_x2")
    octets = torch.arange(256, dtype=torch.uint8).view(8, 32)
    torch.save(octets.view(torch.float4_e2m1fn_x2), tmp_path / "pairs.pt")
    found = scan(tmp_path / "pairs.pt", formats=["fp16"])
    low, high = np.arange(256, dtype=np.uint8) & 15, np.arange(256, dtype=np.uint8) >> 4
    codes = np.stack([low, high], -1).reshape(8, 64)
    assert_counted(found, "pairs", codes.view(ml_dtypes.float4_e2m1fn).astype(np.float32))
    assert found.tensors[0].shape == (8, 64)


def test_a_torch_tensor_larger_than_a_piece_and_views_into_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch writes the file")
    monkeypatch.setattr(counting, "_PIECE", 1024)
    x = torch.from_numpy(values(7, 40_000))
    tensors = {
        "all": x, "again": x, "columns": x.view(200, 200)[:, 5:77],
        "turned": x.view(20, 40, 50).permute(2, 0, 1)[::3],
        "wide_rows": x.view(4, 10_000)[:, 1::2],
    }  # fmt: skip
    torch.save(tensors, tmp_path / "big.pt")
    found = scan(tmp_path / "big.pt", formats=["fp16"], threads=1)
    for name, tensor in tensors.items():
        assert_counted(found, name, tensor.numpy())


# --- pieces, codes, float64 --------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["F32", "BF16", "F64", "F4", "F6_E2M3"])
def test_pieces_add_up(dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bits = {"F32": 32, "BF16": 16, "F64": 64, "F4": 4, "F6_E2M3": 6}[dtype]
    rng = np.random.default_rng(8)
    data = values(8, 5000).astype(np.float64).tobytes() if dtype == "F64" else rng.bytes(9000)
    shape = (len(data) * 8 // bits,)
    by_hand(tmp_path / "a.safetensors", {"w": (dtype, shape, data)})
    whole = scan(tmp_path / "a.safetensors", formats=["fp16"])
    monkeypatch.setattr(counting, "_PIECE", 64)
    pieces = scan(tmp_path / "a.safetensors", formats=["fp16"], threads=2)
    [a], [b] = whole.trace.records(), pieces.trace.records()
    assert a.tally == b.tally
    assert_moments(a.moments, b.moments)


@pytest.mark.parametrize("dtype", ["F16", "BF16", "F8_E4M3", "F8_E5M2", "F4", "F6_E2M3", "F6_E3M2"])
def test_counting_codes_is_counting_numbers(
    dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = np.random.default_rng(9).bytes(21_000)
    bits = {"F16": 16, "BF16": 16, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6}.get(dtype, 8)
    by_hand(tmp_path / "a.safetensors", {"w": (dtype, (len(data) * 8 // bits,), data)})
    plain = scan(tmp_path / "a.safetensors", formats=["fp16"])
    monkeypatch.setattr(histogram, "_WORTH", 1)
    monkeypatch.setattr(histogram, "_FULL", 3000)
    monkeypatch.setattr(counting, "_PIECE", 512)
    codes = scan(tmp_path / "a.safetensors", formats=["fp16"], threads=2)
    [a], [b] = plain.trace.records(), codes.trace.records()
    assert a.tally == b.tally
    assert_moments(b.moments, a.moments)


@given(st.lists(st.tuples(st.floats(width=32), st.integers(0, 50)), max_size=20))
def test_tallies_of_counts(pairs: list[tuple[float, int]]) -> None:
    x, counts = np.float32([v for v, _ in pairs]), np.array([n for _, n in pairs], np.int64)
    repeated = np.repeat(x, counts)
    assert histogram.tally_of(x, counts) == fpemu.tally(repeated)
    got = histogram.moments_of(x, counts)
    finite = repeated[np.isfinite(repeated)].astype(np.float64)
    assert got.count == finite.size
    assert got.amax == (np.abs(finite).max() if finite.size else 0.0)
    if finite.size:
        assert got.mean == pytest.approx(finite.mean(), rel=1e-12, abs=1e-12 * got.amax)


@given(st.lists(st.floats(-3e38, 3e38), min_size=1, max_size=40), st.integers(-20, 20))
def test_float64_gives_what_the_exact_definition_does(numbers: list[float], k: int) -> None:
    """Rounded once, as the number that it is, and not by way of the nearest float32."""
    x = np.array(numbers)
    tiny = (np.abs(x) < 2.0**-149) & (x != 0)
    x = x[~tiny]
    ties = [(1 + 2.0**-11) * (1 + s * 2.0**-40) for s in (-1, 0, 1)]
    ties += [65520.0 * (1 + s * 2.0**-50) for s in (-1, 0, 1)]
    x = np.concatenate([x, ties])
    got = fpemu.tally(floats(x.copy().view(np.uint8), Encoding("float64", 64), Room(64)).copy())
    for to in ("float16", "bfloat16", "float8_e4m3fn"):
        outcome = got.outcome(to, 2.0**k).to_json()
        for field in ("zero", "overflow", "underflow", "subnormal", "normal"):
            want = sum(
                round_exact(make_cast(to), Fraction(v) * Fraction(2) ** k if v else v).outcome
                == field for v in map(float, x)
            )  # fmt: skip
            assert outcome[field] == want, (to, field)


def test_float64_beyond_float32_is_said(tmp_path: Path) -> None:
    np.save(tmp_path / "wide.npy", np.array([1e300, -1e-300, 1.0, 0.0, np.inf, np.nan]))
    [row] = scan(tmp_path / "wide.npy", formats=["bf16"]).tensors
    assert row.beyond_float32 == 2
    assert row.formats[0].unscaled.overflow == 1
    assert row.formats[0].unscaled.underflow == 1
    with pytest.raises(InputError, match="float64"):
        scan(tmp_path / "wide.npy", formats=["float32"])


# --- rows, names, several checkpoints ----------------------------------------------------------


def test_rows_are_what_whatif_says(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", fc1=values(10, 400), fc2=values(11, 300) * 1e-6)
    found = scan(tmp_path, formats=["fp16", "e4m3fn", "fp4"], tolerance=0.01)
    rows = whatif(found.trace, formats=["fp16", "e4m3fn", "fp4"], scales=1)
    got = [(t.name, loss.to, loss.lost_percent) for t in found.tensors for loss in t.formats]
    assert got == [(row.name, row.to, row.lost_percent) for row in rows]
    for tensor in found.tensors:
        tally = found.trace.total(name=tensor.name)
        for loss in tensor.formats:
            assert loss.safe == safe_scales(tally, loss.to, tolerance=0.01)
    for row in found.formats:
        losses = [loss for t in found.tensors for loss in t.formats if loss.to == row.to]
        assert row.safe == sum(loss.safe.unscaled for loss in losses)
        assert row.unsafe == sum(not loss.safe.safe for loss in losses)
        assert row.octets == {"float16": 1400, "float8_e4m3fn": 700, "float4_e2m1fn": 350}[row.to]


def test_the_trace_is_one_that_others_read(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", **{"w": values(12, 50), "m.exp_avg": values(13, 60)})
    found = scan(tmp_path)
    found.save(tmp_path / "a.fpemu")
    trace = Trace.load(tmp_path / "a.fpemu")
    assert trace.tensors() == [("w", "weight"), ("m.exp_avg", "optimizer_state")]
    assert trace.metadata["checkpoints"] == [str(tmp_path)]
    assert trace.total() == found.trace.total()


def test_checkpoints_of_one_run_are_steps(tmp_path: Path) -> None:
    for step in range(3):
        np.savez(tmp_path / f"{step}.npz", w=np.float32([step]), **{f"only{step}": np.float32([1])})
    found = scan([tmp_path / f"{step}.npz" for step in range(3)], formats=["fp16"])
    assert [(r.name, r.step) for r in found.tensors if r.name == "w"] == [
        ("w", 0), ("w", 1), ("w", 2)
    ]  # fmt: skip
    assert {r.step for r in found.tensors if r.name != "w"} == {0}
    assert [record.moments.amax for record in found.trace.records(name="w")] == [0, 1, 2]


def test_shards_with_and_without_their_index(tmp_path: Path) -> None:
    x = [values(20 + k, 100) for k in range(3)]
    for k in range(3):
        by_hand(tmp_path / f"m-{k}.safetensors", {f"w{k}": ("F32", (100,), x[k].tobytes())})
    folder = scan(tmp_path, formats=["fp16"])
    shards = {f"w{k}": f"m-{k}.safetensors" for k in range(2)}
    index = tmp_path / "m.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": shards}))
    for path in (tmp_path, index):
        found = scan(path, formats=["fp16"])
        assert [row.name for row in found.tensors] == ["w0", "w1"]
    assert [row.name for row in folder.tensors] == ["w0", "w1", "w2"]
    for k in range(3):
        assert_counted(folder, f"w{k}", x[k])


def test_a_folder_of_several_kinds_says_what_it_leaves_out(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.float32([1]))
    by_hand(tmp_path / "b.safetensors", {"w": ("F32", (1,), bytes(4))})
    (tmp_path / "training_args.bin").write_bytes(b"\x80\x02.")
    found = scan(tmp_path)
    assert [row.name for row in found.tensors] == ["w"]
    assert "a.npy, training_args.bin" in found.notes[0]


def test_tensors_that_are_not_counted_have_a_reason(tmp_path: Path) -> None:
    arrays = {"i": np.arange(3), "b": np.array([True]), "c": np.ones(2, np.complex64),
              "s": np.array(["x"]), "bf": np.ones(2, ml_dtypes.bfloat16),
              "rec": np.zeros(2, [("a", "<f4")]), "f": np.float32([1])}  # fmt: skip
    if np.dtype(np.longdouble).itemsize == 16:
        arrays["ld"] = np.ones(2, np.longdouble)
    np.savez(tmp_path / "a.npz", **arrays)
    found = scan(tmp_path / "a.npz")
    assert [row.name for row in found.tensors] == ["f"]
    reasons = {row.name: row.reason for row in found.uncounted}
    assert set(reasons) == set(arrays) - {"f"}
    assert "integers" in reasons["i"]
    assert "imaginary" in reasons["c"]
    assert "does not write which" in reasons["bf"]
    assert all(reasons.values())


def test_names_choose_tensors(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", **{"a.w": values(1, 5), "a.b": values(2, 5), "c.w": values(3, 5)})
    assert [r.name for r in scan(tmp_path, names="*.w").tensors] == ["a.w", "c.w"]
    assert [r.name for r in scan(tmp_path, names=["c*", "a.b"]).tensors] == ["a.b", "c.w"]
    with pytest.raises(InputError, match=r"name 'd\*': no tensor"):
        scan(tmp_path, names=["a.*", "d*"])


@pytest.mark.parametrize(
    ("name", "kind"),
    [("fc.weight", "weight"), ("state.3.exp_avg_sq", "optimizer_state"),
     ("optimizer.state.0.momentum_buffer", "optimizer_state"), ("x.MAX_EXP_AVG_SQ",
     "optimizer_state"), ("state_encoder.weight", "weight"), ("opt_state.0.mu", "optimizer_state"),
     ("fc.weight.grad", "weight_gradient"), ("gradient_layer.weight", "weight")],
)  # fmt: skip
def test_kinds_by_name(name: str, kind: str) -> None:
    assert kind_of(name) == kind


def test_the_answer_names_the_narrowest_format(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", w=np.float32([1.0, 2.0**-20]))
    answer = scan(tmp_path, formats=["fp16", "bf16", "e5m2"]).answer
    assert answer[0].startswith("Weights (1 tensor): float16 keeps all unscaled, in 4 B;")
    assert "float8_e5m2 with a scale for each, in 2 B" in answer[0]
    np.savez(tmp_path / "a.npz", w=np.float32([1e-30, 1.0]))
    assert "none of the formats tried" in scan(tmp_path, formats=["fp16"]).answer[0]
    np.savez(tmp_path / "a.npz", i=np.arange(2))
    assert scan(tmp_path).answer == ("There are no floating-point values to count.",)
