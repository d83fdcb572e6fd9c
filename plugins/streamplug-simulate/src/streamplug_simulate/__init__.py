"""What a run will do, worked out from the plan and the index: no byte of the data is read.

The plan is the data set's own, and what is fetched ahead is decided by the code that does so in a run. The
clock, the network, the cache and the training loop are arithmetic.
"""

from streamplug_simulate.model.planned_dataset import Planned, planned_of
from streamplug_simulate.model.result import EpochFound, Found, NodeFound
from streamplug_simulate.model.scenario import Assumed
from streamplug_simulate.model.simulation import MOST, simulate

__all__ = [
    "MOST",
    "Assumed",
    "EpochFound",
    "Found",
    "NodeFound",
    "Planned",
    "planned_of",
    "simulate",
]
