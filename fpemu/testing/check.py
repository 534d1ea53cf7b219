"""assert_cast: hold anybody's cast function against the exact definition."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fpemu.arrays import float_array
from fpemu.cast import Cast, Rounding, make_cast
from fpemu.emulate import round
from fpemu.errors import InputError
from fpemu.format import Format
from fpemu.measures import spacing
from fpemu.rounding import round_exact, value_of
from fpemu.testing.bits import hex_of, unlike
from fpemu.testing.directed import directed_inputs

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = ["Difference", "Differences", "assert_cast", "differences"]

Array = np.ndarray[Any, Any]
Function = Callable[[Array], "ArrayLike"]

#: Kinds of difference, in the order in which they are told apart.
KINDS = {
    "nan": "NaN in, or NaN made of a number",
    "infinity": "infinite input",
    "zero sign": "the right zero with the wrong sign",
    "sign": "a number of a sign that the format lacks",
    "overflow": "beyond the largest value",
    "tie": "halfway between two values",
    "subnormal": "below the smallest normal",
    "rounding": "any other input between two values",
    "exact": "a value of the format that did not stay",
}


@dataclass(frozen=True)
class Difference:
    """One kind of difference: how many inputs, and the smallest of them."""

    kind: str
    count: int
    x: Any  #: np.float32
    got: Any  #: np.float32, or np.float64 from a function that returned that
    want: Any

    def __str__(self) -> str:
        return (
            f"{self.kind:<10} {self.count:>9,}  e.g. {hex_of(self.x)}: "
            f"got {hex_of(self.got)}, want {hex_of(self.want)}"
        )


@dataclass(frozen=True)
class Differences:
    """What `differences` found: inputs tried, and the differences by kind."""

    cast: Cast
    tried: int
    kinds: tuple[Difference, ...]

    @property
    def count(self) -> int:
        return sum(d.count for d in self.kinds)

    def __bool__(self) -> bool:
        return bool(self.kinds)

    def __str__(self) -> str:
        head = f"{self.count:,} of {self.tried:,} inputs differ from {self.cast}"
        return "\n".join([head, *(f"  {d}" for d in self.kinds)])


def differences(
    function: Function, cast: Cast | Format | str, *, exhaustive: bool = False
) -> Differences:
    """Return how a cast function differs from the exact definition of a Cast, by kind.

    >>> import numpy as np, fpemu
    >>> from fpemu.testing import differences
    >>> def truncate(x):
    ...     return (x.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    >>> found = differences(truncate, "bf16:toward_zero")
    >>> [d.kind for d in found.kinds]        # NaNs of low payload become infinity
    ['nan']

    function: takes a float32 array and returns the rounded values as floats of any width. Zeros
    are compared with their sign, NaNs are all equal.
    exhaustive: all 2**32 inputs (minutes) instead of `directed_inputs`, against `fpemu.round`,
    which is itself compared with the definition in fpemu's own tests. Each kind comes
    with the input of smallest magnitude. Stochastic casts have no one answer: an InputError.
    """
    cast = make_cast(cast)
    if cast.rounding is Rounding.STOCHASTIC:
        raise InputError(f"{cast}: a stochastic cast has no single result to compare with")
    tried = 0
    found: dict[str, Difference] = {}
    for x in _every_input() if exhaustive else [directed_inputs(cast.format)]:
        tried += x.size
        with np.errstate(all="ignore"):
            got = _results(function(x.copy()), x)
        want = round(x, cast) if exhaustive else _by_definition(x, cast)
        want = want.astype(got.dtype)  # float64 results are compared as such
        wrong = unlike(got, want)
        if wrong.any():
            _sort(found, cast, x[wrong], got[wrong], want[wrong])
    return Differences(cast, tried, tuple(found[k] for k in KINDS if k in found))


def assert_cast(
    function: Function, cast: Cast | Format | str, *, exhaustive: bool = False
) -> None:
    """Raise AssertionError with the differences by kind unless a function is exactly a Cast.

    >>> import numpy as np
    >>> from fpemu.testing import assert_cast
    >>> assert_cast(lambda x: x.astype(np.float16), "fp16")

    Arguments as for `differences`.
    """
    found = differences(function, cast, exhaustive=exhaustive)
    if found:
        raise AssertionError(str(found))


def _every_input() -> Iterator[Array]:
    step = 1 << 24
    for start in range(0, 1 << 32, step):
        yield np.arange(start, start + step, dtype=np.uint32).view(np.float32)


def _results(result: Any, x: Array) -> Array:
    """Read what a function returned as float32, or as float64 where it returned that."""
    array = float_array(result)
    if array.shape != x.shape:
        raise InputError(f"the function returned shape {array.shape} for {x.shape}")
    return array


def _by_definition(x: Array, cast: Cast) -> Array:
    """Round by the exact definition, each distinct code's value looked up once."""
    codes = [round_exact(cast, v).code for v in x]
    values = {c: float(value_of(cast.format, c)) for c in set(codes)}
    return np.array([values[c] for c in codes], np.float32)


def _sort(
    found: dict[str, Difference], cast: Cast, x: Array, got: Array, want: Array
) -> None:
    """Count differences into their kinds, keeping the input of smallest magnitude."""
    kinds = _kinds(cast, x, got, want)
    for kind in np.unique(kinds):
        here = kinds == kind
        count = int(here.sum())
        with np.errstate(invalid="ignore"):
            first = int(np.argmin(np.where(here, np.abs(x), np.inf))) if kind != "nan" else (
                int(np.argmax(here))
            )
        if not here[first]:  # infinite inputs alone
            first = int(np.argmax(here))
        new = Difference(str(kind), count, x[first], got[first], want[first])
        old = found.get(new.kind)
        if old is not None:
            smaller = new if abs(new.x) < abs(old.x) else old
            new = replace(smaller, count=old.count + count)
        found[new.kind] = new


def _kinds(cast: Cast, x: Array, got: Array, want: Array) -> Array:
    """Name the kind of each difference; the first that applies."""
    form = cast.format
    exact = np.abs(np.where(np.isfinite(x), x, 0).astype(np.float64))
    top, above = (float(form.exact_magnitude(form.max_code + i)) for i in (0, 1))
    below = np.asarray(round(exact, Cast(form, "toward_zero", "saturate", negative="abs")))
    tests = {
        "nan": np.isnan(x),
        "infinity": np.isinf(x),
        "zero sign": (got == want) & (want == 0),
        "sign": (x < 0) & (not form.signed) & (np.isnan(got) != np.isnan(want)),
        "overflow": exact > (top + above) / 2,
        "exact": exact == below,
        "tie": 2 * (exact - below) == spacing(exact, form),
        "nan made": np.isnan(got) != np.isnan(want),
        "inf made": np.isinf(got) != np.isinf(want),
        "subnormal": exact < form.smallest_normal,
    }
    kinds = np.select(list(tests.values()), list(tests), "rounding")
    kinds = np.where(kinds == "nan made", "nan", kinds)
    return np.where(kinds == "inf made", "overflow", kinds)
