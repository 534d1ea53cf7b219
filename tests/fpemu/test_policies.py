"""Policies as records: what they decide, how they are written and read, what they refuse."""

from __future__ import annotations

import json
import os
import pickle
import re
import subprocess
import sys
from dataclasses import FrozenInstanceError, fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fpemu
from fpemu.cast import Cast, make_cast
from fpemu.errors import FpemuError, InputError
from fpemu.policies import (
    KINDS,
    POLICIES,
    Override,
    Policy,
    Rule,
    Rules,
    check_operations,
    find_policy,
    in_torch,
    operation_names,
    rules,
)
from fpemu.policies.in_torch import COUNTERPARTS, left_out

each_policy = pytest.mark.parametrize("policy", POLICIES.values(), ids=list(POLICIES))

# --- any policy ------------------------------------------------------------------------------

OPERATIONS = ("linear", "softmax", "exp", "Activation(softrelu)", "_npi_exp", "add.out")
MODULES = ("encoder.0", "encoder.0.attention", "decoder.0", "head")
TEXTS = ("fp16", "bf16", "tf32:toward_zero", "e4m3fn:overflow=saturate", "e5m2", "binary8p3se",
         "float32", "torch.float8_e4m3fn")  # fmt: skip
casts = st.sampled_from(TEXTS).map(make_cast)
maybe_casts = st.none() | casts


@st.composite
def overrides(draw):
    kind = draw(st.none() | st.sampled_from(KINDS))
    first = draw(st.integers(0, 5))
    return Override(
        draw(casts if kind else casts | st.sampled_from(Rule)),
        operation=draw(st.none() | st.sampled_from((*OPERATIONS, "*", "[ls]*", "?xp"))),
        module=draw(st.none() | st.sampled_from((*MODULES, "encoder.*", "*.0"))),
        kind=kind,
        first_step=first,
        last_step=draw(st.none() | st.integers(first, 7)),
    )


policies = st.builds(
    Policy,
    st.sampled_from(("mine", "torch.half", "a policy: of mine")),
    casts,
    **dict.fromkeys(
        ("result", "gradient", "parameters", "master", "state", "inputs", "outputs"), maybe_casts
    ),
    operations=st.dictionaries(st.sampled_from(OPERATIONS), st.sampled_from(Rule)),
    otherwise=st.sampled_from([rule for rule in Rule if rule is not Rule.SCALED]),
    products=st.sampled_from(("te.nvfp4", "te.delayed", "mxfp4", "x=none w=nf4 wgrad_x=mxint8")),
    keep_modules=st.lists(st.sampled_from(("*BatchNorm*", "LayerNorm")), max_size=2),
    loss_scale=st.sampled_from((None, "dynamic", "static", 1, 2.0**-40, 65536.0, 0.1)),
    overrides=st.lists(overrides(), max_size=4),
)
queries = st.tuples(
    st.sampled_from((*OPERATIONS, "mul")), st.none() | st.sampled_from(MODULES), st.integers(0, 8)
)


# --- both ways -------------------------------------------------------------------------------


@given(policies)
def test_text_and_json_read_back(policy):
    assert Policy.from_str(str(policy)) == policy
    assert find_policy(str(policy)) == policy
    assert Policy.from_json(json.loads(json.dumps(policy.to_json()))) == policy
    assert pickle.loads(pickle.dumps(policy)) == policy


@each_policy
def test_known_policies_read_back_and_are_found(policy):
    assert Policy.from_str(str(policy)) == policy
    assert Policy.from_json(json.loads(json.dumps(policy.to_json()))) == policy
    assert find_policy(policy.name) is policy
    assert find_policy(policy) is policy


@given(policies)
def test_one_line_is_as_good_as_many(policy):
    lines = re.sub(r"\n\s+", " ", str(policy))
    assert Policy.from_str(lines.replace("\n", ";")) == policy


def test_formats_of_your_own_go_through_json():
    own = fpemu.Format("mine", 4, 3, bias=7, nan=fpemu.NaN.TOP_CODE, inf=False)
    p = Policy("p", Cast(own), overrides=[Override(Cast(own, "up"), kind="weight")])
    assert Policy.from_json(json.loads(json.dumps(p.to_json()))) == p
    with pytest.raises(InputError, match="unknown format 'mine'"):
        Policy.from_str(str(p))


def test_text_may_be_written_by_hand():
    text = """
    # what I want
    policy: by hand
    compute: fp16        # alias
    lower: linear
        matmul  bmm
    lower: mm
    loss_scale: 128
    override: to=float32 operation=soft* steps=10
    override: kind=gradient to=e5m2 steps=..4
    """
    want = Policy(
        "by hand", "float16", operations=dict.fromkeys(("linear", "matmul", "bmm", "mm"), "lower"),
        loss_scale=128, overrides=[
            Override(Rule.FLOAT32, operation="soft*", first_step=10, last_step=10),
            Override("e5m2", kind="gradient", last_step=4),
        ],
    )  # fmt: skip
    assert find_policy(text.replace("\n    ", "\n")) == want


# --- records ---------------------------------------------------------------------------------


def test_records_are_frozen_and_hashable():
    p = find_policy("torch.half")
    with pytest.raises(FrozenInstanceError):
        p.name = "other"  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        Override("fp16").kind = "weight"  # type: ignore[misc]
    with pytest.raises(TypeError):
        p.operations["linear"] = Rule.LOWER  # type: ignore[index]
    with pytest.raises(TypeError):
        POLICIES["mine"] = p  # type: ignore[index]
    assert len({p, Policy.from_str(str(p)), p.replace(compute="bf16")}) == 2


def test_a_pickle_is_found_by_its_hash_in_another_process():
    """Where text has another hash."""
    p = find_policy("torch.half; lower: linear; override: to=bf16 module=a")
    hash(p)
    code = (
        "import pickle, sys; from fpemu.policies import Policy; "
        "p = pickle.loads(bytes.fromhex(sys.argv[1])); "
        "print(p in {Policy.from_json(p.to_json())}, p.operations in {p.operations | {}})"
    )
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", code, pickle.dumps(p).hex()],
            env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert done.stdout.split() == ["True", "True"]


@given(st.dictionaries(st.sampled_from(OPERATIONS), st.sampled_from(Rule)))
def test_rules_are_a_mapping_in_any_order(table):
    turned = dict(reversed(table.items()))
    assert Rules(table) == Rules(turned) == table
    assert hash(Rules(table)) == hash(Rules(turned))
    assert dict(Rules(table)) == table
    assert rules(**{rule.value: names for rule, names in Rules(table).lists().items()}) == table


def test_equal_functions_are_equal_records():
    assert Policy("p", "fp16", parameters="float32", state="fp32") == Policy("p", "fp16")
    assert Override("float32") == Override(Rule.FLOAT32) == Override(Cast("fp32"))
    assert isinstance(Override("float32", kind="weight").to, Cast)
    assert Policy("p", "fp16").replace(compute="bf16").cast("gradient") == Cast("bf16")


# --- what is decided: compared with going through all overrides in order -----------------------


def decided(policy: Policy, kind: str | None, operation: str, module: str | None, step: int):
    """The target of the last override in force, by a regular expression for each pattern."""
    last = None
    for o in policy.overrides:
        names = ((o.operation, operation), (o.module, module))
        fits = all(p is None or (n is not None and glob(p).fullmatch(n)) for p, n in names)
        begun, ended = step >= o.first_step, o.last_step is not None and step > o.last_step
        if fits and begun and not ended and (o.kind is None or o.kind == kind):
            last = o.to
    return last


def glob(pattern: str) -> re.Pattern[str]:
    parts = re.split(r"(\*|\?|\[\w+\])", pattern)
    regex = {"*": ".*", "?": "."}
    return re.compile("".join(
        part if part.startswith("[") else regex.get(part, re.escape(part)) for part in parts
    ))  # fmt: skip


@given(policies, queries)
def test_the_last_override_that_matches_decides(policy, query):
    operation = query[0]
    to = decided(policy, None, *query)
    own = policy.operations.get(operation, policy.otherwise)
    want = own if to is None else Rule.LOWER if isinstance(to, Cast) else to
    assert policy.rule(*query) is want
    formats = {
        "activation": policy.compute,
        "weight": policy.compute,
        "gradient": policy.compute if policy.gradient is None else policy.gradient,
        "state": policy.state,
    }
    for kind, base in formats.items():
        to = decided(policy, kind, *query)
        assert policy.cast(kind, *query) == (to if isinstance(to, Cast) else base)
    kind = "activation" if policy.result is None else None
    to = decided(policy, kind, *query)
    assert policy.result_cast(*query) == (
        to if isinstance(to, Cast) else policy.result or policy.compute
    )


@given(policies, queries)
def test_a_policy_at_a_step_answers_as_it_does_then(policy, query):
    operation, module, step = query
    now = policy.at(step)
    for later in (0, step, 99):
        assert now.rule(operation, module, later) is policy.rule(*query)
        assert now.result_cast(operation, module, later) == policy.result_cast(*query)
        for kind in KINDS:
            assert now.cast(kind, operation, module, later) == policy.cast(kind, *query)
    assert now.at(step + 1) is now


def test_state_has_no_operation_unless_you_say_it():
    p = Policy("p", "fp16", overrides=[Override("bf16", operation="*")])
    assert p.cast("state") is None
    assert p.cast("state", "linear") == Cast("bf16")
    assert p.rule("anything") is Rule.LOWER


def test_modules_that_stay_float32():
    o2 = find_policy("apex.O2")
    assert [o2.keeps(name) for name in ("BatchNorm1d", "SyncBatchNorm", "LayerNorm")] == [
        True, True, False,
    ]  # fmt: skip


# --- finding -----------------------------------------------------------------------------------


def test_changes_after_a_name():
    base = find_policy("torch.autocast.cuda.float16")
    own = find_policy(
        "torch.autocast.cuda.float16; lower: softmax gelu\nfloat32: linear; compute: e5m2;"
        "policy: mine; override: to=banned operation=exp"
    )
    assert own == base.replace(
        name="mine", compute="e5m2",
        operations=base.operations | rules(lower="softmax gelu", float32="linear"),
        overrides=[Override("banned", operation="exp")],
    )  # fmt: skip
    again = find_policy("torch.half # pure\n; override: to=bf16")
    assert again == find_policy("torch.half; override: to=bf16")
    assert again.name == "torch.half+own"
    assert find_policy("torch.half;") is find_policy("torch.half")


@pytest.mark.parametrize("to", TEXTS)
def test_uniform(to):
    p = find_policy(f"uniform:{to}")
    assert p == find_policy(p.name)
    assert {p.rule(name) for name in ("linear", "relu", "MatMul")} == {Rule.LOWER}
    assert {p.cast(kind) for kind in KINDS[:3]} == {make_cast(to)}
    assert p.cast("state") is None


#: jmp's documentation: a string, and the formats of parameters, computation and output.
JMP = [
    ("params=float32,compute=float16,output=float32", "float32 float16 float32"),
    ("p=f32,c=f16,o=f32", "float32 float16 float32"),
    ("c=f16", "float32 float16 float16"),
    ("p=f16,c=f16", "float16 float16 float16"),
    ("p=f16,c=bf16", "float16 bfloat16 bfloat16"),
    ("p=bf16", "bfloat16 bfloat16 bfloat16"),
    ("o=f16", "float32 float32 float16"),
    ("half", "float16 float16 float16"),
    ("full", "float32 float32 float32"),
    ("bfloat16", "bfloat16 bfloat16 bfloat16"),
    ("params=full,compute=half", "float32 float16 float16"),
    ("compute=float8_e4m3fn", "float32 float8_e4m3fn float8_e4m3fn"),
]


@pytest.mark.parametrize(("text", "want"), JMP)
def test_jmp(text, want):
    p = find_policy(f"jmp:{text}")
    params = p.parameters or Cast("float32")
    assert " ".join(map(str, (params, p.compute, p.outputs))) == want
    assert p.name == "jmp:params={},compute={},output={}".format(*want.split())
    assert p == find_policy(p.name)
    assert p.inputs == p.compute == p.cast("weight", "dot")
    assert p.rule("dot") is Rule.LOWER
    assert p.state == p.parameters


@pytest.mark.parametrize(("text", "want"), [case for case in JMP if "float8" not in case[0]])
def test_jmp_reads_it_the_same_way(text, want):
    jmp = pytest.importorskip("jmp", reason="jmp is not installed: pip install jmp")
    real = jmp.get_policy(text)
    got = (real.param_dtype, real.compute_dtype, real.output_dtype)
    assert [np.dtype(dtype).name for dtype in got] == want.split()


# --- the frameworks ----------------------------------------------------------------------------


@each_policy
def test_operations_of_known_policies_are_known(policy):
    framework = policy.name.partition(".")[0]
    check_operations(policy, operation_names(framework))


SAID = [
    ("torch.autocast.cuda.float16", "linear", "lower"),
    ("torch.autocast.cuda.float16", "softmax", "float32_result"),
    ("torch.autocast.cuda.bfloat16", "binary_cross_entropy", "banned"),
    ("torch.autocast.cuda.float16", "cat", "keep"),
    ("torch.autocast.cpu.bfloat16", "cat", "widest"),
    ("torch.autocast.cpu.bfloat16", "softmax", "keep"),
    ("torch.autocast.cpu.float16", "binary_cross_entropy", "float32"),
    ("torch.half", "softmax", "keep"),
    ("torch.tf32", "linear", "lower"),
    ("torch.tf32", "exp", "keep"),
    ("tensorflow.float16", "Conv2D", "lower"),
    ("tensorflow.float16", "Mean", "float32"),
    ("tensorflow.bfloat16", "Mean", "keep"),
    ("keras.mixed_float16", "Dense", "lower"),
    ("keras.mixed_float16", "Softmax", "lower"),
    ("keras.mixed_bfloat16", "BatchNormalization", "float32_inside"),
    ("keras.mixed_float16", "MeanSquaredError", "float32"),
    ("keras.float8", "Dense", "lower"),
    ("keras.float8", "Conv2D", "keep"),
    ("mxnet.amp.float16", "RNN", "lower"),
    ("mxnet.amp.float16", "Activation(softrelu)", "float32"),
    ("mxnet.amp.float16", "Activation(relu)", "keep"),
    ("mxnet.amp.float16", "dot", "widest"),
    ("mxnet.amp.bfloat16", "RNN", "float32"),
    ("mxnet.amp.bfloat16", "BatchNorm", "keep"),
    ("apex.O1", "softmax", "float32"),
    ("apex.O1", "add", "widest"),
    ("apex.O1", "mean", "keep"),
    ("apex.O3", "softmax", "keep"),
    ("caffe2.float16", "SoftmaxWithLoss", "float32"),
    ("fp8_hybrid", "linear", "lower"),
    ("fp8_hybrid", "softmax", "keep"),
]


@pytest.mark.parametrize(("name", "operation", "want"), SAID)
def test_what_the_frameworks_documents_say(name, operation, want):
    assert POLICIES[name].rule(operation).value == want


def test_how_many_operations_each_list_has():
    """Counted in the sources of the frameworks' lists (versions: see the modules)."""
    counts = {n: {r.value: len(o) for r, o in p.operations.lists().items()}
              for n, p in POLICIES.items()}  # fmt: skip
    assert counts["mxnet.amp.float16"] == {"lower": 8, "float32": 137 + 3, "widest": 95}
    assert counts["mxnet.amp.bfloat16"] == {"lower": 2, "float32": 3, "keep": 15, "widest": 109}
    assert counts["tensorflow.float16"] == {"lower": 39, "float32": 9, "keep": 43 + 95 + 15}
    assert counts["tensorflow.bfloat16"] == {"lower": 14, "float32": 7, "keep": 48 + 96 + 15}


def where_numbers_are_kept(policy: Policy) -> list[str | None]:
    kept = (policy.parameters, policy.master, policy.state, policy.inputs, policy.outputs)
    return [cast and str(cast) for cast in kept] + [policy.loss_scale]  # type: ignore[list-item]


def test_weights_state_and_loss_scales():
    half, full = "float16", "float32"
    want = {  # parameters, master copy, optimizer state, inputs, outputs, loss scale
        "torch.autocast.cuda.float16": [None, None, None, None, None, "dynamic"],
        "torch.autocast.cuda.bfloat16": [None, None, None, None, None, None],
        "torch.half": [half, None, half, half, None, None],
        "keras.mixed_float16": [None, None, None, None, None, "dynamic"],
        "keras.mixed_bfloat16": [None, None, None, None, None, None],
        "apex.O0": [None, None, None, full, full, 1.0],
        "apex.O1": [None, None, None, None, None, "dynamic"],
        "apex.O2": [half, full, None, half, full, "dynamic"],
        "apex.O3": [half, None, half, half, full, 1.0],
        "caffe2.float16": [half, full, None, half, None, "static"],
        "caffe2.float16.FP16Sgd": [half, None, half, half, None, "static"],
    }
    assert {name: where_numbers_are_kept(POLICIES[name]) for name in want} == want


@pytest.mark.parametrize("name", ["fp8_hybrid", "keras.float8"])
def test_fp8_is_e4m3_forward_and_e5m2_backward(name):
    p = POLICIES[name]
    kinds = [str(p.cast(kind)).partition(":")[0] for kind in ("activation", "weight", "gradient")]
    assert kinds == ["float8_e4m3fn", "float8_e4m3fn", "float8_e5m2"]
    assert str(p.result_cast("linear")) == "float32"


# --- in PyTorch's names --------------------------------------------------------------------------


@pytest.mark.parametrize("framework", COUNTERPARTS)
def test_counterparts_are_of_operations_that_the_framework_lists(framework):
    assert set(COUNTERPARTS[framework]) <= operation_names(framework)


@each_policy
def test_in_torch(policy):
    """Each operation with a counterpart has its rule there, and no two disagree."""
    got = in_torch(policy)
    assert in_torch(got) == got
    table = COUNTERPARTS.get(policy.name.partition(".")[0])
    if table is None:
        assert got is policy
        return
    pairs = {(other, policy.operations[name]) for name in policy.operations
             for other in table.get(name, ())}  # fmt: skip
    assert set(got.operations.items()) == pairs
    others = [f for f in fields(policy) if f.name != "operations"]
    assert all(getattr(got, f.name) == getattr(policy, f.name) for f in others)


@each_policy
def test_left_out_are_the_rules_without_a_counterpart(policy):
    framework = policy.name.partition(".")[0]
    table = COUNTERPARTS.get(framework, dict.fromkeys(policy.operations))
    lost = left_out(policy)
    assert not set(lost) & set(table)
    kept = set(policy.operations) - set(lost) - set(table)
    assert all(policy.rule(name) is policy.otherwise for name in kept)


def test_in_torch_keeps_what_you_added():
    own = in_torch(find_policy("keras.mixed_float16; float32: gelu BatchNormalization"))
    assert own.rule("gelu") is own.rule("batch_norm") is Rule.FLOAT32


# --- refusals ----------------------------------------------------------------------------------

REFUSED = [
    (lambda: find_policy("torch.autocast.cuda.flaot16"),
     "unknown policy 'torch.autocast.cuda.flaot16'; did you mean 'torch.autocast.cuda.float16'?"),
    (lambda: find_policy(""), "unknown policy ''"),
    (lambda: find_policy(16), "policy 16: must be a name"),
    (lambda: find_policy("uniform:fp17"), "policy 'uniform:fp17': unknown format 'fp17'"),
    (lambda: find_policy("uniform:"), "policy 'uniform:': unknown format ''"),
    (lambda: find_policy("jmp:c=float64"), "policy 'jmp:c=float64': unknown format 'float64'"),
    (lambda: find_policy("jmp:q=f16"), "'q' is not one of params, compute, output"),
    (lambda: find_policy("jmp:c=f16,compute=f16"), "'compute' is not one of"),
    (lambda: find_policy("torch.half; lowr: x"), "did you mean 'lower'? keys: policy, compute"),
    (lambda: find_policy("torch.half; lower x"), "a clause is 'key: value'"),
    (lambda: find_policy("torch.half; compute:"), "'compute:': the value is missing"),
    (lambda: find_policy("torch.half; compute: e4m3"), "'e4m3' is ambiguous"),
    (lambda: find_policy("torch.half; compute: bf16; compute: fp16"), "compute is given twice"),
    (lambda: find_policy("torch.half; lower: a b; float32: b"),
     "operation 'b' is in two lists, lower and float32: keep one"),
    (lambda: find_policy("torch.half; override: operation=x"), "'to' is missing"),
    (lambda: find_policy("torch.half; override: to=fp16 modul=x"), "did you mean 'module'?"),
    (lambda: find_policy("torch.half; override: to=fp16 to=bf16"), "is not one new key=value"),
    (lambda: find_policy("torch.half; override: to=fp16 steps=a"), "write 5, 5.., ..9 or 5..9"),
    (lambda: find_policy("torch.half; override: to=fp16 steps=9..5"), "steps 9 to 5"),
    (lambda: find_policy("torch.half; loss_scale: much"), "a positive number, dynamic or static"),
    (lambda: find_policy("torch.half; otherwise: lwoer"), "did you mean 'lower'?"),
    (lambda: Policy.from_str("policy: mine; lower: linear"), "'compute' is missing; fields:"),
    (lambda: Policy.from_str("compute: fp16"), "'name' is missing; fields:"),
    (lambda: Policy.from_str(3), "policy 3: must be text"),
    (lambda: Policy.from_json({"name": "a", "compute": "fp16", "lower": []}),
     "unknown field 'lower'"),
    (lambda: Policy("a;b", "fp16"), "a name is one line of text without ';' and '#'"),
    (lambda: Policy("a", "fp17"), "policy 'a' compute: unknown format 'fp17'"),
    (lambda: Policy("a", None), "compute is missing"),
    (lambda: Policy("a", "fp16", loss_scale=0), "loss_scale=0: a positive number"),
    (lambda: Policy("a", "fp16", loss_scale=float("nan")), "loss_scale=nan: a positive number"),
    (lambda: Policy("a", "fp16", overrides=["x"]), "'x' is no Override"),
    (lambda: Policy("a", "fp16", operations={"a b": "lower"}), "without white space"),
    (lambda: Policy("a", "fp16", operations={"a": "up"}), "unknown rule 'up'"),
    (lambda: Policy("a", "fp16").replace(computes="bf16"), "did you mean 'compute'?"),
    (lambda: Policy("a", "fp16").cast("weights"), "did you mean 'weight'?"),
    (lambda: Override("fp16", kind="weights"), "did you mean 'weight'?"),
    (lambda: Override("lower", kind="weight"), "unknown format 'lower'"),
    (lambda: Override(Rule.LOWER, kind="weight"), "leave kind out"),
    (lambda: Override("fp16", first_step=-1), "steps are ints from 0"),
    (lambda: Override("fp16", last_step=True), "steps are ints from 0"),
    (lambda: Override("fp16", module=""), "without white space"),
    (lambda: Override.from_json({"kind": "weight"}), "'to' is missing"),
    (lambda: Override.from_json({"to": "fp16", "modul": "x"}), "did you mean 'module'?"),
    (lambda: rules(lower="a", float32="a"), "operation 'a' is in two lists"),
    (lambda: operation_names("pytorch"), "did you mean 'torch'?"),
    (lambda: Policy("x", "fp16", keep_modules=3), "policy 'x' keep_modules 3: must be a list"),
    (lambda: Policy("x", "fp16", overrides=None), "policy 'x' overrides None: must be a list"),
    (lambda: in_torch("torch.half"), "policy 'torch.half': give a Policy, as find_policy returns"),
    (lambda: check_operations("torch.half", ()), "policy 'torch.half': give a Policy"),
    (lambda: find_policy("torch.half; lower: sofmax", frozenset({"softmax"})),
     "unknown operation 'sofmax'; did you mean 'softmax'?"),
    (lambda: find_policy("torch.half; override: to=fp16 operation=sofm*", frozenset({"softmax"})),
     "no operation matches 'sofm*'"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "message"), REFUSED, ids=[m[:60] for _, m in REFUSED])
def test_refusals_are_one_line_that_says_what_to_do(make, message):
    with pytest.raises(FpemuError) as caught:
        make()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, InputError)


def test_known_names_are_let_through():
    p = find_policy("torch.half; lower: softmax; override: to=fp16 operation=soft*",
                    frozenset({"softmax"}))  # fmt: skip
    assert p.rule("softmax") is Rule.LOWER


# --- weight ------------------------------------------------------------------------------------


def test_policies_load_no_framework():
    heavy = ["torch", "keras", "tensorflow", "jax", "numba", "matplotlib"]
    code = f"import sys, fpemu.policies as p; p.find_policy('torch.half'); \
print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# --- anything at all: a policy or one clear line -------------------------------------------------

words = st.sampled_from((
    "policy", "compute", "lower", "float32", "override", "to", "steps", "=", ":", ";", "\n", "\n  ",
    "#", " ", "..", "fp16", "e4m3", "torch.half", "uniform:", "jmp:", "c=f16", ",", "mine", "9",
    "loss_scale", "keep_modules", "otherwise", "kind=weight", "\x00", "é", "%", "(", "[",
))  # fmt: skip
values = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 5) | st.floats() | st.sampled_from(
        ("fp16", "lower", "mine", "", "weight", "a b", "dynamic", "x")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(("lower", "to", "kind", "format", "x", "first_step", "module")), inner,
        max_size=3),
    max_leaves=6,
)  # fmt: skip


def assert_policy_or_one_line(make) -> None:
    """Whatever else is raised comes through."""
    message = None
    try:
        found = make()
    except FpemuError as wrong:
        message = str(wrong)
    if message is None:
        assert Policy.from_str(str(found)) == found
    else:
        assert message
        assert "\n" not in message
        assert len(message) < 1500


@given(st.lists(words, max_size=12).map("".join))
def test_any_text(text):
    assert_policy_or_one_line(lambda: find_policy(text))
    assert_policy_or_one_line(lambda: find_policy(f"torch.half;{text}"))
    assert_policy_or_one_line(lambda: Policy.from_str(f"policy: p; compute: fp16\n{text}"))


@given(st.sampled_from([field.name for field in fields(Policy)]), values)
def test_any_json_value_in_any_field(field, value):
    facts = {**find_policy("apex.O2; override: to=bf16 module=a").to_json(), field: value}
    assert_policy_or_one_line(lambda: Policy.from_json(facts))


@given(st.sampled_from([field.name for field in fields(Override)]), values)
def test_any_json_value_in_any_field_of_an_override(field, value):
    facts = {"to": "fp16", field: value}
    assert_policy_or_one_line(
        lambda: Policy.from_json({"name": "p", "compute": "fp16", "overrides": [facts]})
    )


@given(values)
def test_any_json(value):
    for read in (Policy.from_json, Policy.from_str):
        assert_policy_or_one_line(lambda read=read: read(value))


@given(st.text(max_size=30))
def test_any_name(text):
    assert_policy_or_one_line(lambda: Policy(text, "fp16", operations={text: "lower"},
                                             keep_modules=text, loss_scale=text))  # fmt: skip
    assert_policy_or_one_line(lambda: Policy(text, "fp16"))
    assert_policy_or_one_line(lambda: Policy("p", "fp16", operations={text: "lower"}))
    assert_policy_or_one_line(
        lambda: Policy("p", "fp16", overrides=[Override("bf16", module=text)])
    )
