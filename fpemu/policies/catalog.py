"""The known policies: the frameworks' own as a table, and finding one by name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from fpemu.cast import Cast
from fpemu.errors import InputError, did_you_mean
from fpemu.policies import apex_rules, keras_rules, mxnet_rules, tensorflow_lists, torch_rules
from fpemu.policies.accumulators import split_accumulator
from fpemu.policies.checks import read_cast
from fpemu.policies.names import check_operations
from fpemu.policies.policy import Policy
from fpemu.policies.products import MULTIPLIES, PRODUCTS, Products
from fpemu.policies.rule import Rule, Rules, rules
from fpemu.policies.text import from_text, is_clause, without_comments
from fpemu.scaling import Delayed, Recipe, recipes

__all__ = ["POLICIES", "find_policy", "operation_names"]


def _autocast(device: str, compute: str, operations: Rules) -> Policy:
    scale = "dynamic" if compute == "float16" else None
    return Policy(
        f"torch.autocast.{device}.{compute}", compute, operations=operations, loss_scale=scale
    )


def _pure(name: str, to: str, **more: Any) -> Policy:
    """The whole model in one format; optimizers make their state like the parameters."""
    return Policy(name, to, parameters=to, state=to, inputs=to, **more)


def _grappler(compute: str, lists: tensorflow_lists.OperationLists, scale: str | None) -> Policy:
    keep = lists.infer | lists.clear
    table = rules(lower=sorted(lists.allow), float32=sorted(lists.deny), keep=sorted(keep))
    return Policy(f"tensorflow.{compute}", compute, operations=table, loss_scale=scale)


def _keras(compute: str, scale: str | None) -> Policy:
    return Policy(
        f"keras.mixed_{compute}", compute, operations=keras_rules.MIXED,
        otherwise="lower", loss_scale=scale,
    )  # fmt: skip


def _scaled(name: str) -> Policy:
    """Linear layers by a recipe, all else as bfloat16 autocast has it, as these are trained."""
    if name.startswith("keras."):  # its float8 layers under its default policy
        return Policy(name, "float32", products=name, operations=rules(scaled="Dense"))
    table = torch_rules.CUDA | rules(scaled="linear")
    return Policy(name, "bfloat16", products=name, operations=table)


_E4M3, _E5M2 = "float8_e4m3fn:overflow=saturate", "float8_e5m2:overflow=saturate"

_TABLE = (
    _autocast("cuda", "float16", torch_rules.CUDA),
    _autocast("cuda", "bfloat16", torch_rules.CUDA),
    _autocast("cpu", "bfloat16", torch_rules.CPU),
    _autocast("cpu", "float16", torch_rules.CPU),
    _pure("torch.half", "float16"),
    _pure("torch.bfloat16", "bfloat16"),
    # products of float32 whose inputs the tensor cores read as TF32
    Policy("torch.tf32", "tf32:nearest_away", result="float32", operations=torch_rules.TF32),
    _grappler("float16", tensorflow_lists.FLOAT16, "dynamic"),
    _grappler("bfloat16", tensorflow_lists.BFLOAT16, None),
    _keras("float16", "dynamic"),
    _keras("bfloat16", None),
    Policy("keras.float8", _E4M3, gradient=_E5M2, result="float32", operations=keras_rules.FLOAT8),
    Policy("mxnet.amp.float16", "float16", operations=mxnet_rules.FLOAT16, loss_scale="dynamic"),
    Policy("mxnet.amp.bfloat16", "bfloat16", operations=mxnet_rules.BFLOAT16, otherwise="float32"),
    Policy("apex.O0", "float32", inputs="float32", outputs="float32", loss_scale=1.0),
    Policy("apex.O1", "float16", operations=apex_rules.O1, loss_scale="dynamic"),
    Policy("apex.O2", "float16", parameters="float16", master="float32", inputs="float16",
           outputs="float32", keep_modules=("*BatchNorm*",), loss_scale="dynamic"),
    _pure("apex.O3", "float16", outputs="float32", loss_scale=1.0),
    # MultiPrecisionSgd: a float32 master copy and float32 momentum
    Policy("caffe2.float16", "float16", operations=rules(float32="SoftmaxWithLoss"),
           parameters="float16", master="float32", inputs="float16", loss_scale="static"),
    _pure("caffe2.float16.FP16Sgd", "float16", operations=rules(float32="SoftmaxWithLoss"),
          loss_scale="static"),
    # linear layers as TransformerEngine and torchao run them, but without scales
    Policy("fp8_hybrid", _E4M3, gradient=_E5M2, result="float32",
           operations=rules(lower="linear addmm mm")),
    *map(_scaled, PRODUCTS),
)  # fmt: skip

#: Policy name -> Policy, read-only.
POLICIES: Mapping[str, Policy] = MappingProxyType({p.name: p for p in _TABLE})


def find_policy(
    policy: str | Policy | Products | Recipe | Delayed, known: frozenset[str] | None = None
) -> Policy:
    """Return the Policy of a name, of a name with changes, or of a policy's text.

    >>> from fpemu.policies import find_policy
    >>> find_policy("torch.autocast.cuda.float16").rule("linear")
    <Rule.LOWER: 'lower'>
    >>> mine = find_policy("torch.autocast.cuda.float16; lower: softmax; compute: e5m2")
    >>> mine.name, str(mine.compute), mine.rule("softmax").value
    ('torch.autocast.cuda.float16+own', 'float8_e5m2', 'lower')
    >>> str(find_policy("uniform:tf32").cast("activation"))
    'tf32'

    policy: a name of `POLICIES`; "uniform:FORMAT", every operation in one format (or Cast's text,
    or preset); "jmp:params=...,compute=...,output=...", as jmp reads it (or "jmp:half"); one of
    these followed by clauses of `fpemu.policies.text`, separated by ';' or line breaks, which
    change it; or the text that `str(policy)` gives. " accumulate=hopper" after a name adds
    products up as a chip does, or in a format (see `Products`). A recipe of `fpemu.scaling`, its
    name or text, or Products, is a policy that rounds the operands of every matrix product by it,
    all else in float32. A Policy is returned as it is.
    known: names of operations; if given, a policy that names another is refused.
    """
    found = policy if isinstance(policy, Policy) else _read(policy)
    if known is not None:
        check_operations(found, known)
    return found


def operation_names(framework: str) -> frozenset[str]:
    """Return every operation that the known policies of a framework name.

    >>> from fpemu.policies import operation_names
    >>> "softmax" in operation_names("torch"), "Softmax" in operation_names("tensorflow")
    (True, True)

    framework: the first word of its policies' names; another is refused.
    """
    found = [p for name, p in POLICIES.items() if name.partition(".")[0] == framework]
    if not found:
        known = sorted({name.partition(".")[0] for name in POLICIES})
        hint = did_you_mean(str(framework)[:64], known)
        raise InputError(
            f"unknown framework {repr(framework)[:80]}; {hint}known: {', '.join(known)}"
        )
    return frozenset().union(*(p.operations for p in found))


def _read(text: Any) -> Policy:
    if isinstance(text, Products | Recipe | Delayed):
        return _recipe(text)
    if not isinstance(text, str):
        raise InputError(
            f"policy {repr(text)[:80]}: must be a name, text, recipe, or a fpemu.policies.Policy"
        )
    bare = without_comments(text).lstrip()
    if is_clause(bare):
        return Policy.from_str(bare)
    first, *rest = re.split(r"[;\n]", bare, maxsplit=1)
    base = _named(first.strip())
    return _changed(base, from_text(rest[0])) if rest else base


def _named(text: str) -> Policy:
    name, accumulate = split_accumulator(text)
    if accumulate is not None:
        return _named(name).accumulating(accumulate)
    if name in POLICIES:
        return POLICIES[name]
    for prefix, read in (("uniform:", _uniform), ("jmp:", _jmp)):
        if name.startswith(prefix):
            return read(name.removeprefix(prefix))
    if name in recipes or len(name.split()) > 1:
        return _recipe(name)
    hint = did_you_mean(name[:80], (*POLICIES, *recipes))
    raise InputError(
        f"unknown policy {name[:80]!r}; {hint}known: {', '.join(POLICIES)}, uniform:FORMAT, "
        "jmp:params=FORMAT,compute=FORMAT,output=FORMAT, any recipe of fpemu.scaling; "
        "or make one with fpemu.policies.Policy"
    )


def _changed(base: Policy, facts: dict[str, Any]) -> Policy:
    """The base with the facts of a text in place of its own; overrides come after its own."""
    if not facts:
        return base
    kept = {"name": f"{base.name}+own", "compute": base.compute, "products": base.products}
    own = Policy.from_json({**kept, **facts})
    changes = {key: getattr(own, key) for key in facts if key not in ("operations", "overrides")}
    return base.replace(**{
        **changes,
        "name": own.name,
        "operations": base.operations | own.operations,
        "overrides": base.overrides + own.overrides,
    })  # fmt: skip


# --- policies with a format in their name ------------------------------------------------------


def _uniform(to: str) -> Policy:
    cast = read_cast(to, f"policy 'uniform:{to[:80]}'")
    return Policy(f"uniform:{cast}", cast, otherwise=Rule.LOWER)


def _recipe(value: Products | Recipe | Delayed | str) -> Policy:
    found = Products.of(value)
    return Policy(str(found), "float32", products=found, operations=rules(scaled=MULTIPLIES))


_JMP = {"params": "params", "p": "params", "compute": "compute", "c": "compute",
        "output": "output", "o": "output"}  # fmt: skip
_JMP_FORMATS = {"full": "float32", "half": "float16"}  # half is bfloat16 on TPUs


def _jmp(text: str) -> Policy:
    """jmp's string: compute follows params, output follows compute; one format is all three."""
    where = f"policy 'jmp:{text[:80]}'"
    given: dict[str, Cast] = {}
    for part in (text if "=" in text else f"params={text}").split(","):
        key, _, value = (word.strip() for word in part.partition("="))
        if key not in _JMP or _JMP[key] in given:
            raise InputError(f"{where}: {key[:80]!r} is not one of params, compute, output, once")
        given[_JMP[key]] = read_cast(_JMP_FORMATS.get(value, value), where)
    params = given.get("params", Cast("float32"))
    compute = given.get("compute", params)
    output = given.get("output", compute)
    return Policy(
        f"jmp:params={params},compute={compute},output={output}", compute, otherwise=Rule.LOWER,
        parameters=params, state=params, inputs=compute, outputs=output,
    )  # fmt: skip
