"""Hypothesis without deadlines: the first call of a loop compiles it."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("fpemu", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("fpemu")
