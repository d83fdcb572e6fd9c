"""The plan: which sample comes when and where, as arithmetic on integers."""

from streamplug.plan.contents import Contents
from streamplug.plan.curriculum import Change, Curriculum
from streamplug.plan.epoch import Dealt, Epoch
from streamplug.plan.feed import Feed
from streamplug.plan.mixture import Mixture, Weight, choose_per_stream, proportion_per_stream
from streamplug.plan.orig import PARTITIONS, make_partition
from streamplug.plan.partition import Partition, Place, worker_steps
from streamplug.plan.planner import BATCHINGS, Planner, Setting
from streamplug.plan.selection import Selection, Whole

__all__ = [
    "BATCHINGS",
    "PARTITIONS",
    "Change",
    "Contents",
    "Curriculum",
    "Dealt",
    "Epoch",
    "Feed",
    "Mixture",
    "Partition",
    "Place",
    "Planner",
    "Selection",
    "Setting",
    "Weight",
    "Whole",
    "choose_per_stream",
    "make_partition",
    "proportion_per_stream",
    "worker_steps",
]
