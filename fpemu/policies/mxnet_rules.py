"""MXNet's amp lists: which operation has which rule.

Names are MXNet's own. Operations that are float32 only for some values of a parameter are named
with the value: `Activation(softrelu)`. What is not listed runs in the format its inputs have under
float16 (MXNet names 436 such operations), in float32 under bfloat16 (it names 431, and only the
few of KEEP here do not care).
Source: mxnet/amp/lists/symbol_fp16.py and symbol_bf16.py of MXNet 2.0.0b1; 1.9.1 lowers only
Convolution, Deconvolution, FullyConnected and RNN to float16.
"""

from __future__ import annotations

from fpemu.policies.rule import rules

__all__ = ["BFLOAT16", "FLOAT16"]

_CONDITIONAL = "Activation(softrelu) LeakyReLU(elu) LeakyReLU(selu)"

FLOAT16 = rules(
    lower="""
        _linalg_gemm _linalg_gemm2 _npi_einsum _npi_matmul Convolution Deconvolution
        FullyConnected RNN""",
    float32=_CONDITIONAL
    + """
        arccos arcsin arctanh argsort broadcast_power cosh CTCLoss Custom digamma erfinv exp expm1
        gamma gammaln GroupNorm IdentityAttachKLSparseReg InstanceNorm khatri_rao L2Normalization
        LayerNorm LinearRegressionOutput log log10 log1p log2 log_softmax LogisticRegressionOutput
        LRN MAERegressionOutput make_loss MakeLoss masked_log_softmax masked_softmax mean moments
        nanprod nansum norm prod rcbrt reciprocal rsqrt sinh smooth_l1 softmax
        softmax_cross_entropy SoftmaxActivation SoftmaxOutput softmin square sum SVMOutput tan
        topk _contrib_calibrate_entropy _contrib_count_sketch _contrib_DeformablePSROIPooling
        _contrib_fft _contrib_hawkesll _contrib_MultiBoxDetection _contrib_MultiBoxPrior
        _contrib_MultiBoxTarget _contrib_sldwin_atten_context _contrib_sldwin_atten_mask_like
        _contrib_sldwin_atten_score _contrib_SyncBatchNorm _linalg_det _linalg_extractdiag
        _linalg_extracttrian _linalg_gelqf _linalg_inverse _linalg_makediag _linalg_maketrian
        _linalg_potrf _linalg_potri _linalg_slogdet _linalg_sumlogdiag _linalg_syevd _linalg_syrk
        _linalg_trmm _linalg_trsm _Native _NDArray _npi_arccos _npi_arcsin _npi_arctanh
        _npi_average _npi_cholesky _npi_cosh _npi_cumsum _npi_eig _npi_eigh _npi_eigvals
        _npi_eigvalsh _npi_exp _npi_expm1 _npi_ldexp _npi_ldexp_scalar _npi_log _npi_log10
        _npi_log1p _npi_log2 _npi_logaddexp _npi_logaddexp_scalar _npi_lstsq _npi_matrix_rank
        _npi_matrix_rank_none_tol _npi_mean _npi_norm _npi_pinv _npi_pinv_scalar_rcond
        _npi_polyval _npi_power _npi_power_scalar _npi_prod _npi_qr _npi_reciprocal
        _npi_rldexp_scalar _npi_rpower_scalar _npi_sinh _npi_solve _npi_square _npi_std _npi_sum
        _npi_svd _npi_tan _npi_tensorinv _npi_tensorsolve _npi_trace _npi_var
        _npx_deformable_convolution _npx_modulated_deformable_convolution _power _power_scalar
        _rdiv_scalar _rpower_scalar _square_sum""",
    widest="""
        add_n batch_dot broadcast_add broadcast_div broadcast_equal broadcast_greater
        broadcast_greater_equal broadcast_hypot broadcast_lesser broadcast_lesser_equal
        broadcast_logical_and broadcast_logical_or broadcast_logical_xor broadcast_maximum
        broadcast_minimum broadcast_mod broadcast_mul broadcast_not_equal broadcast_sub Concat
        Correlation dot elemwise_add elemwise_div elemwise_mul elemwise_sub stack where
        _contrib_box_decode _contrib_box_encode _contrib_box_iou _contrib_box_nms
        _contrib_dgl_adjacency _contrib_dgl_csr_neighbor_non_uniform_sample
        _contrib_dgl_csr_neighbor_uniform_sample _contrib_dgl_graph_compact _contrib_dgl_subgraph
        _contrib_edge_id _contrib_interleaved_matmul_encdec_qk
        _contrib_interleaved_matmul_encdec_valatt _contrib_interleaved_matmul_selfatt_qk
        _contrib_interleaved_matmul_selfatt_valatt _contrib_MultiProposal _contrib_Proposal
        _contrib_PSROIPooling _contrib_ROIAlign _contrib_RROIAlign _equal _greater _greater_equal
        _hypot _lesser _lesser_equal _logical_and _logical_or _logical_xor _maximum _minimum _mod
        _not_equal _npi_column_stack _npi_copysign _npi_cross _npi_dot _npi_dstack _npi_ediff1d
        _npi_equal _npi_fmax _npi_fmin _npi_fmod _npi_greater _npi_greater_equal _npi_hstack
        _npi_hypot _npi_kron _npi_less _npi_less_equal _npi_logical_and _npi_logical_or
        _npi_logical_xor _npi_not_equal _npi_tensordot _npi_tensordot_int_axes _npi_vstack
        _npi_where _npx_index_add _npx_index_update _random_pdf_dirichlet _random_pdf_exponential
        _random_pdf_gamma _random_pdf_generalized_negative_binomial _random_pdf_negative_binomial
        _random_pdf_normal _random_pdf_poisson _random_pdf_uniform""",
)

BFLOAT16 = rules(
    lower="Convolution FullyConnected",
    float32=_CONDITIONAL,
    keep="""
        abs BatchNorm BatchNormWithReLU clip Concat concat LRN Pooling relu shuffle sqrt square
        tanh _add _shuffle""",
    widest="""
        add_n batch_dot broadcast_add broadcast_div broadcast_equal broadcast_greater
        broadcast_greater_equal broadcast_lesser broadcast_lesser_equal broadcast_logical_and
        broadcast_logical_or broadcast_logical_xor broadcast_maximum broadcast_minimum
        broadcast_minus broadcast_mod broadcast_not_equal broadcast_plus broadcast_sub Correlation
        dot ElementWiseSum elemwise_add elemwise_div elemwise_mul elemwise_sub
        random_pdf_dirichlet random_pdf_exponential random_pdf_gamma
        random_pdf_generalized_negative_binomial random_pdf_negative_binomial random_pdf_normal
        random_pdf_poisson random_pdf_uniform stack where _contrib_box_iou _contrib_box_nms
        _contrib_box_non_maximum_suppression _contrib_dgl_adjacency
        _contrib_dgl_csr_neighbor_non_uniform_sample _contrib_dgl_csr_neighbor_uniform_sample
        _contrib_dgl_graph_compact _contrib_dgl_subgraph _contrib_edge_id
        _contrib_MultiBoxDetection _contrib_MultiBoxPrior _contrib_MultiBoxTarget
        _contrib_MultiProposal _contrib_Proposal _contrib_PSROIPooling _contrib_ROIAlign _Div _div
        _Equal _equal _Greater _greater _Greater_Equal _greater_equal _Lesser _lesser
        _Lesser_Equal _lesser_equal _Logical_And _logical_and _Logical_Or _logical_or _Logical_Xor
        _logical_xor _maximum _Maximum _minimum _Minimum _Minus _minus _Mod _mod _Mul _mul
        _Not_Equal _not_equal _Plus _plus _random_pdf_dirichlet _random_pdf_exponential
        _random_pdf_gamma _random_pdf_generalized_negative_binomial _random_pdf_negative_binomial
        _random_pdf_normal _random_pdf_poisson _random_pdf_uniform _scatter_elemwise_div
        _sparse_add_n _sparse_broadcast_add _sparse_broadcast_div _sparse_broadcast_minus
        _sparse_broadcast_mul _sparse_broadcast_plus _sparse_broadcast_sub _sparse_dot
        _sparse_ElementWiseSum _sparse_elemwise_add _sparse_elemwise_div _sparse_elemwise_mul
        _sparse_elemwise_sub _sparse_sum _sparse_where _sub""",
)
