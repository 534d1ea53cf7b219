"""Facts: rules and elements as the constants that the kernels' scalar bodies need."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fpemu.elementwise import Draws
from fpemu.errors import InputError
from fpemu.kernels.element import (
    ElementFacts,
    FloatFacts,
    book_facts,
    book_table,
    integer_facts,
)
from fpemu.kernels.random import BLOCK, keys_of
from fpemu.kernels.scale import (
    AmaxFacts,
    ExponentFacts,
    FixedFacts,
    ScaleFacts,
    TwoLevelFacts,
    float_word,
)
from fpemu.scaling.elements import Codebook, Element, FloatElement, IntegerElement
from fpemu.scaling.rules import (
    AmaxRule,
    Exponent,
    ExponentRule,
    FixedRule,
    ScaleRule,
    TwoLevel,
)

__all__ = ["element_facts", "element_table", "scale_facts"]

Array = np.ndarray[Any, Any]

_FULL = 0x7FFFFF  # a significand's bits: a carry out of it raises the exponent
_HALF = 0x400000  # 2^-127, a subnormal


def scale_facts(rule: ScaleRule, element: Element) -> ScaleFacts:
    """Return the constants of a rule for an element."""
    if isinstance(rule, ExponentRule):
        return _exponent(rule, element)
    if isinstance(rule, AmaxRule):
        return _amax(rule, element)
    if isinstance(rule, FixedRule):
        return _fixed(rule)
    most = np.float32(element.max)
    return TwoLevelFacts(rule.clamped, int(float_word(most)), int(float_word(1 / most)))


def element_facts(element: Element, draws: Draws | None) -> ElementFacts:
    """Return the constants of an element."""
    if isinstance(element, FloatElement):
        return FloatFacts(element.cast, draws.bits if draws else 32)
    if isinstance(element, IntegerElement):
        return integer_facts(element.bits, element.fraction_bits, element.symmetric)
    assert isinstance(element, Codebook)
    return book_facts(element.values)


def element_table(element: Element, draws: Draws | None, size: int) -> Array | None:
    """Return what an element looks up, as uint32: a codebook, or the random keys of `size` draws.

    Keys are three for each block of 2^32 numbers, from that of the first on.
    """
    if isinstance(element, Codebook):
        return book_table(element.values)
    if draws is None:
        return None
    blocks = range(draws.offset // BLOCK, (draws.offset + max(size, 1) - 1) // BLOCK + 1)
    keys = [keys_of(draws.seed, block)[:3] for block in blocks]
    return np.concatenate(keys).astype(np.uint32)


# --- rules -------------------------------------------------------------------------------------


def _exponent(rule: ExponentRule, element: Element) -> ExponentFacts:
    quotient, factor, added, tiny, emax = _MODES[rule.mode](element)
    least, broken = float_word(rule.least), float_word(math.nan if rule.broken else 0.0)
    return ExponentFacts(quotient, factor, added, tiny, emax, int(least), int(broken))


#: (quotient, factor, added, tiny, emax), as in ExponentFacts.
_Mode = tuple[str, int, int, int, int]


def _of_amax(added: int, element: Element) -> _Mode:
    return "amax", 0, added, _FULL - added, element.emax


def _even(element: Element) -> _Mode:
    return _of_amax(1 << (22 - element.mantissa_bits), element)


def _fit(element: Element) -> _Mode:
    return _of_amax(_FULL - (int(float_word(element.max)) & _FULL), element)


_MODES: dict[Exponent, Callable[[Element], _Mode]] = {
    Exponent.FLOOR: lambda element: _of_amax(0, element),
    Exponent.CEIL: lambda element: _of_amax(_FULL, element),
    Exponent.EVEN: _even,
    Exponent.FIT: _fit,
    Exponent.RCEIL: lambda element: ("over", int(float_word(element.max)), _FULL, _HALF, 0),
    Exponent.RECIPROCAL: lambda element: (
        "times", int(float_word(np.float32(1) / np.float32(element.max))), _FULL, _HALF, 0,
    ),
}  # fmt: skip


def _amax(rule: AmaxRule, element: Element) -> AmaxFacts:
    most = math.ldexp(element.max, -rule.margin)
    return AmaxFacts(
        top=int(float_word(element.max)),
        most=int(float_word(most)),
        least=int(float_word(max(rule.least, 0.0))),
        added=int(float_word(rule.added)),
        wide=rule.wide,
        wide_most=most,
        wide_least=max(rule.least, 0.0),
        zero=None if rule.zero is None else int(float_word(rule.zero)),
        power_of_two=rule.power_of_two,
        inverse=rule.inverse,
        divides=rule.divides,
    )


def _fixed(rule: FixedRule) -> FixedFacts:
    if math.copysign(1.0, rule.scale) < 0:
        raise InputError(
            f"fixed scale {rule.scale} on a CUDA device: must not be negative there; copy the "
            "array to the host"
        )
    with np.errstate(all="ignore"):
        scale = np.float32(rule.scale)
        kept = scale if rule.inverse else np.float32(1) / scale
    return FixedFacts(int(float_word(scale)), int(float_word(kept)))


assert set(_MODES) == set(Exponent)
assert ScaleRule == ExponentRule | AmaxRule | FixedRule | TwoLevel
