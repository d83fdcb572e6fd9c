"""Simulation of a training run from its plan and index, without reading data.

The order is that of the data set, and prefetching is decided by the code that runs in training. The clock,
the network, the cache and the training loop are arithmetic.
"""

from streamplug_simulate.model.planned_dataset import SimulatedDataset, open_dataset
from streamplug_simulate.model.result import EpochResult, NodeResult, SimulationResult
from streamplug_simulate.model.scenario import Scenario
from streamplug_simulate.model.simulation import MAX_NEEDS, simulate

__all__ = [
    "MAX_NEEDS",
    "EpochResult",
    "NodeResult",
    "Scenario",
    "SimulatedDataset",
    "SimulationResult",
    "open_dataset",
    "simulate",
]
