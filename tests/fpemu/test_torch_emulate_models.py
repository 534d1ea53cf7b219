"""Models under emulate and under the real autocast: each operation's formats, and the numbers.

A log of every ATen operation, forward and backward, with the dtypes of its results is taken under
torch.autocast("cpu", bfloat16) and compared with the emulated formats, operation by operation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="emulate needs PyTorch")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from fpemu.torch import emulate  # noqa: E402

POLICY = "torch.autocast.cpu.bfloat16"

#: Copies and views; casts are where emulation and reality differ in what they run.
PLUMBING = {
    "_to_copy", "clone", "detach", "view", "t", "transpose", "expand", "alias", "empty_like",
    "_unsafe_view", "permute", "select", "unsqueeze", "squeeze", "split", "slice", "ones_like",
    "zeros_like", "split_with_sizes", "lift_fresh", "unbind", "copy_", "scalar_tensor",
    "_reshape_alias", "as_strided", "_fused_sdp_choice",
}  # fmt: skip

Log = list[tuple[str, tuple[str, ...]]]


class Watch(TorchDispatchMode):
    """Logs what each operation returned, by a function from tensor to the name of its format."""

    def __init__(self, name_of: Callable[[Any], str]) -> None:
        super().__init__()
        self.name_of = name_of
        self.log: Log = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func._schema.name.partition("::")[2]
        if name not in PLUMBING:
            results = out if isinstance(out, tuple | list) else (out,)
            names = tuple(self.name_of(r) for r in results if isinstance(r, torch.Tensor))
            self.log.append((name, names))
        return out


def dtype_name(tensor: Any) -> str:
    return str(tensor.dtype)[6:]


def real(loss_of: Callable[[], Any]) -> tuple[Any, Log]:
    with Watch(dtype_name) as watch:
        with torch.autocast("cpu", torch.bfloat16):
            loss = loss_of()
        loss.backward()
    return loss.detach(), watch.log


def emulated(loss_of: Callable[[], Any]) -> tuple[Any, Log]:
    emulation = emulate(POLICY)

    def name_of(tensor: Any) -> str:
        plain = tensor.dtype is not torch.float32
        return dtype_name(tensor) if plain else emulation.format(tensor).format.name

    with emulation, Watch(name_of) as watch:  # above the emulation: sees what it returns
        loss = loss_of()
        loss.backward()
    return loss.detach(), watch.log


def both(model: nn.Module, loss_of: Callable[[], Any]) -> list[Any]:
    """(loss, log, gradients by name) of each."""
    found = []
    for run in (real, emulated):
        loss, log = run(loss_of)
        gradients = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
        found.append((loss, log, gradients))
        model.zero_grad()
    return found


# --- models --------------------------------------------------------------------------------------


class Attention(nn.Module):
    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.fused = fused
        self.norm, self.norm2 = nn.LayerNorm(16), nn.LayerNorm(16)
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x: Any) -> Any:
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        if self.fused:
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = q @ k.transpose(-2, -1) / 4.0
            mask = torch.ones(x.shape[1], x.shape[1]).triu(1).bool()
            mixed = scores.masked_fill(mask, float("-inf")).softmax(-1) @ v
        x = x + self.out(mixed)
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Language(nn.Module):
    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(20, 16), nn.Embedding(8, 16)
        self.blocks = nn.Sequential(Attention(fused), Attention(fused))
        self.head = nn.Linear(16, 20, bias=False)

    def forward(self, tokens: Any) -> Any:
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))
        return self.head(self.blocks(x))


class Images(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(1, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(inplace=True),
            nn.MaxPool2d(2), nn.Conv2d(4, 8, 3), nn.GroupNorm(2, 8), nn.SiLU(),
            nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 16), nn.Hardtanh(),
            nn.Linear(16, 5), nn.LogSoftmax(-1),
        )  # fmt: skip


class Odds(nn.Module):
    """In-place operations, mixed formats, explicit casts, scalars, indexing."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.table = nn.Linear(8, 8), nn.Embedding(5, 8)
        self.gain, self.shift = nn.Parameter(torch.tensor(0.5)), nn.Parameter(torch.randn(8))

    def forward(self, x: Any) -> Any:
        h = self.layer(x) * self.gain + self.shift
        h = h.clone()
        h += self.layer(x)
        h[0] = self.layer(x)[1]
        k = self.layer(x)
        k.mul_(0.1).add_(1, alpha=0.3)
        k[1:3] *= 2
        q = torch.einsum("ij,kj->ik", h, k) + torch.cat([k, h], 0)[:4, :4]
        u = F.softmax(q.float(), -1).type_as(q) @ self.table(torch.tensor([0, 1, 1, 3]))
        parts = [u.tanh() ** 3, 1 / (k.exp() + 0.1), torch.where(k > 0, k, 0.1)]
        parts += [k.masked_fill(k > 1, -3.0), k[torch.tensor([0, 0, 2])], k * k.detach()]
        return sum(p.float().sum() for p in parts) + F.mse_loss(k, h)


class Recurrent(nn.Module):
    def __init__(self, kind: type) -> None:
        super().__init__()
        self.layer = kind(6, 4, batch_first=True)

    def forward(self, x: Any) -> Any:
        return self.layer(x)[0].square().mean()


def losses() -> dict[str, Callable[[], tuple[nn.Module, Callable[[], Any]]]]:
    def language(fused: bool) -> Any:
        torch.manual_seed(0)
        model, tokens = Language(fused), torch.randint(0, 20, (2, 9))
        return model, lambda: F.cross_entropy(
            model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()
        )

    def images() -> Any:
        torch.manual_seed(1)
        model, x, y = Images(), torch.randn(6, 1, 10, 10), torch.arange(6) % 5
        return model, lambda: F.nll_loss(model(x), y)

    def simple(model_of: Callable[[], nn.Module], *shape: int) -> Any:
        torch.manual_seed(2)
        model, x = model_of(), torch.randn(shape)
        return model, lambda: model(x).float().square().mean()

    return {
        "language": lambda: language(True),
        "language, attention by hand": lambda: language(False),
        "images": images,
        "odds": lambda: simple(Odds, 4, 8),
        "encoder": lambda: simple(
            lambda: nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True), 2, 5, 16),
        "RNN": lambda: simple(lambda: Recurrent(nn.RNN), 2, 5, 6),
        "LSTM": lambda: simple(lambda: Recurrent(nn.LSTM), 2, 5, 6),
        "GRU": lambda: simple(lambda: Recurrent(nn.GRU), 2, 5, 6),
    }  # fmt: skip


LOSSES = losses()
RECURRENT = ("RNN", "LSTM", "GRU")


@pytest.fixture
def own_kernels() -> Any:
    """PyTorch's own recurrent layers, which bfloat16 has on every processor."""
    enabled = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    yield
    torch._C._set_mkldnn_enabled(enabled)


@pytest.mark.parametrize("name", [n for n in LOSSES if n not in RECURRENT])
def test_every_operation_has_the_dtype_of_the_real_autocast(name: str) -> None:
    (_, want, _), (_, got, _) = both(*LOSSES[name]())
    assert len(want) > 20
    wrong = [(i, a, b) for i, (a, b) in enumerate(zip(want, got, strict=False)) if a != b]
    assert not wrong, f"{len(wrong)} of {len(want)} differ, as (place, real, got) {wrong[0]}"
    assert len(got) == len(want)


@pytest.mark.parametrize("name", LOSSES)
def test_losses_and_gradients_are_near_those_of_the_real_autocast(
    name: str, own_kernels: Any
) -> None:
    """Elementwise steps are equal; matrix products and sums differ by accumulation, and what
    follows by a few roundings of 2**-9 (bfloat16)."""
    (want, _, there), (got, _, here) = both(*LOSSES[name]())
    assert abs(want - got) <= 2**-7 * abs(want)
    assert set(there) == set(here)
    for key, gradient in there.items():
        error = (gradient - here[key]).norm() / gradient.norm()
        assert error < 2**-5, f"{key}: relative difference {error:.2g}"


@pytest.mark.parametrize("name", ["language", "language, attention by hand"])
def test_a_pure_bfloat16_model(name: str) -> None:
    """model.bfloat16(), no autocast: each operation's dtypes, the loss and the gradients."""
    real_model, real_loss = LOSSES[name]()
    real_model.bfloat16()
    with Watch(dtype_name) as want:
        there = real_loss()
        there.backward()
    model, loss_of = LOSSES[name]()
    emulation = emulate("torch.bfloat16", model=model, device="cpu")

    def name_of(tensor: Any) -> str:
        plain = tensor.dtype is not torch.float32
        return dtype_name(tensor) if plain else emulation.format(tensor).format.name

    with emulation, Watch(name_of) as got:
        here = loss_of()
        here.backward()
    assert got.log == want.log
    assert abs(there - here) <= 2**-7 * abs(there)
    for a, b in zip(real_model.parameters(), model.parameters(), strict=True):
        assert (a.grad.float() - b.grad).norm() <= 2**-5 * a.grad.float().norm() + 1e-6


def test_a_gradient_is_rounded_where_the_engine_would_cast_it() -> None:
    """x + linear(x): the gradient of the narrow term is narrow, though the sum is float32."""
    torch.manual_seed(0)
    x, w = torch.randn(3, 4), torch.randn(4, 4, requires_grad=True)
    upper = torch.randn(3, 4)
    results = []
    for context in (torch.autocast("cpu", torch.bfloat16), emulate(POLICY)):
        w.grad = None
        with context:
            out = x + F.linear(x, w)
            if not isinstance(context, torch.autocast):
                out.backward(upper)
        if isinstance(context, torch.autocast):
            out.backward(upper)
        results.append((out.detach().clone(), w.grad.clone()))
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])


# --- sums: equal but for the order in which float32 adds ----------------------------------------

SUMS = {
    "matmul": lambda x, y: x @ y.mT,
    "bmm": lambda x, y: torch.bmm(x[None], y.mT[None]),
    "linear": lambda x, y: F.linear(x, y),
    "conv1d": lambda x, y: F.conv1d(x[None], y[:, :, None].expand(-1, -1, 3)[:8, :16]),
    "sum": lambda x, y: F.linear(x, y).sum(-1),
    "mean": lambda x, y: F.linear(x, y).mean(0),
    "softmax": lambda x, y: F.linear(x, y).softmax(-1),
    "layer_norm": lambda x, y: F.layer_norm(F.linear(x, y), (16,)),
    "logsumexp": lambda x, y: F.linear(x, y).logsumexp(-1),
    "avg_pool1d": lambda x, y: F.avg_pool1d(F.linear(x, y)[None], 4),
}  # fmt: skip


@pytest.mark.parametrize("name", SUMS)
def test_sums_differ_by_accumulation_alone(name: str) -> None:
    """By at most one step of bfloat16, and in fewer than one result of twenty: a float32 sum in
    another order, a few units of 2**-24 away, rounds to the neighbour only near a tie."""
    torch.manual_seed(3)
    x, y = torch.randn(16, 64), torch.randn(16, 64)
    with torch.autocast("cpu", torch.bfloat16):
        want = SUMS[name](x, y).float()
    with emulate(POLICY):
        got = SUMS[name](x, y)
    step = want.abs().clamp(2.0**-126).log2().floor().exp2() * 2.0**-7
    assert ((want - got).abs() <= step).all()
    assert (want != got).float().mean() < 0.05
