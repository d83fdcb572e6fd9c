"""The order of samples as arithmetic on integers: mixtures, partitions, batching and states of a run."""

from streamplug.plan.curriculum import Curriculum, CurriculumChange
from streamplug.plan.dataset_fingerprint import DatasetFingerprint
from streamplug.plan.epoch import Epoch, PartitionedEpoch
from streamplug.plan.mixture import Mixture, Weight, choose_per_stream, proportion_per_stream
from streamplug.plan.mosaic_partition import PARTITIONS, make_partition
from streamplug.plan.ordered_samples import OrderedSamples
from streamplug.plan.partition import Partition, Place, worker_steps
from streamplug.plan.planner import BATCHINGS, EpochConfig, Planner
from streamplug.plan.selection import AllSamples, Selection

__all__ = [
    "BATCHINGS",
    "PARTITIONS",
    "AllSamples",
    "Curriculum",
    "CurriculumChange",
    "DatasetFingerprint",
    "Epoch",
    "EpochConfig",
    "Mixture",
    "OrderedSamples",
    "Partition",
    "PartitionedEpoch",
    "Place",
    "Planner",
    "Selection",
    "Weight",
    "choose_per_stream",
    "make_partition",
    "proportion_per_stream",
    "worker_steps",
]
