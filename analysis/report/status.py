"""Status: the answer of a report in one word."""

from __future__ import annotations

import enum

__all__ = ["Status"]


class Status(enum.Enum):
    """The answer in one word."""

    SAFE = "safe"  #: every judged tensor is safe as recorded
    SAFE_WITH_LOSS_SCALE = "safe_with_loss_scale"  #: only gradients fail; one loss scale saves them
    NOT_SAFE = "not_safe"  #: some tensor fails that no loss scale saves
    BROKEN = "broken"  #: the recorded values themselves hold NaN or infinity
    NO_DATA = "no_data"  #: nothing was recorded, or only zeros
