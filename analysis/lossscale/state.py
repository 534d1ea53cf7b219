"""State: a loss scaler as a frozen record: its settings, and where it stands."""

from __future__ import annotations

import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import Field, dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from fpemu.errors import InputError

if TYPE_CHECKING:
    from fpemu.tallies import Tally

__all__ = [
    "Scaler",
    "as_flag",
    "float32",
    "given_text",
    "scale_text",
    "setting",
    "setting_fields",
    "state",
]


def setting(default: Any, rule: str) -> Any:
    """Declare a setting: a field that the user gives, checked by a rule of `RULES`."""
    return field(default=default, metadata={"rule": rule})


def state(first: Any = 0) -> Any:
    """Declare a part of the state: a field that `adjust` moves on."""
    return field(default=first, metadata={"state": True})


@dataclass(frozen=True, kw_only=True, repr=False)
class Scaler(ABC):
    """What every loss scaler is: a scale, and the state that follows a step.

    >>> from fpemu.analysis import lossscale
    >>> scaler = lossscale.scaler("torch", init_scale=1024, growth_interval=2)
    >>> scaler.adjust(True).scale, scaler.adjust(False).adjust(False).scale, scaler.scale
    (512.0, 2048.0, 1024.0)

    `adjust(overflow)` returns the next state and changes nothing; `observe(tallies)` comes before
    it, for scalers that look at the gradients themselves. A framework's scaler is a subclass of a
    few lines: its settings, and what follows a good step and an overflow.
    """

    NAME: ClassVar[str]
    SKIPS: ClassVar[bool] = True  #: whether an overflowed step leaves the weights as they are
    OBSERVES: ClassVar[bool] = False  #: whether `observe` does anything
    FIRST: ClassVar[str]  #: the setting that the first scale is

    scale: float = state(math.nan)  #: in use now; NaN stands for the first one

    def __post_init__(self) -> None:
        if math.isnan(self.scale):
            object.__setattr__(self, "scale", self.first_scale())

    def first_scale(self) -> float:
        """Return the scale of the first step."""
        return float(getattr(self, self.FIRST))

    def adjust(self, overflow: bool) -> Self:
        """Return the state after a step whose gradients did (True) or did not overflow.

        Errors: InputError for anything but True and False; where the framework itself ends the
        run, which `stops` says beforehand.
        """
        return self._overflowed() if as_flag(overflow) else self._good()

    def observe(self, tallies: Iterable[Tally], recorded_scale: float = 1.0) -> Self:
        """Return the state that has seen a step's gradients; most scalers look at none.

        tallies: of the gradients times `recorded_scale`. `replay` calls it before `adjust`.
        """
        return self

    def observe_room(self, to: str, room: int, recorded_scale: float) -> Self | None:
        """Return what `observe` would, where a step's room in a cast is known; None asks for it.

        room: the largest k at which none of the gradients times 2^k overflows in `to`.
        """
        return None

    def stops(self, overflow: bool) -> bool:
        """Say whether the framework would end the run at such a step."""
        return False

    @property
    def skips(self) -> bool:
        """Whether a step that overflows leaves the weights as they are."""
        return self.SKIPS

    @abstractmethod
    def _good(self) -> Self:
        """The state after a step of finite gradients."""

    @abstractmethod
    def _overflowed(self) -> Self:
        """The state after a step with an overflow."""

    @property
    def name(self) -> str:
        """The name that `scaler` knows it by."""
        return self.NAME

    @property
    def settings(self) -> dict[str, Any]:
        """The settings by their names, the defaults among them."""
        return {f.name: getattr(self, f.name) for f in setting_fields(type(self))}

    def __str__(self) -> str:
        """The text form, `name:setting=value,...`, without the defaults."""
        given = (
            f"{f.name}={_text(getattr(self, f.name))}"
            for f in setting_fields(type(self))
            if getattr(self, f.name) != f.default
        )
        return ":".join(part for part in (self.NAME, ",".join(given)) if part)

    def __repr__(self) -> str:
        return f"<{self} at scale {_text(self.scale)}>"

    def to_json(self) -> dict[str, Any]:
        """Return name, settings and state as a JSON-ready dict; an infinite scale is "inf"."""
        moved = {f.name: getattr(self, f.name) for f in fields(self) if "state" in f.metadata}
        parts = {"settings": self.settings, "state": {"scale": self.scale, **moved}}
        return {"name": self.NAME, "text": str(self)} | {
            part: {key: "inf" if value == math.inf else value for key, value in values.items()}
            for part, values in parts.items()
        }


def setting_fields(kind: type[Scaler]) -> list[Field[Any]]:
    """Return the fields of a scaler that are settings."""
    return [f for f in fields(kind) if "rule" in f.metadata]


def as_flag(overflow: object) -> bool:
    """Return whether a step overflowed, given as a bool, 0 or 1."""
    try:
        number = operator.index(overflow)  # type: ignore[arg-type]
    except TypeError:
        number = int(overflow) if isinstance(overflow, np.bool) else -1
    if number not in (0, 1):
        raise InputError(f"overflow {given_text(overflow)}: must be True or False for each step")
    return number == 1


def given_text(value: object) -> str:
    """Return what somebody gave as a message quotes it: on one line, and its beginning alone.

    >>> import numpy as np
    >>> from fpemu.analysis.lossscale.state import given_text
    >>> given_text(np.eye(2)), len(given_text("x" * 1000))
    ('array([[1., 0.], [0., 1.]])', 60)
    """
    return " ".join(repr(value).split())[:60]


def float32(x: float) -> float:
    """Return the nearest float32, as a framework that keeps its scale in one stores it.

    >>> from fpemu.analysis.lossscale.state import float32
    >>> float32(2.0**128), float32(2.0**-150), float32(0.1) == 0.1
    (inf, 0.0, False)
    """
    with np.errstate(over="ignore", under="ignore"):
        return float(np.float32(x))


def _text(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, float):
        return scale_text(value)
    return str(value).replace(",", ";")  # of a cast with several rules


def scale_text(x: float) -> str:
    """Return a scale as people write it, and as it is read back exactly.

    >>> from fpemu.analysis.lossscale.state import scale_text
    >>> [scale_text(x) for x in (65536.0, 4.0, 0.25, 2.0**-24, 1000.0, 0.1, 0.0, float("inf"))]
    ['2^16', '4', '0.25', '2^-24', '1000', '0.1', '0', 'inf']
    """
    significand, exponent = math.frexp(x)
    if significand == 0.5 and not -3 < exponent < 8:
        return f"2^{exponent - 1}"
    return str(int(x)) if abs(x) < 2**53 and x == int(x) else repr(x)
