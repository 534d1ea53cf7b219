"""Products and their scalers: text and JSON both ways, exceptions, what real systems do, errors."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fpemu
from fpemu.cast import Cast
from fpemu.errors import InputError
from fpemu.policies import (
    POLICIES,
    PRODUCTS,
    Override,
    Policy,
    Products,
    Rule,
    find_policy,
    in_torch,
)
from fpemu.scaling import (
    Block,
    Delayed,
    FixedRule,
    FloatElement,
    IntegerElement,
    Recipe,
    find_recipe,
    recipes,
)
from fpemu.scaling.delayed import Variant

OPERANDS = ("x", "w", "dy", "dgrad_w", "wgrad_dy", "wgrad_x")

scalers = (
    st.none()
    | st.sampled_from(sorted(recipes))
    | st.sampled_from(["1x8 exponent(mode=fit) fp4", "tensor fixed(scale=4.0) int8.4",
                       "row amax e5m2:stochastic"])
    | st.builds(Delayed, st.sampled_from(["e4m3fn", "e5m2:stochastic", "fp4"]),
                length=st.integers(1, 2000), newest=st.booleans(), margin=st.integers(-2, 2),
                variant=st.sampled_from(Variant))
)  # fmt: skip
some_products = st.builds(
    Products, *[scalers] * 3, dgrad_w=scalers, wgrad_dy=scalers, wgrad_x=scalers
)


@given(some_products)
def test_text_json_and_pickles_read_back(products: Products) -> None:
    assert Products.of(str(products)) == products
    assert Products.of(json.loads(json.dumps(products.to_json()))) == products
    assert pickle.loads(pickle.dumps(products)) == products
    assert hash(pickle.loads(pickle.dumps(products))) == hash(products)


@given(some_products)
def test_policies_with_products_read_back(products: Products) -> None:
    p = Policy("p", "bf16", products=products, operations={"linear": "scaled"},
               overrides=[Override(products, module="a*"), Override("mxfp4", kind="weight")])
    assert find_policy(str(p)) == p
    assert Policy.from_json(json.loads(json.dumps(p.to_json()))) == p


@pytest.mark.parametrize("name", sorted(set(PRODUCTS) - {"keras.float8.delayed"}))
def test_known_ones_are_policies_too(name: str) -> None:
    policy = POLICIES[name]
    assert policy.products is PRODUCTS[name]
    assert str(policy.products) == name
    assert policy.scaling("linear") is policy.products
    assert {policy.rule(n) for n in ("matmul", "conv2d", "bmm")} == {Rule.LOWER}
    assert policy.scaling("matmul") is None
    assert str(policy.compute) == "bfloat16"


def test_keras_scales_its_dense_layers_in_float32() -> None:
    policy = POLICIES["keras.float8.delayed"]
    assert str(policy.products) == policy.name
    assert in_torch(policy).scaling("linear") is policy.products
    assert str(policy.compute) == "float32"


def elements(products: Products) -> list[tuple[str, str]]:
    """(block or 'delayed', format) of each operand, as the systems' documentation says it."""
    found = []
    for operand in OPERANDS:
        scaler = getattr(products, operand)
        block = "delayed" if isinstance(scaler, Delayed) else str(scaler.block)
        found.append((block, scaler.element.cast.format.name.removeprefix("float")))
    return found


WEIGHTS_IN_SQUARES = [
    ("128x128" if operand.endswith("w") else "1x128", "8_e4m3fn") for operand in OPERANDS
]


@pytest.mark.parametrize(("name", "want"), [
    ("te.delayed", [("delayed", "8_e4m3fn")] * 2 + [("delayed", "8_e5m2"), ("delayed", "8_e4m3fn"),
                    ("delayed", "8_e5m2"), ("delayed", "8_e4m3fn")]),
    ("te.current", [("tensor", "8_e4m3fn")] * 2 + [("tensor", "8_e5m2"), ("tensor", "8_e4m3fn"),
                    ("tensor", "8_e5m2"), ("tensor", "8_e4m3fn")]),
    ("te.mxfp8", [("1x32", "8_e4m3fn")] * 6),
    ("te.block", WEIGHTS_IN_SQUARES),
    ("deepseek", WEIGHTS_IN_SQUARES),
    ("te.nvfp4", [("1x16" if o.endswith(("x", "y")) else "16x16", "4_e2m1fn") for o in OPERANDS]),
    ("torchao.mxfp8", [("1x32", "8_e4m3fn")] * 6),
    ("torchao.float8.rowwise", [("row", "8_e4m3fn")] * 6),
    ("torchao.float8.tensorwise", [("tensor", "8_e5m2" if o.endswith("y") else "8_e4m3fn")
                                   for o in OPERANDS]),
])  # fmt: skip
def test_what_real_systems_scale(name: str, want: list[tuple[str, str]]) -> None:
    assert elements(PRODUCTS[name]) == want


def test_nvfp4_draws_gradients_and_rotates_what_weights_gradients_are_made_of() -> None:
    p = PRODUCTS["te.nvfp4"]
    drawn = {o for o in OPERANDS if getattr(p, o).element.cast.rounding.value == "stochastic"}
    assert drawn == {"dy", "wgrad_dy"}
    assert {o for o in OPERANDS if getattr(p, o).rotation is not None} == {"wgrad_dy", "wgrad_x"}
    assert p.wgrad_dy.rotation == p.wgrad_x.rotation, "or they would not cancel"


def test_what_is_not_given_is_as_before() -> None:
    p = Products("mxfp8", dy="nf4", wgrad_x=None)
    assert [getattr(getattr(p, o), "name", None) for o in OPERANDS] == [
        "mxfp8", "mxfp8", "nf4", "mxfp8", "nf4", None,
    ]  # fmt: skip


# --- finding -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mxfp4", "nvfp4", "1x8 exponent fp4", "torchao.mxfp8.floor"])
def test_a_recipe_is_a_policy_for_every_product(name: str) -> None:
    policy = find_policy(name)
    assert policy == find_policy(find_recipe(name)) == find_policy(Products(name))
    for operation in ("linear", "matmul", "bmm", "addmm", "einsum", "conv2d"):
        assert policy.scaling(operation) == Products(name)
    assert policy.rule("softmax") is Rule.KEEP
    assert policy.compute == Cast("float32")
    changed = find_policy(f"{name}; override: to=bf16 module=head")
    assert changed.rule("linear", "head") is Rule.LOWER


def test_a_name_of_both_is_the_policys() -> None:
    assert find_policy("te.block").products.w != find_recipe("te.block")
    assert find_policy(find_recipe("te.block")).products.w == find_recipe("te.block")


def test_recipes_of_your_own_are_called_what_they_are() -> None:
    own = Recipe("mine", recipes["mxfp8"].block, recipes["mxfp8"].rule, IntegerElement(5, 3))
    assert str(Products(own)) == "1x32 exponent int5.3"
    assert Products.of(str(Products(own))) == Products(own)


def test_formats_of_your_own_are_fine_while_they_are_not_text() -> None:
    form = fpemu.Format("mine", 4, 3, bias=7, nan=fpemu.NaN.TOP_CODE, inf=False)
    p = Products(Delayed(form))
    assert pickle.loads(pickle.dumps(p)) == p


# --- exceptions --------------------------------------------------------------------------------

targets = st.sampled_from(["mxfp4", "te.nvfp4", "bf16", "float32", "lower", "scaled", "keep"])


@st.composite
def exceptions(draw: Any) -> Override:
    to = draw(targets)
    is_rule = to in ("float32", "lower", "scaled", "keep")
    kind = None if is_rule else draw(st.sampled_from([None, "weight", "activation", "gradient"]))
    operation = draw(st.sampled_from([None, "linear", "mat*", "*"]))
    return Override(to, operation=operation, kind=kind,
                    module=draw(st.sampled_from([None, "a", "b"])))  # fmt: skip


@given(st.lists(exceptions(), max_size=5), st.sampled_from(["linear", "matmul", "softmax"]),
       st.sampled_from([None, "a", "b"]))  # fmt: skip
def test_the_last_exception_of_each_operand_decides(
    overrides: list[Override], operation: str, module: str | None
) -> None:
    base = Products("mxfp8")
    p = Policy("p", "fp16", products=base, operations={"linear": "scaled"}, overrides=overrides)
    rule = Rule.SCALED if operation == "linear" else Rule.KEEP
    whole, one, element = Block.of("tensor"), FixedRule(), FloatElement(Cast("bf16"))
    unscaled = Recipe("tensor fixed bfloat16", whole, one, element)
    operands = {name: getattr(base, name) for name in OPERANDS}
    kinds = {"weight": ("w", "dgrad_w"), "activation": ("x", "wgrad_x"),
             "gradient": ("dy", "wgrad_dy"), None: OPERANDS}  # fmt: skip
    for o in overrides:
        if o.module not in (None, module) or o.operation not in (None, operation, "*", {
            "matmul": "mat*"
        }.get(operation)):
            continue
        if isinstance(o.to, Products):
            if operation == "linear" or (o.operation and operation == "matmul"):
                rule = Rule.SCALED if o.kind is None else rule
                operands |= {name: getattr(o.to, name) for name in kinds[o.kind]}
        elif isinstance(o.to, Rule):
            rule = o.to
        elif o.kind is None:
            rule = Rule.LOWER
        else:
            operands |= dict.fromkeys(kinds[o.kind], unscaled)
    assert p.rule(operation, module) is rule
    want = Products(**operands) if rule is Rule.SCALED else None
    assert p.scaling(operation, module) == want


def test_a_recipe_for_a_layer_is_for_its_linear_products() -> None:
    p = find_policy("torch.autocast.cuda.float16; override: to=mxfp8 module=fc")
    assert p.scaling("linear", "fc") == Products("mxfp8")
    assert p.rule("matmul", "fc") is Rule.LOWER
    assert p.rule("softmax", "fc") is Rule.FLOAT32_RESULT
    q = find_policy("torch.half; override: to=mxfp8 module=fc operation=matmul")
    assert q.scaling("matmul", "fc") == Products("mxfp8")
    assert q.rule("linear", "fc") is Rule.KEEP


# --- errors ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("make", "message"), [
    (lambda: Products("mxpf8"), "x: unknown recipe 'mxpf8'; did you mean 'mxfp8'"),
    (lambda: Products.of("x=mxfp8 v=mxfp8"), "'v=mxfp8' is not one new operand=recipe"),
    (lambda: Products.of("x=mxfp8 x=nf4"), "'x=nf4' is not one new operand=recipe"),
    (lambda: Products.of("w=mxfp8"), "x= is missing"),
    (lambda: Products.of('x="1x32'), "No closing quotation"),
    (lambda: Products.of("delayed(size=3) e4m3fn"), "delayed: 'size' is not one new fact"),
    (lambda: Products.of("delayed(length=3.5) e4m3fn"), "length='3.5': must be a whole number"),
    (lambda: Products.of("delayed(newest=1) e4m3fn"), "newest='1': must be true or false"),
    (lambda: Products.of("delayed(variant=x) e4m3fn"), "variant='x': give one of te"),
    (lambda: Products.of("delayed e4m3"), "e4m3"),
    (lambda: Products.of("delayed"), "write 'delayed e4m3fn'"),
    (lambda: Products.from_json({"w": None}), "'x' is missing"),
    (lambda: Products.from_json({"x": None, "v": None}), "unknown field 'v'"),
    (lambda: Policy("p", "fp16", operations={"linear": "scaled"}), "nothing says how"),
    (lambda: Policy("p", "fp16", overrides=[Override("scaled")]), "nothing says how"),
    (lambda: Policy("p", "fp16", products="mxfp8", otherwise="scaled"), "list them"),
    (lambda: Policy("p", "fp16", overrides=[Override("mxfp8", operation="relu")]),
     "a recipe for operation 'relu': only matrix products"),
    (lambda: Override("mxfp8", kind="state"), "kind='state': recipes are for the operands"),
    (lambda: find_policy("te.mxpf8"), "did you mean 'te.mxfp8'"),
    (lambda: find_policy("1x32 exponnet fp4"), "unknown scale rule 'exponnet'"),
    (lambda: find_policy("te.mxfp8; override: to='1x32"), "no closing quotation"),
])  # fmt: skip
def test_faults_are_told_in_one_line(make: Any, message: str) -> None:
    with pytest.raises(InputError) as error:
        make()
    assert message in str(error.value)
    assert "\n" not in str(error.value)
