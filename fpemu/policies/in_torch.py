"""In torch: the policies of other frameworks in PyTorch's names, to try them on a PyTorch model.

Each table says which of PyTorch's operations do what an operation of the framework does. Those
without a counterpart are left out: what PyTorch does instead is not listed, and has the policy's
`otherwise`. TensorFlow's rewrite decides from the whole graph, and a list alone cannot: see
`fpemu.policies.colouring`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from fpemu.errors import InputError
from fpemu.policies.catalog import operation_names
from fpemu.policies.policy import Policy
from fpemu.policies.rule import Rule, Rules

__all__ = ["COUNTERPARTS", "in_torch", "left_out"]


def _table(text: str) -> Mapping[str, tuple[str, ...]]:
    """Lines of 'NAME: torch names'; names that both share are on lines of their own."""
    table: dict[str, tuple[str, ...]] = {}
    for line in filter(None, (line.strip() for line in text.splitlines())):
        name, colon, others = line.partition(":")
        table |= {name: tuple(others.split())} if colon else {n: (n,) for n in name.split()}
    return MappingProxyType(table)


_KERAS = _table("""
    Dense: linear
    EinsumDense: einsum
    BatchNormalization: batch_norm
    GroupNormalization: group_norm
    LayerNormalization: layer_norm
    RMSNormalization: rms_norm
    BinaryCrossentropy: binary_cross_entropy binary_cross_entropy_with_logits
    CTC: ctc_loss
    CategoricalCrossentropy: cross_entropy cross_entropy_loss nll_loss
    SparseCategoricalCrossentropy: cross_entropy cross_entropy_loss nll_loss
    CosineSimilarity: cosine_similarity
    Hinge: hinge_embedding_loss
    Huber: huber_loss smooth_l1_loss
    KLDivergence: kl_div
    MeanAbsoluteError: l1_loss
    MeanSquaredError: mse_loss
    Poisson: poisson_nll_loss
""")

_MXNET = _table("""
    Convolution: conv1d conv2d conv3d convolution
    Deconvolution: conv_transpose1d conv_transpose2d conv_transpose3d
    FullyConnected: linear addmm
    RNN: lstm gru rnn_tanh rnn_relu
    _linalg_gemm: addbmm baddbmm
    _npi_einsum: einsum
    _npi_matmul: matmul
    batch_dot: bmm
    dot: dot mm mv
    _npi_tensordot: tensordot
    _npi_kron: kron
    _npi_cross: cross linalg_cross
    Activation(softrelu): softplus
    LeakyReLU(elu): elu
    LeakyReLU(selu): selu
    arccos: acos
    arcsin: asin
    arctanh: atanh
    cosh erfinv exp expm1 log log10 log1p log2 reciprocal rsqrt sinh square sqrt tan tanh
    broadcast_power: pow
    _npi_logaddexp: logaddexp
    _npi_ldexp: ldexp
    gammaln: lgamma
    digamma argsort topk nansum prod mean norm sum abs relu
    _npi_cumsum: cumsum
    _npi_std: std
    _npi_var: var
    _npi_trace: trace
    _npi_norm: linalg_norm linalg_vector_norm linalg_matrix_norm
    _npi_cholesky: linalg_cholesky
    _npi_eig: linalg_eig
    _npi_eigh: linalg_eigh
    _npi_eigvals: linalg_eigvals
    _npi_eigvalsh: linalg_eigvalsh
    _npi_lstsq: linalg_lstsq
    _npi_matrix_rank: linalg_matrix_rank
    _npi_pinv: linalg_pinv pinverse
    _npi_qr: linalg_qr
    _npi_solve: linalg_solve
    _npi_svd: linalg_svd
    _linalg_inverse: linalg_inv inverse
    _linalg_det: linalg_det det
    _linalg_slogdet: linalg_slogdet slogdet
    softmax log_softmax softmin
    softmax_cross_entropy: cross_entropy cross_entropy_loss nll_loss
    LinearRegressionOutput: mse_loss
    MAERegressionOutput: l1_loss
    LogisticRegressionOutput: binary_cross_entropy_with_logits
    smooth_l1: smooth_l1_loss huber_loss
    CTCLoss: ctc_loss
    BatchNorm: batch_norm
    InstanceNorm: instance_norm
    LayerNorm: layer_norm
    GroupNorm: group_norm
    L2Normalization: normalize
    LRN: local_response_norm
    Pooling: max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d
    clip: clamp
    Concat: cat
    stack where
    broadcast_add: add
    broadcast_sub: sub
    broadcast_mul: mul
    broadcast_div: div
    broadcast_mod: remainder
    broadcast_hypot: hypot
    broadcast_maximum: maximum
    broadcast_minimum: minimum
    broadcast_equal: eq
    broadcast_not_equal: ne
    broadcast_greater: gt
    broadcast_greater_equal: ge
    broadcast_lesser: lt
    broadcast_lesser_equal: le
""")

_TENSORFLOW = _table("""
    Conv2D: conv1d conv2d convolution
    Conv3D: conv3d
    Conv2DBackpropInput: conv_transpose1d conv_transpose2d
    Conv3DBackpropInputV2: conv_transpose3d
    Einsum: einsum
    MatMul: linear addmm mm matmul
    BatchMatMulV2: bmm baddbmm
    CudnnRNNV3: lstm gru rnn_tanh rnn_relu
    Exp: exp
    Expm1: expm1
    Pow: pow
    Mean: mean
    Sum: sum
    SparseSoftmaxCrossEntropyWithLogits: cross_entropy cross_entropy_loss nll_loss
""")

_CAFFE2 = _table("SoftmaxWithLoss: cross_entropy cross_entropy_loss nll_loss")

#: Framework -> its operation -> PyTorch's that do the same.
COUNTERPARTS: Mapping[str, Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {"keras": _KERAS, "mxnet": _MXNET, "tensorflow": _TENSORFLOW, "caffe2": _CAFFE2}
)


def in_torch(policy: Policy) -> Policy:
    """Return a policy in the names of PyTorch's operations.

    >>> from fpemu.policies import find_policy, in_torch
    >>> keras = in_torch(find_policy("keras.mixed_float16"))
    >>> keras.rule("batch_norm").value, keras.rule("linear").value
    ('float32_inside', 'lower')

    The framework is the first word of the policy's name. Policies of PyTorch, Apex or jmp, and your
    own under a name of your own, are returned as they are. Operations without a counterpart are
    left out; names that the framework's lists do not have (PyTorch's, added by you) are kept, and
    so are overrides: write their patterns for PyTorch's names.
    """
    _check(policy)
    framework = policy.name.partition(".")[0]
    table = COUNTERPARTS.get(framework)
    if table is None:
        return policy
    foreign = operation_names(framework)
    found: dict[str, Rule] = {}
    for name, rule in policy.operations.items():
        others = table.get(name, () if name in foreign else (name,))
        found |= dict.fromkeys(others, rule)
    return policy.replace(operations=Rules(found))


def left_out(policy: Policy) -> tuple[str, ...]:
    """Return the names that `in_torch` leaves out although the policy has a rule for them.

    >>> from fpemu.policies import find_policy
    >>> from fpemu.policies.in_torch import left_out
    >>> left_out(find_policy("keras.float8")), left_out(find_policy("mxnet.amp.float16"))[0]
    ((), '_linalg_gemm2')
    """
    _check(policy)
    framework = policy.name.partition(".")[0]
    table = COUNTERPARTS.get(framework)
    if table is None:
        return ()
    foreign = operation_names(framework)
    return tuple(
        name
        for name, rule in policy.operations.items()
        if rule is not policy.otherwise and name in foreign and name not in table
    )


def _check(policy: Policy) -> None:
    if not isinstance(policy, Policy):
        raise InputError(f"policy {repr(policy)[:80]}: give a Policy, as find_policy returns it")
