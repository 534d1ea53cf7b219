"""Records: what a trace holds (tensors, events, scalars), and the checks at its public edge."""

from __future__ import annotations

import functools
import json
import operator
import reprlib
import unicodedata
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, ParamSpec

import numpy as np

from fpemu.errors import InputError, TraceError, did_you_mean
from fpemu.moments import Moments
from fpemu.tallies import Tally

__all__ = [
    "GRADIENTS",
    "JUDGED",
    "KINDS",
    "Event",
    "Record",
    "Scalar",
    "check_kind",
    "check_name",
    "check_number",
    "check_record",
    "check_step",
    "facts_apart",
    "json_text",
]

_Given = ParamSpec("_Given")
_UNFIT = "Cc", "Cs", "Zl", "Zp"  # https://www.unicode.org/reports/tr44/, general categories

#: What a tensor can be to a training run, in the order in which a step meets them.
KINDS = (
    "activation",
    "weight",
    "weight_gradient",
    "activation_gradient",
    "optimizer_state",
    "update",
)

#: The kinds that a loss scale multiplies.
GRADIENTS = ("weight_gradient", "activation_gradient")

#: The kinds that mixed-precision training casts; optimizer states and updates stay float32 there.
JUDGED = ("activation", "weight", *GRADIENTS)


@dataclass(frozen=True)
class Record:
    """What is known of one tensor at one step.

    >>> import numpy as np
    >>> from fpemu.analysis.trace import Trace
    >>> trace = Trace()
    >>> trace.record("fc1", "weight", np.float32([[0.5, 0.0], [1e-9, 3.0]]), step=7)
    >>> [record] = trace.records()
    >>> record.name, record.kind, record.step, record.shape, record.tally.zero
    ('fc1', 'weight', 7, (2, 2), 1)

    Shapes and counts: `tally` and `moments` cover all values of all `recordings` that carry this
    name, kind and step (gradient accumulation, shared modules, merged ranks); `shape` is the
    first one's. `a + b` joins two records of the same key.
    Errors: TraceError where a stored tally or its moments are damaged, when they are first read:
    a trace hands records out undecoded, because most readers skip most of them.
    NaN, infinities and zeros are counted in `tally`; `moments` cover the finite values.
    """

    name: str
    kind: str  #: one of KINDS
    step: int
    shape: tuple[int, ...]
    tally: Tally
    moments: Moments
    recordings: int = 1

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            # Reached only by attributes that are absent: an undecoded record's tally and moments.
            packed = self.__dict__.get(f"_packed_{name}")
            if packed is None:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            self.__dict__[name] = _decoded(self, name, packed)
            return self.__dict__[name]

    @classmethod
    def packed(
        cls,
        name: str,
        kind: str,
        step: int,
        shape: str,
        recordings: int,
        moments: str,
        tally: bytes,
    ) -> Record:
        """Make a record from the columns of a stored one; `pack` gives the last four."""
        record = cls.__new__(cls)
        record.__dict__.update(name=name, kind=kind, step=step, recordings=recordings)
        record.__dict__.update(_packed_moments=moments, _packed_tally=tally)
        record.__dict__["shape"] = _decoded(record, "shape", shape)
        return record

    def pack(self) -> tuple[str, int, str, bytes]:
        """Return shape, recordings, moments and tally as they are stored."""
        known = self.__dict__
        moments = known.get("_packed_moments") or json.dumps(self.moments.to_json())
        tally = known.get("_packed_tally") or self.tally.to_bytes()
        return json.dumps([int(n) for n in self.shape]), self.recordings, moments, tally

    def __add__(self, other: Record) -> Record:
        if self.key != other.key:
            raise InputError(f"records of {self.key} and {other.key} do not add: keys must agree")
        return Record(
            *self.key,
            self.shape,
            self.tally + other.tally,
            self.moments + other.moments,
            self.recordings + other.recordings,
        )

    @property
    def key(self) -> tuple[str, str, int]:
        """Name, kind and step: what tells records apart."""
        return self.name, self.kind, self.step


@dataclass(frozen=True)
class Event:
    """Something that happened in a run: an overflow found, a step skipped, a new loss scale."""

    step: int
    name: str  #: the tensor or layer it happened to; "" for the run as a whole
    kind: str  #: a tensor's kind, or any other word
    message: str
    facts: dict[str, Any] = field(default_factory=dict, hash=False)  #: JSON values


@dataclass(frozen=True)
class Scalar:
    """One number of a step: loss, accuracy, loss_scale."""

    step: int
    name: str
    value: float


def _decoded(record: Record, name: str, packed: Any) -> Any:
    try:
        if name == "tally":
            return Tally.from_bytes(packed)
        value = json.loads(packed)
        return tuple(map(int, value)) if name == "shape" else Moments.from_json(value)
    except Exception as error:  # whatever damaged bytes do to a decoder
        raise TraceError(
            f"{name} of {record.name!r} ({record.kind}, step {record.step}) is damaged "
            f"({error}): the file was changed after it was written; restore it from a copy"
        ) from error


def check_name(name: object, what: str = "name") -> str:
    """Return a name that can be stored and printed: any text in one line, markup included."""
    if not isinstance(name, str) or not name.strip():
        raise InputError(f"{what} {name!r}: must be text that is not empty, such as 'fc1'")
    # Control characters, half surrogate pairs and line ends: not to be stored or shown in a line.
    bad = next((char for char in name if unicodedata.category(char) in _UNFIT), None)
    if bad is not None:
        raise InputError(f"{what} {name!r}: holds {bad!r}; a {what} is one line of printable text")
    return name


def check_kind(kind: object) -> str:
    """Return a kind that is one of KINDS."""
    if kind not in KINDS:
        hint = did_you_mean(str(kind), KINDS)
        raise InputError(f"unknown kind {kind!r}; {hint}kinds: {', '.join(KINDS)}")
    return str(kind)


def check_step(step: object) -> int:
    """Return a step as a plain int from 0 to 2^63 - 1."""
    try:
        number = -1 if isinstance(step, bool | np.bool) else operator.index(step)  # type: ignore[arg-type]
    except TypeError:
        number = -1
    if not 0 <= number < 2**63:
        raise InputError(
            f"step {_shown(step)}: must be an integer from 0 on and at most 2^63 - 1; count the "
            "steps of the run"
        )
    return number


def check_record(record: object) -> Record:
    """Return a record that can be stored, joined with others and read again."""
    if not isinstance(record, Record):
        raise InputError(f"{type(record).__name__} is no Record; record(...) takes arrays")
    check_name(record.name), check_kind(record.kind), check_step(record.step)
    what = f"record of {record.name!r}"
    if not isinstance(record.shape, tuple) or not all(_is_count(n, 0) for n in record.shape):
        raise InputError(
            f"{what}: shape {_shown(record.shape)} must be a tuple of integers from 0 on; give "
            "array.shape"
        )
    if not _is_count(record.recordings, 1):
        raise InputError(
            f"{what}: recordings {_shown(record.recordings)} must be an integer from 1 on; give 1 "
            "for one array"
        )
    if not isinstance(record.tally, Tally):
        raise InputError(f"{what}: tally {_shown(record.tally)} is no Tally; give fpemu.tally(x)")
    if not isinstance(record.moments, Moments):
        raise InputError(
            f"{what}: moments {_shown(record.moments)} are no Moments; give "
            "fpemu.moments.moments(x)"
        )
    Moments.from_json(asdict(record.moments))  # which checks each number
    return record


def facts_apart(event: Callable[_Given, None]) -> Callable[_Given, None]:
    """Refuse facts that are named like what an event is made of, which Python cannot tell apart."""
    names = "self", "step", "name", "kind", "message"

    @functools.wraps(event)
    def checked(*given: _Given.args, **named: _Given.kwargs) -> None:
        if twice := next((key for key in names[: len(given)] if key in named), None):
            raise InputError(
                f"fact {twice}={_shown(named[twice])}: an event has its own {twice}; give the "
                "fact another name"
            )
        event(*given, **named)

    return checked


def check_number(value: object, name: str) -> float:
    """Return a scalar as a plain float; NaN and infinities are kept."""
    try:
        if isinstance(value, str | bytes) or tuple(getattr(value, "shape", ())):
            raise TypeError
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        raise InputError(
            f"scalar {name!r} = {_shown(value)}: must be one real number within float64; give "
            "float(...)"
        ) from None


def json_text(value: object, what: str) -> str:
    """Return a value as JSON text; numpy scalars become plain numbers, NaN and inf are kept."""
    try:
        text = json.dumps(value, default=_plain, ensure_ascii=False)
        text.encode()  # refuses half surrogate pairs, which SQLite cannot store
        return text
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(
            f"{what} = {_shown(value)}: must be a JSON value ({error}); "
            "give text, numbers, lists or dicts"
        ) from None


def _is_count(n: object, least: int) -> bool:
    # Far below the 2^63 of SQLite: sums of them are stored too.
    whole = isinstance(n, int | np.integer) and not isinstance(n, bool)
    return whole and least <= int(n) <= 2**53  # type: ignore[call-overload]


def _shown(value: object) -> str:
    """Return a short repr in one line, also of what is too large or too deep for repr."""
    try:
        return " ".join(reprlib.repr(value).split())
    except ValueError:  # an int of more digits than Python prints
        return f"a {type(value).__name__} of too many digits"


def _plain(value: object) -> Any:
    if isinstance(value, np.generic):
        plain = value.item()
        if isinstance(plain, bool | int | float | str):
            return plain
    raise TypeError(f"{type(value).__name__} is none")
