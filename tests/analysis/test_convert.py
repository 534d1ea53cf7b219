"""Converted checkpoints against what PyTorch and safetensors read of them, rounded at once."""

from __future__ import annotations

import json
import math
import os
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fpemu
from fpemu.analysis import convert
from fpemu.analysis.checkpoints import opened
from fpemu.analysis.conversion import container, decode, parts, tensor_seed
from fpemu.analysis.conversion.measure import measure, tops_of
from fpemu.analysis.conversion.part import Draw
from fpemu.analysis.conversion.targets import find_target
from fpemu.errors import InputError
from fpemu.scaling import find_recipe

torch = pytest.importorskip("torch", reason="PyTorch writes and reads the files")
library = pytest.importorskip("safetensors.torch", reason="safetensors reads what is written")

Array = np.ndarray[Any, Any]

#: Scales of powers of two, of a tensor, two levels, tiles, rows, integers, codebooks, packed codes.
RECIPES = ["mxfp8", "nvfp4", "te.current", "deepseek.weight", "nf4", "mxint8", "mxfp6_e2m3",
           "nvfp4.weight", "keras.int8", "torchao.float8.rowwise", "torchao.nvfp4", "mxint6",
           "tensor fixed(scale=16.0) int8.4"]  # fmt: skip


def tensors(seed: int = 0) -> dict[str, Any]:
    """Of several dtypes and shapes, some of an odd number of bytes."""
    rng = torch.Generator().manual_seed(seed)
    x = torch.randn(150, 96, generator=rng) * torch.logspace(-3, 3, 150)[:, None]
    return {
        "fc1.weight": x,
        "fc2.weight": torch.randn(33, 7, generator=rng).bfloat16(),
        "conv.weight": (torch.randn(3, 40, 50, generator=rng) * 0.02).half(),
        "odd.weight": torch.randn(5, 5, generator=rng).half(),
        "fc1.bias": torch.randn(5, generator=rng),
        "ids": torch.arange(7),
        "mask": torch.tensor([True, False, True]),
    }


def saved(path: Path, held: dict[str, Any] | None = None, **notes: str) -> Path:
    library.save_file(tensors() if held is None else held, path, metadata=notes or None)
    return path


def loaded(path: Path) -> dict[str, Any]:
    return dict(library.load_file(path))


def notes_in(path: Path) -> dict[str, str]:
    with pytest.importorskip("safetensors").safe_open(path, "pt") as file:
        return dict(file.metadata() or {})


def numbers(x: Any) -> Array:
    return np.asarray(x.double().numpy())


def same(a: Any, b: Array) -> None:
    np.testing.assert_array_equal(numbers(a), np.asarray(b, np.float64))


# --- values --------------------------------------------------------------------------------------


@pytest.mark.parametrize("to", RECIPES)
def test_values_are_the_recipes(to: str, tmp_path: Path) -> None:
    held = tensors()
    done = convert(saved(tmp_path / "a.safetensors"), to, tmp_path / "b.safetensors")
    found = loaded(tmp_path / "b.safetensors")
    assert set(found) == set(held)
    assert {row.name for row in done.tensors} == {n for n in held if n.endswith(".weight")}
    for name, x in held.items():
        assert found[name].shape == x.shape
        if not name.endswith(".weight"):
            assert found[name].dtype == x.dtype
            assert torch.equal(found[name], x)
            continue
        want = find_recipe(to).round(x.float().numpy())
        same(found[name], want)
        exact = (torch.from_numpy(want).to(x.dtype).float().numpy() == want).all()
        assert found[name].dtype == (x.dtype if exact else torch.float32)
    assert {row.name for row in done.tensors if row.widened} == {
        name for name, x in held.items() if found[name].dtype != x.dtype
    }


@pytest.mark.parametrize("axis", [-1, 0])
@pytest.mark.parametrize(
    "to", ["nvfp4.hadamard", "1x16 exponent fp4 hadamard(size=64, signs=5)"]
)
def test_rotated_recipes(
    to: str, axis: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.randn(192, 128, generator=torch.Generator().manual_seed(2))
    x[3, 5] = 50
    source = saved(tmp_path / "a.safetensors", {"w": x})
    monkeypatch.setattr(parts, "PIECE", 64 * 128)
    done = convert(source, to, tmp_path / "b.safetensors", axis=axis)
    convert(source, to, tmp_path / "c.safetensors", axis=axis, codes=True)
    decode(tmp_path / "c.safetensors", tmp_path / "d.safetensors")
    for name in "bd":
        found = loaded(tmp_path / f"{name}.safetensors")["w"]
        same(found, find_recipe(to).round(x.numpy(), axis=axis))
    assert done.tensors[0].measured.clipped is None  # what is clipped is no number of the tensor
    assert done.tensors[0].to_json()["clipped_percent"] is None


def test_casts_round_each_number(tmp_path: Path) -> None:
    source = saved(tmp_path / "a.safetensors")
    for to, dtype in (("bf16", torch.bfloat16), ("fp16", torch.float16)):
        convert(source, to, tmp_path / "b.safetensors", only="*", force=True)
        found = loaded(tmp_path / "b.safetensors")
        for name, x in tensors().items():
            if x.is_floating_point():
                assert torch.equal(found[name].float(), x.to(dtype).float())


def test_float64_is_rounded_once(tmp_path: Path) -> None:
    x = torch.tensor([[1 + 2.0**-9 + 2.0**-40, 2.0**-200, 3.0]], dtype=torch.float64)
    source = saved(tmp_path / "a.safetensors", {"w": x})
    done = convert(source, "bf16", tmp_path / "b.safetensors")
    found = loaded(tmp_path / "b.safetensors")["w"]
    assert found.dtype == torch.float64
    assert found.tolist() == [[1.0, 0.0, 3.0]]
    assert not done.notes
    done = convert(source, "mxfp8", tmp_path / "c.safetensors")
    same(loaded(tmp_path / "c.safetensors")["w"], find_recipe("mxfp8").round(x.float().numpy()))
    assert "made float32 first" in done.notes[0]


def test_what_a_dtype_does_not_hold(tmp_path: Path) -> None:
    source = saved(tmp_path / "a.safetensors", {"w": tensors()["fc2.weight"]})
    want = find_recipe("nvfp4").round(tensors()["fc2.weight"].float().numpy())
    with pytest.raises(InputError, match="'w': BF16 does not hold every result exactly"):
        convert(source, "nvfp4", tmp_path / "b.safetensors", inexact="refuse")
    assert sorted(os.listdir(tmp_path)) == ["a.safetensors"]
    done = convert(source, "nvfp4", tmp_path / "b.safetensors", inexact="round")
    found = loaded(tmp_path / "b.safetensors")["w"]
    assert torch.equal(found, torch.from_numpy(want).bfloat16())
    assert done.tensors[0].rounded_again
    assert any("rounded a second time" in line for line in done.answer)
    x, q = numbers(tensors()["fc2.weight"]), numbers(found)
    sqnr = 10 * math.log10((x**2).sum() / ((q - x) ** 2).sum())
    assert done.tensors[0].measured.sqnr == pytest.approx(sqnr)


@pytest.mark.parametrize("widened", [True, False])
def test_every_tensor_is_aligned(widened: bool, tmp_path: Path) -> None:
    """Even where a tensor of an odd size becomes float32, or stays, before others."""
    rng = torch.Generator().manual_seed(1)
    held = {
        f"w{k}": torch.randn(shape, generator=rng).to(dtype)
        for k, (shape, dtype) in enumerate([
            ((3, 3), torch.bfloat16), ((5, 3), torch.half), ((2, 2), torch.bfloat16),
            ((3, 1), torch.float64), ((1, 3), torch.bfloat16), ((7, 7), torch.float8_e4m3fn),
        ])
    }  # fmt: skip
    held |= {"b": torch.tensor([True]), "n": torch.tensor([1, 2, 3], dtype=torch.int16)}
    to = "1x2 exponent e5m2" if not widened else "te.current"
    source = saved(tmp_path / "a.safetensors", held)
    convert(source, to, tmp_path / "b.safetensors", only="w*")
    data = (tmp_path / "b.safetensors").read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__")
    width = {"F64": 8, "F32": 4, "BF16": 2, "F16": 2, "I16": 2, "F8_E4M3": 1, "BOOL": 1}
    for facts in header.values():
        assert (8 + size + facts["data_offsets"][0]) % width[facts["dtype"]] == 0
    assert any(facts["dtype"] == "F32" for facts in header.values()) or not widened
    for name, x in held.items():
        want = find_recipe(to).round(x.float().numpy()) if name[0] == "w" else numbers(x)
        same(loaded(tmp_path / "b.safetensors")[name], want)


# --- pieces --------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [-1, 0, 1])
@pytest.mark.parametrize("codes", [False, True])
def test_pieces_make_the_same_file(
    axis: int, codes: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = {name: x for name, x in tensors().items() if name.endswith("weight")}
    held["flat"] = torch.randn(1000, generator=torch.Generator().manual_seed(3))
    source = saved(tmp_path / "a.safetensors", held)
    for to in (*RECIPES, "bf16", "fp6_e2m3", "1x16 exponent fp4:stochastic"):
        flat = ["flat"] if axis == 1 or "weight" in to else None
        asked: dict[str, Any] = {
            "axis": axis, "codes": codes, "only": "*", "skip": flat, "force": True, "seed": 7
        }
        whole = convert(source, to, tmp_path / "whole.safetensors", **asked)
        with monkeypatch.context() as patch:
            patch.setattr(parts, "PIECE", 700)
            cut = convert(source, to, tmp_path / "cut.safetensors", **asked)
        first, second = ((tmp_path / f"{n}.safetensors").read_bytes() for n in ("whole", "cut"))
        assert first == second
        for a, b in zip(whole.tensors, cut.tensors, strict=True):
            assert a.measured.noise == pytest.approx(b.measured.noise)
            assert (a.measured.lost, a.measured.clipped) == (b.measured.lost, b.measured.clipped)


def test_values_along_another_axis(tmp_path: Path) -> None:
    source = saved(tmp_path / "a.safetensors")
    convert(source, "nvfp4", tmp_path / "b.safetensors", axis=0)
    found, x = loaded(tmp_path / "b.safetensors"), tensors()["conv.weight"]
    same(found["conv.weight"], find_recipe("nvfp4").round(x.float().numpy(), axis=0))
    with pytest.raises(InputError, match=r"weight': axis=2: it has 2 dimensions"):
        convert(source, "nvfp4", tmp_path / "c.safetensors", axis=2)


def test_stochastic_draws_are_each_tensors_own(tmp_path: Path) -> None:
    x = torch.full((64, 32), 1.1)
    source = saved(tmp_path / "a.safetensors", {"a": x, "b": x.clone()})
    to = "1x32 exponent e4m3fn:stochastic"
    with pytest.raises(InputError, match="needs a seed"):
        convert(source, to, tmp_path / "b.safetensors")
    convert(source, to, tmp_path / "b.safetensors", seed=3)
    found = loaded(tmp_path / "b.safetensors")
    for name in "ab":
        same(found[name], find_recipe(to).round(x.numpy(), seed=tensor_seed(3, name)))
    assert not torch.equal(found["a"], found["b"])


def test_memory_does_not_grow_with_a_tensor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library.save_file({"w": torch.ones(4096, 2048)}, tmp_path / "a.safetensors")
    monkeypatch.setattr(parts, "PIECE", 1 << 16)
    asked = {"codes": True, "force": True, "threads": 1}
    convert(tmp_path / "a.safetensors", "nvfp4", tmp_path / "b.safetensors", **asked)
    tracemalloc.start()
    convert(tmp_path / "a.safetensors", "nvfp4", tmp_path / "b.safetensors", **asked)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 24e6  # of a tensor of 33.6 MB


# --- codes ---------------------------------------------------------------------------------------

_FP4 = np.float32([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def halves(octets: Any, columns: int) -> Array:
    """The FP4 values of bytes, two in each, the low half first."""
    octets = octets.numpy()
    pairs = np.stack([octets & 15, octets >> 4], -1)
    return np.asarray(_FP4[pairs.reshape(*octets.shape[:-1], -1)[..., :columns]])


def each(scales: Any, block: int, columns: int) -> Array:
    """Each number's scale."""
    return np.repeat(scales.float().numpy(), block, axis=-1)[..., :columns]


def coded(to: str, tmp_path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    source = saved(tmp_path / "a.safetensors")
    convert(source, to, tmp_path / "b.safetensors", codes=True)
    return loaded(tmp_path / "b.safetensors"), tensors()


def test_codes_of_mxfp8(tmp_path: Path) -> None:
    found, held = coded("mxfp8", tmp_path)
    for name in ("fc1.weight", "fc2.weight", "conv.weight"):
        codes, scales = found[name], found[f"{name}_scale"]
        assert (codes.dtype, scales.dtype) == (torch.float8_e4m3fn, torch.float8_e8m0fnu)
        x = held[name].float().numpy()
        assert scales.shape == (*x.shape[:-1], -(-x.shape[-1] // 32))
        want = find_recipe("mxfp8").round(x)
        np.testing.assert_array_equal(
            codes.float().numpy() * each(scales, 32, x.shape[-1]), want
        )
    assert torch.equal(found["ids"], held["ids"])


def test_codes_of_nvfp4(tmp_path: Path) -> None:
    found, held = coded("nvfp4", tmp_path)
    for name in ("fc1.weight", "fc2.weight", "conv.weight", "odd.weight"):
        codes, scales, whole = (found[name + end] for end in ("", "_scale", "_scale_2"))
        assert (codes.dtype, scales.dtype, whole.shape) == (torch.uint8, torch.float8_e4m3fn, ())
        x = held[name].float().numpy()
        assert codes.shape == (*x.shape[:-1], -(-x.shape[-1] // 2))
        scale = each(scales, 16, x.shape[-1]) * (np.float32(1) / whole.numpy())
        want = find_recipe("nvfp4").round(x)
        np.testing.assert_array_equal(halves(codes, x.shape[-1]) * scale, want)


def test_codes_of_tiles_integers_and_casts(tmp_path: Path) -> None:
    found, held = coded("deepseek.weight", tmp_path)
    x = held["fc1.weight"].numpy()
    scale = found["fc1.weight_scale"]
    assert (scale.dtype, scale.shape) == (torch.float32, (2, 1))
    tile = np.repeat(scale.numpy(), 128, axis=0)[:150]
    got = found["fc1.weight"].float().numpy() * tile
    np.testing.assert_array_equal(got, find_recipe("deepseek.weight").round(x))
    convert(tmp_path / "a.safetensors", "mxint8", tmp_path / "c.safetensors", codes=True)
    found = loaded(tmp_path / "c.safetensors")
    got = found["fc1.weight"].float().numpy() / 64 * each(found["fc1.weight_scale"], 32, 96)
    np.testing.assert_array_equal(got, find_recipe("mxint8").round(x))
    convert(tmp_path / "a.safetensors", "bf16", tmp_path / "d.safetensors", codes=True)
    found = loaded(tmp_path / "d.safetensors")
    assert torch.equal(found["fc1.weight"], held["fc1.weight"].bfloat16())
    assert not [name for name in found if "scale" in name]


@pytest.mark.parametrize("axis", [-1, 0])
@pytest.mark.parametrize("to", [*RECIPES, "bf16", "fp6_e2m3", "e4m3fn"])
def test_codes_become_the_same_values_again(
    to: str, axis: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = saved(tmp_path / "a.safetensors", None, format="pt", who="me")
    convert(source, to, tmp_path / "v.safetensors", axis=axis)
    done = convert(source, to, tmp_path / "c.safetensors", axis=axis, codes=True)
    back = decode(tmp_path / "c.safetensors", tmp_path / "d.safetensors")
    monkeypatch.setattr(parts, "PIECE", 700)
    decode(tmp_path / "c.safetensors", tmp_path / "e.safetensors")
    want, found = loaded(tmp_path / "v.safetensors"), loaded(tmp_path / "d.safetensors")
    assert {n: (x.dtype, x.shape) for n, x in want.items()} == {
        n: (x.dtype, x.shape) for n, x in found.items()
    }
    for name, x in want.items():
        same(found[name], numbers(x))
    one, other = ((tmp_path / f"{n}.safetensors").read_bytes() for n in "de")
    assert one == other
    assert (back.tensors, back.octets) == (len(done.tensors), done.to_octets)
    notes = notes_in(tmp_path / "d.safetensors")
    assert notes["who"] == "me"
    assert "fpemu.codes" not in notes


def test_scalars_and_notes_of_no_text(tmp_path: Path) -> None:
    held = {"s": torch.tensor(0.3), "v": torch.tensor([0.3, 0.7, -1.2]).half()}
    for to in ("mxfp4", "nvfp4", "mxfp6_e2m3", "te.current", "keras.int8", "bf16"):
        source = saved(tmp_path / "a.safetensors", held)
        asked = {"only": "*", "force": True}
        convert(source, to, tmp_path / "v.safetensors", **asked)
        convert(source, to, tmp_path / "c.safetensors", codes=True, **asked)
        decode(tmp_path / "c.safetensors", tmp_path / "d.safetensors", force=True)
        for name, x in loaded(tmp_path / "v.safetensors").items():
            assert torch.equal(x, loaded(tmp_path / "d.safetensors")[name])
            assert x.shape == held[name].shape
            if to != "bf16":
                same(x, find_recipe(to).round(held[name].float().numpy()))
    # half of a surrogate pair, which JSON can spell and UTF-8 cannot hold
    text = '{"__metadata__":{"a":"\\ud800"},"s":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}'
    data = len(text).to_bytes(8, "little") + text.encode() + bytes(4)
    (tmp_path / "e.safetensors").write_bytes(data)
    convert(tmp_path / "e.safetensors", "bf16", tmp_path / "f.safetensors")
    assert notes_in(tmp_path / "f.safetensors")["a"] == "\\ud800"


def test_codes_that_contradict_their_note(tmp_path: Path) -> None:
    source = saved(tmp_path / "a.safetensors", {"w": torch.ones(4, 32)})
    with pytest.raises(InputError, match="says of no codes"):
        decode(source, tmp_path / "b.safetensors")
    convert(source, "mxfp8", tmp_path / "c.safetensors", codes=True)
    held, notes = loaded(tmp_path / "c.safetensors"), notes_in(tmp_path / "c.safetensors")
    facts = json.loads(notes["fpemu.codes"])
    for change, match in (
        ({"axis": 5}, "axis=5"),
        ({"tensors": {"w": {"dtype": "F32", "shape": [4, 33]}}}, "is not there as F8_E4M3 of 4x33"),
        ({"tensors": {"w": {"dtype": "F32", "shape": [2**60, 33]}}}, "cannot be read"),
        ({"tensors": {"v": {"dtype": "F32", "shape": [4, 32]}}}, "'v' is not there"),
        ({"tensors": {"w": {"dtype": "X", "shape": [4, 32]}}}, "cannot be read"),
        ({"tensors": [1]}, "cannot be read"),
        ({"recipe": {"name": "mxfp8"}}, "cannot be read"),
        ({"recipe": find_recipe("nvfp4").to_json()}, "is not there as U8 of 4x16"),
    ):
        text = json.dumps(facts | change)
        library.save_file(held, tmp_path / "d.safetensors", notes | {"fpemu.codes": text})
        with pytest.raises(InputError, match=match):
            decode(tmp_path / "d.safetensors", tmp_path / "e.safetensors")
    library.save_file(held, tmp_path / "d.safetensors", notes | {"fpemu.codes": "[" * 9999})
    with pytest.raises(InputError, match="cannot be read"):
        decode(tmp_path / "d.safetensors", tmp_path / "e.safetensors")
    assert not (tmp_path / "e.safetensors").exists()


# --- what is converted ---------------------------------------------------------------------------


def test_what_is_kept_and_why(tmp_path: Path) -> None:
    held = {
        "fc.weight": torch.randn(4, 4),
        "fc.bias": torch.randn(4),
        "q.weight": torch.randn(4, 4).to(torch.float8_e4m3fn),
        "q.weight_scale_inv": torch.ones(2, 2),
        "optimizer.state.0.exp_avg": torch.ones(4, 4),
        "none": torch.ones(0, 4),
        "ids": torch.arange(3),
    }
    source = saved(tmp_path / "a.safetensors", held)
    done = convert(source, "bf16", tmp_path / "b.safetensors")
    assert [row.name for row in done.tensors] == ["fc.weight"]
    why = {row.name: row.reason for row in done.kept}
    assert {name: text.split()[0] for name, text in why.items()} == {
        "fc.bias": "fewer", "q.weight": "stored", "q.weight_scale_inv": "the",
        "optimizer.state.0.exp_avg": "an", "none": "no", "ids": "integers,",
    }  # fmt: skip
    done = convert(source, "bf16", tmp_path / "c.safetensors", only=["*bias", "q.*"],
                   skip="*_inv", drop=["ids", "opt*"])  # fmt: skip
    assert {row.name for row in done.tensors} == {"fc.bias", "q.weight"}
    assert set(done.dropped) == {"ids", "optimizer.state.0.exp_avg"}
    assert set(loaded(tmp_path / "c.safetensors")) == set(held) - set(done.dropped)
    for option in ("only", "skip", "drop"):
        with pytest.raises(InputError, match="no tensor is called so; there are"):
            convert(source, "bf16", tmp_path / "d.safetensors", **{option: "fc.wieght"})
    assert not (tmp_path / "d.safetensors").exists()


def test_notes_are_kept(tmp_path: Path) -> None:
    source = saved(tmp_path / "a.safetensors", None, format="pt", who="me")
    convert(source, "mxfp4", tmp_path / "b.safetensors")
    notes = notes_in(tmp_path / "b.safetensors")
    assert (notes["format"], notes["who"]) == ("pt", "me")
    assert notes["fpemu.to"] == str(find_recipe("mxfp4"))
    assert notes["fpemu.version"] == fpemu.__version__


def test_names_that_collide(tmp_path: Path) -> None:
    source = saved(tmp_path / "a.safetensors", {"w": torch.ones(2, 2), "w_scale": torch.ones(2)})
    convert(source, "mxfp8", tmp_path / "b.safetensors")
    with pytest.raises(InputError, match="'w_scale': the new file would hold two"):
        convert(source, "mxfp8", tmp_path / "c.safetensors", codes=True)
    np.savez(tmp_path / "d.npz", __metadata__=np.ones((2, 2)))
    with pytest.raises(InputError, match="__metadata__"):
        convert(tmp_path / "d.npz", "mxfp8", tmp_path / "c.safetensors")


# --- other files ---------------------------------------------------------------------------------


def test_numpys_orders(tmp_path: Path) -> None:
    """Fortran's order and the other byte order come out as numpy reads them."""
    rng = np.random.default_rng(0)
    held = {
        "f": np.asfortranarray(rng.standard_normal((40, 70)).astype(np.float32)),
        "big": rng.standard_normal((6, 40)).astype(">f4"),
        "wide": rng.standard_normal((6, 40)).astype(">f8"),
        "ints": np.arange(12).reshape(3, 4).astype(">i4"),
        "fints": np.asfortranarray(np.arange(24, dtype=np.int16).reshape(2, 3, 4)),
        "halves": np.asfortranarray(np.arange(6).reshape(2, 3).astype(">f2")),
        "bools": np.asfortranarray(np.arange(6).reshape(2, 3) % 2 == 0),
        "complex": np.array([1 + 2j], np.complex64),
        "scalar": np.float32(2.5),
    }
    np.savez_compressed(tmp_path / "a.npz", **held)
    done = convert(tmp_path / "a.npz", "mxfp6_e2m3", tmp_path / "b.safetensors", skip="halves")
    found = loaded(tmp_path / "b.safetensors")
    assert {row.name for row in done.tensors} == {"f", "big", "wide"}
    for name, x in held.items():
        y = x.astype(x.dtype.newbyteorder("="))
        if name in ("f", "big", "wide"):
            y = find_recipe("mxfp6_e2m3").round(y.astype(np.float32))
        np.testing.assert_array_equal(found[name].numpy(), y)
        assert found[name].numpy().dtype.itemsize == x.dtype.itemsize
    assert notes_in(tmp_path / "b.safetensors")["format"] == "pt"


def test_pytorchs_views(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(48, 70, generator=rng)
    held = {
        "model": {
            "t": x.T, "part": x[3:40:2, 5:], "moved": torch.randn(3, 4, 32).permute(2, 0, 1),
            "last": torch.randn(8, 3, 5, 5).to(memory_format=torch.channels_last),
        },
        "ids": torch.arange(12).reshape(3, 4).T, "bools": torch.tensor([[True, False]]).T,
        "half": x.bfloat16(), "lr": 0.1,
    }  # fmt: skip
    torch.save(held, tmp_path / "a.pt")
    monkeypatch.setattr(parts, "PIECE", 500)
    done = convert(tmp_path / "a.pt", "mxfp4", tmp_path / "b.safetensors")
    found = loaded(tmp_path / "b.safetensors")
    model = {f"model.{name}": x for name, x in held["model"].items()}  # type: ignore[attr-defined]
    for name, x in (model | {"half": held["half"]}).items():
        same(found[name], find_recipe("mxfp4").round(x.float().numpy()))
    for name in ("ids", "bools"):
        assert torch.equal(found[name], held[name])
    assert any("Only tensors were written" in note for note in done.notes)


def test_what_safetensors_cannot_hold(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", w=np.ones((2, 2), np.float32), z=np.ones(2, np.complex128))
    with pytest.raises(InputError, match=r"'z' of <c16: no dtype of safetensors holds it"):
        convert(tmp_path / "a.npz", "bf16", tmp_path / "b.safetensors")
    done = convert(tmp_path / "a.npz", "bf16", tmp_path / "b.safetensors", drop="z")
    assert done.dropped == ("z",)


# --- shards --------------------------------------------------------------------------------------


def shards(folder: Path) -> dict[str, Any]:
    """A checkpoint of two files with an index."""
    held = tensors()
    names = list(held)
    weights = {}
    folder.mkdir()
    for place, chosen in enumerate((names[:3], names[3:])):
        file = f"model-0000{place + 1}-of-00002.safetensors"
        library.save_file({name: held[name] for name in chosen}, folder / file, {"format": "pt"})
        weights |= dict.fromkeys(chosen, file)
    index = {"metadata": {"total_size": 1}, "weight_map": weights}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return held


@pytest.mark.parametrize("codes", [False, True])
def test_shards_stay_and_get_an_index(codes: bool, tmp_path: Path) -> None:
    held = shards(tmp_path / "a")
    done = convert(tmp_path / "a", "mxfp8", tmp_path / "b", codes=codes)
    assert sorted(os.listdir(tmp_path / "b")) == sorted(os.listdir(tmp_path / "a"))
    index = json.loads((tmp_path / "b" / "model.safetensors.index.json").read_text())
    for name, file in index["weight_map"].items():
        found = loaded(tmp_path / "b" / file)[name]
        if not codes and name.endswith(".weight"):
            same(found, find_recipe("mxfp8").round(held[name].float().numpy()))
    extra = {f"{n}_scale" for n in held if n.endswith(".weight")} if codes else set()
    assert set(index["weight_map"]) == set(held) | extra
    assert index["metadata"]["total_size"] == done.to_octets
    if codes:
        decode(tmp_path / "b", tmp_path / "c")
        convert(tmp_path / "a", "mxfp8", tmp_path / "d")
        for file in done.files:
            want = loaded(tmp_path / "d" / file)
            for name, x in loaded(tmp_path / "c" / file).items():
                assert torch.equal(x, want[name])


def test_where_a_checkpoint_may_go(tmp_path: Path) -> None:
    shards(tmp_path / "a")
    single = saved(tmp_path / "one.safetensors")
    there = saved(tmp_path / "there.safetensors")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "config.json").write_text("{}")
    link = tmp_path / "link.safetensors"
    link.symlink_to(single)
    for path, out, force, match in (
        (single, single, True, "it is the checkpoint that is read"),
        (single, link, True, "it is the checkpoint that is read"),
        (single, there, False, "it is there already; give another place, or force it"),
        (single, tmp_path, True, "it is the checkpoint that is read"),
        (tmp_path / "a", tmp_path / "a", True, "it is the checkpoint that is read"),
        (tmp_path / "a", tmp_path / "b.safetensors", False, "the checkpoint has 2 files"),
        (tmp_path / "a", tmp_path / "full", False, "that folder is not empty"),
        (single, tmp_path / "no" / "b.safetensors", False, "there is no folder"),
        (single, 3, False, "it is no path"),
    ):
        with pytest.raises(InputError, match=match):
            convert(path, "bf16", out, force=force)  # type: ignore[arg-type]
    convert(single, "bf16", there, force=True)
    convert(tmp_path / "a", "bf16", tmp_path / "full", force=True)
    assert len(os.listdir(tmp_path / "full")) == 4
    assert (tmp_path / "full" / "config.json").read_text() == "{}"


def test_a_name_in_two_shards(tmp_path: Path) -> None:
    for n in "xy":
        (tmp_path / "a").mkdir(exist_ok=True)
        saved(tmp_path / "a" / f"{n}.safetensors", {"w": torch.ones(2, 2)})
    with pytest.raises(InputError, match="'w' is in another file too"):
        convert(tmp_path / "a", "bf16", tmp_path / "b")
    assert os.listdir(tmp_path) == ["a"]


# --- all or nothing ------------------------------------------------------------------------------


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_nothing_half_written_is_left(
    error: BaseException, several: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if several:
        shards(tmp_path / "a")
    source = tmp_path / "a" if several else saved(tmp_path / "a.safetensors")
    out = tmp_path / ("b" if several else "b.safetensors")
    convert(source, "bf16", out)
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    put, calls = container.Container.put, []

    def fails(self: Any, at: int, octets: Array) -> None:
        calls.append(at)
        if len(calls) > 4:
            raise error
        put(self, at, octets)

    monkeypatch.setattr(container.Container, "put", fails)
    want = InputError if isinstance(error, OSError) else KeyboardInterrupt
    with pytest.raises(want, match="No space left" if want is InputError else None):
        convert(source, "mxfp4", out, force=True)
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before
    assert not list(tmp_path.rglob(".fpemu*"))


def test_a_file_that_ends_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = saved(tmp_path / "a.safetensors")
    data = source.read_bytes()
    read = opened._fill

    def shrinks(file: Any, path: str, start: int, room: memoryview) -> None:
        if start > 1000:
            source.write_bytes(data[:1000])
        read(file, path, start, room)

    monkeypatch.setattr(opened, "_fill", shrinks)
    with pytest.raises(InputError, match="damaged: it ends at byte"):
        convert(source, "bf16", tmp_path / "b.safetensors")
    assert os.listdir(tmp_path) == ["a.safetensors"]


# --- what is measured ----------------------------------------------------------------------------


def test_measures_are_those_of_numpy(tmp_path: Path) -> None:
    x = tensors()["fc1.weight"].clone()
    x[0, :4] = torch.tensor([float("nan"), 0.0, float("inf"), -1.0])
    source = saved(tmp_path / "a.safetensors", {"w": x})
    for to in ("mxfp4", "te.mxfp8", "mxint4", "fp16", "e4m3fn"):
        row = convert(source, to, tmp_path / "b.safetensors", force=True).tensors[0].measured
        before, after = numbers(x), numbers(loaded(tmp_path / "b.safetensors")["w"])
        finite = np.isfinite(before)
        before = np.where(finite, before, 0)
        both = finite & np.isfinite(after)
        after = np.where(both, after, np.nan)
        assert row.nonfinite == 2
        assert row.nonzero == np.count_nonzero(before[finite])
        assert row.broken == (finite & ~np.isfinite(after)).sum()
        assert row.lost == ((before != 0) & (after == 0) & both).sum()
        assert row.signal == pytest.approx((before[both] ** 2).sum())
        assert row.noise == pytest.approx(((before - after)[both] ** 2).sum())
        kept = both & (after != 0) & (before != 0)
        errors = np.abs(after - before)[kept] / np.abs(before[kept])
        assert row.relative == pytest.approx(errors.max())
        assert row.sqnr == pytest.approx(10 * math.log10(row.signal / row.noise))


def test_clipped_numbers_by_hand(tmp_path: Path) -> None:
    # the scale is 2^floor(log2 7.5) / 4 = 1: 6 is the largest
    x = torch.tensor([[7.5, -6.5, 6.0, 5.9, 1.0, 0.0]])
    source = saved(tmp_path / "a.safetensors", {"w": x})
    row = convert(source, "mxfp4", tmp_path / "b.safetensors").tensors[0].measured
    assert row.clipped == 2
    fitted = convert(source, "mxfp4.fit", tmp_path / "b.safetensors", force=True)
    assert fitted.tensors[0].measured.clipped == 0
    # beyond 448: 460 still rounds to it, 480 does not fit
    x = torch.tensor([[448.0, 449.0, -460.0, 480.0]])
    source = saved(tmp_path / "a.safetensors", {"w": x})
    row = convert(source, "e4m3fn", tmp_path / "b.safetensors", force=True).tensors[0].measured
    assert (row.clipped, row.broken) == (2, 1)


def test_zeros_and_nothing_are_measured() -> None:
    for to, x, want in (
        ("mxfp8", np.zeros((2, 32)), math.inf),
        ("torchao.nvfp4", np.zeros((2, 32)), math.inf),
        ("fp16", np.full((2, 2), 1e9), math.nan),
    ):
        target = find_target(to)
        numbers32 = x.astype(np.float32)
        part = target.part(numbers32, 1, None, Draw(None, 0), 1)
        found = measure(numbers32, part.values, part, tops_of(target), target.limit)
        np.testing.assert_equal(found.sqnr, want)
    assert found.broken == 4


def test_the_worst_come_first(tmp_path: Path) -> None:
    held = {
        "fine": torch.ones(2, 2), "noisy": torch.tensor([[1.0, 1.01]]),
        "broken": torch.tensor([[1.0, 1e9]]),
    }  # fmt: skip
    source = saved(tmp_path / "a.safetensors", held)
    done = convert(source, "fp16", tmp_path / "b.safetensors")
    assert [row.name for row in done.worst] == ["broken", "noisy", "fine"]
    assert "1 finite value became infinite or NaN, in 1 tensor: broken." in done.answer
