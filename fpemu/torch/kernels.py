"""Kernels: what is known of each ATen operation before it runs: views, writes, exact ones."""

from __future__ import annotations

from typing import Any, NamedTuple

from fpemu.torch.words import words

__all__ = ["Kernel", "kernel_of"]


class Kernel(NamedTuple):
    """Facts of one ATen operation."""

    operation: Any  #: PyTorch's object
    name: str  #: without its overload
    passes: bool  #: all its results are views: formats go with the storage
    written: tuple[int | str, ...]  #: positions or names of the arguments that it writes to
    returned: tuple[int, ...]  #: which of its results are new tensors
    exact: bool  #: it only moves or selects numbers of its inputs
    takes_numbers: bool  #: among them Python's
    same: bool  #: PyTorch wants all its inputs in one format
    inside: str | None  #: what is not emulated inside of it

#: Results are numbers of the inputs, so they need no rounding if all inputs have one format.
_EXACT = words("""
    _reshape_copy _to_copy _unsafe_view abs amax amin aminmax alias_copy as_strided_copy
    as_strided_scatter cat channel_shuffle clone copy copysign cummax cummin detach_copy diag_embed
    diagonal_copy diagonal_scatter embedding empty_like expand_copy flip gather im2col index
    index_copy index_select kthvalue lift_fresh_copy masked_select max maximum max_pool2d
    max_pool2d_with_indices max_pool3d_with_indices median min minimum mode nan_to_num_neg
    nanmedian neg new_empty new_zeros new_ones ones_like permute_copy pixel_shuffle pixel_unshuffle
    positive reflection_pad1d reflection_pad2d reflection_pad3d relu repeat repeat_interleave
    replication_pad1d replication_pad2d replication_pad3d roll select_backward
    select_copy select_scatter sgn sign slice_backward slice_copy slice_scatter sort split_copy
    split_with_sizes_copy squeeze_copy stack t_copy take threshold_backward topk transpose_copy
    tril triu unfold_copy unsqueeze_copy unsafe_split unsafe_split_with_sizes
    upsample_nearest1d upsample_nearest2d upsample_nearest3d view_copy where zeros_like fmax fmin
    max_unpool2d max_unpool3d diag rot90 new_empty_strided empty_permuted take_along_dim
    adaptive_max_pool2d adaptive_max_pool3d fractional_max_pool2d fractional_max_pool3d
""")

#: The same, where they also select Python numbers.
_EXACT_NUMBERS = words("clamp clamp_max clamp_min constant_pad_nd fill hardtanh masked_fill")

#: Written in place without a new number, if all inputs have one format.
_EXACT_WRITES = words("copy_ relu_ neg_ abs_ zero_ set_ resize_ transpose_ t_")

#: One kernel multiplies numbers of all inputs: PyTorch wants them of one dtype.
_SAME = words("""
    addbmm addmm addmv addr baddbmm bmm convolution convolution_backward convolution_overrideable
    dot linalg_vecdot mkldnn_linear mm mv vdot _convolution mkldnn_rnn_layer
""")

_ATTENTION = (
    "scaled_dot_product_attention: scores and probabilities are float32 inside its kernel; "
    "with sdpa_kernel(SDPBackend.MATH) of torch.nn.attention, and "
    "torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(True), it runs as single operations"
)
_RECURRENT = "{0}: the steps inside its kernel are float32"

_INSIDE = {
    "_scaled_dot_product_flash_attention_for_cpu": _ATTENTION,
    "_scaled_dot_product_flash_attention": _ATTENTION,
    "_scaled_dot_product_efficient_attention": _ATTENTION,
    "_scaled_dot_product_cudnn_attention": _ATTENTION,
    "_scaled_dot_product_fused_attention_overrideable": _ATTENTION,
    "_native_multi_head_attention": _RECURRENT,
    "_transformer_encoder_layer_fwd": _RECURRENT,
    "mkldnn_rnn_layer": _RECURRENT,
    "_cudnn_rnn": _RECURRENT,
    "miopen_rnn": _RECURRENT,
    "_thnn_fused_lstm_cell": _RECURRENT,
    "_thnn_fused_gru_cell": _RECURRENT,
    "_ctc_loss": _RECURRENT,
}

#: Arguments that are written to although the operation does not say so.
_HIDDEN_WRITES: dict[str, tuple[int | str, ...]] = {
    "native_batch_norm": (3, 4),
    "cudnn_batch_norm": (3, 4),
    "miopen_batch_norm": (3, 4),
}

#: By the operation's identity, as its hash is a call of Python; each exists once, for ever.
_KERNELS: dict[int, Kernel] = {}


def kernel_of(func: Any) -> Kernel:
    """Return the facts of an ATen operation (an OpOverload)."""
    try:
        return _KERNELS[id(func)]
    except KeyError:
        return _KERNELS.setdefault(id(func), _read(func))


def _read(func: Any) -> Kernel:
    schema = func._schema
    name = schema.name.partition("::")[2]
    written = tuple(
        argument.name if argument.kwarg_only else position
        for position, argument in enumerate(schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    )
    written += _HIDDEN_WRITES.get(name, ())
    returned = tuple(i for i, one in enumerate(schema.returns) if one.alias_info is None)
    tensors = any("Tensor" in str(one.type) for one in schema.returns)
    inside = _INSIDE.get(name)
    numbers = name.rstrip("_") in _EXACT_NUMBERS
    return Kernel(
        func,
        name,
        not written and (not returned or not tensors),
        written,
        returned,
        numbers or name in (_EXACT_WRITES if written else _EXACT),
        numbers,
        name in _SAME,
        inside.format(name) if inside else None,
    )
