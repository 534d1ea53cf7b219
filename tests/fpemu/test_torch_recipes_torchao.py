"""Products by torchao's recipes, bit for bit torchao's own training layers, emulated on the CPU."""

from __future__ import annotations

import copy
import dataclasses
import warnings
from typing import Any

import pytest

from fpemu.policies import find_policy

torch = pytest.importorskip("torch", reason="emulate needs PyTorch")
pytest.importorskip("torchao", reason="torchao is not installed: pip install torchao")

from torch import nn  # noqa: E402

from fpemu.torch import emulate  # noqa: E402

SHAPES = [(64, 96, 64), (32, 160, 32)]


@pytest.fixture(autouse=True)
def _quiet() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torchao's own, of kernels that a CPU has not
        yield


def numbers(*shape: int, seed: int, size: float = 1.0) -> Any:
    random = torch.Generator().manual_seed(seed)
    sizes = torch.randn(*shape, generator=random).exp() * size
    return torch.randn(*shape, generator=random) * sizes


def case(tokens: int, inputs: int, outputs: int, dtype: Any) -> list[Any]:
    """x, w, b and the upper gradient, representable in a dtype."""
    made = (numbers(tokens, inputs, seed=0), numbers(outputs, inputs, seed=1, size=0.1),
            numbers(outputs, seed=2), numbers(tokens, outputs, seed=3, size=1e-3))  # fmt: skip
    return [x.to(dtype).float() for x in made]


def ours(policy: str, dtype: Any, x: Any, w: Any, b: Any, dy: Any) -> list[Any]:
    layer = nn.Linear(w.shape[1], w.shape[0], bias=b is not None)
    with torch.no_grad():
        layer.weight.copy_(w)
        if b is not None:
            layer.bias.copy_(b)
    x = x.clone().requires_grad_()
    base = str(dtype).removeprefix("torch.")
    with emulate(find_policy(f"{policy}; compute: {base}")):
        y = layer(x)
        y.backward(dy)
    return [y.detach(), x.grad, layer.weight.grad]


def same(got: list[Any], want: list[Any]) -> None:
    for index, (a, b) in enumerate(zip(got, want, strict=True)):
        b = b.detach().float()
        differ = int((a != b).sum())
        assert differ == 0, f"{('y', 'dx', 'dw')[index]}: {differ} of {a.numel()} differ"


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("recipe", ["tensorwise", "rowwise", "rowwise_with_gw_hp"])
def test_float8_linear(recipe: str, dtype: Any, shape: Any) -> None:
    """With a bias in float32 alone: torchao rounds to bfloat16 before it adds one, and again."""
    from torchao.float8 import Float8LinearConfig
    from torchao.float8.float8_linear import Float8Linear

    x, w, b, dy = case(*shape, dtype)
    bias = b if dtype is torch.float32 else None
    layer = nn.Linear(w.shape[1], w.shape[0], bias=bias is not None)
    with torch.no_grad():
        layer.weight.copy_(w)
        if bias is not None:
            layer.bias.copy_(bias)
    config = dataclasses.replace(Float8LinearConfig.from_recipe_name(recipe), emulate=True)
    real = Float8Linear.from_float(copy.deepcopy(layer), config).to(dtype)
    given = x.to(dtype).clone().requires_grad_()
    y = real(given)
    y.backward(dy.to(dtype))
    same(ours(f"torchao.float8.{recipe}", dtype, x, w, bias, dy), [y, given.grad, real.weight.grad])


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("mode", ["RCEIL", "FLOOR"])
def test_mxfp8_linear(mode: str, dtype: Any, shape: Any) -> None:
    module = pytest.importorskip(
        "torchao.prototype.moe_training.mxfp8_linear", reason="torchao 0.18 has it there"
    )
    x, w, _, dy = case(*shape, dtype)
    given, weight = (t.to(dtype).clone().requires_grad_() for t in (x, w))
    y = module.mx_mm.apply(
        given, weight, *[torch.float8_e4m3fn] * 3, 32, module.KernelPreference.EMULATED,
        module.MXFP8Dim0CastKernelChoice.TORCH, module.MXFP8Dim1CastKernelChoice.TORCH,
        module.ScaleCalculationMode[mode], False,
    )  # fmt: skip
    y.backward(dy.to(dtype))
    policy = f"torchao.mxfp8; products: torchao.mxfp8.{mode.lower()}"
    same(ours(policy, dtype, x, w, None, dy), [y, given.grad, weight.grad])
