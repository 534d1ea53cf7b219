"""TensorFlow's mixed-precision graph rewrite: its four lists of operations.

What an infer or clear operation does depends on the graph around it: `fpemu.policies.colouring`.
Source: grappler's auto_mixed_precision_lists.h, TensorFlow 2.21: FLOAT16 for GPUs (with CUDA from
9.1 and cuDNN from 8), BFLOAT16 for CPUs with oneDNN.
"""

from __future__ import annotations

from dataclasses import dataclass

from fpemu.errors import InputError

__all__ = ["BFLOAT16", "FLOAT16", "OperationLists"]


@dataclass(frozen=True)
class OperationLists:
    """The operations that a rewrite allows, infers, denies, or sees through; no name is in two.

    >>> from fpemu.policies.tensorflow_lists import FLOAT16
    >>> "MatMul" in FLOAT16.allow, "Exp" in FLOAT16.deny, "Relu" in FLOAT16.clear
    (True, True, True)

    Fields
        allow: always lowered.
        infer: lowered between allowed ones, unless downstream of a denied one.
        deny: never lowered, numerically dangerous, and so is what follows.
        clear: without effect on the numbers, lowered beside lowered ones.
    """

    allow: frozenset[str]
    infer: frozenset[str]
    deny: frozenset[str]
    clear: frozenset[str]

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for names in (self.allow, self.infer, self.deny, self.clear):
            if twice := sorted(seen & names):
                raise InputError(f"operation {twice[0]!r} is in two lists: keep one")
            seen |= names

    @property
    def names(self) -> frozenset[str]:
        """All operations of the four lists."""
        return self.allow | self.infer | self.deny | self.clear


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_TENSOR_LISTS = """
    TensorListConcat TensorListConcatLists TensorListConcatV2 TensorListGather TensorListGetItem
    TensorListPopBack TensorListPushBack TensorListPushBackBatch TensorListFromTensor
    TensorListScatter TensorListScatterV2 TensorListScatterIntoExistingList TensorListSetItem
    TensorListSplit TensorListStack"""

_INFER = """
    Add AddN AddV2 AvgPool AvgPool3D AvgPool3DGrad AvgPoolGrad BiasAdd BiasAddGrad BiasAddV1 Elu
    EluGrad Erf Erfc FloorDiv FusedBatchNormV2 FusedBatchNormGradV2 FusedBatchNormV3
    FusedBatchNormGradV3 _FusedBatchNormEx Inv LeakyRelu LeakyReluGrad Log Log1p LogSoftmax Mul
    Prod RealDiv Reciprocal Selu SeluGrad Sigmoid SigmoidGrad Softmax Softplus SoftplusGrad
    Softsign SoftsignGrad Sqrt Sub Tanh TanhGrad"""

_CLEAR = """
    Abs ArgMax ArgMin BatchToSpace BatchToSpaceND BroadcastTo Ceil CheckNumerics ClipByValue
    Concat ConcatV2 DepthToSpace DynamicPartition DynamicStitch Enter EnsureShape Equal Exit
    ExpandDims Fill Floor Gather GatherNd GatherV2 Greater GreaterEqual Identity IdentityN
    IsFinite IsInf IsNan Less LessEqual Max MaxPool MaxPool3D MaxPool3DGrad MaxPoolGrad
    MaxPoolGradGrad MaxPoolGradGradV2 MaxPoolGradV2 MaxPoolV2 Maximum Merge Min Minimum MirrorPad
    MirrorPadGrad Neg NextIteration NotEqual OnesLike Pack Pad PadV2 PreventGradient Rank Relu
    Relu6 Relu6Grad ReluGrad Reshape ResizeNearestNeighbor ResizeNearestNeighborGrad Reverse
    ReverseSequence ReverseV2 Round Select SelectV2 Shape ShapeN Sign Slice Snapshot SpaceToBatch
    SpaceToBatchND SpaceToDepth Split SplitV Squeeze StopGradient StridedSlice StridedSliceGrad
    Switch Tile TopK TopKV2 Transpose Unpack Where ZerosLike"""

FLOAT16 = OperationLists(
    allow=_names("""
        Conv2D Conv2DBackpropFilter Conv2DBackpropInput Einsum MatMul BlockLSTM BlockLSTMV2
        BlockLSTMGrad BlockLSTMGradV2 CudnnRNN CudnnRNNBackprop CudnnRNNBackpropV2
        CudnnRNNBackpropV3 CudnnRNNV2 CudnnRNNV3 FusedConv2DBiasActivation FusedSparseConvGpuV2
        GRUBlockCell GRUBlockCellGrad LSTMBlockCell LSTMBlockCellGrad Mha MhaV2 Tmlp TmlpV2 TmlpV3
        Pmlp FastUnsortedSegmentMax VoxelMax BatchMatMul BatchMatMulV2 Conv3D Conv3DBackpropFilter
        Conv3DBackpropFilterV2 Conv3DBackpropInput Conv3DBackpropInputV2 DepthwiseConv2dNative
        DepthwiseConv2dNativeBackpropFilter DepthwiseConv2dNativeBackpropInput"""),
    infer=_names(_INFER),
    deny=_names("""
        Exp Expm1 L2Loss Mean Pow SaveV2 SoftmaxCrossEntropyWithLogits
        SparseSoftmaxCrossEntropyWithLogits Sum"""),
    clear=_names(f"{_TENSOR_LISTS} {_CLEAR} MaxPool3DGradGrad OneHot Size"),
)

BFLOAT16 = OperationLists(
    allow=_names("""
        Conv2D Conv2DBackpropFilter Conv2DBackpropInput Conv3D Conv3DBackpropFilterV2
        Conv3DBackpropInputV2 DepthwiseConv2dNative DepthwiseConv2dNativeBackpropFilter
        DepthwiseConv2dNativeBackpropInput MatMul FusedPadConv2D BatchMatMul BatchMatMulV2
        Einsum"""),
    infer=_names(f"{_INFER} Mean Rsqrt Square SquaredDifference Sum"),
    deny=_names("""
        Exp Expm1 L2Loss Pow SaveV2 SoftmaxCrossEntropyWithLogits
        SparseSoftmaxCrossEntropyWithLogits"""),
    clear=_names(f"{_TENSOR_LISTS} {_CLEAR} ResizeBilinear ScatterNd StatelessWhile While"),
)
