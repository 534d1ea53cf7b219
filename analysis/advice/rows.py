"""Rows: what an advice is made of, frozen records from which texts, tables and policies come."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fpemu.analysis.report.numbers import kind_words, reach
from fpemu.analysis.report.rows import record_json

if TYPE_CHECKING:
    from fpemu.analysis.by_recipe import Target
    from fpemu.analysis.scales import SafeScales
    from fpemu.policies import Policy

__all__ = [
    "STATUSES",
    "Advice",
    "Choice",
    "Keep",
    "LayerAdvice",
    "Line",
    "MemoryRow",
    "TensorAdvice",
    "UpdateAdvice",
]

#: What an advice comes to: nothing to do, a loss scale alone, more than that, a run that was
#: broken as it was recorded (NaN or infinity in it), a trace without values.
STATUSES = ("safe", "safe_with_loss_scale", "needs_changes", "broken", "no_data")


@dataclass(frozen=True, slots=True)
class Line:
    """One piece of advice: what to do, and why."""

    topic: str  #: verdict, loss_scale, keep, scales, updates, memory, range or search
    text: str
    why: str
    rank: int  #: 0 is the answer; what matters less comes later

    def to_json(self) -> dict[str, Any]:
        """Return the line as a JSON-ready dict."""
        return record_json(self)


@dataclass(frozen=True, slots=True)
class TensorAdvice:
    """The format and scale for one tensor, and what it would then lose."""

    name: str
    kind: str  #: one of `fpemu.analysis.trace.KINDS`
    layer: str
    to: str  #: the Cast as text, or the recipe's name; "float32" where it is kept
    scale: float  #: a power of two
    scaled: str  #: where the scale comes from: "own", "loss" for the loss scale, "recipe", or ""
    low: float | None  #: smallest and largest safe scale; None: none is safe
    high: float | None
    margin_bits: float | None  #: binades from `scale` to the nearer end; None: outside
    underflow_percent: float  #: expected at `scale`, of the finite non-zero values
    saturated_percent: float  #: overflow and saturation, likewise
    sqnr_db: float | None  #: predicted from the histogram, or `measured`; None: no error
    reason: str
    measured: bool = False  #: whether the SQNR is: of a recipe that the run counted
    bits_per_value: float = 32  #: of a recipe with the share of its scales

    @property
    def safe(self) -> str:
        """The safe scales in words."""
        return "its own" if self.scaled == "recipe" else reach(self.low, self.high)

    def to_json(self) -> dict[str, Any]:
        """Return the row as a JSON-ready dict."""
        return record_json(self)


@dataclass(frozen=True, slots=True)
class Keep:
    """A layer to keep in higher precision."""

    layer: str
    damage: float  #: what the format asked for would do to it, see `advise`
    reason: str
    to: str  #: what to keep it in
    wanted: str  #: the format asked for

    def to_json(self) -> dict[str, Any]:
        """Return the row as a JSON-ready dict."""
        return record_json(self)


@dataclass(frozen=True, slots=True)
class LayerAdvice:
    """What one layer computes in."""

    layer: str
    to: str  #: of what goes forward: activations and weights
    gradient_to: str
    module: str | None  #: pattern of the module's name; None: operations outside of modules
    operation: str | None  #: of an operation by itself
    matmul: bool  #: whether it has weights that are matrices
    damage: float
    memory_bytes: int
    activation_scale: float  #: of the inputs, and of the result where that is narrow too
    weight_scale: float
    gradient_scale: float  #: of the true gradients, without any loss scale

    def to_json(self) -> dict[str, Any]:
        """Return the row as a JSON-ready dict."""
        return record_json(self)


@dataclass(frozen=True, slots=True)
class UpdateAdvice:
    """What becomes of a weight's updates if the weight is held in a format."""

    name: str
    format: str
    lost_percent: float  #: updates that change nothing under nearest rounding
    lost_stochastic_percent: float  #: expected of stochastic rounding, whose mean is right
    advice: str
    estimated: bool  #: from histograms, not counted

    def to_json(self) -> dict[str, Any]:
        """Return the row as a JSON-ready dict."""
        return record_json(self)


@dataclass(frozen=True, slots=True)
class MemoryRow:
    """What the tensors of one kind take in one format, as advised and in float32."""

    kind: str  #: a kind of tensors; "master_weight" for a float32 copy; "model" for the sum
    format: str  #: "" for the sum
    bytes: int
    float32_bytes: int

    @property
    def label(self) -> str:
        """The kind as tables name it."""
        return "all together" if self.kind == "model" else kind_words(self.kind)

    def to_json(self) -> dict[str, Any]:
        """Return the row as a JSON-ready dict."""
        return record_json(self)


@dataclass(frozen=True, slots=True)
class Choice:
    """One assignment of formats to layers: a point of the Pareto front."""

    formats: tuple[tuple[str, str], ...]  #: (layer, format)
    memory_bytes: int
    damage: float  #: the sum over layers, predicted
    measured: float | None = None  #: what `evaluate` returned for it
    chosen: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the point as a JSON-ready dict."""
        return record_json(self) | {"formats": dict(self.formats)}


@dataclass(frozen=True)
class Advice:
    """What to do, why, and the rows it rests on; `advise` makes one."""

    status: str  #: one of STATUSES
    headline: str
    lines: tuple[Line, ...]
    tensors: tuple[TensorAdvice, ...]
    layers: tuple[LayerAdvice, ...]
    keep: tuple[Keep, ...]  #: the most damaged first
    loss_scale: SafeScales | None  #: for the true gradients; None: none need one
    loss_scale_advised: float
    updates: tuple[UpdateAdvice, ...]
    memory: tuple[MemoryRow, ...]
    pareto: tuple[Choice, ...]  #: by memory, smallest first
    formats: tuple[Target, ...] = field(repr=False)  #: asked for, in the order of preference
    tolerance: float

    def policy(self, base: Policy | str | None = None) -> Policy:
        """Return a policy that does what is advised, for `fpemu.torch.emulate`.

        >>> import numpy as np
        >>> from fpemu.analysis import Trace, advise
        >>> trace = Trace()
        >>> trace.record("fc1", "weight_gradient", np.float32([1e-8, 1e-4]), step=0)
        >>> advise(trace, formats=["fp16"]).policy().loss_scale
        32768.0

        base: the policy to change, by name or record; unless given, PyTorch's autocast of the
        first format, or for recipes, and for 8 bits and fewer, matrix products in it with float32
        results. What is kept becomes overrides; the loss scale is the policy's `loss_scale`, by
        which the training script multiplies its loss. A recipe's scales are its own. A tensor's own
        scale s becomes a format of its own whose bias is larger by log2(s): rounding x to it is
        rounding x * s to the format and dividing by s.
        """
        from fpemu.analysis.advice.policies import advised_policy

        return advised_policy(self, base)

    def to_json(self) -> dict[str, Any]:
        """Return the advice as a JSON-ready dict: numbers that JSON lacks are null."""
        return record_json(self) | {"schema": 1, "formats": [str(cast) for cast in self.formats]}
