"""Checks: what `fpemu diff --fail-on` can fail on."""

from __future__ import annotations

__all__ = ["FAIL_ON"]

#: Its name -> what it is, as the help says.
FAIL_ON = {
    "worse": "the verdict or a judged tensor got worse",
    "verdict": "the verdict got worse",
    "different": "anything got worse or better, is new or gone",
}
