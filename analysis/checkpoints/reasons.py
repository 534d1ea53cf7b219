"""Reasons: why a tensor is not counted, and what would help."""

from __future__ import annotations

__all__ = ["COMPLEX", "INTEGERS", "LONG", "OTHER", "TRUTH", "VOID", "pickled"]

INTEGERS = (
    "integers, or codes whose meaning the file does not say; decode packed weights with the "
    "program that packed them"
)
TRUTH = "true or false: no format rounds it"
COMPLEX = "complex; save its real and imaginary parts"
LONG = "longer than float64; save it as float64 if you accept that rounding"
VOID = "bytes without a type: numpy does not write which narrow float it was; save safetensors"
OTHER = "no numbers that formats round"


def pickled(what: str) -> tuple[str, str]:
    """Return the rule and the way out for what only pickle could read."""
    return (
        f"{what} needs pickle, which runs any program that its writer put in: never done here",
        "save its tensors as safetensors, or as float arrays with np.savez",
    )
