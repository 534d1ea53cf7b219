"""Loss scales: every framework's scaler as a frozen state, run on any overflows or recorded run.

    scaler      a framework's scaler by name, with its own settings
    names       the names
    simulate    the scale in use at each step, given which steps overflow
    replay      what a scaler would have done on a recorded run
    replays     the same of several, in one reading
    standard    the scalers worth replaying on a run
"""

from fpemu.analysis.lossscale.named import names, scaler
from fpemu.analysis.lossscale.replay import replay, replays
from fpemu.analysis.lossscale.replayed import Replay, ReplayedStep
from fpemu.analysis.lossscale.simulate import simulate
from fpemu.analysis.lossscale.standard import standard
from fpemu.analysis.lossscale.state import Scaler

__all__ = [
    "Replay",
    "ReplayedStep",
    "Scaler",
    "names",
    "replay",
    "replays",
    "scaler",
    "simulate",
    "standard",
]
