"""round and encode a second time, in float64 arithmetic on the device.

A number is rounded to a multiple of the distance q between neighbouring values by adding and
subtracting 2**52 * q: float64 numbers of that size lie q apart, and the hardware rounds ties to
even. The distances come from a table by the exponent. Nothing of this is shared with fpemu's
kernels, which are integer arithmetic; `against_exact` holds it against the exact definition.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from support import directed_inputs, sample, wide_range

import fpemu
from fpemu.kernels.cuda_target import cuda, jit, launch, words_at
from fpemu.rounding import round_exact, value_of
from on_gpu.compare import Check, Comparison, words_in
from on_gpu.inputs import given

__all__ = ["Facts", "against_exact", "facts_of", "second"]

Array = np.ndarray[Any, Any]

U = np.uint32
L = np.uint64
D = np.float64


class Facts(NamedTuple):
    """What the kernel must know of a format; nearest, ties to even, overflow visible."""

    steps: Array  #: float64[256, 3], by float32's exponent field: 2**52 * q, 1 / q, a code
    limits: tuple[float, ...]  #: largest value; what is above, infinity's value; both as codes
    codes: tuple[int, int]  #: of NaN, and of the sign alone


@cache
def facts_of(form: fpemu.Format) -> Facts:
    """Return the facts of a signed format with -0."""
    assert form.minus_zero, f"{form.name}: only for formats with -0"
    exponents = np.maximum(np.maximum(np.arange(256), 1) - 127, form.emin)
    distance = np.ldexp(1.0, exponents - form.mantissa_bits)
    # the code of the binade's lowest value, less the 2**mantissa_bits that r / q counts again
    codes = (exponents - form.emin) * 2.0**form.mantissa_bits
    beyond = form.inf_code if form.inf_code is not None else form.nan_code
    assert beyond is not None
    assert form.nan_code is not None
    value = np.inf if form.inf else np.nan
    return Facts(
        np.stack([distance * 2.0**52, 1.0 / distance, codes], axis=1),
        (form.max, value, float(beyond)),
        (form.nan_code, 1 << form.magnitude_bits),
    )


@cache
def second_kernel() -> Any:
    """Return kernel(x, words, size, steps, limits, special, values, codes).

    x and words are the same memory, as float32 and as uint32.
    """
    magnitude, infinite = U(0x7FFFFFFF), U(0x7F800000)

    def kernel(x, words, size, steps, limits, special, values, codes):
        i = L(cuda.grid(1))
        while i < size:
            word = words[i]
            minus = U(word >> U(31)) != U(0)
            if U(word & magnitude) > infinite:
                value, code = D(np.nan), D(special[0])
            else:
                field = U(U(word >> U(23)) & U(0xFF))
                a = D(x[i])
                a = -a if minus else a
                value = D(D(a + steps[field, 0]) - steps[field, 0])
                code = D(D(value * steps[field, 1]) + steps[field, 2])
                if value > limits[0]:
                    value, code = limits[1], limits[2]
            values[i] = -value if minus else value
            codes[i] = U(L(code) + L(special[1])) if minus else U(L(code))
            i = L(i + L(cuda.gridsize(1)))

    return jit(kernel)


def second(words: Any, form: fpemu.Format) -> tuple[Any, Any]:
    """Return float32 values and uint32 codes of a device array of float32 patterns (uint32)."""
    facts = facts_of(form)
    values = cuda.device_array(words.size, np.float32)
    codes = cuda.device_array(words.size, np.uint32)
    like = words_in(words)
    floats = words_at(like._replace(dtype=np.dtype(np.float32)))
    steps, special = cuda.to_device(facts.steps), (L(facts.codes[0]), L(facts.codes[1]))
    launch(second_kernel(), words.size, like, floats, words_at(like), L(words.size), steps,
           facts.limits, special, values, codes)  # fmt: skip
    return values, codes


def against_exact(name: str, count: int = 100_000) -> list[Check]:
    """Compare the second algorithm with the exact definition on `count` inputs.

    Half of them directed (values, midpoints, their neighbours, specials), half any patterns.
    """
    form = fpemu.finfo(name)
    directed = sample(directed_inputs(form), count // 2)
    x = np.concatenate([directed, wide_range(count - directed.size, seed=1)])
    cast = fpemu.Cast(form)
    codes = np.array([round_exact(cast, float(v)).code for v in x.tolist()], np.uint32)
    # float() of a NaN drops nothing that counts: its sign stays
    known, where = np.unique(codes, return_inverse=True)
    values = np.array([float(value_of(form, int(c))) for c in known], np.float32)[where]
    found = [Comparison(f"{name}: float64 values, the exact definition"),
             Comparison(f"{name}: float64 codes, the exact definition")]  # fmt: skip
    for start, words in given(x.view(np.uint32), x.size):
        stop = start + words.size
        got_values, got_codes = second(words, form)
        found[0].add(words, got_values, cuda.to_device(values[start:stop]), nan_above=0x7F800000)
        found[1].add(words, got_codes, cuda.to_device(codes[start:stop]))
    return [c.check() for c in found]
