"""Names: what PyTorch's functions and methods are called in policies, and which need no rule."""

from __future__ import annotations

from collections.abc import Container
from functools import cache

import torch

from fpemu.torch.words import words

__all__ = ["ALIAS_RESULTS", "FACTORIES", "RECURRENT", "STRAIGHT", "aten_operations",
           "is_in_place", "known_operations", "operation_of"]  # fmt: skip

#: Operators of Python, and what they are.
_OPERATORS = {
    "__add__": "add", "__radd__": "add", "__sub__": "sub", "__rsub__": "rsub", "__mul__": "mul",
    "__rmul__": "mul", "__truediv__": "div", "__div__": "div", "__rtruediv__": "div",
    "__matmul__": "matmul", "__rmatmul__": "matmul", "__pow__": "pow", "__rpow__": "pow",
    "__neg__": "neg", "__abs__": "abs", "__mod__": "remainder", "__floordiv__": "floor_divide",
    "__iadd__": "add_", "__isub__": "sub_", "__imul__": "mul_", "__idiv__": "div_",
    "__itruediv__": "div_", "__ipow__": "pow_", "__imod__": "remainder_",
    "__ifloordiv__": "floor_divide_", "__setitem__": "copy_",
}  # fmt: skip

#: Other names of an operation, or the operation of the lists that one is made of: a list is
#: consulted below these functions, where only what they are made of is left.
_MADE_OF = {
    "absolute": "abs", "arccos": "acos", "arccosh": "acosh", "arcsin": "asin", "arcsinh": "asinh",
    "arctan": "atan", "arctan2": "atan2", "arctanh": "atanh", "clip": "clamp", "divide": "div",
    "true_divide": "div", "multiply": "mul", "subtract": "sub", "negative": "neg", "fix": "trunc",
    "concat": "cat", "concatenate": "cat", "hstack": "cat", "vstack": "cat", "row_stack": "cat",
    "column_stack": "cat", "dstack": "cat", "ger": "outer", "linalg_matmul": "matmul",
    "matrix_power": "matmul", "linalg_matrix_power": "matmul", "einsum": "bmm",
    "tensordot": "mm", "inner": "mm", "chain_matmul": "mm", "linalg_multi_dot": "mm",
    "cov": "matmul", "corrcoef": "matmul", "cross_entropy_loss": "log_softmax",
    "linalg_cross": "cross", "pairwise_distance": "linalg_vector_norm",
    "norm": "linalg_vector_norm",
    "float_power": "pow", "swapaxes": "transpose", "swapdims": "transpose", "rrelu": "rrelu",
    "_convolution": "convolution", "det": "linalg_det", "inverse": "linalg_inv",
    "nll_loss_nd": "nll_loss", "softmin": "softmax", "linalg_norm": "linalg_vector_norm",
}  # fmt: skip

#: Made of listed operations and others, by rules that PyTorch also has in Python.
RECURRENT = words("lstm gru rnn_tanh rnn_relu")

#: float32 results of these, computed from narrow inputs, need no wide copy of the input: the
#: backward pass reads the result, or nothing.
ALIAS_RESULTS = words("softmax log_softmax sum cumsum")

#: About tensors and not about their numbers: views, questions, copies.
STRAIGHT = words("""
    __get__ __set__ __delete__ __getitem__ __len__ __bool__ __hash__ __iter__ __contains__
    __array__ __index__ __int__ __float__ __dlpack__ __dlpack_device__ adjoint alias as_strided
    broadcast_tensors broadcast_to can_cast chunk clone contiguous cpu cuda data_ptr detach detach_
    diagonal dim dsplit element_size equal expand expand_as flatten get_device has_names hsplit
    is_complex is_contiguous is_floating_point is_inference is_nonzero is_same_size is_set_to
    is_shared is_sparse is_tensor item layout mT moveaxis movedim narrow ndimension nelement
    nonzero numel numpy permute pin_memory promote_types register_hook
    register_post_accumulate_grad_hook repeat repeat_interleave requires_grad_ reshape reshape_as
    result_type retain_grad select set_ share_memory_ size slice split split_with_sizes squeeze
    squeeze_ storage storage_offset stride swapaxes swapdims t t_ tensor_split tolist transpose
    transpose_ unbind unflatten unfold unsafe_chunk unsafe_split unsqueeze unsqueeze_
    untyped_storage view view_as vsplit zero_ argmax argmin sort topk roll flip tril triu gather
    index_select masked_select double long int short bool byte char
""")

#: New tensors, whose dtype a program may name.
FACTORIES = words("""
    empty zeros ones full rand randn randint arange linspace logspace eye empty_like zeros_like
    ones_like full_like rand_like randn_like new_zeros new_ones new_empty new_full tensor
    as_tensor from_numpy scalar_tensor randperm normal bernoulli multinomial
""")


def is_in_place(name: str) -> bool:
    """Whether a function writes to its first argument; frameworks' lists do not know such."""
    name = _OPERATORS.get(name, name)
    return name.endswith("_") and not name.endswith("__")


def operation_of(name: str, listed: Container[str]) -> str:
    """Return the name under which a policy knows a function of PyTorch.

    >>> operation_of("special_expm1", {"expm1"}), operation_of("einsum", {"bmm", "linear"})
    ('expm1', 'bmm')
    >>> operation_of("einsum", {"einsum", "bmm"}), operation_of("__add__", ())
    ('einsum', 'add')
    """
    name = _OPERATORS.get(name, name)
    if name in listed:
        return name
    plain = name.removeprefix("special_")
    other = _MADE_OF.get(plain, plain)
    return other if other in listed else plain


@cache
def aten_operations() -> frozenset[str]:
    """The names of the operations that PyTorch's dispatcher knows."""
    registered: list[str] = torch._C._dispatch_get_all_op_names()
    return frozenset(name.partition("::")[2].partition(".")[0] for name in registered)


@cache
def known_operations() -> frozenset[str]:
    """All names of operations that PyTorch has, functions written in Python among them."""
    functions = (dir(place) for place in (torch, torch.nn.functional, torch.Tensor))
    return aten_operations().union(*functions)
