"""PyTorch's autocast lists against the autocast of the installed PyTorch, operation by operation.

Autocast's kernel for an operation casts the arguments and calls the operation below autocast. Here
each registered kernel is called with float32, with narrow and with mixed arguments, and the first
thing that comes out below is caught: a cast, or the operation itself. Nothing is computed, so the
arguments need not make sense. CUDA's kernels are probed with fake tensors: that needs no GPU.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fpemu.policies import POLICIES, Rule, check_operations, in_torch, operation_names

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")
if tuple(map(int, torch.__version__.split("+")[0].split(".")[:2])) != (2, 13):
    pytest.skip(f"torch {torch.__version__}: the lists describe 2.13", allow_module_level=True)

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

WIDE = torch.float32

# --- what comes out below autocast ---------------------------------------------------------------


class Seen(Exception):
    """The first operation below autocast, carried out of it."""


class First(TorchDispatchMode):
    def __init__(self, device: str) -> None:
        super().__init__()
        self.device = torch.device(device)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.prim.device.default:  # a fake tensor is asked where it is
            return self.device
        raise Seen(func, args, kwargs or {})


#: Something of each type that an operation's schema asks for; tensors are made one by one.
VALUES: dict[str, Any] = {
    "int": 0, "SymInt": 0, "float": 1.0, "number": 1.0, "bool": False, "str": "none",
    "List[int]": [1, 1], "List[SymInt]": [1, 1], "List[bool]": [False] * 3,
}  # fmt: skip


def arguments(operation: Any, tensors: Iterator[Any]) -> tuple[list[Any], dict[str, Any]]:
    args: list[Any] = []
    named: dict[str, Any] = {}
    for argument in operation._schema.arguments:
        if argument.has_default_value():
            continue
        kind = str(argument.type)
        if kind == "Tensor":
            value = next(tensors)
        elif kind == "List[Tensor]":
            value = [next(tensors), next(tensors)]
        elif kind == "List[Optional[Tensor]]":
            value = [None]
        else:
            value = None if kind.startswith("Optional") else VALUES[kind]
        if argument.kwarg_only:
            named[argument.name] = value
        else:
            args.append(value)
    return args, named


def first(operation: Any, tensors: Iterator[Any], device: str) -> tuple[Any, Any, Any] | str:
    """What a kernel calls first: (operation, arguments, named ones), or its error's message."""
    args, named = arguments(operation, tensors)
    with First(device), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated operations say that they are
        try:
            operation(*args, **named)
        except Seen as seen:
            return seen.args  # type: ignore[return-value]
        except (RuntimeError, IndexError, ValueError) as wrong:
            return str(wrong)
    raise AssertionError(f"{operation} reached nothing below autocast")


def is_cast(seen: tuple[Any, Any, Any] | str, source: Any, target: Any) -> bool:
    if isinstance(seen, str) or seen[0] is not torch.ops.aten._to_copy.default:
        return False
    return seen[1][0].dtype == source and seen[2].get("dtype") == target


def asks_for_float32(seen: tuple[Any, Any, Any] | str) -> bool:
    """Whether the operation came out with a result's type, float32, that it did not go in with."""
    if isinstance(seen, str):
        return "not linked with support for cuda" in seen  # where softmax converts a bfloat16
    names = [argument.name for argument in seen[0]._schema.arguments]
    given = dict(zip(names, seen[1], strict=False)) | seen[2]
    return given.get("dtype") == WIDE or given.get("half_to_float") is True


def takes_dtype(operation: Any) -> bool:
    """Whether a call may say the result's type; nothing on CUDA's float32 list does."""
    return any(argument.name == "dtype" for argument in operation._schema.arguments)


def rule_of(operation: Any, make: Callable[[Any], Any], narrow: Any, device: str) -> Rule:
    """The rule that a kernel is seen to follow."""

    def tensors(*dtypes: Any) -> Iterator[Any]:
        for dtype in dtypes:
            yield make(dtype)
        while True:
            yield make(dtypes[-1])

    wide = first(operation, tensors(WIDE), device)
    low = first(operation, tensors(narrow), device)
    mixed = first(operation, tensors(WIDE, narrow), device)
    if isinstance(low, str) and "unsafe to autocast" in low:
        return Rule.BANNED
    if is_cast(wide, WIDE, narrow):
        return Rule.LOWER
    if is_cast(low, narrow, WIDE) and not (device == "cuda" and takes_dtype(operation)):
        return Rule.FLOAT32
    if asks_for_float32(low) or (is_cast(low, narrow, WIDE) and device == "cuda"):
        return Rule.FLOAT32_RESULT
    return Rule.WIDEST if is_cast(mixed, narrow, WIDE) else Rule.KEEP


def registered(device: str) -> dict[str, list[Any]]:
    """The operations that autocast has a kernel for, each with its overloads."""
    found: dict[str, list[Any]] = {}
    for full in torch._C._dispatch_get_all_op_names():
        if torch._C._dispatch_has_kernel_for_dispatch_key(full, f"Autocast{device.upper()}"):
            name, _, overload = full.removeprefix("aten::").partition(".")
            packet = getattr(torch.ops.aten, name)
            found.setdefault(name, []).append(getattr(packet, overload or "default"))
    return found


@pytest.fixture
def autocast() -> Iterator[Callable[[str, Any], None]]:
    """Turn autocast on for a device, which torch.autocast refuses where the device is absent."""
    before = {
        device: (torch.is_autocast_enabled(device), torch.get_autocast_dtype(device))
        for device in ("cpu", "cuda")
    }

    def enable(device: str, dtype: Any) -> None:
        torch.set_autocast_dtype(device, dtype)
        torch.set_autocast_enabled(device, True)

    yield enable
    for device, (enabled, dtype) in before.items():
        torch.set_autocast_enabled(device, enabled)
        torch.set_autocast_dtype(device, dtype)
    torch.clear_autocast_cache()


LISTS = ["cpu.bfloat16", "cpu.float16", "cuda.bfloat16", "cuda.float16"]


@pytest.mark.parametrize("which", LISTS)
def test_every_operation_has_the_rule_that_autocast_is_seen_to_follow(which, autocast):
    device, _, dtype = which.partition(".")
    narrow = getattr(torch, dtype)
    fake = FakeTensorMode(allow_non_fake_inputs=True)

    def make(of: Any) -> Any:
        if device == "cpu":
            return torch.ones(2, 2, dtype=of)
        with fake:
            return torch.empty(2, 2, dtype=of, device=device)

    autocast(device, narrow)
    seen = {name: {rule_of(overload, make, narrow, device) for overload in overloads}
            for name, overloads in registered(device).items()}  # fmt: skip
    policy = POLICIES[f"torch.autocast.{which}"]
    assert len(seen) > 100
    assert seen == {name: {rule} for name, rule in policy.operations.items()}


def test_names_of_cuda_are_those_of_the_header():
    """The macros of ATen/autocast_mode.h, which a wheel brings along."""
    header = Path(torch.__file__).parent / "include/ATen/autocast_mode.h"
    if not header.exists():
        pytest.skip("this torch came without headers")
    text = header.read_text()

    def macro(name: str) -> set[str]:
        body = re.search(rf"#define {name}\(_\)(.*?)\n\n", text, re.DOTALL)
        assert body is not None
        return set(re.findall(r"_\((?:ADD_NS\()?(\w+)", body[1]))

    lists = POLICIES["torch.autocast.cuda.float16"].operations.lists()
    cudnn = {"cudnn_convolution", "cudnn_convolution_transpose"}  # registered in the .cpp
    assert set(lists[Rule.LOWER]) == macro("AT_FORALL_LOWER_PRECISION_FP") | cudnn
    assert set(lists[Rule.FLOAT32]) == macro("AT_FORALL_FP32")
    assert set(lists[Rule.FLOAT32_RESULT]) == macro("AT_FORALL_FP32_SET_OPT_DTYPE") | macro(
        "AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE"
    )
    assert set(lists[Rule.WIDEST]) == macro("AT_FORALL_PROMOTE")
    assert lists[Rule.BANNED] == ["binary_cross_entropy"]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_results_of_a_few_operations_under_real_autocast(dtype):
    """The whole of torch.autocast, results included, for what needs no probing."""
    x, w = torch.ones(4, 4), torch.ones(4, 4)
    low = x.to(dtype)
    with torch.autocast("cpu", dtype):
        results = {
            "linear": [torch.nn.functional.linear(x, w), torch.nn.functional.linear(low, w)],
            "softmax": [x.softmax(-1), low.softmax(-1)],
            "mse_loss": [torch.nn.functional.mse_loss(x, low)],
            "cat": [torch.cat([x, low]), torch.cat([low, low])],
        }
    assert {name: [result.dtype for result in both] for name, both in results.items()} == {
        "linear": [dtype, dtype],
        "softmax": [WIDE, dtype],  # unlisted on the CPU
        "mse_loss": [WIDE],
        "cat": [WIDE, dtype],
    }


# --- names that PyTorch has ----------------------------------------------------------------------


def torch_names() -> set[str]:
    packets = {n.partition("::")[2].partition(".")[0]
               for n in torch._C._dispatch_get_all_op_names()}  # fmt: skip
    return packets | set(dir(torch)) | set(dir(torch.nn.functional)) | set(dir(torch.Tensor))


@pytest.mark.parametrize("policy", POLICIES.values(), ids=list(POLICIES))
def test_in_torch_speaks_of_operations_that_pytorch_has(policy):
    check_operations(in_torch(policy), torch_names())


def test_names_of_the_lists_are_ones_that_pytorch_has():
    assert operation_names("torch") <= torch_names()
