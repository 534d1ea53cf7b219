"""Foreign: what PyTorch's operations are called in the lists of other frameworks."""

from __future__ import annotations

from fpemu.policies import POLICIES, Policy

__all__ = ["foreign_names", "names_elsewhere", "unknown_here"]

#: PyTorch's name -> names in Keras, TensorFlow, MXNet and Caffe2, by what they compute.
_TABLE = {
    "abs": "Abs abs", "acos": "arccos _npi_arccos", "add": "Add AddV2 broadcast_add elemwise_add",
    "asin": "arcsin _npi_arcsin", "atanh": "arctanh _npi_arctanh", "avg_pool2d": "AvgPool Pooling",
    "batch_norm": "BatchNormalization FusedBatchNormV3 BatchNorm",
    "binary_cross_entropy": "BinaryCrossentropy LogisticRegressionOutput",
    "binary_cross_entropy_with_logits": "BinaryCrossentropy LogisticRegressionOutput",
    "bmm": "BatchMatMulV2 batch_dot _linalg_gemm2 _npi_matmul", "cat": "ConcatV2 Concat",
    "conv1d": "Conv2D Convolution", "conv2d": "Conv2D Convolution", "conv3d": "Conv3D Convolution",
    "conv_transpose1d": "Conv2DBackpropInput Deconvolution",
    "conv_transpose2d": "Conv2DBackpropInput Deconvolution",
    "conv_transpose3d": "Conv3DBackpropInputV2 Deconvolution",
    "cosh": "cosh _npi_cosh", "cosine_similarity": "CosineSimilarity",
    "cross_entropy_loss": "SparseCategoricalCrossentropy CategoricalCrossentropy "
                          "SparseSoftmaxCrossEntropyWithLogits SoftmaxOutput SoftmaxWithLoss",
    "ctc_loss": "CTC CTCLoss", "cumsum": "_npi_cumsum", "div": "RealDiv broadcast_div elemwise_div",
    "dot": "dot _npi_dot", "einsum": "Einsum _npi_einsum EinsumDense",
    "elu": "Elu LeakyReLU(elu)", "erfinv": "erfinv", "exp": "Exp exp _npi_exp",
    "expm1": "Expm1 expm1 _npi_expm1", "group_norm": "GroupNormalization GroupNorm",
    "gru": "GRUBlockCell RNN", "hinge_embedding_loss": "Hinge", "huber_loss": "Huber",
    "instance_norm": "InstanceNorm", "kl_div": "KLDivergence",
    "l1_loss": "MeanAbsoluteError MAERegressionOutput",
    "layer_norm": "LayerNormalization LayerNorm",
    "leaky_relu": "LeakyRelu LeakyReLU", "linalg_vector_norm": "norm _npi_norm",
    "linear": "Dense MatMul FullyConnected", "log": "Log log _npi_log",
    "log10": "log10 _npi_log10", "log1p": "Log1p log1p _npi_log1p", "log2": "log2 _npi_log2",
    "log_softmax": "LogSoftmax log_softmax", "logaddexp": "_npi_logaddexp",
    "lstm": "BlockLSTMV2 RNN", "matmul": "BatchMatMulV2 dot _linalg_gemm2 _npi_matmul",
    "max_pool2d": "MaxPool Pooling", "maximum": "Maximum broadcast_maximum",
    "mean": "Mean mean _npi_mean", "minimum": "Minimum broadcast_minimum",
    "mm": "MatMul dot _linalg_gemm2 _npi_matmul",
    "mse_loss": "MeanSquaredError LinearRegressionOutput",
    "mul": "Mul broadcast_mul elemwise_mul", "neg": "Neg negative",
    "nll_loss": "SparseCategoricalCrossentropy", "poisson_nll_loss": "Poisson",
    "pow": "Pow broadcast_power _npi_power", "prod": "Prod prod _npi_prod",
    "reciprocal": "Reciprocal reciprocal _npi_reciprocal", "relu": "Relu relu",
    "rms_norm": "RMSNormalization", "rnn_relu": "RNN", "rnn_tanh": "RNN", "rsqrt": "Rsqrt rsqrt",
    "selu": "Selu LeakyReLU(selu)", "sigmoid": "Sigmoid sigmoid", "sinh": "sinh _npi_sinh",
    "smooth_l1_loss": "smooth_l1", "softmax": "Softmax softmax",
    "softplus": "Softplus Activation(softrelu)", "sqrt": "Sqrt sqrt", "square": "square",
    "stack": "Pack stack", "std": "_npi_std", "sub": "Sub broadcast_sub elemwise_sub",
    "sum": "Sum sum _npi_sum", "tan": "tan _npi_tan", "tanh": "Tanh tanh", "topk": "TopKV2 topk",
    "var": "_npi_var", "where": "SelectV2 where",
}  # fmt: skip

_NAMES = {operation: tuple(names.split()) for operation, names in _TABLE.items()}

#: Of every policy that is not PyTorch's.
_FOREIGN = frozenset().union(*(
    policy.operations for name, policy in POLICIES.items()
    if name.partition(".")[0] in ("keras", "tensorflow", "mxnet", "caffe2")
))  # fmt: skip


def foreign_names(operation: str) -> tuple[str, ...]:
    """Return what other frameworks call an operation of PyTorch.

    >>> foreign_names("linear"), foreign_names("nothing")
    (('Dense', 'MatMul', 'FullyConnected'), ())
    """
    return _NAMES.get(operation, ())


def names_elsewhere() -> frozenset[str]:
    """Return the names that the lists of other frameworks have."""
    return _FOREIGN


def unknown_here(policy: Policy, known: frozenset[str]) -> str | None:
    """Say how many of a policy's names are no operations of PyTorch; None if all are."""
    mapped = {name for names in _NAMES.values() for name in names}
    lost = [name for name in policy.operations if name not in known and name not in mapped]
    if not lost:
        return None
    return (
        f"policy {policy.name}: {len(lost)} of its {len(policy.operations)} operations are none "
        f"of PyTorch's, such as {lost[0]}"
    )
