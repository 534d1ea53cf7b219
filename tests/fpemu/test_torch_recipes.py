"""Products by recipes in an emulation, against the same written out by hand with NumPy."""

from __future__ import annotations

import copy
import itertools
import math
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

import fpemu
from fpemu.errors import InputError
from fpemu.policies import PRODUCTS, Override, Policy, Products, find_policy
from fpemu.scaling import Recipe, find_recipe

torch = pytest.importorskip("torch", reason="emulate needs PyTorch")

import torch.nn.functional as F  # noqa: E402
from linear_layers import drawn, layer  # noqa: E402
from torch import nn  # noqa: E402

from fpemu.torch import emulate  # noqa: E402

RECIPES = ("mxfp8", "mxfp4", "te.mxfp8", "te.block", "deepseek", "te.current", "keras.int8",
           "torchao.float8.rowwise", "nvfp4", "nf4", "1x8 exponent(mode=fit) fp4")  # fmt: skip


def run(policy: Any, model: Any, x: Any, dy: Any, **options: Any) -> list[Any]:
    """y, and the gradients of x and of the parameters."""
    model, x = copy.deepcopy(model), x.clone().requires_grad_()
    with emulate(policy, **options):
        y = model(x)
        y.backward(dy)
    return [y.detach(), x.grad, *(p.grad for p in model.parameters())]


def along(recipe: Any, array: Any, axis: int) -> Any:
    """Rounded by blocks along an axis, brought to the end in memory of its own."""
    if recipe is None:
        return array
    if axis == 1:
        return recipe.round(np.ascontiguousarray(array))
    return recipe.round(np.array(array.T, order="C")).T


def by_hand(products: Products, x: Any, w: Any, b: Any, dy: Any) -> list[Any]:
    """A linear layer's three products and its bias, on arrays of two dimensions."""
    x, w, b, dy = (one.detach().numpy() for one in (x, w, b, dy))
    y = along(products.x, x, 1) @ along(products.w, w, 1).T + b
    dx = along(products.dy, dy, 1) @ along(products.dgrad_w, w, 0)
    dw = along(products.wgrad_dy, dy, 0).T @ along(products.wgrad_x, x, 0)
    return [y, dx, dw, dy.sum(0)]


def close(got: Any, want: Any, tolerance: float = 1e-5) -> None:
    """Equal but for the order of sums: a code that differs would be off by far more."""
    for a, b in zip(got, want, strict=True):
        a, b = (x.numpy() if isinstance(x, torch.Tensor) else x for x in (a, b))
        scale = max(float(np.abs(b).max(initial=0)), 1e-30)
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * scale)


# --- the three products ------------------------------------------------------------------------


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("shape", [(40, 72, 24), (7, 33, 5), (1, 1, 1), (130, 140, 150)])
def test_three_products_by_hand(name: str, shape: tuple[int, int, int]) -> None:
    tokens, inputs, outputs = shape
    model, x, dy = layer(inputs, outputs), drawn(tokens, inputs), drawn(tokens, outputs, seed=1)
    got = run(find_recipe(name), model, x, dy)  # a policy may have the same name
    close(got, by_hand(Products(name), x, model.weight, model.bias, dy))


#: Those that neither draw bits nor look back: the same in any step.
PLAIN = sorted(name for name, p in PRODUCTS.items() if not p.delays and name != "te.nvfp4")


@pytest.mark.parametrize("name", PLAIN)
def test_what_real_systems_do_by_hand(name: str) -> None:
    model, x, dy = layer(200, 136), drawn(160, 200), drawn(160, 136, seed=1)
    got = run(find_policy(f"{name}; compute: float32"), model, x, dy)
    close(got, by_hand(PRODUCTS[name], x, model.weight, model.bias, dy))


def test_each_operand_may_have_its_own_recipe() -> None:
    names = ("mxfp8", "mxfp4", "te.current.e5m2", "nf4", None, "mxint8")
    products = Products(*names[:3], dgrad_w=names[3], wgrad_dy=names[4], wgrad_x=names[5])
    model, x, dy = layer(64, 48), drawn(40, 64), drawn(40, 48, seed=1)
    close(run(products, model, x, dy), by_hand(products, x, model.weight, model.bias, dy))


def test_blocks_follow_the_axis_that_each_product_sums_over() -> None:
    """One number of x a column apart from the others: only its own block may suffer."""
    x = torch.ones(64, 64)
    x[0, 0] = 2.0**20
    dy = torch.ones(64, 32)
    _, _, dw = run("mxfp4", layer(64, 32, bias=False), x, dy)
    lost = (dw == 2.0**20) | (dw == 32 + 2.0**20)  # in the sum over the 64 rows
    assert lost[:, 0].all(), "rows 0 to 31 of column 0 share the scale"
    assert (dw[:, 1:] == 64).all(), "no other column of x does"


@pytest.mark.parametrize("leading", [(), (3,), (2, 3), (2, 1, 4)])
def test_any_number_of_leading_dimensions(leading: tuple[int, ...]) -> None:
    model = layer(40, 24)
    x, dy = drawn(*leading, 40), drawn(*leading, 24, seed=1)
    got = run("mxfp8", model, x, dy)
    flat = run("mxfp8", model, x.reshape(-1, 40), dy.reshape(-1, 24))
    assert got[0].shape == dy.shape
    assert got[1].shape == x.shape
    for a, b in zip(got, flat, strict=True):
        assert torch.equal(a.reshape(b.shape), b)


def test_no_rows_at_all() -> None:
    y, dx, dw, db = run("te.nvfp4", layer(8, 4), torch.zeros(0, 8), torch.zeros(0, 4))
    assert y.shape == (0, 4)
    assert dx.shape == (0, 8)
    assert not dw.any()
    assert not db.any()


def test_only_what_is_asked_for_is_computed() -> None:
    model = layer(32, 16).requires_grad_(False)
    x = drawn(8, 32).requires_grad_()
    with emulate("mxfp8"):
        model(x).sum().backward()
    assert x.grad is not None
    assert model.weight.grad is None
    with emulate("mxfp8"):
        y = model(x.detach())
    assert not y.requires_grad


@pytest.mark.parametrize("name", ["mxfp8", "nvfp4", "te.current"])
def test_other_products(name: str) -> None:
    """matmul, mm, bmm, addmm, baddbmm, mv and operators: the same as linear, and one by one."""
    recipe = find_recipe(name)  # by its name alone, "te.current" is the policy
    a, b, c = drawn(24, 48), drawn(48, 16, seed=1), drawn(16, seed=2)
    want = along(recipe, a.numpy(), 1) @ along(recipe, b.numpy(), 0)
    with emulate(recipe):
        made = [a @ b, torch.mm(a, b), a.matmul(b), F.linear(a, b.T), torch.addmm(c, a, b) - c,
                torch.addmm(c, a, b, beta=0, alpha=2) / 2]  # fmt: skip
        vector = torch.mv(a, b[:, 0])
    for one in made:
        close([one], [want])
    close([vector], [along(recipe, a.numpy(), 1) @ along(recipe, b[:, :1].numpy(), 0)[:, 0]])


@pytest.mark.parametrize(("left", "right"), [((5, 8, 32), (5, 32, 4)), ((2, 3, 8, 32), (32, 4)),
                                             ((2, 1, 8, 32), (3, 32, 4)), ((32,), (3, 32, 4)),
                                             ((3, 8, 32), (32,))])  # fmt: skip
def test_batches_of_products(left: Any, right: Any) -> None:
    """Blocks never reach over from one matrix of a batch to the next."""
    a, b = drawn(*left).requires_grad_(), drawn(*right, seed=1).requires_grad_()
    with emulate("mxfp8"):
        y = a @ b
        dy = drawn(*y.shape, seed=2)
        y.backward(dy)
    recipe = find_recipe("mxfp8")

    def rounded(x: Any, axis: int) -> Any:
        return torch.from_numpy(recipe.round(x.detach().numpy(), axis=axis))

    A, B = a if a.dim() > 1 else a[None], b if b.dim() > 1 else b[:, None]
    DY = dy if a.dim() > 1 else dy.unsqueeze(-2)
    DY = DY if b.dim() > 1 else DY.unsqueeze(-1)
    close([y.detach()], [(rounded(A, -1) @ rounded(B, -2)).reshape(y.shape)])
    da = rounded(DY, -1) @ rounded(B, -1).mT
    close([a.grad], [da.sum_to_size(A.shape).reshape(a.shape)])
    if b.dim() > 2 and a.dim() > 1:
        db = rounded(A, -2).mT @ rounded(DY, -2)
        close([b.grad], [db.sum_to_size(B.shape)])


# --- the base precision ------------------------------------------------------------------------


def bf16(x: Any) -> Any:
    return fpemu.round(x.detach().numpy() if isinstance(x, torch.Tensor) else x, "bfloat16")


def test_all_else_is_bfloat16_autocast() -> None:
    """Inputs come as bfloat16, weights as they are; results and gradients are bfloat16."""
    model, x, dy = layer(64, 48), drawn(40, 64), drawn(40, 48, seed=1)
    got = run("te.mxfp8", model, x, dy)
    x, bias, dy = (torch.from_numpy(bf16(one)) for one in (x, model.bias, dy))
    want = by_hand(PRODUCTS["te.mxfp8"], x, model.weight, bias, dy)
    for a, b in zip(got, map(bf16, want), strict=True):
        differ = a.numpy() != b  # sums in another order, at a tie
        assert differ.mean() < 0.01
        np.testing.assert_allclose(a.numpy(), b, rtol=2**-7, atol=0)
    with emulate("te.mxfp8") as emulation:
        y = model(x)
        found = [emulation.format(t).format.name for t in (y, y.relu(), y.softmax(-1), y @ y.T)]
    assert found == ["bfloat16", "bfloat16", "float32", "bfloat16"]


def test_a_recipe_alone_leaves_all_else_in_float32() -> None:
    with emulate(find_recipe("mxfp8")) as emulation:
        y = layer(32, 16)(drawn(8, 32))
        assert emulation.format(y).format.name == "float32"


def test_gradients_of_weights_are_float32_tensors() -> None:
    model = layer(32, 16)
    with emulate("te.current") as emulation:
        model(drawn(8, 32)).sum().backward()
        assert emulation.format(model.weight.grad).format.name == "float32"
        through = torch.from_numpy(bf16(model.weight.grad))
    assert torch.equal(model.weight.grad, through)


# --- what is not reached -----------------------------------------------------------------------


def test_te_scales_linear_layers_and_nothing_else() -> None:
    policy = find_policy("te.mxfp8")
    scaled = [name for name, rule in policy.operations.items() if rule.value == "scaled"]
    assert scaled == ["linear"]
    a, b = drawn(16, 32), drawn(32, 16, seed=1)
    with emulate("te.mxfp8") as emulation:
        y = a @ b
    want = bf16(bf16(a) @ bf16(b))
    assert (y.numpy() == want).mean() > 0.99
    assert emulation.not_emulated == []


@pytest.mark.parametrize("run_it", [
    lambda x: F.conv1d(x[None], x[:, :3].unsqueeze(1).expand(-1, 8, -1)),
    lambda x: torch.einsum("ij,kj->ik", x, x),
    lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None]),
    lambda x: torch.tensordot(x, x.T, 1),
    lambda x: nn.LSTM(32, 4)(x)[0],
])  # fmt: skip
def test_products_that_recipes_do_not_reach_are_named(run_it: Any) -> None:
    x = drawn(8, 32)
    torch.manual_seed(0)
    plain = run_it(x)
    torch.manual_seed(0)
    with emulate("mxfp4") as emulation:
        y = run_it(x)
    torch.testing.assert_close(y, plain)
    assert [note for note in emulation.not_emulated if "recipes do not reach its products" in note]


def test_a_gradient_of_a_gradient_is_refused() -> None:
    model, x = layer(32, 16), drawn(8, 32).requires_grad_()
    with emulate("mxfp8"), pytest.raises(InputError, match="create_graph=True"):
        torch.autograd.grad(model(x).sum(), x, create_graph=True)


def test_float64_is_left_alone() -> None:
    x = drawn(8, 32).double()
    with emulate("mxfp4"):
        y = x @ x.T
    np.testing.assert_allclose(y, x.numpy() @ x.numpy().T, rtol=1e-12)


# --- special numbers ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*sorted(set(PRODUCTS) - {"te.delayed"}), "mxfp4", "nf4"])
def test_gradients_of_zero_are_zero(name: str) -> None:
    _, dx, dw, db = run(name, layer(40, 24), drawn(16, 40), torch.zeros(16, 24))
    assert not dx.any()
    assert not dw.any()
    assert not db.any()


@pytest.mark.parametrize("name", ["te.mxfp8", "te.block", "deepseek", "torchao.mxfp8", "mxfp4"])
def test_a_nan_spoils_its_block_alone(name: str) -> None:
    dy = drawn(40, 24)
    dy[3, 5] = math.nan
    _, dx, dw, _ = run(name, layer(40, 24), drawn(40, 40), dy)
    assert dx.isnan().all(1).nonzero().tolist() == [[3]]
    assert dw.isnan().any(1).nonzero().tolist() == [[5]]


@pytest.mark.parametrize("name", ["te.current", "torchao.float8.tensorwise", "te.nvfp4"])
def test_a_nan_spoils_a_tensor_that_has_one_scale(name: str) -> None:
    dy = drawn(40, 24)
    dy[3, 5] = math.nan
    _, dx, dw, _ = run(name, layer(40, 24), drawn(40, 40), dy)
    assert dx.isnan().all()
    assert dw.isnan().all()


def test_infinity_is_what_the_recipe_makes_of_it() -> None:
    dy = drawn(40, 24)
    dy[3, 5] = math.inf
    products = PRODUCTS["te.block"]
    model, x = layer(40, 24), drawn(40, 40)
    got = run("te.block; compute: float32", model, x, dy)
    want = by_hand(products, x, model.weight, model.bias, dy)
    close(got[:3], want[:3])
    assert np.isfinite(want[1]).all(), "TransformerEngine scales by 1 there, and saturates"


# --- stochastic rounding and rotation ----------------------------------------------------------


def test_stochastic_gradients_are_right_on_average() -> None:
    model, x, dy = layer(32, 16, bias=False), drawn(16, 32), drawn(16, 16, seed=1)
    plain = run(Products(None), model, x, dy)
    recipe = 'x=none w=none dy="1x16 exponent(mode=fit) fp4:stochastic"'  # it never clips
    runs = [run(recipe, model, x, dy, seed=seed) for seed in range(200)]
    again = run(recipe, model, x, dy, seed=3)
    assert all(torch.equal(a, b) for a, b in zip(again, runs[3], strict=True))
    assert not torch.equal(runs[0][1], runs[1][1])
    for index in (1, 2):
        all_of_them = torch.stack([one[index] for one in runs])
        error = (all_of_them.mean(0) - plain[index]).abs()
        spread = all_of_them.std(0) / math.sqrt(len(runs)) + 0.01 * plain[index].abs()
        assert (error < 5 * spread + 1e-6).all()


def test_without_a_seed_the_bits_are_pytorchs() -> None:
    model, x, dy = layer(32, 16), drawn(16, 32), drawn(16, 16, seed=1)
    made = []
    for seed in (5, 5, 6):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            emulation = emulate("te.nvfp4")
            mine, copied = copy.deepcopy(model), x.clone().requires_grad_()
            with emulation:
                mine(copied).backward(dy)
        made.append(mine.weight.grad)
    assert torch.equal(made[0], made[1])
    assert not torch.equal(made[0], made[2])


@pytest.mark.parametrize("tokens", [32, 40, 3])
def test_a_rotation_cancels_where_nothing_else_rounds(tokens: int) -> None:
    """Groups that are not full are filled up with zeros, which take part in the product."""
    rotated = "1x16 fixed float32 hadamard(size=16, signs=54248)"
    model, x, dy = layer(32, 16), drawn(tokens, 32), drawn(tokens, 16, seed=1)
    close(run(Products(rotated), model, x, dy), run(Products(None), model, x, dy), 1e-5)


def test_rotated_products_by_hand() -> None:
    """In the rotated numbers themselves, as the hardware multiplies them."""
    from scipy.linalg import hadamard

    recipe = find_recipe("nvfp4.hadamard")
    model, x, dy = layer(48, 32, bias=False), drawn(40, 48), drawn(40, 32, seed=1)
    *_, dw = run(Products(None, wgrad_x=recipe, wgrad_dy=recipe), model, x, dy)
    signs = np.array([-1.0 if recipe.rotation.signs >> i & 1 else 1.0 for i in range(16)])
    turn = np.kron(np.eye(3), hadamard(16) * signs / 4).astype(np.float32)

    def rotated(array: Any) -> Any:
        filled = np.zeros((48, array.shape[1]), np.float32)
        filled[:40] = array
        return find_recipe("nvfp4").round(turn @ filled, axis=0)

    close([dw], [rotated(dy.numpy()).T @ rotated(x.numpy())], 2e-2)


# --- exceptions --------------------------------------------------------------------------------


def network() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(),
                         nn.Linear(32, 8))  # fmt: skip


def outputs(policy: Any, x: Any) -> dict[str, Any]:
    """What each linear layer was given and gave."""
    model, found = network(), {}
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            module.register_forward_hook(
                lambda m, args, out, name=name: found.update({name: (m, args[0], out)})
            )
    with torch.no_grad(), emulate(policy):
        model(x)
    return found


def test_layers_have_exceptions() -> None:
    policy = find_policy(
        "te.mxfp8; compute: float32; override: to=mxfp4 module=2; override: to=float32 module=4"
    )
    recipes = {"0": find_recipe("te.mxfp8"), "2": find_recipe("mxfp4"), "4": None}
    for name, (module, x, y) in outputs(policy, drawn(16, 32)).items():
        w = along(recipes[name], module.weight.detach().numpy(), 1)
        want = along(recipes[name], x.numpy(), 1) @ w.T + module.bias.detach().numpy()
        close([y], [want])


def test_a_recipe_for_a_layer_under_another_policy() -> None:
    policy = Policy("mine", "float32", overrides=[Override("mxfp4", module="2")])
    found = outputs(policy, drawn(16, 32))
    module, x, y = found["2"]
    recipe = find_recipe("mxfp4")
    want = along(recipe, x.numpy(), 1) @ along(recipe, module.weight.detach().numpy(), 1).T
    close([y], [want + module.bias.detach().numpy()])
    module, x, y = found["0"]
    close([y], [F.linear(x, module.weight, module.bias).detach()])


def test_one_kind_of_operand_has_an_exception() -> None:
    policy = find_policy("mxfp8; override: to=nf4 kind=weight; override: to=bf16 kind=gradient")
    model, x, dy = layer(64, 48), drawn(40, 64), drawn(40, 48, seed=1)
    got = run(policy, model, x, dy)
    products = Products("mxfp8", w="nf4", dy=None)
    rounded = torch.from_numpy(bf16(dy))
    want = by_hand(products, x, model.weight, model.bias, rounded)
    close(got[:3], want[:3])
    close(got[3:], [dy.sum(0)])


def test_exceptions_by_step() -> None:
    model, x = layer(32, 16), drawn(8, 32)
    policy = find_policy("mxfp8; override: to=mxfp4 steps=1..")
    with torch.no_grad(), emulate(policy, model=model) as emulation:
        first = model(x)
        emulation.step = 1
        second = model(x)
    with torch.no_grad():
        with emulate("mxfp8"):
            assert torch.equal(first, model(x))
        with emulate("mxfp4"):
            assert torch.equal(second, model(x))


# --- training ----------------------------------------------------------------------------------


def steps(policy: Any, count: int = 15) -> list[float]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    x, y = drawn(64, 64), torch.arange(64) % 10
    losses = []
    with emulate(policy, seed=0):
        for _ in range(count):
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses


@pytest.mark.parametrize("name", sorted(PRODUCTS))
def test_models_learn(name: str) -> None:
    losses = steps(name)
    assert losses[-1] < losses[0] / 2
    assert losses == steps(name)


def test_fewer_bits_are_further_from_float32() -> None:
    plain = np.array(steps(Policy("plain", "float32")))
    far = {name: np.abs(np.array(steps(name)) - plain).mean() for name in ("mxfp8", "mxfp4")}
    assert 0 < far["mxfp8"] < far["mxfp4"]


def test_checkpoints_compute_the_same_again() -> None:
    from torch.utils.checkpoint import checkpoint

    model, x, dy = network(), drawn(16, 32), drawn(16, 8, seed=1)

    def gradients(forward: Any, policy: str) -> list[Any]:
        mine = copy.deepcopy(model)
        with emulate(policy, model=mine):
            forward(mine)(x.clone().requires_grad_()).backward(dy)
        return [p.grad for p in mine.parameters()]

    for policy, reentrant in itertools.product(("te.mxfp8", "te.delayed"), (True, False)):
        plain = gradients(lambda m: m, policy)
        again = gradients(
            lambda m, r=reentrant: lambda x: checkpoint(m, x, use_reentrant=r), policy
        )
        assert all(torch.equal(a, b) for a, b in zip(plain, again, strict=True))


@pytest.mark.parametrize("outermost", ["watch", "emulate"])
def test_a_watch_sees_the_emulated_numbers(outermost: str) -> None:
    from fpemu.analysis import watch

    model, x, dy = network(), drawn(16, 32), drawn(16, 8, seed=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    contexts = [emulate("te.mxfp8", model=model), watched := watch(model, optimizer)]
    with ExitStack() as stack:
        for context in contexts if outermost == "emulate" else reversed(contexts):
            stack.enter_context(context)
        y = model(x)
        y.backward(dy)
        optimizer.step()
    trace = watched.trace
    [seen] = trace.records("4", "activation")
    assert seen.tally == fpemu.tally(y.detach().numpy())
    [seen] = trace.records("0.weight", "weight_gradient")
    assert seen.tally == fpemu.tally(model[0].weight.grad.numpy())


def test_own_recipes_need_no_name() -> None:
    own = Recipe.of("1x4 exponent(mode=ceil) e5m2")
    model, x, dy = layer(32, 16), drawn(8, 32), drawn(8, 16, seed=1)
    for policy in (own, str(own), Products(own), find_policy(own), str(find_policy(own))):
        close(run(policy, model, x, dy), by_hand(Products(own), x, model.weight, model.bias, dy))
