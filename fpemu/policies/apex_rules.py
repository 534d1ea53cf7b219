"""Apex: the functions that O1 patches, by rule.

Names are those of torch, torch.nn.functional and (with underscores) torch.Tensor, as Apex lists
them. Batched products are lowered with CUDA 9.1 and later. Recurrent layers are patched too and
run in float16.
Source: NVIDIA/apex, apex/amp/lists: torch_overrides.py, functional_overrides.py,
tensor_overrides.py.
"""

from __future__ import annotations

from fpemu.policies.rule import rules

__all__ = ["O1"]

O1 = rules(
    lower="""
        conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d conv_tbc prelu
        linear addmm addmv addr matmul mm mv addbmm baddbmm bmm __matmul__""",
    float32="""
        acos asin cosh erfinv exp expm1 log log10 log2 reciprocal rsqrt sinh tan pow __ipow__
        __pow__ __rpow__ cumprod cumsum dist norm prod std sum var renorm interpolate softplus
        softmin log_softmax softmax layer_norm group_norm local_response_norm normalize
        cosine_similarity poisson_nll_loss cosine_embedding_loss cross_entropy
        hinge_embedding_loss kl_div l1_loss mse_loss margin_ranking_loss multilabel_margin_loss
        multilabel_soft_margin_loss multi_margin_loss nll_loss binary_cross_entropy_with_logits
        smooth_l1_loss soft_margin_loss triplet_margin_loss""",
    widest="""
        addcdiv addcmul atan2 cross bilinear dot add div mul eq equal ge gt le lt ne cat stack
        __add__ __div__ __eq__ __ge__ __gt__ __iadd__ __idiv__ __imul__ __isub__ __itruediv__
        __le__ __lt__ __mul__ __ne__ __radd__ __rdiv__ __rmul__ __rsub__ __rtruediv__ __sub__
        __truediv__""",
    banned="binary_cross_entropy",
)
