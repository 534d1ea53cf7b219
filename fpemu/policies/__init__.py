"""Policies: which operation of a model computes in which format, as frameworks decide it.

    find_policy(name)      the policy of a name: "torch.autocast.cuda.float16", "uniform:e4m3fn"
    POLICIES               the known ones, by name
    Policy, Override       make your own: per operation, module, kind of tensor, and step
    Products               what scales the operands of matrix products; PRODUCTS: known ones
    Rule                   what an operation does with the formats of its inputs
    check_operations       refuse names of operations that nobody knows
    in_torch               another framework's policy in PyTorch's names
    colouring              TensorFlow's graph rewrite, on any graph of operations
"""

from __future__ import annotations

from fpemu.policies.catalog import POLICIES, find_policy, operation_names
from fpemu.policies.checks import KINDS
from fpemu.policies.in_torch import in_torch
from fpemu.policies.names import check_operations
from fpemu.policies.override import Override
from fpemu.policies.policy import Policy
from fpemu.policies.products import PRODUCTS, Products
from fpemu.policies.rule import Rule, Rules, rules

__all__ = [
    "KINDS",
    "POLICIES",
    "PRODUCTS",
    "Override",
    "Policy",
    "Products",
    "Rule",
    "Rules",
    "check_operations",
    "find_policy",
    "in_torch",
    "operation_names",
    "rules",
]
