"""The scalar functions inside the CUDA kernels, compiled by themselves and parsed, to be executed.

sm_80 has the PTX of sm_90 (a test says so); for sm_100 a newer compiler writes other code.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from ptx_interpreter import Function, parse
from ptx_toolchain import function_ptx

import fpemu
from fpemu.kernels.params import WORDS, Shape, codes_of, params_of

__all__ = [
    "COMPILERS",
    "decode",
    "draw",
    "elementwise",
    "general",
    "kind",
    "number",
    "scale",
    "tally_places",
]

Array = np.ndarray[Any, Any]

#: An architecture for each compiler inside the toolkit.
COMPILERS = ((9, 0), (10, 0))

_NO_KEYS = (0,) * 6


def _compiled(
    function: Any, result: str, arguments: list[Any], target: tuple[int, int]
) -> Function:
    """arguments: type names, and (name, count) for a tuple, whose items are parameters each."""
    from numba.cuda import types

    def typed(argument: Any) -> Any:
        if isinstance(argument, str):
            return getattr(types, argument)
        return types.UniTuple(getattr(types, argument[0]), argument[1])

    signature = getattr(types, result)(*map(typed, arguments))
    return parse(function_ptx(function, signature, target))


@cache
def _one(one: Any, bits: int, constants: int, target: tuple[int, int]) -> Function:
    """What a kernel does to one element: (x, i, first, keys, constants)."""

    def scalar(x, i, first, keys, constants):  # type: ignore[no-untyped-def]
        return one(x, i, first, keys, constants)

    word = f"uint{bits}"
    kinds = [word, "uint64", "uint32", ("uint64", 6), (word, constants)]
    return _compiled(scalar, word, kinds, target)


def elementwise(
    verb: str, cast: fpemu.Cast, x: Array, target: tuple[int, int], *, n: int | None = None,
    first: int = 0, keys: Any = _NO_KEYS,
) -> Array:  # fmt: skip
    """Round or encode by the function with a cast's constants built in; words come out."""
    from fpemu.kernels import cuda

    bits = 8 * x.itemsize
    p = params_of(cast, bits, n or bits)
    results = p.values if verb == "round" else p.codes
    function = _one(cuda.special_body(verb, bits, p.grid, results, p.shape), bits, 1, target)
    return function.run(x.view(f"u{x.itemsize}"), np.arange(x.size), first, *keys, 0)


def general(
    verb: str, cast: fpemu.Cast, shape: Shape, x: Array, target: tuple[int, int], *,
    n: int | None = None, first: int = 0, keys: Any = _NO_KEYS,
) -> Array:  # fmt: skip
    """Round or encode by the function of a shape that takes the constants."""
    from fpemu.kernels import cuda

    bits = 8 * x.itemsize
    p = params_of(cast, bits, n or bits)
    constants = [*p.grid, *(p.values if verb == "round" else p.codes)]
    function = _one(cuda.general_body(verb, bits, shape), bits, len(constants), target)
    return function.run(x.view(f"u{x.itemsize}"), np.arange(x.size), first, *keys, *constants)


def decode(
    form: fpemu.Format, codes: Array, bits: int, target: tuple[int, int], *, special: bool = False
) -> Array:
    """The floats of codes."""
    from fpemu.kernels import cuda

    facts = codes_of(form, bits)
    one = cuda.decode_body(bits, facts if special else None)
    constants = [0] if special else [*facts]
    function = _one(one, bits, len(constants), target)
    return function.run(codes, 0, 0, *_NO_KEYS, *constants).view(WORDS[bits].float)


@cache
def kind(bits: int, target: tuple[int, int]) -> Callable[..., Array]:
    """What tells apart the outcomes of one number: (x, rounded, five limits)."""
    from fpemu.kernels import outcome
    from fpemu.kernels.cuda_target import inner

    body = outcome.build(WORDS[bits].uint, WORDS[bits].mantissa, inner)

    def kind(x, rounded, taken, under, beyond, normal, largest):  # type: ignore[no-untyped-def]
        return body(x, rounded, taken, under, beyond, normal, largest)

    return _compiled(kind, f"uint{bits}", [f"uint{bits}"] * 7, target).run


@cache
def draw(bits: int, target: tuple[int, int]) -> Callable[..., Array]:
    """A random word: (index, six keys, shift)."""
    from fpemu.kernels.cuda_target import inner
    from fpemu.kernels.random import build_draw

    body = build_draw(bits, inner)

    def draw(index, keys, shift):  # type: ignore[no-untyped-def]
        return body(index, keys, shift)

    kinds = ["uint32", ("uint64", 6), f"uint{bits}"]
    return _compiled(draw, f"uint{bits}", kinds, target).run


@cache
def tally_places(target: tuple[int, int]) -> tuple[Callable[..., Array], ...]:
    """Where the tally counts numbers.

    (x, shift) -> place in the window, (x, shift) -> 1 outside of it, x -> place in memory.
    """
    from fpemu.kernels import cuda_tally

    place, far_place, U = cuda_tally.place_of(), cuda_tally.far_place(), np.uint32

    def near(x, shift):  # type: ignore[no-untyped-def]
        return place(x, shift)[0]

    def outside(x, shift):  # type: ignore[no-untyped-def]
        return U(1) if place(x, shift)[1] else U(0)

    def far(x):  # type: ignore[no-untyped-def]
        return far_place(x)

    two = ["uint32", "uint32"]
    return (
        _compiled(near, "uint32", two, target).run,
        _compiled(outside, "uint32", two, target).run,
        _compiled(far, "uint32", two[:1], target).run,
    )


@cache
def scale(name: str, part: int, target: tuple[int, int]) -> Callable[..., Array]:
    """One of the three results of a recipe's scale: (amax, whole)."""
    from fpemu.kernels import cuda_numbers
    from fpemu.scaling import find_recipe
    from fpemu.scaling.facts import scale_facts

    recipe = find_recipe(name)
    body = cuda_numbers.scale_body(scale_facts(recipe.rule, recipe.element))

    def scaled(amax, whole):  # type: ignore[no-untyped-def]
        return body(amax, whole)[part]

    return _compiled(scaled, "uint32", ["uint32", "uint32"], target).run


@cache
def number(name: str, verb: str, target: tuple[int, int]) -> Callable[..., Array]:
    """What a recipe makes of a number, given factors: (word, encode, decode)."""
    from fpemu.kernels import cuda_numbers
    from fpemu.scaling import find_recipe
    from fpemu.scaling.facts import element_facts

    recipe = find_recipe(name)
    rule, facts = recipe.rule, element_facts(recipe.element, None)
    work = cuda_numbers.Work(verb, facts, rule.divides_first, rule.divides)
    body, none, table = cuda_numbers.number_body(work), np.uint64(0), (np.uint32(0),)

    def made(x, encode, decode):  # type: ignore[no-untyped-def]
        return body(x, none, encode, decode, table)

    return _compiled(made, "uint32", ["uint32"] * 3, target).run
