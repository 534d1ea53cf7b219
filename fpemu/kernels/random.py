"""Random bits from (seed, element index): the same on every device and for any thread count."""
from __future__ import annotations
from collections.abc import Callable
from typing import Any
import numpy as np
