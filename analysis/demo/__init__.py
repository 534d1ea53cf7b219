"""demo: a real training run that shows what a small format would lose of it.

`fpemu demo` prints it; `run(Setup())` returns it.
"""

from __future__ import annotations

from fpemu.analysis.demo.experiment import Experiment, Setup, run
from fpemu.analysis.demo.network import Network
from fpemu.analysis.demo.spoil import Spoil
from fpemu.analysis.demo.training import Recipe, Run, train

__all__ = ["Experiment", "Network", "Recipe", "Run", "Setup", "Spoil", "run", "train"]
