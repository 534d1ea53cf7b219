"""Kinds: what a tensor of a checkpoint is to training, told by its name."""

from __future__ import annotations

from fnmatch import fnmatchcase

__all__ = ["KINDS", "kind_of"]

_STATE = "optimizer_state"

#: Pattern of a name in lower case -> kind, the first that fits; anything else is a weight.
#: PyTorch's optimizers name their states themselves; containers are called as people call them.
KINDS = (
    ("*exp_avg*", _STATE),  # Adam, AdamW, NAdam, RAdam, SparseAdam, and AMSGrad's max_exp_avg_sq
    ("*exp_inf", _STATE),  # Adamax
    ("*momentum_buffer", _STATE),  # SGD, RMSprop
    ("*square_avg", _STATE),  # Adadelta, RMSprop
    ("*grad_avg", _STATE),  # RMSprop, centred
    ("*acc_delta", _STATE),  # Adadelta
    ("state.[0-9]*.*", _STATE),  # an optimizer's state_dict saved by itself
    ("*optimizer.*", _STATE),
    ("*optimizer_state*", _STATE),
    ("optim.*", _STATE),
    ("*.optim.*", _STATE),
    ("*opt_state*", _STATE),  # optax
    ("*.grad", "weight_gradient"),
)


def kind_of(name: str) -> str:
    """Return the kind of a tensor, one of `fpemu.analysis.trace.KINDS`.

    >>> from fpemu.analysis.checkpoints.kinds import kind_of
    >>> kind_of("fc1.weight"), kind_of("optimizer.state.0.exp_avg")
    ('weight', 'optimizer_state')
    """
    lower = name.lower()
    return next((kind for pattern, kind in KINDS if fnmatchcase(lower, pattern)), "weight")
