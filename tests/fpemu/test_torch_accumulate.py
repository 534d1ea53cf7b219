"""Products added up by a chip or in a format, against the same by hand on NumPy arrays."""

from __future__ import annotations

import copy
import json
import pickle
from functools import partial
from typing import Any

import numpy as np
import pytest

import fpemu
from fpemu import arithmetic, tensorcore
from fpemu.arithmetic import Accumulation
from fpemu.errors import InputError
from fpemu.policies import Override, Policy, Products, find_policy
from fpemu.policies.accumulators import OnChip, make_accumulator
from fpemu.scaling import find_recipe

torch = pytest.importorskip("torch", reason="emulate needs PyTorch")

import linear_layers  # noqa: E402
from linear_layers import drawn  # noqa: E402
from torch import nn  # noqa: E402

from fpemu.torch import emulate  # noqa: E402

layer = partial(linear_layers.layer, bias=False)


def run(policy: Any, model: Any, x: Any, dy: Any, **options: Any) -> list[Any]:
    """y, and the gradients of x and of the weight, as arrays."""
    model, x = copy.deepcopy(model), x.clone().requires_grad_()
    with emulate(policy, **options):
        y = model(x)
        y.backward(dy)
    return [one.detach().numpy() for one in (y, x.grad, model.weight.grad)]


def same(got: Any, want: Any) -> None:
    for one, other in zip(got, want, strict=True):
        fpemu.testing.assert_same_bits(np.ascontiguousarray(one), np.ascontiguousarray(other))


def arrays(*tensors: Any) -> list[Any]:
    return [one.detach().numpy() for one in tensors]


def one_scale(x: Any, largest: float) -> Any:
    """The scale of a whole tensor, in float32: the largest code over the largest number."""
    return np.float32(largest / np.float64(np.abs(x).max()))


# --- one scale for a tensor ---------------------------------------------------------------------


def test_tensor_scales_are_applied_to_the_sums_of_hopper():
    """Current scaling: E4M3 and E5M2 elements go into the units, both scales to what comes out."""
    model, x, dy = layer(96, 24), drawn(40, 96, seed=1), drawn(40, 24, seed=2)
    got = run("te.current; compute: float32", model, x, dy, accumulate="hopper")
    x, w, dy = arrays(x, model.weight, dy)
    parts = []
    for array, name in ((x, "e4m3fn"), (w, "e4m3fn"), (dy, "e5m2")):
        scale = one_scale(array, fpemu.finfo(name).max)
        codes = fpemu.round(array * scale, f"{name}:overflow=saturate")
        parts.append((codes, np.float32(1) / scale))
    (x, i), (w, j), (dy, k) = parts
    e4, e5 = "e4m3fn", "e5m2"
    y = tensorcore.mma(x, w.T, chip="hopper", to=e4) * (i * j)
    dx = tensorcore.mma(dy, w, chip="hopper", to=(e5, e4)) * (k * j)
    dw = tensorcore.mma(dy.T, x, chip="hopper", to=(e5, e4)) * (k * i)
    same(got, (y, dx, dw))


def test_delayed_scales_start_at_one():
    """In its first step delayed scaling scales by 1: elements are the rounded numbers."""
    model, x, dy = layer(64, 16), drawn(8, 64, seed=1), drawn(8, 16, seed=2)
    policy = "te.delayed; compute: float32"
    got = run(policy, model, x, dy, accumulate="H100")
    x, w, dy = arrays(x, model.weight, dy)
    e4, e5 = "e4m3fn:overflow=saturate", "e5m2:overflow=saturate"
    y = tensorcore.mma(x, w.T, chip="hopper", to=e4)
    dx = tensorcore.mma(dy, w, chip="hopper", to=(e5, e4))
    dw = tensorcore.mma(dy.T, x, chip="hopper", to=(e5, e4))
    same(got, (y, dx, dw))
    plain = run(policy, model, torch.from_numpy(x), torch.from_numpy(dy))
    assert np.abs(plain[0] - got[0]).max() > 1e-5  # 13 bits of fraction are fewer than 24


def test_promotion_changes_the_sums_as_it_does_there():
    model, x, dy = layer(1024, 4), drawn(4, 1024).abs(), drawn(4, 4, seed=2)
    policy = Policy("fp8", "float32", products=Products("tensor fixed e4m3fn"),
                    operations={"linear": "scaled"})  # fmt: skip
    x, w = x, model.weight
    for text, promote in (("hopper", None), ("hopper(promote=128)", 128)):
        got = run(policy, model, x, dy, accumulate=text)[0]
        a, b = arrays(x, w)
        e4 = "e4m3fn:overflow=saturate"
        want = tensorcore.mma(a, b.T, chip="hopper", to=e4, promote=promote)
        same([got], [want])


# --- scales of blocks ---------------------------------------------------------------------------


def blocks(recipe: Any, x: Any) -> tuple[Any, Any]:
    """Elements, and each number's own factor, along the last axis."""
    scaled = recipe.quantize(np.ascontiguousarray(x))
    elements = recipe.element.decode(scaled.codes.reshape(-1)).reshape(x.shape)
    rows, columns = recipe.block.rows, recipe.block.columns
    grid = np.float32(recipe.rule.kept(scaled.scales, scaled.tensor_scale))
    grid = 1 / grid if recipe.rule.divides else grid
    wide = np.kron(grid, np.ones((rows, columns), np.float32))
    return elements, wide[: x.shape[0], : x.shape[1]]


def sliced(a: Any, b: Any, multiply: Any, span: int = 128) -> Any:
    """(rows, K) and (columns, K) of elements and factors: a sum for each slice of K."""
    (x, i), (y, j) = a, b
    total = np.zeros((x.shape[0], y.shape[0]), np.float32)
    for start in range(0, x.shape[1], span):
        cut = slice(start, start + span)
        partial = multiply(x[:, cut], y[:, cut].T)
        scale = np.outer(i[:, start], j[:, start])
        exact = scale.astype(np.float64) * partial + total  # 48 bits: one more rounding follows
        total = exact.astype(np.float32)
    return total


def test_deepseek_scales_each_slice_of_128():
    """1x128 and 128x128, the last slice and block not full; dw sums over the 200 tokens."""
    model, x, dy = layer(300, 150), drawn(200, 300, seed=1), drawn(200, 150, seed=2)
    got = run("deepseek; compute: float32", model, x, dy, accumulate="hopper")
    x, w, dy = arrays(x, model.weight, dy)
    lines, square = find_recipe("deepseek"), find_recipe("deepseek.weight")

    def hopper(a: Any, b: Any) -> Any:
        return tensorcore.mma(a, b, chip="hopper", to="e4m3fn")

    weight = blocks(square, w)
    y = sliced(blocks(lines, x), weight, hopper)
    dx = sliced(blocks(lines, dy), (weight[0].T, weight[1].T), hopper)
    dw = sliced(blocks(lines, dy.T), blocks(lines, x.T), hopper)
    for one, other in zip(got, (y, dx, dw), strict=True):
        off = np.abs(one - other) > np.spacing(np.abs(other))
        assert not off.any()  # at most the last bit, where a sum by hand is rounded twice
        assert (one == other).mean() > 0.9999


def test_blocks_in_a_format_of_sums():
    model, x, dy = layer(64, 8), drawn(4, 64, seed=1), drawn(4, 8, seed=2)
    got = run("mxfp8", model, x, dy, accumulate="bfloat16")[0]
    recipe = find_recipe("mxfp8")
    a, b = arrays(x, model.weight)
    want = sliced(blocks(recipe, a), blocks(recipe, b),
                  lambda p, q: arithmetic.matmul(p, q, "bfloat16"), 32)  # fmt: skip
    same([got], [want])


def test_what_is_not_known_of_block_scales_is_said():
    with emulate("te.mxfp8", accumulate="blackwell") as emulation:
        layer(64, 8)(drawn(4, 64))
    assert "blocks of 32 is not recorded" in emulation.not_emulated[0]
    with emulate("deepseek", accumulate="hopper") as emulation:
        layer(64, 8)(drawn(4, 64))
    assert emulation.not_emulated == []


# --- formats without scales ---------------------------------------------------------------------


@pytest.mark.parametrize("chip", ["volta", "hopper", "volta(out=float16)"])
def test_float16_autocast_on_chips(chip):
    model, x, dy = layer(48, 16), drawn(8, 48, seed=1), drawn(8, 16, seed=2)
    got = run("torch.autocast.cuda.float16", model, x, dy, accumulate=chip)
    x, w, dy = (fpemu.round(one, "float16") for one in arrays(x, model.weight, dy))
    name, out = chip.partition("(")[0], "float16" if "out" in chip else "float32"

    def mma(a: Any, b: Any) -> Any:
        made = tensorcore.mma(a, b, chip=name, to="float16", out=out)
        return fpemu.round(made, "float16")

    same(got, (mma(x, w.T), mma(dy, w), mma(dy.T, x)))


@pytest.mark.parametrize(
    "policy", ["uniform:float16", "torch.autocast.cuda.float16", "torch.half"]
)
def test_every_partial_sum_in_float16(policy):
    model, x = layer(300, 16), drawn(2, 3, 300, seed=1).abs()
    model.weight.data.abs_()
    with emulate(policy, accumulate=Accumulation("float16", block=100)), torch.no_grad():
        got = model(x.half().float() if policy != "torch.half" else x.half())
    a, b = (fpemu.round(one, "float16") for one in arrays(x, model.weight))
    want = arithmetic.matmul(a, b.T, "float16", block=100)
    same([got.numpy()], [want])
    assert np.abs(want - a @ b.T).max() > 0.02  # what float32 sums would not lose


def test_other_products_and_a_bias():
    """A bias joins in float32, before the result is rounded; batches are multiplied each."""
    model, x = layer(64, 16, bias=True), drawn(8, 64, seed=1)
    p, q = (fpemu.round(one, "float16") for one in (drawn(3, 8, 20), drawn(3, 20, 4, seed=2)))
    with emulate("uniform:float16", accumulate="volta"), torch.no_grad():
        got = model(x)
        batches = p @ q
    a, b, bias = (fpemu.round(one, "float16") for one in arrays(x, model.weight, model.bias))
    sums = tensorcore.mma(a, b.T, chip="volta", to="float16")
    same([got.numpy()], [fpemu.round(sums + bias, "float16")])
    want = tensorcore.mma(*arrays(p, q), chip="volta", to="float16")
    same([batches.numpy()], [fpemu.round(want, "float16")])


def test_an_override_gives_one_layer_an_accumulator():
    model = nn.Sequential(layer(200, 200), layer(200, 8))
    x = drawn(4, 200, seed=1)
    policy = find_policy("torch.autocast.cuda.float16").replace(
        overrides=[Override("none accumulate=float16", module="1")]
    )
    with emulate(policy, model=model), torch.no_grad():
        middle, y = model[0](x), model(x)
    with emulate("torch.autocast.cuda.float16"), torch.no_grad():
        same([middle.numpy()], [model[0](x).numpy()])
    weight = fpemu.round(model[1].weight.detach().numpy(), "float16")
    same([y.numpy()], [arithmetic.matmul(middle.numpy(), weight.T, "float16")])


def test_what_no_accumulator_reaches_is_named():
    with emulate("torch.autocast.cuda.float16", accumulate="hopper") as emulation:
        nn.Conv2d(1, 1, 3)(drawn(1, 1, 8, 8))
    assert emulation.not_emulated == [
        "conv2d: no accumulator reaches its products, which float32 adds up; write them as matmul"
    ]


# --- text, JSON, policies -----------------------------------------------------------------------

TEXTS = (
    "te.delayed accumulate=hopper", "mxfp4 accumulate=float16",
    "none accumulate=volta(out=float16)",
    "1x32 exponent(mode=fit) float4_e2m1fn accumulate=hopper(promote=128)",
    'x=mxfp8 w=none dy=mxfp8 accumulate="tf32:toward_zero(block=128, outer=float32)"',
    "te.mxfp8 accumulate=float16(order=pairwise)",
)  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
def test_text_and_json_both_ways(text):
    products = Products.of(text)
    assert products.accumulate is not None
    assert str(products) == text
    assert Products.of(str(products)) == products
    assert Products.from_json(json.loads(json.dumps(products.to_json()))) == products
    assert pickle.loads(pickle.dumps(products)) == products
    policy = Policy("mine", "bf16", products=products, operations={"linear": "scaled"},
                    overrides=[Override(products, module="a")])  # fmt: skip
    assert Policy.from_str(str(policy)) == policy
    assert Policy.from_json(json.loads(json.dumps(policy.to_json()))) == policy


def test_without_an_accumulator_facts_are_as_before():
    assert "accumulate" not in Products("mxfp8").to_json()
    assert Products.of("te.delayed").replace(accumulate="none").accumulate is None
    assert find_policy("te.delayed").accumulating(None) == find_policy("te.delayed")


def test_a_policys_name_with_an_accumulator():
    policy = find_policy("te.delayed accumulate=H100(promote=128)")
    assert policy.compute == find_policy("te.delayed").compute
    assert policy.products.accumulate == OnChip("hopper", promote=128)
    assert find_policy(policy.name) == policy
    assert policy.accumulating("ada").name == "te.delayed accumulate=ada"
    mixed = find_policy("te.delayed accumulate=hopper; override: to=mxfp4 module=head")
    assert str(mixed.scaling("linear", "head")) == "mxfp4 accumulate=hopper"


def test_a_chip_of_your_own():
    chip = tensorcore.Chip("mine", (tensorcore.Unit("fp16", tensorcore.AlignedSum(4, 10)),))
    model, x, dy = layer(64, 8), drawn(4, 64, seed=1), drawn(4, 8, seed=2)
    got = run("uniform:float16", model, x, dy, accumulate=chip)[0]
    a, b = (fpemu.round(one, "float16") for one in arrays(x, model.weight))
    same([got], [fpemu.round(tensorcore.mma(a, b.T, chip=chip, to="fp16"), "float16")])
    with pytest.raises(InputError, match="chip 'mine' is your own: JSON holds"):
        Products(None, accumulate=chip).to_json()


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("hoper", "'hoper' is no chip and no format; did you mean 'hopper'"),
        ("hopper(promoted=4)", "'promoted' is unknown here"),
        ("hopper(promote=0)", "must be an int, 1 or more"),
        ("hopper(128)", "is not one new fact=value"),
        ("volta(out=bf16)", "volta sums products in float32, float16"),
        ("float16(order=odd)", "must be one of"),
        ("fp16:stochastic", "sums are not rounded stochastically here"),
        (16, "give a chip or a format"),
    ],
)
def test_what_is_no_accumulator(value, said):
    with pytest.raises(InputError, match=said.replace("(", r"\(")):
        make_accumulator(value)


def test_refusals():
    with pytest.raises(InputError, match="given twice"):
        Products.of("mxfp8 accumulate=hopper accumulate=ada")
    with pytest.raises(InputError, match="sums are of both operands"):
        Override("mxfp8 accumulate=hopper", kind="weight")
    x = drawn(4, 64)
    for policy, chip, said in (
        ("te.delayed", "ampere", "ampere has no float8_e4m3fn in its matrix units"),
        ("te.nvfp4", "blackwell", "blackwell has no float4_e2m1fn in its matrix units"),
        ("mxfp8; override: to='none accumulate=hopper'", "hopper", "hopper has no float32"),
        ("keras.int8", "hopper", "of no float format"),
        ("te.current", "hopper(promote=100)", "must be a multiple of 32"),
        ("1x16 exponent float8_e4m3fn hadamard(size=16)", None, None),
        ("x='1x16 exponent float8_e4m3fn hadamard(size=16)' w=mxfp8", "float16",
         "one operand is rotated"),
    ):  # fmt: skip
        with emulate(policy, accumulate=chip, seed=0), torch.no_grad():
            if said is None:
                layer(64, 8)(x)
                continue
            with pytest.raises(InputError, match=said):
                layer(64, 8)(x)


def test_rotated_operands_are_multiplied_as_they_are():
    """The rotation is orthogonal: in float32 sums, the product is the one that is turned back."""
    recipe = "1x16 exponent float8_e4m3fn hadamard(size=16)"
    model, x, dy = layer(60, 8), drawn(20, 60, seed=1), drawn(20, 8, seed=2)
    for one, other in zip(run(recipe, model, x, dy, accumulate="float32"),
                          run(recipe, model, x, dy), strict=True):  # fmt: skip
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-5 * np.abs(other).max())


@pytest.mark.parametrize("name", ["te.current", "deepseek", "torchao.float8.rowwise", "nf4"])
def test_batches_by_scales_of_every_shape(name):
    """Elements, sums and factors make the product of what the recipe leaves, but for roundings."""
    recipe = find_recipe(name)
    a, b = drawn(3, 40, 200, seed=1), drawn(3, 200, 50, seed=2)
    with emulate(recipe, accumulate="float32"):
        got = (a @ b).numpy()
    right = np.ascontiguousarray(b.numpy().transpose(0, 2, 1))
    want = recipe.round(a.numpy()).astype(np.float64) @ recipe.round(right).transpose(0, 2, 1)
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-5 * np.abs(want).max())


def test_nothing_to_add_up():
    for accumulate in (None, "hopper", "float16"):
        with emulate("te.current", accumulate=accumulate):
            nothing = nn.functional.linear(torch.zeros(3, 0), torch.zeros(4, 0))
            assert torch.equal(nothing, torch.zeros(3, 4))
            assert layer(16, 4)(torch.zeros(0, 16)).shape == (0, 4)


# --- runs ---------------------------------------------------------------------------------------


def test_state_and_changes():
    """A run's state holds nothing of the accumulator, and a change of overrides keeps it."""
    states = []
    for chip in (None, "hopper"):
        model = layer(64, 8)
        with emulate("te.delayed", model=model, accumulate=chip) as emulation:
            model(drawn(4, 64)).sum().backward()
            states.append(emulation.state_dict())
            emulation.change("te.delayed; override: to=mxfp8 module=a")
            by = emulation.policy.products.accumulate
            assert (by is None) == (chip is None)
    assert states[0] == states[1]
    assert set(states[0]) == {"step", "seed", "drawn", "delayed"}


def train(accumulate: str | None, steps: int = 60) -> list[float]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 4))
    x = torch.randn(128, 32)
    wanted = (x[:, :4] * x[:, 4:8]).argmax(-1)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    losses = []
    with emulate("te.delayed", model=model, accumulate=accumulate):
        for _ in range(steps):
            loss = nn.functional.cross_entropy(model(x), wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses


def test_a_small_training_run():
    """It learns as with float32 sums, by other numbers; twice the same."""
    plain, chip = train(None), train("hopper")
    assert chip == train("hopper")
    assert chip != plain
    assert chip[-1] < 0.25 * chip[0]
    assert abs(chip[-1] - plain[-1]) < 0.1
