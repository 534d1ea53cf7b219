"""PyTorch's autocast: which operation of which device has which rule, as registered in 2.13.

Names are those of the aten operations without their overloads. They are the names that users call
but for some losses and resamplings: `cross_entropy` reaches autocast as cross_entropy_loss (CPU)
or as log_softmax and nll_loss (CUDA), `interpolate` as one of the upsample operations.

What is not listed runs in the format its inputs have: relu, add, mul, batch_norm, mean, gelu, ...
Source: ATen/autocast_mode.h and autocast_mode.cpp, PyTorch 2.13. XPU has CUDA's lists.
"""

from __future__ import annotations

from fpemu.policies.rule import rules

__all__ = ["CPU", "CUDA", "TF32"]

CUDA = rules(
    lower="""
        _convolution conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d
        conv_transpose3d convolution cudnn_convolution cudnn_convolution_transpose prelu addmm
        addmv addr matmul einsum mm mv linalg_vecdot linear addbmm baddbmm bmm chain_matmul
        linalg_multi_dot _thnn_fused_lstm_cell _thnn_fused_gru_cell lstm_cell gru_cell
        rnn_tanh_cell rnn_relu_cell _scaled_dot_product_flash_attention
        scaled_dot_product_attention""",
    float32="""
        acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow
        softplus layer_norm native_layer_norm rms_norm group_norm frobenius_norm nuclear_norm
        cosine_similarity poisson_nll_loss cosine_embedding_loss nll_loss nll_loss2d
        hinge_embedding_loss kl_div l1_loss smooth_l1_loss huber_loss mse_loss
        margin_ranking_loss multilabel_margin_loss soft_margin_loss triplet_margin_loss
        multi_margin_loss binary_cross_entropy_with_logits dist pdist cdist renorm logsumexp
        upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d
        _upsample_nearest_exact2d _upsample_nearest_exact3d upsample_linear1d
        upsample_bilinear2d _upsample_bilinear2d_aa upsample_trilinear3d upsample_bicubic2d
        _upsample_bicubic2d_aa""",
    float32_result="""
        prod softmax log_softmax cumprod cumsum linalg_vector_norm linalg_matrix_norm sum norm""",
    widest="""
        addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot
        scatter_add""",
    banned="binary_cross_entropy",
)

CPU = rules(
    lower="""
        conv1d conv2d conv3d bmm mm linalg_vecdot baddbmm addmm _addmm_activation addbmm linear
        _convolution matmul conv_tbc mkldnn_rnn_layer conv_transpose1d conv_transpose2d
        conv_transpose3d prelu scaled_dot_product_attention _native_multi_head_attention""",
    float32="""
        avg_pool3d max_pool3d adaptive_avg_pool3d adaptive_max_pool3d fractional_max_pool2d
        fractional_max_pool3d max_unpool2d max_unpool3d reflection_pad1d reflection_pad2d
        replication_pad1d replication_pad2d replication_pad3d grid_sampler grid_sampler_2d
        _grid_sampler_2d_cpu_fallback grid_sampler_3d
        binary_cross_entropy binary_cross_entropy_with_logits cross_entropy_loss nll_loss
        nll_loss2d mse_loss l1_loss smooth_l1_loss huber_loss kl_div poisson_nll_loss ctc_loss
        cosine_embedding_loss hinge_embedding_loss margin_ranking_loss soft_margin_loss
        triplet_margin_loss multi_margin_loss multilabel_margin_loss
        multilabel_margin_loss_forward
        prod trace cdist quantile nanquantile polar view_as_complex stft
        fake_quantize_per_tensor_affine
        fft_fft fft_ifft fft_fft2 fft_ifft2 fft_fftn fft_ifftn fft_rfft fft_irfft fft_rfft2
        fft_irfft2 fft_rfftn fft_irfftn fft_hfft fft_ihfft
        cholesky cholesky_inverse cholesky_solve inverse pinverse lu_solve _lu_with_info orgqr
        ormqr geqrf qr svd triangular_solve
        linalg_cond linalg_matrix_rank linalg_solve linalg_cholesky linalg_cholesky_ex
        linalg_svd linalg_svdvals linalg_eig linalg_eigh linalg_eigvals linalg_eigvalsh
        linalg_inv linalg_inv_ex linalg_householder_product linalg_tensorinv
        linalg_tensorsolve linalg_qr linalg_lstsq""",
    widest="stack cat index_copy",
)

#: What `torch.backends.cuda.matmul.fp32_precision = "tf32"` and its like for cuDNN reach: matrix
#: products and convolutions of float32.
TF32 = rules(
    lower="""
        mm bmm addmm addbmm baddbmm matmul linear einsum chain_matmul linalg_multi_dot tensordot
        bilinear conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d
        convolution _convolution cudnn_convolution cudnn_convolution_transpose"""
)
