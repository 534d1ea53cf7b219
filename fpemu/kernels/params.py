"""Cast -> the constants that the scalar bodies need."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from fpemu.cast import Cast, Negative, Rounding, Subnormals
from fpemu.format import Format, NaN
from fpemu.rounding import round_exact, value_of

__all__ = [
    "WORDS",
    "Codes",
    "Grid",
    "Params",
    "Results",
    "Shape",
    "Word",
    "codes_of",
    "general_shape",
    "params_of",
]


class Word(NamedTuple):
    """A float type of the host and the unsigned word that carries its bits."""

    uint: Any  #: np.uint32 or np.uint64
    float: Any  #: np.float32 or np.float64
    mantissa: int
    bias: int


WORDS = {32: Word(np.uint32, np.float32, 23, 127), 64: Word(np.uint64, np.float64, 52, 1023)}


class Grid(NamedTuple):
    """Where a Cast's grid lies and how numbers between its points move; all are words."""

    mantissa: Any  #: fraction bits of the format
    lowest: Any  #: index of emin's bit above the word's smallest subnormal
    code_shift: Any  #: 1 without zero: codes start one binade earlier
    takes_negative: Any  #: 0: negative numbers become NaN
    nearest: Any  #: mask: to the nearest
    tie_away: Any  #: 1: ties away from zero (only with nearest)
    away_positive: Any  #: mask: positive numbers go away from zero
    away_negative: Any  #: mask: negative numbers go away from zero
    odd: Any  #: 1: only from even codes (to_odd)
    random_bits: Any  #: width of a draw
    spare_max: Any  #: 2**random_bits - 1


class Results(NamedTuple):
    """What a Cast makes of the special cases, as magnitudes: bits of the word, or codes."""

    smallest: Any  #: smallest value above zero
    floor: Any  #: the same for formats without zero, else 0
    zero: Any  #: what zero becomes in a format without zero
    normal: Any  #: smallest normal if subnormals are flushed, else 0
    max: Any  #: largest finite value
    over_positive: Any  #: what a positive number beyond it becomes
    over_negative: Any
    inf: Any  #: what infinite input becomes
    nan: Any  #: what NaN becomes
    sign_shift: Any  #: index of the sign bit
    zero_sign: Any  #: mask: zero keeps its sign
    nan_sign: Any  #: mask: NaN keeps its sign


class Codes(NamedTuple):
    """How a format's codes are read."""

    mantissa: Any
    lowest: Any
    code_shift: Any
    signed: Any
    sign_shift: Any  #: index of the code's sign bit
    code_mask: Any  #: mask of the magnitude code
    last_code: Any  #: magnitude codes above are NaN
    inf_code: Any  #: magnitude code of infinity, or one that no magnitude has
    lone_nan: Any  #: NaN at the code of -0, or a code that does not exist
    nan: Any  #: bits of the quiet NaN


class Shape(NamedTuple):
    """Which parts of the bodies a Cast needs: compile-time constants in every build."""

    deep: bool  #: the format has binades among the word's subnormals
    stochastic: bool
    directed: bool  #: some numbers go away from zero whatever their distance
    zeroless: bool
    inf_apart: bool  #: infinite input needs a select of its own beside overflow
    nan_apart: bool  #: so does NaN
    parity: bool  #: no fraction bits: evenness is the exponent's
    unsigned: bool


class Params(NamedTuple):
    """All that the bodies need to know of a Cast."""

    grid: Grid
    values: Results
    codes: Results
    shape: Shape


@lru_cache(maxsize=4096)
def params_of(cast: Cast, bits: int = 32, random_bits: int = 32) -> Params:
    """Return the constants of a cast for float32 (bits=32) or float64 (bits=64) words."""
    word = WORDS[bits]
    grid = _grid(cast, bits, random_bits)
    values, codes = _values(cast, bits), _codes(cast, bits)
    over = (values.over_positive, values.over_negative)
    shape = Shape(
        deep=bool(grid.lowest < word.mantissa),
        stochastic=cast.rounding is Rounding.STOCHASTIC,
        directed=bool(grid.away_positive | grid.away_negative),
        zeroless=not cast.format.zero,
        inf_apart=over != (values.inf, values.inf),
        nan_apart=over != (values.nan, values.nan),
        parity=cast.format.mantissa_bits == 0,
        unsigned=not cast.format.signed,
    )
    return Params(grid, values, codes, shape)


def general_shape(shape: Shape) -> Shape:
    """Return the shape that serves all casts of a kind, for the build with run-time parameters.

    Kinds are few (nearest, directed or stochastic; deep; zeroless), so it compiles rarely.
    """
    return shape._replace(inf_apart=True, nan_apart=True)


def build_unpack(bits: int, jit: Callable[[Any], Any]) -> Callable[..., Any]:
    """Return c -> (Grid, Results): numba builds named tuples field by field only.

    The masks change nothing but what LLVM knows: a shift by less than a word stays in 32 bits.
    """
    U = WORDS[bits].uint
    FLAG, SHIFT = U(1), U(bits - 1)

    @jit
    def unpack(c):  # type: ignore[no-untyped-def]
        grid = Grid(U(c[0] & SHIFT), c[1], U(c[2] & FLAG), U(c[3] & FLAG), c[4], U(c[5] & FLAG),
                    c[6], c[7], U(c[8] & FLAG), c[9], c[10])
        results = Results(c[11], c[12], c[13], c[14], c[15], c[16], c[17], c[18], c[19],
                          U(c[20] & SHIFT), c[21], c[22])
        return grid, results

    return unpack  # type: ignore[no-any-return]


def _words(kind: Any, bits: int, **facts: int) -> Any:
    return kind(**{name: WORDS[bits].uint(value) for name, value in facts.items()})


def _grid(cast: Cast, bits: int, random_bits: int) -> Grid:
    form, mode, word = cast.format, cast.rounding, WORDS[bits]
    ones = (1 << bits) - 1
    nearest = mode in (Rounding.NEAREST_EVEN, Rounding.NEAREST_AWAY)
    facts = _words(
        Grid,
        bits,
        mantissa=form.mantissa_bits,
        lowest=_lowest(form, word),
        code_shift=not form.zero,
        takes_negative=form.signed or cast.negative is Negative.ABS,
        nearest=ones if nearest else 0,
        # a format without zero has no even significand: its ties go up
        tie_away=mode is Rounding.NEAREST_AWAY or not form.zero,
        away_positive=ones if mode in (Rounding.UP, Rounding.TO_ODD) else 0,
        away_negative=ones if mode in (Rounding.DOWN, Rounding.TO_ODD) else 0,
        odd=mode is Rounding.TO_ODD,
        random_bits=random_bits,
        spare_max=(1 << random_bits) - 1,
    )
    return facts  # type: ignore[no-any-return]


def _lowest(form: Format, word: Word) -> int:
    return form.emin + word.bias - 1 + word.mantissa


def _special_codes(cast: Cast) -> dict[str, int]:
    """Full codes of the special results, from the exact definition rather than derived again."""
    form = cast.format
    beyond = 2.0 ** (form.emax + 2)
    below = -beyond if form.signed else beyond
    inputs = {"zero": 0.0, "over_positive": beyond, "over_negative": below,
              "inf": math.inf, "nan": math.nan}  # fmt: skip
    return {name: round_exact(cast, x).code for name, x in inputs.items()}


def _values(cast: Cast, bits: int) -> Results:
    form, word = cast.format, WORDS[bits]
    ones = (1 << bits) - 1

    def magnitude(code: int) -> int:
        value = np.array(float(value_of(form, code)), word.float)
        return int(value.view(word.uint)) & (ones >> 1)

    smallest = magnitude(form.min_code)
    facts = _words(
        Results,
        bits,
        smallest=smallest,
        floor=0 if form.zero else smallest,
        normal=magnitude(form.min_normal_code) if _flushes(cast) else 0,
        max=magnitude(form.max_code),
        sign_shift=bits - 1,
        zero_sign=ones if form.minus_zero else 0,
        nan_sign=ones if form.has_nan else 0,
        **{name: magnitude(code) for name, code in _special_codes(cast).items()},
    )
    return facts  # type: ignore[no-any-return]


def _codes(cast: Cast, bits: int) -> Results:
    form = cast.format
    ones = (1 << bits) - 1
    lone = form.nan is NaN.MINUS_ZERO

    def magnitude(code: int) -> int:  # the lone NaN is at the code of -0: a sign and no more
        return code if lone and code == form.nan_code else code & _code_mask(form)

    facts = _words(
        Results,
        bits,
        smallest=form.min_code,
        floor=0,
        normal=form.min_normal_code if _flushes(cast) else 0,
        max=form.max_code,
        sign_shift=form.magnitude_bits if form.signed else 0,
        zero_sign=ones if form.minus_zero else 0,
        nan_sign=ones if form.has_nan and not lone else 0,
        **{name: magnitude(code) for name, code in _special_codes(cast).items()},
    )
    return facts  # type: ignore[no-any-return]


def _flushes(cast: Cast) -> bool:
    return cast.subnormals is Subnormals.FLUSH


def _code_mask(form: Format) -> int:
    return (1 << form.magnitude_bits) - 1


@lru_cache(maxsize=1024)
def codes_of(form: Format, bits: int = 32) -> Codes:
    """Return the constants that decode a format's codes to float32 or float64 words."""
    word = WORDS[bits]
    none = (1 << bits) - 1  # no magnitude has all bits of the word set
    lone = form.nan is NaN.MINUS_ZERO
    facts = _words(
        Codes,
        bits,
        mantissa=form.mantissa_bits,
        lowest=_lowest(form, word),
        code_shift=not form.zero,
        signed=form.signed,
        sign_shift=form.magnitude_bits if form.signed else 0,
        code_mask=_code_mask(form),
        last_code=form.max_code + int(form.inf),
        inf_code=none if form.inf_code is None else form.inf_code,
        lone_nan=form.nan_code if lone and form.nan_code is not None else none,
        nan=int(np.array(math.nan, word.float).view(word.uint)),
    )
    return facts  # type: ignore[no-any-return]
