"""mma against results recorded on real GPUs, and whether these can tell one model from another.

The recordings are those of github.com/north-numerical-computing/MATLAB-tensor-core (BSD-2-Clause,
Khattak and Mikaitis) as arrays: a_bits and b_bits, the operands' codes (float32 bits for TF32), c
in float32, and what the GPU gave. They are not part of this repository: the variable
FPEMU_VECTORS names the folder that holds tensorcore/*.npz.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import matrix_units
import numpy as np
import pytest
from support import assert_same_bits

import fpemu
from fpemu import tensorcore
from fpemu.tensorcore import AlignedSum, Chip, Unit

Array = np.ndarray[Any, Any]

CHIPS = {"v100": "volta", "a100": "ampere", "h100": "hopper"}
FORMATS = {"fp16": "float16", "bf16": "bfloat16", "tf32": "tf32", "e4m3": "float8_e4m3fn",
           "e5m2": "float8_e5m2"}  # fmt: skip
SETS = ("v100_fp16", "a100_fp16", "a100_bf16", "a100_tf32", "h100_fp16", "h100_bf16", "h100_tf32",
        "h100_e4m3", "h100_e5m2")  # fmt: skip
HALF_SETS = ("v100_fp16", "a100_fp16", "h100_fp16")
ROWS = 5000


class Recording(NamedTuple):
    """Rows of a, columns of b, c, and the sums in float32 and in float16."""

    chip: str
    form: str
    a: Array
    b: Array
    c: Array
    sums: dict[str, Array]

    def mma(self, chip: Chip | str, out: str = "float32") -> Array:
        rows = tensorcore.mma(self.a[:, None, :], self.b[:, :, None], self.c[:, None, None],
                              chip=chip, to=self.form, out=out)  # fmt: skip
        return rows.ravel()


def recorded(name: str) -> Recording:
    folder = os.environ.get("FPEMU_VECTORS")
    if not folder:
        pytest.skip("FPEMU_VECTORS does not name a folder of recorded results")
    path = Path(folder) / "tensorcore" / f"{name}.npz"
    if not path.exists():
        pytest.skip(f"no recorded results: {path} is not there")
    with np.load(path) as file:
        arrays = dict(file)
    gpu, kind = name.split("_")
    form = FORMATS[kind]
    a, b = (
        bits.view(np.float32) if form == "tf32" else fpemu.decode(bits, form)
        for bits in (arrays["a_bits"], arrays["b_bits"])
    )
    c = arrays["c"]
    assert len(a) == ROWS
    sums = {"float32": arrays["d_fp32"]}
    if form.startswith("float8"):  # the stored c was not used for these
        c = np.zeros_like(c)
    elif "d_fp16" in arrays:
        sums["float16"] = arrays["d_fp16"]
    return Recording(CHIPS[gpu], form, a, b, c, sums)


@pytest.mark.parametrize("name", SETS)
def test_float32_sums(name: str) -> None:
    found = recorded(name)
    assert_same_bits(found.mma(found.chip), found.sums["float32"], what=name)


@pytest.mark.parametrize("name", HALF_SETS)
def test_float16_sums(name: str) -> None:
    found = recorded(name)
    assert_same_bits(found.mma(found.chip, "float16"), found.sums["float16"], what=name)


@pytest.mark.parametrize("name", SETS)
def test_the_definition_gives_them_too(name: str) -> None:
    """The exact definition of the tests, on every seventh row, for each recorded sum."""
    found = recorded(name)
    rows = slice(0, ROWS, 7)
    for out, want in found.sums.items():
        unit = matrix_units.NVIDIA[found.chip, found.form, out]
        c = fpemu.round(found.c, out)
        forms = (found.form, found.form)
        terms = zip(found.a[rows].tolist(), found.b[rows].tolist(), c[rows].tolist(), strict=True)
        got = [matrix_units.dot(*row, forms, unit) for row in terms]
        assert_same_bits(np.float32(got), want[rows], what=(name, out))


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("change", ["fraction_bits", "rounding"])
def test_another_model_would_not_pass(name: str, change: str) -> None:
    """One bit more or less for each term, or sums to nearest: many recorded results differ."""
    found = recorded(name)
    unit = tensorcore.chips[found.chip].unit(found.form)
    rule = unit.sum
    assert isinstance(rule, AlignedSum)
    changes: list[dict[str, Any]] = [{"rounding": "nearest_even"}]
    if change == "fraction_bits":
        changes = [{change: rule.fraction_bits + more} for more in (-1, 1)]
    for other in changes:
        chip = Chip("other", (Unit(unit.formats, replace(rule, **other)),))
        wrong = (found.mma(chip) != found.sums["float32"]).sum()
        assert wrong > ROWS // 100, f"{name} with {other}: {wrong} of {ROWS} differ"


@pytest.mark.parametrize("name", ["h100_e4m3", "h100_e5m2"])
def test_the_fp8_sums_keep_13_bits(name: str) -> None:
    found = recorded(name)
    bits = found.sums["float32"].view(np.uint32)
    assert not (bits & np.uint32(0x3FF)).any()
    unit = tensorcore.chips["hopper"].unit(found.form)
    wide = Chip("wide", (Unit(unit.formats, AlignedSum(32, 25, -133)),))
    assert (found.mma(wide) != found.sums["float32"]).sum() > ROWS // 4


def test_every_set_is_there() -> None:
    """A set that were lost from the folder would be skipped above, and nobody would notice."""
    folder = os.environ.get("FPEMU_VECTORS")
    if not folder or not Path(folder, "tensorcore").is_dir():
        pytest.skip("FPEMU_VECTORS does not name a folder of recorded results")
    assert {path.stem for path in Path(folder, "tensorcore").glob("*.npz")} >= set(SETS)
