"""What any format at any power-of-two scale would do to each tensor of a trace."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fpemu.cast import Cast, make_cast
from fpemu.errors import InputError, did_you_mean
from fpemu.format import Format
from fpemu.tallies import Outcome, Tally

if TYPE_CHECKING:
    from fpemu.analysis.trace import Trace

__all__ = [
    "FORMATS",
    "SCALES",
    "TOLERANCE",
    "Row",
    "SafeScales",
    "best_scale",
    "percent",
    "safe_scales",
    "whatif",
]

#: Formats tried unless others are asked for.
FORMATS = (
    "float16",
    "bfloat16",
    "tf32",
    "float8_e4m3fn",
    "float8_e5m2",
    "float6_e3m2fn",
    "float4_e2m1fn",
)

#: Scales tried unless others are asked for: 2^-24 to 2^39, the range of every framework's
#: loss scaler (2^32 at most) and of FP8's per-tensor scales.
SCALES = tuple(2.0**k for k in range(-24, 40))

#: Largest share of its non-zero values that a tensor may lose and still be called safe: what
#: Micikevicius et al. (arXiv 1710.03740) leave unrepresented at their loss scale of 32K.
TOLERANCE = 0.001


def percent(part: int, whole: int) -> float:
    """Return `part` of `whole` in percent; 0.0 of nothing."""
    return 100.0 * part / whole if whole else 0.0


@dataclass(frozen=True, slots=True)
class Row:
    """What one cast at one scale does to one tensor, over all steps or at one."""

    name: str  #: the tensor's name
    kind: str  #: one of `fpemu.analysis.trace.KINDS`
    step: int | None  #: None: all recorded steps together
    to: str  #: the Cast, as `str(cast)`
    scale: float  #: a power of two; the values are multiplied by it before the cast
    outcome: Outcome  #: exact counts

    @property
    def underflow_percent(self) -> float:
        """Non-zero values that become zero, in percent of the finite non-zero ones."""
        return percent(self.outcome.underflow, self.outcome.nonzero)

    @property
    def subnormal_percent(self) -> float:
        """Results below the smallest normal, which keep fewer bits, likewise."""
        return percent(self.outcome.subnormal, self.outcome.nonzero)

    @property
    def saturated_percent(self) -> float:
        """Finite values clamped to the largest finite one, likewise."""
        return percent(self.outcome.saturated, self.outcome.nonzero)

    @property
    def overflow_percent(self) -> float:
        """Finite values that become infinity or NaN, likewise."""
        return percent(self.outcome.overflow, self.outcome.nonzero)

    @property
    def lost_percent(self) -> float:
        """Underflow, saturated, overflow and values of a sign the format lacks, likewise."""
        return percent(self.outcome.lost, self.outcome.nonzero)

    def to_json(self) -> dict[str, Any]:
        """Return the row as a JSON-ready dict, counts and percentages."""
        shares = ("underflow", "subnormal", "saturated", "overflow", "lost")
        return {
            "name": self.name,
            "kind": self.kind,
            "step": self.step,
            "to": self.to,
            "scale": self.scale,
            **{f"{share}_percent": getattr(self, f"{share}_percent") for share in shares},
            "outcome": self.outcome.to_json(),
        }


def whatif(
    trace: Trace,
    *,
    formats: Iterable[str | Format | Cast] = FORMATS,
    scales: Iterable[float] = SCALES,
    names: Iterable[str] | None = None,
    kinds: Iterable[str] | None = None,
    per_step: bool = False,
) -> list[Row]:
    """Return one row for each tensor, format and scale: the exact counts of what would be lost.

    >>> import numpy as np
    >>> from fpemu.analysis.trace import Trace
    >>> from fpemu.analysis.whatif import whatif
    >>> trace = Trace()
    >>> trace.record("dense", "weight_gradient", np.float32([1e-8, 1e-4, 0.0]), step=0)
    >>> for row in whatif(trace, formats=["fp16"], scales=[1, 1024]):
    ...     print(row.to, row.scale, row.underflow_percent)
    float16 1.0 50.0
    float16 1024.0 0.0

    formats: names, Formats or Casts. scales: powers of two. names, kinds: only these tensors.
    per_step: a row for each recorded step too, instead of one for all steps together.
    Values are counted as recorded, before the cast; zeros, NaN and infinite values are counted
    apart in `row.outcome` and are in no percentage. Stochastic casts are refused (InputError).
    """
    casts = [make_cast(to) for to in formats]
    factors = powers_of_two(scales)
    return [
        Row(name, kind, step, str(cast), scale, outcome)
        for (name, kind, step), tally in grouped(trace, names, kinds, per_step).items()
        for cast in casts
        for scale, outcome in zip(factors, tally.outcomes(cast, factors), strict=True)
    ]


def grouped(
    trace: Trace,
    names: Iterable[str] | None = None,
    kinds: Iterable[str] | None = None,
    per_step: bool = False,
) -> dict[tuple[str, str, int | None], Tally]:
    """Return the tallies of a trace by (name, kind, step or None), in the order of recording."""
    keep_names = _known("tensor", names, trace.names())
    keep_kinds = _known("kind", kinds, trace.kinds())
    totals: dict[tuple[str, str, int | None], Tally] = {}
    for record in trace.records():
        if record.name in keep_names and record.kind in keep_kinds:
            key = (record.name, record.kind, record.step if per_step else None)
            totals[key] = totals[key] + record.tally if key in totals else record.tally
    return totals


def _known(what: str, wanted: Iterable[str] | None, known: Iterable[str]) -> set[str]:
    """Check the names asked for against the recorded ones."""
    there = list(known)
    if wanted is None:
        return set(there)
    asked = list(wanted)
    for name in asked:
        if name not in there:
            raise InputError(
                f"{what} {name!r} is not in the trace; {did_you_mean(name, there)}"
                f"recorded: {', '.join(there[:20]) or 'nothing'}"
            )
    return set(asked)


def powers_of_two(scales: Iterable[float]) -> list[float]:
    """Check that every scale is a power of two, so that scaling is exact."""
    factors = [float(scale) for scale in scales]
    for scale in factors:
        if not (math.isfinite(scale) and scale > 0 and math.frexp(scale)[0] == 0.5):
            raise InputError(
                f"scale {scale!r}: must be a power of two (scaling is then exact), such as "
                "0.25, 1 or 1024"
            )
    return factors


# --- which scales are safe ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SafeScales:
    """The power-of-two scales at which tensors keep (nearly) all of their values."""

    to: str  #: the Cast, as `str(cast)`
    low: float | None  #: smallest safe scale of one unbroken run of them; None: none is safe
    high: float | None  #: largest safe scale of that run
    best: float  #: 1 if it is safe, else the middle of the run; without one, see `safe_scales`
    lost_percent: float  #: at `best`, of the tensor that loses most
    low_open: bool  #: `low` is the smallest scale tried: the run may go on below it
    high_open: bool  #: `high` is the largest scale tried

    @property
    def safe(self) -> bool:
        """Whether any scale is safe."""
        return self.low is not None

    @property
    def unscaled(self) -> bool:
        """Whether scale 1, that is no scaling, is safe."""
        return self.low is not None and self.high is not None and self.low <= 1.0 <= self.high

    def to_json(self) -> dict[str, Any]:
        """Return the interval as a JSON-ready dict."""
        return {name: getattr(self, name) for name in self.__slots__}


def safe_scales(
    tallies: Tally | Iterable[Tally],
    to: str | Format | Cast,
    *,
    tolerance: float = TOLERANCE,
    scales: Sequence[float] = SCALES,
) -> SafeScales:
    """Return the power-of-two scales at which every tally keeps its values.

    >>> import numpy as np, fpemu
    >>> from fpemu.analysis.whatif import safe_scales
    >>> tally = fpemu.tally(np.float32([2**-30, 2**-10, 1.0]))
    >>> found = safe_scales(tally, "fp16")
    >>> found.low, found.high, found.best
    (64.0, 32768.0, 1024.0)

    A scale is safe if no value of any tally overflows to infinity or NaN at it (one is enough to
    spoil a gradient step) and no tally loses more than `tolerance` of its non-zero values
    to underflow or saturation. low and high bound the run of safe scales among `scales` that
    holds 1, else the widest; best is 1 if it is safe (no scaling needed), else the run's middle,
    as far from underflow as from overflow. If no scale is safe, best overflows nowhere if that can
    be had, and loses the fewest. NaN, infinite and zero values are affected by no scale.
    """
    cast = make_cast(to)
    if not 0.0 <= tolerance <= 1.0:
        raise InputError(f"tolerance {tolerance!r}: must be a fraction, from 0 to 1")
    factors = sorted(set(powers_of_two(scales)))
    if not factors:
        raise InputError("scales: at least one power of two is needed")
    several = [tallies] if isinstance(tallies, Tally) else tallies
    return safe_of([tally.outcomes(cast, factors) for tally in several], cast, factors, tolerance)


def safe_of(
    outcomes: Sequence[Sequence[Outcome]], cast: Cast, factors: Sequence[float], tolerance: float
) -> SafeScales:
    """Return `safe_scales` of outcomes already counted: for each tensor, one at each scale."""
    lost = [max((row[k].lost_fraction for row in outcomes), default=0.0) for k in range(len(factors))]
    overflows = [any(row[k].overflow for row in outcomes) for k in range(len(factors))]
    safe = [share <= tolerance and not over for share, over in zip(lost, overflows, strict=True)]
    runs = list(_runs(safe))
    if not runs:
        distance = [abs(math.log2(scale)) for scale in factors]
        best = min(range(len(factors)), key=lambda k: (overflows[k], lost[k], distance[k]))
        return SafeScales(str(cast), None, None, factors[best], 100 * lost[best], False, False)
    one = factors.index(1.0) if 1.0 in factors else -1
    low, high = max(runs, key=lambda run: (run[0] <= one <= run[1], run[1] - run[0]))
    best = one if low <= one <= high else (low + high) // 2
    return SafeScales(
        str(cast),
        factors[low],
        factors[high],
        factors[best],
        100 * lost[best],
        low_open=low == 0,
        high_open=high == len(factors) - 1,
    )


def best_scale(
    tallies: Tally | Iterable[Tally],
    to: str | Format | Cast,
    *,
    tolerance: float = TOLERANCE,
    scales: Sequence[float] = SCALES,
) -> float:
    """Return the scale to use: `safe_scales(...).best`.

    >>> import numpy as np, fpemu
    >>> from fpemu.analysis.whatif import best_scale
    >>> best_scale(fpemu.tally(np.float32([2**-30, 1.0])), "fp16")
    1024.0
    """
    return safe_scales(tallies, to, tolerance=tolerance, scales=scales).best


def _runs(flags: list[bool]) -> Iterator[tuple[int, int]]:
    """The first and last index of each run of True."""
    start = None
    for k, flag in enumerate([*flags, False]):
        if flag and start is None:
            start = k
        elif not flag and start is not None:
            yield start, k - 1
            start = None
