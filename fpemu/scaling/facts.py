"""Facts: rules and elements as the constants that the kernels' scalar bodies need."""

from __future__ import annotations

import math
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
    ExponentRule,
    FixedRule,
    ScaleRule,
    TwoLevel,
    exponents_of,
)

__all__ = ["element_facts", "element_table", "scale_facts"]

Array = np.ndarray[Any, Any]


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
    how = exponents_of(rule.mode, element)
    return ExponentFacts(
        quotient=how.quotient,
        factor=int(float_word(how.factor)),
        added=how.added,
        tiny=how.tiny,
        emax=how.emax,
        least=int(float_word(rule.least)),
        broken=int(float_word(math.nan if rule.broken else 0.0)),
    )


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


assert ScaleRule == ExponentRule | AmaxRule | FixedRule | TwoLevel
