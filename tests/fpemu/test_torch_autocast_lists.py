"""Every operation that a list of PyTorch's autocast names has the format it has there.

The CPU's lists are compared with the real autocast; CUDA's and TF32's with what their rules say.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="emulate needs PyTorch")

import torch.nn.functional as F  # noqa: E402

from fpemu.errors import InputError  # noqa: E402
from fpemu.policies import Rule, find_policy  # noqa: E402
from fpemu.torch import emulate  # noqa: E402

BF16 = torch.bfloat16
Make = Callable[..., Any]


def _indices(count: int, below: int) -> Any:
    return torch.arange(count) % below


def _positive(x: Any) -> Any:
    """A positive definite matrix."""
    return x @ x.mT + 3 * torch.eye(x.shape[-1])


def _unpooled(t: Make, dims: int) -> Any:
    pool = F.max_pool2d if dims == 2 else F.max_pool3d
    _, indices = pool(torch.rand(1, 1, *[4] * dims), 2, return_indices=True)
    return t(1, 1, *[2] * dims), indices


def _image(t: Make, dims: int) -> Any:
    return t(1, 2, *[4] * dims)


def _grid(dims: int, t: Make) -> Any:
    return t(1, *[3] * dims, dims)


def _fft(name: str) -> Callable[[Make], Any]:
    return lambda t: getattr(torch.fft, name)(t(4, 4))


def _unary(name: str) -> Callable[[Make], Any]:
    return lambda t: getattr(torch, name)(t(4))


def _loss(name: str, **more: Any) -> Callable[[Make], Any]:
    return lambda t: getattr(F, name)(t(4, 3), t(4, 3), **more)


def _signed(name: str) -> Callable[[Make], Any]:
    return lambda t: getattr(F, name)(t(4), torch.tensor([1.0, -1.0, 1.0, -1.0]))


def _resize(mode: str, dims: int, **more: Any) -> Callable[[Make], Any]:
    return lambda t: F.interpolate(_image(t, dims), scale_factor=2.0, mode=mode, **more)


def _cell(name: str, gates: int) -> Callable[[Make], Any]:
    def call(t: Make) -> Any:
        hidden = (t(2, 4), t(2, 4)) if gates == 4 else t(2, 4)
        return getattr(torch, name)(t(2, 3), hidden, t(4 * gates, 3), t(4 * gates, 4))

    return call


#: Name in the lists -> a call of it; t(*shape) makes a tensor.
CALLS: dict[str, Callable[[Make], Any]] = {
    "conv1d": lambda t: F.conv1d(t(1, 2, 5), t(3, 2, 3), t(3)),
    "conv2d": lambda t: F.conv2d(t(1, 2, 5, 5), t(3, 2, 3, 3), t(3)),
    "conv3d": lambda t: F.conv3d(t(1, 2, 4, 4, 4), t(3, 2, 3, 3, 3)),
    "conv_tbc": lambda t: torch.conv_tbc(t(5, 2, 3), t(3, 3, 4), t(4)),
    "conv_transpose1d": lambda t: F.conv_transpose1d(t(1, 2, 5), t(2, 3, 3)),
    "conv_transpose2d": lambda t: F.conv_transpose2d(t(1, 2, 5, 5), t(2, 3, 3, 3)),
    "conv_transpose3d": lambda t: F.conv_transpose3d(t(1, 2, 3, 3, 3), t(2, 3, 2, 2, 2)),
    "convolution": lambda t: torch.convolution(
        t(1, 2, 5, 5), t(3, 2, 3, 3), None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1),
    "_convolution": lambda t: torch._convolution(
        t(1, 2, 5, 5), t(3, 2, 3, 3), None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1,
        False, False, True),
    "prelu": lambda t: F.prelu(t(2, 3), t(1)),
    "addmm": lambda t: torch.addmm(t(2, 4), t(2, 3), t(3, 4)),
    "_addmm_activation": lambda t: torch._addmm_activation(t(4), t(2, 3), t(3, 4)),
    "addmv": lambda t: torch.addmv(t(2), t(2, 3), t(3)),
    "addr": lambda t: torch.addr(t(2, 3), t(2), t(3)),
    "matmul": lambda t: t(2, 3) @ t(3, 4),
    "einsum": lambda t: torch.einsum("ij,jk", t(2, 3), t(3, 4)),
    "mm": lambda t: torch.mm(t(2, 3), t(3, 4)),
    "mv": lambda t: torch.mv(t(2, 3), t(3)),
    "linalg_vecdot": lambda t: torch.linalg.vecdot(t(2, 3), t(2, 3)),
    "linear": lambda t: F.linear(t(2, 3), t(4, 3), t(4)),
    "addbmm": lambda t: torch.addbmm(t(2, 4), t(5, 2, 3), t(5, 3, 4)),
    "baddbmm": lambda t: torch.baddbmm(t(5, 2, 4), t(5, 2, 3), t(5, 3, 4)),
    "bmm": lambda t: torch.bmm(t(5, 2, 3), t(5, 3, 4)),
    "chain_matmul": lambda t: torch._C._VariableFunctions.chain_matmul([t(2, 3), t(3, 4), t(4, 2)]),
    "linalg_multi_dot": lambda t: torch.linalg.multi_dot([t(2, 3), t(3, 4), t(4, 2)]),
    "lstm_cell": _cell("lstm_cell", 4),
    "gru_cell": _cell("gru_cell", 3),
    "rnn_tanh_cell": _cell("rnn_tanh_cell", 1),
    "rnn_relu_cell": _cell("rnn_relu_cell", 1),
    "scaled_dot_product_attention": lambda t: F.scaled_dot_product_attention(
        t(1, 2, 3, 4), t(1, 2, 3, 4), t(1, 2, 3, 4)),
    "softplus": lambda t: F.softplus(t(4)),
    "layer_norm": lambda t: F.layer_norm(t(2, 4), (4,), t(4), t(4)),
    "native_layer_norm": lambda t: torch.native_layer_norm(t(2, 4), (4,), t(4), t(4), 1e-5),
    "rms_norm": lambda t: F.rms_norm(t(2, 4), (4,), t(4)),
    "group_norm": lambda t: F.group_norm(t(2, 4, 3), 2, t(4), t(4)),
    "frobenius_norm": lambda t: torch.frobenius_norm(t(2, 3), [0, 1]),
    "nuclear_norm": lambda t: torch.nuclear_norm(t(2, 3)),
    "cosine_similarity": lambda t: F.cosine_similarity(t(2, 3), t(2, 3)),
    "cosine_embedding_loss": lambda t: F.cosine_embedding_loss(t(2, 3), t(2, 3), torch.ones(2)),
    "poisson_nll_loss": _loss("poisson_nll_loss"),
    "nll_loss": lambda t: F.nll_loss(t(4, 3), _indices(4, 3)),
    "nll_loss2d": lambda t: F.nll_loss(t(2, 3, 4, 4), _indices(32, 3).view(2, 4, 4)),
    "cross_entropy_loss": lambda t: F.cross_entropy(t(4, 3), _indices(4, 3)),
    "hinge_embedding_loss": _signed("hinge_embedding_loss"),
    "soft_margin_loss": _signed("soft_margin_loss"),
    "kl_div": _loss("kl_div", reduction="sum"),
    "l1_loss": _loss("l1_loss"),
    "smooth_l1_loss": _loss("smooth_l1_loss"),
    "huber_loss": _loss("huber_loss"),
    "mse_loss": _loss("mse_loss"),
    "binary_cross_entropy": lambda t: F.binary_cross_entropy(t(4).sigmoid(), t(4).sigmoid()),
    "binary_cross_entropy_with_logits": _loss("binary_cross_entropy_with_logits"),
    "margin_ranking_loss": lambda t: F.margin_ranking_loss(t(4), t(4), torch.ones(4)),
    "triplet_margin_loss": lambda t: F.triplet_margin_loss(t(4, 3), t(4, 3), t(4, 3)),
    "multi_margin_loss": lambda t: F.multi_margin_loss(t(4, 3), _indices(4, 3)),
    "multilabel_margin_loss": lambda t: F.multilabel_margin_loss(
        t(2, 3), torch.tensor([[0, -1, 0], [1, 2, -1]])),
    "ctc_loss": lambda t: F.ctc_loss(
        t(5, 2, 3).log_softmax(-1), torch.ones(2, 2, dtype=torch.long), [5, 5], [2, 2]),
    "dist": lambda t: torch.dist(t(4), t(4)),
    "pdist": lambda t: F.pdist(t(4, 3)),
    "cdist": lambda t: torch.cdist(t(4, 3), t(5, 3)),
    "renorm": lambda t: torch.renorm(t(4, 3), 2, 0, 1.0),
    "logsumexp": lambda t: torch.logsumexp(t(4, 3), 0),
    "upsample_nearest1d": _resize("nearest", 1),
    "upsample_nearest2d": _resize("nearest", 2),
    "upsample_nearest3d": _resize("nearest", 3),
    "_upsample_nearest_exact1d": _resize("nearest-exact", 1),
    "_upsample_nearest_exact2d": _resize("nearest-exact", 2),
    "_upsample_nearest_exact3d": _resize("nearest-exact", 3),
    "upsample_linear1d": _resize("linear", 1),
    "upsample_bilinear2d": _resize("bilinear", 2),
    "_upsample_bilinear2d_aa": _resize("bilinear", 2, antialias=True),
    "upsample_trilinear3d": _resize("trilinear", 3),
    "upsample_bicubic2d": _resize("bicubic", 2),
    "_upsample_bicubic2d_aa": _resize("bicubic", 2, antialias=True),
    "pow": lambda t: t(4) ** 2.5,
    "prod": lambda t: t(4).prod(),
    "softmax": lambda t: F.softmax(t(4, 3), -1),
    "log_softmax": lambda t: F.log_softmax(t(4, 3), -1),
    "cumprod": lambda t: t(4).cumprod(0),
    "cumsum": lambda t: t(4).cumsum(0),
    "linalg_vector_norm": lambda t: torch.linalg.vector_norm(t(4)),
    "linalg_matrix_norm": lambda t: torch.linalg.matrix_norm(t(4, 3)),
    "sum": lambda t: t(4).sum(),
    "norm": lambda t: torch._C._VariableFunctions.norm(t(4), 2),
    "addcdiv": lambda t: torch.addcdiv(t(4), t(4), t(4)),
    "addcmul": lambda t: torch.addcmul(t(4), t(4), t(4)),
    "atan2": lambda t: torch.atan2(t(4), t(4)),
    "bilinear": lambda t: F.bilinear(t(4, 3), t(4, 3), t(2, 3, 3)),
    "cross": lambda t: torch.cross(t(4, 3), t(4, 3), dim=1),
    "dot": lambda t: torch.dot(t(4), t(4)),
    "vdot": lambda t: torch.vdot(t(4), t(4)),
    "grid_sampler": lambda t: F.grid_sample(_image(t, 2), _grid(2, t), align_corners=False),
    "grid_sampler_2d": lambda t: torch.grid_sampler_2d(_image(t, 2), _grid(2, t), 0, 0, False),
    "grid_sampler_3d": lambda t: torch.grid_sampler_3d(_image(t, 3), _grid(3, t), 0, 0, False),
    "_grid_sampler_2d_cpu_fallback": lambda t: torch._grid_sampler_2d_cpu_fallback(
        _image(t, 2), _grid(2, t), 0, 0, False),
    "index_put": lambda t: torch.index_put(t(4), (_indices(2, 4),), t(2)),
    "tensordot": lambda t: torch.tensordot(t(2, 3), t(3, 4), 1),
    "scatter_add": lambda t: torch.scatter_add(t(4), 0, _indices(2, 4), t(2)),
    "stack": lambda t: torch.stack([t(4), t(4)]),
    "cat": lambda t: torch.cat([t(4), t(4)]),
    "index_copy": lambda t: torch.index_copy(t(4), 0, _indices(2, 4), t(2)),
    "avg_pool3d": lambda t: F.avg_pool3d(_image(t, 3), 2),
    "max_pool3d": lambda t: F.max_pool3d(_image(t, 3), 2),
    "adaptive_avg_pool3d": lambda t: F.adaptive_avg_pool3d(_image(t, 3), 2),
    "adaptive_max_pool3d": lambda t: F.adaptive_max_pool3d(_image(t, 3), 2),
    "fractional_max_pool2d": lambda t: F.fractional_max_pool2d(_image(t, 2), 2, output_size=2),
    "fractional_max_pool3d": lambda t: F.fractional_max_pool3d(_image(t, 3), 2, output_size=2),
    "max_unpool2d": lambda t: F.max_unpool2d(*_unpooled(t, 2), 2),
    "max_unpool3d": lambda t: F.max_unpool3d(*_unpooled(t, 3), 2),
    "reflection_pad1d": lambda t: F.pad(_image(t, 1), (1, 1), mode="reflect"),
    "reflection_pad2d": lambda t: F.pad(_image(t, 2), (1, 1, 1, 1), mode="reflect"),
    "replication_pad1d": lambda t: F.pad(_image(t, 1), (1, 1), mode="replicate"),
    "replication_pad2d": lambda t: F.pad(_image(t, 2), (1, 1, 1, 1), mode="replicate"),
    "replication_pad3d": lambda t: F.pad(_image(t, 3), (1,) * 6, mode="replicate"),
    "trace": lambda t: torch.trace(t(3, 3)),
    "quantile": lambda t: torch.quantile(t(4), 0.5),
    "nanquantile": lambda t: torch.nanquantile(t(4), 0.5),
    "polar": lambda t: torch.polar(t(4), t(4)),
    "view_as_complex": lambda t: torch.view_as_complex(t(4, 2)),
    "stft": lambda t: torch.stft(t(16), 8, window=torch.ones(8), return_complex=True),
    "fake_quantize_per_tensor_affine": lambda t: torch.fake_quantize_per_tensor_affine(
        t(4), 0.1, 0, 0, 255),
    "cholesky": lambda t: torch.cholesky(torch.eye(3).to(t(1))),
    "cholesky_inverse": lambda t: torch.cholesky_inverse(torch.eye(3).to(t(1))),
    "cholesky_solve": lambda t: torch.cholesky_solve(t(3, 2), torch.eye(3).to(t(1))),
    "inverse": lambda t: torch.inverse(torch.eye(3).to(t(1))),
    "pinverse": lambda t: torch.pinverse(t(3, 2)),
    "lu_solve": lambda t: torch.lu_solve(t(3, 2), torch.eye(3), torch.tensor([1, 2, 3]).int()),
    "_lu_with_info": lambda t: torch._lu_with_info(t(3, 3)),
    "orgqr": lambda t: torch.orgqr(t(3, 2), t(2)),
    "ormqr": lambda t: torch.ormqr(t(3, 2), t(2), t(3, 4)),
    "geqrf": lambda t: torch.geqrf(t(3, 2)),
    "qr": lambda t: torch.qr(t(3, 2)),
    "svd": lambda t: torch.svd(t(3, 2)),
    "triangular_solve": lambda t: torch.triangular_solve(t(3, 2), torch.eye(3).to(t(1))),
    "linalg_cond": lambda t: torch.linalg.cond(t(3, 3)),
    "linalg_matrix_rank": lambda t: torch.linalg.matrix_rank(t(3, 3)),
    "linalg_solve": lambda t: torch.linalg.solve(torch.eye(3).to(t(1)), t(3, 2)),
    "linalg_cholesky": lambda t: torch.linalg.cholesky(torch.eye(3).to(t(1))),
    "linalg_cholesky_ex": lambda t: torch.linalg.cholesky_ex(torch.eye(3).to(t(1))),
    "linalg_svd": lambda t: torch.linalg.svd(t(3, 2)),
    "linalg_svdvals": lambda t: torch.linalg.svdvals(t(3, 2)),
    "linalg_eig": lambda t: torch.linalg.eig(t(3, 3)),
    "linalg_eigh": lambda t: torch.linalg.eigh(torch.eye(3).to(t(1))),
    "linalg_eigvals": lambda t: torch.linalg.eigvals(t(3, 3)),
    "linalg_eigvalsh": lambda t: torch.linalg.eigvalsh(torch.eye(3).to(t(1))),
    "linalg_inv": lambda t: torch.linalg.inv(torch.eye(3).to(t(1))),
    "linalg_inv_ex": lambda t: torch.linalg.inv_ex(torch.eye(3).to(t(1))),
    "linalg_householder_product": lambda t: torch.linalg.householder_product(t(3, 2), t(2)),
    "linalg_tensorinv": lambda t: torch.linalg.tensorinv(
        torch.eye(4).to(t(1)).reshape(2, 2, 2, 2), 2),
    "linalg_tensorsolve": lambda t: torch.linalg.tensorsolve(torch.eye(3).to(t(1)), t(3)),
    "linalg_qr": lambda t: torch.linalg.qr(t(3, 2)),
    "linalg_lstsq": lambda t: torch.linalg.lstsq(t(3, 2), t(3, 2)),
    **{f"fft_{name}": _fft(name) for name in (
        "fft", "ifft", "fft2", "ifft2", "fftn", "ifftn", "rfft", "irfft", "rfft2", "irfft2",
        "rfftn", "irfftn", "hfft", "ihfft")},
    **{name: _unary(name) for name in (
        "acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log2", "log1p",
        "reciprocal", "rsqrt", "sinh", "tan")},
}  # fmt: skip

#: Named in a list, and no program calls them, or none without a GPU.
UNCALLED = {
    "cudnn_convolution", "cudnn_convolution_transpose", "_thnn_fused_lstm_cell",
    "_thnn_fused_gru_cell", "_scaled_dot_product_flash_attention", "mkldnn_rnn_layer",
    "_native_multi_head_attention", "multilabel_margin_loss_forward",
}  # fmt: skip

CPU = find_policy("torch.autocast.cpu.bfloat16")
CUDA = find_policy("torch.autocast.cuda.float16")
TF32 = find_policy("torch.tf32")


def flat(result: Any) -> list[Any]:
    if isinstance(result, torch.Tensor):
        return [result]
    return [x for one in result for x in flat(one)] if isinstance(result, tuple | list) else []


def formats(emulation: Any, result: Any) -> list[str]:
    return [
        emulation.format(x).format.name if x.dtype is torch.float32 else str(x.dtype)[6:]
        for x in flat(result)
    ]


def maker(dtypes: list[Any]) -> Make:
    """t(*shape): tensors of these dtypes in turn, the last one from then on."""
    left = list(dtypes)
    torch.manual_seed(0)

    def t(*shape: int) -> Any:
        dtype = left.pop(0) if len(left) > 1 else left[0]
        return (torch.rand(shape) * 0.5 + 0.25).to(dtype)

    return t


def run(name: str, dtypes: list[Any], context: Any) -> Any:
    with context:
        return CALLS[name](maker(dtypes))


def attempt(name: str, dtypes: list[Any]) -> list[str] | None:
    """What the real autocast gives, or None where it cannot: no kernel, or dtypes that differ."""
    try:
        result = run(name, dtypes, torch.autocast("cpu", BF16))
    except (RuntimeError, NotImplementedError, ValueError):
        return None
    return [str(x.dtype)[6:] for x in flat(result)]


#: Formats of the inputs: all float32, all bfloat16, the first, all but the first.
INPUTS = {"float32": [torch.float32], "narrow": [BF16], "first": [BF16, torch.float32],
          "others": [torch.float32, BF16]}  # fmt: skip


@pytest.mark.filterwarnings("ignore")  # deprecated names of linear algebra
@pytest.mark.parametrize("name", [n for n in CPU.operations if n not in UNCALLED])
def test_as_the_real_autocast(name: str) -> None:
    compared = 0
    for kind, dtypes in INPUTS.items():
        want = attempt(name, dtypes)
        if want is None:
            continue
        emulation = emulate(CPU)
        got = formats(emulation, run(name, dtypes, emulation))
        assert got == want, f"{name} of {kind} inputs: {got}, real autocast gives {want}"
        compared += 1
    assert compared, f"{name}: the real autocast runs none of these calls"


#: Rules of CUDA and TF32 in words: inputs -> formats allowed for the first result.
EXPECTED = {
    Rule.LOWER: {"float32": "low", "narrow": "low"},
    Rule.FLOAT32: {"float32": "float32", "narrow": "float32"},
    Rule.FLOAT32_RESULT: {"float32": "float32", "narrow": "float32"},
    Rule.WIDEST: {"narrow": "low", "first": "float32", "others": "float32"},
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [n for n in CUDA.operations if n not in UNCALLED])
def test_as_the_rules_of_cuda_say(name: str) -> None:
    rule = CUDA.rule(name)
    if rule is Rule.BANNED:
        with pytest.raises(InputError, match=r"refused there, .* use binary_cross_entropy_with"):
            run(name, [torch.float32], emulate(CUDA))
        return
    narrow = {BF16: torch.float16}
    for kind, want in EXPECTED[rule].items():
        dtypes = [narrow.get(d, d) for d in INPUTS[kind]]
        emulation = emulate(CUDA)
        result = run(name, dtypes, emulation)
        expected = "float16" if want == "low" else "float32"
        assert formats(emulation, result)[0] == expected, f"{name} of {kind} inputs"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [n for n in TF32.operations if n not in UNCALLED])
def test_tf32_reads_rounded_inputs(name: str) -> None:
    """float32 comes out; it is what the operation makes of inputs rounded to TF32."""
    emulation = emulate(TF32)
    got = flat(run(name, [torch.float32], emulation))[0]
    assert emulation.format(got).format.name == "float32"
    made = maker([torch.float32])
    want = flat(CALLS[name](lambda *shape: _rounded(made(*shape))))[0]
    plain = flat(run(name, [torch.float32], torch.no_grad()))[0]
    assert not torch.equal(got, plain)
    chain = "chain" in name or "multi_dot" in name  # the product in between is rounded too
    assert torch.allclose(got, want, rtol=2.0**-10 if chain else 1e-5, atol=1e-6)


def _rounded(x: Any) -> Any:
    return torch.from_numpy(TF32.compute(x.numpy()))


def test_no_operation_of_the_lists_is_left_out() -> None:
    named = set(CPU.operations) | set(CUDA.operations) | set(TF32.operations)
    assert named == set(CALLS) & named | UNCALLED
    assert not set(CALLS) & UNCALLED
