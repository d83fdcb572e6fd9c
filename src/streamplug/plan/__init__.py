"""The plan: which sample comes when and where, as arithmetic on integers."""

from streamplug.plan.epoch import Epoch, Feed
from streamplug.plan.partition import PARTITIONS, Partition, Place, make_partition, worker_steps
from streamplug.plan.selection import Selection, Whole

__all__ = [
    "PARTITIONS",
    "Epoch",
    "Feed",
    "Partition",
    "Place",
    "Selection",
    "Whole",
    "make_partition",
    "worker_steps",
]
