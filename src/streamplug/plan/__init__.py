"""The plan: which sample comes when and where, as arithmetic on integers."""

from streamplug.plan.epoch import Epoch, Feed
from streamplug.plan.mixture import Mixture, Weight, choose_per_stream
from streamplug.plan.partition import PARTITIONS, Partition, Place, make_partition, worker_steps
from streamplug.plan.selection import Selection, Whole

__all__ = [
    "PARTITIONS",
    "Epoch",
    "Feed",
    "Mixture",
    "Partition",
    "Place",
    "Selection",
    "Weight",
    "Whole",
    "choose_per_stream",
    "make_partition",
    "worker_steps",
]
