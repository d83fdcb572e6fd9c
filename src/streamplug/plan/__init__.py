"""The plan: which sample comes when and where, as arithmetic on integers."""

from streamplug.plan.epoch import Epoch, steps_per_epoch
from streamplug.plan.partition import positions, worker_steps

__all__ = ["Epoch", "positions", "steps_per_epoch", "worker_steps"]
