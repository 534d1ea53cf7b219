"""Scaled: what scaled formats take: round and quantize to packed codes, beside torchao's."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from fpemu.analysis.bench.peers import Array
from fpemu.kernels.plan import plan
from fpemu.scaling import FloatElement, Recipe, find_recipe

__all__ = ["RECIPES", "VERBS", "Scaler", "scalers"]

#: The recipes that are timed, as torchao computes them where it does.
RECIPES = ("torchao.mxfp8.floor", "torchao.mxfp4.floor", "torchao.nvfp4")
VERBS = ("scaled round", "quantize")

_ROW = 1024  # numbers of a row: whole blocks of every recipe


class Scaler(NamedTuple):
    """A library, and how it scales: (recipe, x, out, threads) -> calls by verb."""

    name: str
    prepare: Callable[[str, Array, Array, int], dict[str, Callable[[], object]]]


def scalers(peers: bool) -> Iterator[Scaler]:
    """Yield the libraries that are there."""
    yield Scaler("fpemu", _fpemu)
    if peers and importlib.util.find_spec("torchao") is not None:
        yield Scaler("torchao", _torchao)


def _fpemu(name: str, x: Array, out: Array, threads: int) -> dict[str, Callable[[], object]]:
    recipe = find_recipe(name)
    _specialise(recipe)
    rows, target = x.reshape(-1, _ROW), out.reshape(-1, _ROW)
    return {
        "scaled round": lambda: recipe.round(rows, out=target, threads=threads),
        "quantize": lambda: recipe.quantize(rows, packed=True, threads=threads),
    }


def _specialise(recipe: Recipe) -> None:
    """Build the loops that a recipe's element would get after much work."""
    assert isinstance(recipe.element, FloatElement)
    for verb in ("round", "encode"):
        plan(verb, recipe.element.cast, 32, 32, "scaled").specialise()


def _torchao(name: str, x: Array, out: Array, threads: int) -> dict[str, Callable[[], object]]:
    torch = importlib.import_module("torch")
    torch.set_num_threads(threads)
    rows = torch.from_numpy(x.reshape(-1, _ROW))
    with warnings.catch_warnings():  # of extensions for other machines
        warnings.simplefilter("ignore")
        logging.getLogger("torchao").setLevel(logging.CRITICAL)
        quantize, dequantize = (_nvfp4 if "nvfp4" in name else _mx)(torch, name, rows)
    return {"scaled round": lambda: dequantize(quantize()), "quantize": quantize}


def _mx(torch: Any, name: str, rows: Any) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    tensors = importlib.import_module("torchao.prototype.mx_formats.mx_tensor")
    config = importlib.import_module("torchao.prototype.mx_formats.config")
    dtype = torch.float8_e4m3fn if "mxfp8" in name else torch.float4_e2m1fn_x2
    mode = config.ScaleCalculationMode.FLOOR
    return (
        lambda: tensors.to_mx(rows, dtype, 32, mode),
        lambda made: tensors.to_dtype(made[1], made[0], dtype, 32, torch.float32),
    )


def _nvfp4(torch: Any, name: str, rows: Any) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    tensors = importlib.import_module("torchao.prototype.mx_formats.nvfp4_tensor")

    def quantize() -> Any:
        whole = tensors.per_tensor_amax_to_scale(rows.abs().max())
        return tensors.NVFP4Tensor.to_nvfp4(rows, 16, whole)

    return quantize, lambda made: made.dequantize(torch.float32)
