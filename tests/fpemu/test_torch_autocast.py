"""Elementwise operations under emulate are those of real bfloat16 on the CPU, bit for bit.

Every operation that PyTorch tags as pointwise is found by that tag, run on real bfloat16 tensors
and on emulated ones, and compared on bits: all 65,536 numbers of bfloat16 for one input, and pairs
of ordinary and of arbitrary ones for more.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="emulate needs PyTorch")

from fpemu.torch import emulate  # noqa: E402

POLICY = "torch.autocast.cpu.bfloat16"
BF16 = torch.bfloat16

#: Kernels are chosen by what the processor has; the counts below are of this choice.
MEASURED = torch.backends.cpu.get_cpu_capability() == "AVX2"

#: Share of results that may differ with other kernels.
ELSEWHERE = 0.05


class Different(NamedTuple):
    count: int  #: results that differ, of the inputs of this test
    cause: str


_PIECES = "one operation for PyTorch that runs several kernels, each of which rounds"

#: Operations whose results differ, how many, and why.
EXCEPTIONS = {
    "erf": Different(28690, "bfloat16's kernel has an absolute error: it loses small numbers"),
    "fmax": Different(64, "bfloat16's kernel gives NaN where the second number is NaN"),
    "fmin": Different(64, "bfloat16's kernel gives NaN where the second number is NaN"),
    "mvlgamma": Different(11377, _PIECES),
    "polygamma": Different(2555, "for n > 1, a product of factorial and zeta, both rounded"),
    "soft_margin_loss": Different(5347, _PIECES + "; autocast runs it in float32"),
    "binary_cross_entropy_with_logits": Different(7409, _PIECES + "; autocast runs it in float32"),
}

#: Pointwise, though PyTorch does not tag them so.
UNTAGGED = [
    "elu_backward", "hardtanh_backward", "leaky_relu_backward", "softplus_backward",
    "hardswish", "hardswish_backward", "hardsigmoid_backward", "hardshrink_backward",
    "softshrink_backward", "log_sigmoid_forward", "log_sigmoid_backward", "log_sigmoid",
    "mse_loss", "mse_loss_backward", "smooth_l1_loss", "smooth_l1_loss_backward", "huber_loss",
    "huber_loss_backward", "soft_margin_loss", "rsub.Tensor", "mish_backward", "floor_divide",
    "floor_divide.Scalar", "_prelu_kernel", "_prelu_kernel_backward",
    "binary_cross_entropy_with_logits", "l1_loss", "kl_div", "special_ndtr", "special_expit",
]  # fmt: skip

#: Pointwise, and PyTorch has no bfloat16 kernel for the CPU.
NO_KERNEL = ("bitwise_", "__", "gcd", "lcm", "special_airy", "special_bessel", "special_chebyshev",
             "special_erfcx", "special_hermite", "special_laguerre", "special_legendre",
             "special_log_ndtr", "special_modified", "special_ndtri", "special_scaled",
             "special_shifted", "special_spherical", "special_zeta")  # fmt: skip

#: No numbers come out, or there is nothing that is computed.
LEFT_OUT = {"equal", "clone", "positive"}

#: Arguments by name, where a number of the general list would be refused.
PROPER = {"delta": (1.0, 0.3), "beta": (1.0, 0.3), "lambd": (0.5, 0.1), "p": (2,), "n": (2,),
          "eps": (None, 0.1), "decimals": (1,),
          "lower": (0.1,), "upper": (0.3,)}  # fmt: skip

NUMBERS = (0.1, 3.0, -1.7, 2)


# --- every operation, and arguments for it -------------------------------------------------------


def operations() -> dict[str, Any]:
    names = {name.partition("::")[2] for name in torch._C._dispatch_get_all_op_names()}
    found = {}
    for full in sorted(names | set(UNTAGGED)):
        name, _, overload = full.partition(".")
        packet = getattr(torch.ops.aten, name, None)
        if packet is None or name.endswith("_") or name in LEFT_OUT:
            continue
        operation = getattr(packet, overload or "default", None)
        if operation is None or any(a.is_out for a in operation._schema.arguments):
            continue
        if torch.Tag.pointwise in operation.tags or full in UNTAGGED:
            found[full] = operation
    return found


OPERATIONS = operations()


def choices(argument: Any, many: bool) -> tuple[Any, ...]:
    """Values of one argument: a number's place, a mask, or what stands in the schema."""
    kind = str(argument.type)
    if kind == "Tensor" or (kind == "Optional[Tensor]" and argument.name in ("min", "max")):
        return ("mask",) if argument.name in ("condition", "mask") else ("tensor",)
    if argument.name in PROPER and kind != "Tensor":
        return PROPER[argument.name]
    if argument.name == "rounding_mode":
        return (None, "floor", "trunc")
    if argument.name == "approximate":
        return ("none", "tanh")
    if argument.name == "reduction":
        return (0,)
    if kind in ("number", "Optional[number]", "float", "Optional[float]"):
        own = argument.default_value
        return (*(() if own is None else (own,)), *(NUMBERS if many else NUMBERS[:1]))
    return (False,) if kind == "bool" else (argument.default_value,)


def calls(operation: Any) -> list[dict[str, Any]]:
    arguments = operation._schema.arguments
    numbers = sum("number" in str(a.type) or str(a.type) == "float" for a in arguments)
    tables = [choices(a, numbers == 1) for a in arguments]
    names = [a.name for a in arguments]
    return [dict(zip(names, values, strict=True)) for values in itertools.product(*tables)]


def every_number(dtype: Any = BF16) -> Any:
    return torch.from_numpy(np.arange(65536, dtype=np.uint16).view(np.int16)).view(dtype)


def inputs(count: int, dtype: Any = BF16) -> list[Any]:
    """Each number once for one input; ordinary and arbitrary ones, a half each, for more."""
    if count == 1:
        return [every_number(dtype)]
    random = torch.Generator().manual_seed(count)
    made = []
    for scale in (1.0, 3.0, 0.5)[:count]:
        plain = (torch.randn(16384, generator=random) * scale).to(dtype)
        wild = every_number(dtype)[torch.randperm(65536, generator=random)[:16384]]
        made.append(torch.cat([plain, wild]))
    return made


# --- running both --------------------------------------------------------------------------------


def run(operation: Any, call: dict[str, Any], tensors: list[Any]) -> list[Any]:
    left = iter(tensors)
    mask = torch.arange(tensors[0].numel()) % 3 == 0
    values = {
        name: next(left) if isinstance(value, str) and value == "tensor"
        else mask if isinstance(value, str) and value == "mask" else value
        for name, value in call.items()
    }  # fmt: skip
    positional = [values[a.name] for a in operation._schema.arguments if not a.kwarg_only]
    named = {a.name: values[a.name] for a in operation._schema.arguments if a.kwarg_only}
    return several(operation(*positional, **named))


def emulated(operation: Any, call: dict[str, Any], tensors: list[Any]) -> list[tuple[Any, str]]:
    wide, dtype = [t.float() for t in tensors], tensors[0].dtype
    with emulate(f"torch.autocast.cpu.{str(dtype)[6:]}") as emulation:
        results = run(operation, call, [t.to(dtype) for t in wide])
    return [(result, format_name(emulation, result)) for result in results]


def several(result: Any) -> list[Any]:
    return list(result) if isinstance(result, tuple | list) else [result]


def format_name(emulation: Any, tensor: Any) -> str:
    """The emulated format of a float32 tensor, the dtype of another."""
    plain = tensor.dtype is not torch.float32
    return str(tensor.dtype)[6:] if plain else emulation.format(tensor).format.name


def differing(real: Any, got: Any) -> int:
    """How many results differ on bits, NaNs counting as equal."""
    a, b = real.float(), got.float()
    same = (a.view(torch.int32) == b.view(torch.int32)) | (a.isnan() & b.isnan())
    return int((~same).sum())


@pytest.mark.parametrize("name", [n for n in OPERATIONS if not n.startswith(NO_KERNEL)])
def test_kernels_of_bfloat16(name: str) -> None:
    operation = OPERATIONS[name]
    worst = 0
    for call in calls(operation):
        tensors = inputs(sum(isinstance(v, str) and v == "tensor" for v in call.values()))
        real = run(operation, call, tensors)
        got = emulated(operation, call, tensors)
        for one, (other, named) in zip(real, got, strict=True):
            assert named == str(one.dtype)[6:], f"{name} {call}: {named}, not {one.dtype}"
            wrong = differing(one, other)
            worst = max(worst, wrong)
            if name.partition(".")[0] not in EXCEPTIONS:
                allowed = 0 if MEASURED else int(ELSEWHERE * one.numel())
                assert wrong <= allowed, f"{name} {call}: {wrong} of {one.numel()} differ"
    if MEASURED and name in EXCEPTIONS:
        assert worst == EXCEPTIONS[name].count, f"{name}: {worst} differ, the table says otherwise"


#: Operations whose float16 kernels round more than once, or otherwise than bfloat16's.
HALF = ["add.Tensor", "div.Tensor_mode", "gt.Scalar", "hardshrink", "huber_loss", "logit",
        "mse_loss", "mul.Tensor", "pow.Scalar", "pow.Tensor_Scalar", "remainder.Scalar",
        "rsub.Scalar", "sigmoid_backward", "smooth_l1_loss", "special_entr", "sub.Tensor",
        "tanh", "xlogy.Tensor"]  # fmt: skip


@pytest.mark.parametrize("name", HALF)
def test_kernels_of_float16(name: str) -> None:
    operation = OPERATIONS[name]
    for call in calls(operation):
        count = sum(isinstance(v, str) and v == "tensor" for v in call.values())
        tensors = inputs(count, torch.float16)
        real = run(operation, call, tensors)
        for one, (other, _) in zip(real, emulated(operation, call, tensors), strict=True):
            allowed = 0 if MEASURED else int(ELSEWHERE * one.numel())
            assert differing(one, other) <= allowed, f"{name} {call}"


# --- as programs call them, under autocast -------------------------------------------------------


def function_of(name: str) -> Any:
    """What a program calls: of torch, torch.nn.functional or torch.special; None without any."""
    places = (torch.nn.functional, torch, torch.special)
    plain = name.removeprefix("special_")
    found = (getattr(place, n, None) for place in places for n in (name, plain))
    return next((f for f in found if f is not None), None)


CALLABLE = sorted({n.partition(".")[0] for n in OPERATIONS if not n.startswith(NO_KERNEL)})
#: They take more than tensors; their kernels are compared above.
MORE = {"rrelu", "polygamma", "masked_fill", "threshold", "mvlgamma", "_prelu_kernel"}
CALLABLE = [n for n in CALLABLE if function_of(n) is not None and n not in MORE]


@pytest.mark.parametrize("name", CALLABLE)
def test_functions_under_autocast(name: str) -> None:
    """With one and with two bfloat16 tensors, as many as the function takes; losses are float32."""
    function = function_of(name)
    reduction = {"reduction": "none"} if name.endswith("_loss") or name == "kl_div" else {}
    reduction |= {"reduction": "none"} if name.startswith("binary_cross") else {}
    compared = 0
    for tensors in (inputs(1), inputs(2), inputs(3)):
        try:
            with torch.autocast("cpu", BF16):
                real = function(*tensors, **reduction)
        except (TypeError, RuntimeError, ValueError):
            continue  # another number of tensors
        wide = [t.float() for t in tensors]
        with emulate(POLICY) as emulation:
            got = function(*(t.to(BF16) for t in wide), **reduction)
        for one, other in zip(*map(several, (real, got)), strict=True):
            compared += 1
            assert format_name(emulation, other) == str(one.dtype)[6:]
            wrong = differing(one, other)
            count = EXCEPTIONS[name].count if name in EXCEPTIONS else 0
            assert wrong <= (count if MEASURED else ELSEWHERE * one.numel()), name
    assert compared, f"{name}: no call of it worked"


def mixed(x: Any, y: Any) -> Any:
    """A bfloat16 tensor and a float32 one."""
    return x * y.float()


def gated(x: Any, y: Any) -> Any:
    y = y.clone()
    y += x
    y *= 0.1
    y[::3] = x[::3]
    return torch.where(y > 0.1, y, 0.3).clamp_(max=2.7)


EXPRESSIONS = {
    "x + 0.1": lambda x, y: x + 0.1,
    "x + 257": lambda x, y: x + 257,
    "0.1 - x": lambda x, y: 0.1 - x,
    "x * 0.1": lambda x, y: x * 0.1,
    "x / 0.3": lambda x, y: x / 0.3,
    "0.3 / x": lambda x, y: 0.3 / x,
    "x ** 3": lambda x, y: x**3,
    "x ** -2": lambda x, y: x**-2,
    "x ** 0.1": lambda x, y: x**0.1,
    "0.3 ** x": lambda x, y: 0.3**x,
    "x % 0.3": lambda x, y: x % 0.3,
    "x // y": lambda x, y: x // y,
    "x // 0.3": lambda x, y: x // 0.3,
    "x > 0.1": lambda x, y: x > 0.1,
    "add alpha": lambda x, y: torch.add(x, y, alpha=0.1),
    "sub alpha": lambda x, y: torch.sub(x, y, alpha=0.1),
    "add_ number": lambda x, y: x.clone().add_(0.1),
    "sub_ alpha": lambda x, y: x.clone().sub_(y, alpha=0.3),
    "mul_ number": lambda x, y: x.clone().mul_(0.1),
    "pow_": lambda x, y: x.clone().pow_(3),
    "addcmul_": lambda x, y: x.clone().addcmul_(x, y, value=0.1),
    "lerp_": lambda x, y: x.clone().lerp_(y, 0.1),
    "0-d tensor": lambda x, y: x * torch.tensor(0.1) + torch.tensor(0.3),
    "0-d tensor first": lambda x, y: torch.tensor(0.1) / x,
    "mixed": mixed,
    "mse": lambda x, y: torch.nn.functional.mse_loss(x, y, reduction="none"),
    "gated": gated,
    "out": lambda x, y: torch.add(x, y, out=torch.empty_like(x)),
    "view": lambda x, y: (x.view(2, -1)[1] * y.view(2, -1)[0]).exp(),
    "float and back": lambda x, y: (x.float().exp() * 3).to(x),
    "half": lambda x, y: x.half() + 1,
}


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_expressions_under_autocast(text: str) -> None:
    expression = EXPRESSIONS[text]
    x, y = inputs(2)
    with torch.autocast("cpu", BF16):
        real = expression(x, y)
    wide = x.float(), y.float()
    with emulate(POLICY) as emulation:
        got = expression(*(t.to(BF16) for t in wide))
    assert format_name(emulation, got) == str(real.dtype)[6:]
    assert differing(real, got) <= (0 if MEASURED else ELSEWHERE * real.numel())


@pytest.mark.parametrize("dtype", [BF16, torch.float16], ids=str)
@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("name", ["mse_loss", "huber_loss", "smooth_l1_loss"])
def test_losses_of_narrow_tensors(name: str, reduction: str, dtype: Any) -> None:
    """Without autocast, whose lists have them in float32; equal but for the sum's order."""
    random = torch.Generator().manual_seed(1)
    x, y = (torch.randn(64, generator=random).to(dtype) for _ in range(2))
    real = getattr(torch.nn.functional, name)(x, y, reduction=reduction)
    wide = x.float(), y.float()
    with emulate(f"torch.autocast.cpu.{str(dtype)[6:]}; keep: {name}") as emulation:
        got = getattr(torch.nn.functional, name)(*(t.to(dtype) for t in wide), reduction=reduction)
    assert (format_name(emulation, got), got.shape) == (str(dtype)[6:], real.shape)
    assert abs(got - real.float()) <= torch.finfo(dtype).eps * real.float().abs()


@pytest.mark.parametrize("name", [n for n in OPERATIONS if n.startswith(NO_KERNEL)])
def test_operations_without_a_kernel(name: str) -> None:
    call = calls(OPERATIONS[name])[0]
    tensors = inputs(sum(isinstance(v, str) and v == "tensor" for v in call.values()))
    with pytest.raises((RuntimeError, NotImplementedError)):
        run(OPERATIONS[name], call, tensors)


def test_the_tag_still_finds_the_operations() -> None:
    assert len(OPERATIONS) > 230
    assert set(EXCEPTIONS) <= set(OPERATIONS)
