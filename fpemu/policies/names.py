"""Names: are the operations that a policy speaks of ones that the framework has?"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

from fpemu.errors import InputError, did_you_mean
from fpemu.policies.policy import Policy

__all__ = ["check_operations"]


def check_operations(policy: Policy, known: Iterable[str]) -> None:
    """Refuse a policy that names an operation, or a pattern of operations, nobody knows.

    >>> from fpemu.policies import check_operations, find_policy
    >>> check_operations(find_policy("torch.half; lower: sofmax"), {"linear", "softmax"})
    Traceback (most recent call last):
    fpemu.errors.InputError: policy 'torch.half+own': unknown operation 'sofmax'; did you mean \
'softmax'? 2 names are known; mend it or leave it out

    known: every name that the framework has; a policy of `POLICIES` names only ones of its
    framework's lists, so give those too (`operation_names`).
    """
    if not isinstance(policy, Policy):
        raise InputError(f"policy {repr(policy)[:80]}: give a Policy, as find_policy returns it")
    names = frozenset(known)
    for name in policy.operations:
        if name not in names:
            _refuse(policy, f"unknown operation {name!r}", name, names)
    for override in policy.overrides:
        pattern = override.operation
        if pattern is not None and not any(fnmatchcase(name, pattern) for name in names):
            _refuse(policy, f"override: no operation matches {pattern!r}", pattern, names)


def _refuse(policy: Policy, fault: str, name: str, names: frozenset[str]) -> None:
    hint = did_you_mean(name[:64], names)
    raise InputError(
        f"policy {policy.name!r}: {fault}; {hint}{len(names)} names are known; "
        "mend it or leave it out"
    )
