"""Updates: how many of an optimizer's updates a weight's format loses, exactly, mergeable."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fpemu.analysis.asked import several
from fpemu.analysis.records import check_name
from fpemu.analysis.update_loop import BINS, RATIOS, UNIT, facts_of, update_loop
from fpemu.arrays import float32_words, read_array
from fpemu.catalog import find_format
from fpemu.errors import InputError
from fpemu.format import Format
from fpemu.kernels.pool import run_chunks

__all__ = ["FORMATS", "UpdateTally", "update_tally"]

Array = np.ndarray[Any, Any]

#: Formats that weights are held in: what training in pure 16 or 8 bits would do to updates.
FORMATS = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")

_LIMIT = 2**62  # numbers counted: far from where int64 wraps


@dataclass(frozen=True, slots=True)
class UpdateTally:
    """What became of updates to a weight; `update_tally` makes one, `a + b` joins two.

    >>> import numpy as np
    >>> from fpemu.analysis.updates import update_tally
    >>> found = update_tally(np.float32([1, 1, 1, 0]), np.float32([1e-4, 0.25, 0, 1e-4]))
    >>> found.total, found.changed, found.lost["bfloat16"], found.lost_percent("float16") > 33
    (4, 3, 1, True)

    total: elements counted. changed: those with a finite update that is not 0 (and a finite
    weight). nonfinite: those whose weight or update is not finite. The rest are updates of 0.
    formats: in which the weight is thought to be held. losses: updates lost in each, see `lost`.
    units: see `kept_stochastic`. ratios: how many have floor(log2(|update| / |weight|)) =
    low_ratio, low_ratio + 1, ...; updates of zero, and of weights that are 0, have no ratio.
    """

    topic: ClassVar[str] = "updates"

    total: int
    changed: int
    nonfinite: int
    formats: tuple[str, ...]
    losses: tuple[int, ...]
    units: tuple[int, ...]
    low_ratio: int
    ratios: tuple[int, ...]

    @property
    def lost(self) -> dict[str, int]:
        """By format, updates that change nothing: round(w + dw) == w though dw is not 0.

        w is the weight rounded to the format (to nearest, ties to even); the sum is exact and
        rounded once. Beyond the format's largest value both are held at it.
        """
        return dict(zip(self.formats, self.losses, strict=True))

    @property
    def kept_stochastic(self) -> dict[str, float]:
        """By format, how many updates stochastic rounding of the sum changes the weight by.

        The expected number: each counts with |dw| / gap, at most 1, gap being the distance from w
        to the next value in dw's direction; cut to multiples of 2^-20. What is changed is changed
        by the whole gap, so the mean update is kept.
        """
        return {form: units / UNIT for form, units in zip(self.formats, self.units, strict=True)}

    @property
    def ratio_histogram(self) -> dict[int, int]:
        """How many have floor(log2(|update| / |weight|)) = k, by k; without those of no ratio."""
        return {self.low_ratio + k: count for k, count in enumerate(self.ratios) if count}

    def lost_percent(self, form: str) -> float:
        """Return the updates lost in a format in percent of those that are not 0; 0.0 of none."""
        return 100.0 * self.lost[self._known(form)] / self.changed if self.changed else 0.0

    def lost_stochastic_percent(self, form: str) -> float:
        """Return the updates that stochastic rounding is expected to leave out, likewise."""
        kept = self.kept_stochastic[self._known(form)]
        return 100.0 * (1.0 - kept / self.changed) if self.changed else 0.0

    def _known(self, form: str) -> str:
        name = form if form in self.formats else find_format(form).name
        if name not in self.formats:
            raise InputError(
                f"updates were not counted in {name!r}; counted: {', '.join(self.formats)}"
            )
        return name

    def __add__(self, other: UpdateTally) -> UpdateTally:
        """Return what is counted in both."""
        if not isinstance(other, UpdateTally):
            return NotImplemented
        if other.formats != self.formats:
            raise InputError(
                f"updates counted in {', '.join(self.formats)} and in {', '.join(other.formats)} "
                "do not add up: count both in the same formats"
            )
        parts = [(t.low_ratio, t.ratios) for t in (self, other) if t.ratios]
        low = min((first for first, _ in parts), default=0)
        ratios = np.zeros(max((first + len(r) for first, r in parts), default=low) - low, np.int64)
        for first, counts in parts:
            ratios[first - low : first - low + len(counts)] += counts
        return UpdateTally(
            self.total + other.total,
            self.changed + other.changed,
            self.nonfinite + other.nonfinite,
            self.formats,
            tuple(map(operator.add, self.losses, other.losses)),
            tuple(map(operator.add, self.units, other.units)),
            low,
            tuple(ratios.tolist()),
        )

    def __radd__(self, other: object) -> UpdateTally:
        return self if other == 0 else NotImplemented  # so that sum(tallies) works

    def to_json(self) -> dict[str, Any]:
        """Return the counts as a JSON-ready dict; `from_json` reads it back exactly."""
        return {field: _plain(getattr(self, field)) for field in self.__dataclass_fields__
                if field != "topic"}  # fmt: skip

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> UpdateTally:
        """Read `to_json` back; anything else is an InputError."""
        try:
            total, changed, nonfinite = (_count(facts[key]) for key in _COUNTS)
            formats = tuple(check_name(name, "format") for name in facts["formats"])
            losses, units, ratios = (
                tuple(map(_count, facts[key])) for key in ("losses", "units", "ratios")
            )
            low = operator.index(facts["low_ratio"])
            fits = changed + nonfinite <= total and sum(ratios) <= changed
            inside = not ratios or (low in RATIOS and low + len(ratios) - 1 in RATIOS)
            few = max(losses, default=0) <= changed and max(units, default=0) <= changed * UNIT
            if fits and inside and few and len(formats) == len(losses) == len(units):
                return cls(total, changed, nonfinite, formats, losses, units, low, ratios)
        except (KeyError, TypeError, ValueError):
            pass
        raise InputError(
            f"{facts!r:.80}: is no UpdateTally; give what UpdateTally.to_json returned"
        )


_COUNTS = ("total", "changed", "nonfinite")


def update_tally(
    weight: Any,
    update: Any,
    formats: str | Format | Iterable[str | Format] = FORMATS,
    *,
    threads: int | None = None,
) -> UpdateTally:
    """Count which updates would change a weight that is held in a format, exactly.

    >>> import numpy as np
    >>> from fpemu.analysis.updates import update_tally
    >>> weight = np.full(1000, 0.5, np.float32)
    >>> found = update_tally(weight, np.float32(weight * 2**-10), ["bf16", "fp16"])
    >>> found.lost, found.kept_stochastic["bfloat16"], found.ratio_histogram
    ({'bfloat16': 1000, 'float16': 0}, 125.0, {-10: 1000})

    weight, update: float32 arrays of one shape, the weight before the update; narrower floats
    widen. formats: names or Formats, each signed and with a zero. threads: as in `fpemu.tally`.
    Nearest rounding of an exact sum loses an update below half a gap (2^-9 to 2^-8 of the weight in
    bfloat16); at exactly half, if the weight's code is even. Zero: an update of 0 is none, and one
    of a weight of 0 is lost only below half the smallest value. NaN, infinity, in either: counted
    in `nonfinite`. Overflow: see `UpdateTally.lost`.
    Errors: InputError for float64, integers, unequal shapes, a format such as float32 whose half
    gaps are no float32 numbers.
    """
    forms = [find_format(form) for form in several("formats", formats, str, Format)]
    facts = np.array([facts_of(form) for form in forms], np.uint32).reshape(-1, 4)
    before, after = read_array(weight), read_array(update)
    if before.shape != after.shape:
        raise InputError(
            f"weight has shape {before.shape}, update has {after.shape}: they must be alike"
        )
    w, d = float32_words(before), float32_words(after)
    parts: list[tuple[Array, Array]] = []

    def chunk(start: int, stop: int) -> None:
        found, bins = np.zeros(2 + 2 * len(forms), np.int64), np.zeros(BINS, np.int64)
        words, moves = w[start:stop], d[start:stop]
        numbers = words.view(np.float32), moves.view(np.float32)
        update_loop()(words, moves, *numbers, facts, found, bins)
        parts.append((found, bins))  # atomic

    run_chunks(chunk, w.size, threads)
    found, bins = sum(part[0] for part in parts), sum(part[1] for part in parts)
    return _tally(w.size, forms, np.asarray(found), np.asarray(bins)[:-1])


def _tally(total: int, forms: list[Format], found: Array, ratios: Array) -> UpdateTally:
    used = np.flatnonzero(ratios)
    low, end = (int(used[0]), int(used[-1]) + 1) if used.size else (0, 0)
    return UpdateTally(
        total,
        int(found[0]),
        int(found[1]),
        tuple(form.name for form in forms),
        tuple(found[2::2].tolist()),
        tuple(found[3::2].tolist()),
        low + RATIOS.start if used.size else 0,
        tuple(ratios[low:end].tolist()),
    )


def _count(value: object) -> int:
    number = operator.index(value)  # type: ignore[arg-type]
    if isinstance(value, bool) or not 0 <= number < _LIMIT:
        raise ValueError(value)
    return number


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
