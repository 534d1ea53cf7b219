"""Keras 3: which layers and losses have a rule of their own under a mixed policy.

Names are those of Keras' classes. Every other layer casts its floating-point inputs and variables
to the policy's compute format and works in it: a Dense with a softmax ends in float16 too.
Source: keras/src/layers/normalization, losses/loss.py and layers/core of Keras 3.15.
"""

from __future__ import annotations

from fpemu.policies.rule import rules

__all__ = ["FLOAT8", "MIXED"]

MIXED = rules(
    float32_inside="""
        BatchNormalization GroupNormalization LayerNormalization RMSNormalization""",
    float32="""
        BinaryCrossentropy BinaryFocalCrossentropy CTC CategoricalCrossentropy
        CategoricalFocalCrossentropy CategoricalHinge Circle CosineSimilarity Dice Hinge Huber
        KLDivergence LogCosh MeanAbsoluteError MeanAbsolutePercentageError MeanSquaredError
        MeanSquaredLogarithmicError Poisson SparseCategoricalCrossentropy SquaredHinge Tversky""",
)

#: Layers with a float8 mode: inputs and kernel in E4M3, output gradients in E5M2.
FLOAT8 = rules(lower="Dense EinsumDense")
