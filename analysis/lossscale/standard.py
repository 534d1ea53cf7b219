"""Standard: the loss scalers that are worth replaying on a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fpemu.analysis.asked import own_cast
from fpemu.analysis.by_recipe import check_cast
from fpemu.analysis.lossscale.named import scaler
from fpemu.analysis.lossscale.seen import gradient_kinds
from fpemu.analysis.lossscale.state import Scaler
from fpemu.analysis.scales import SCALES, TOLERANCE, safe_of
from fpemu.analysis.what_if import grouped
from fpemu.cast import Cast, make_cast
from fpemu.errors import FpemuError
from fpemu.format import Format

if TYPE_CHECKING:
    from fpemu.analysis.trace import Trace

__all__ = ["FRAMEWORKS", "standard"]

#: The frameworks' dynamic scalers as a user meets them; Keras 3's is PyTorch's from 2^15.
FRAMEWORKS = (
    "torch",
    "keras",
    "tf_keras",
    "mxnet",
    "apex",
    "jmp",
    "deepspeed",
    "deepspeed_fused:init_scale=2^16",  # as from a config
)


def standard(trace: Trace, *, to: str | Format | Cast | None = None) -> tuple[Scaler, ...]:
    """Return the scalers worth replaying on a trace: static ones, the frameworks', the adaptive.

    >>> import numpy as np
    >>> from fpemu.analysis import lossscale
    >>> from fpemu.analysis.trace import Trace
    >>> trace = Trace()
    >>> trace.record("fc1.weight", "weight_gradient", np.float32([1e-8, 1e-6]), step=0)
    >>> [str(one) for one in lossscale.standard(trace)][:3]
    ['static', 'static:scale=2^18', 'torch']

    The first is no scaling; the second the one static scale that is best for all gradients of
    the run together, `safe_scales(...).best`; where that is 1 there is one static scale. The cast
    is the trace's own unless given, else float16. The adaptive scaler holds its cast by name: it
    is left out for a format of the user's own.
    Errors: InputError for a trace without gradients, or gradients recorded times a loss scale
    that is no power of two.
    """
    why = "a loss scale is for formats; a recipe brings scales of its own"
    cast = own_cast(trace) if to is None else check_cast("to", to, why)
    best = _best(trace, cast)
    fixed = [scaler("static", scale=scale) for scale in dict.fromkeys((1.0, best))]
    adaptive = [scaler("histogram", to=str(cast))] if _has_name(cast) else []
    return *fixed, *map(scaler, FRAMEWORKS), *adaptive


def _has_name(cast: Cast) -> bool:
    """Whether a cast can be found by its text, as scalers hold it; a user's own format cannot."""
    try:
        return make_cast(str(cast)) == cast
    except FpemuError:
        return False


def _best(trace: Trace, cast: Cast) -> float:
    tensors = grouped(trace, kinds=gradient_kinds(trace, None)).values()
    outcomes = [parts.outcomes(cast, SCALES) for parts in tensors]
    return safe_of(outcomes, str(cast), SCALES, TOLERANCE).best
