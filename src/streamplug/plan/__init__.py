"""Order of samples: mixtures, partitions, batching and states of a run, computed on integers."""

from streamplug.plan.batch_planner import BatchPlanner, CurriculumEpochs
from streamplug.plan.curriculum import Curriculum, CurriculumChange
from streamplug.plan.dataset_fingerprint import DatasetFingerprint
from streamplug.plan.epoch import Epoch, PartitionedEpoch, check_ids
from streamplug.plan.mixture import Mixture, Weight, choose_per_stream, proportion_per_stream
from streamplug.plan.mixture_change import (
    ChangedMixture,
    StreamMixture,
    change_mixture,
    keep_first_changes,
    resume_mixture,
)
from streamplug.plan.ordered_samples import OrderedSamples
from streamplug.plan.partition import ElasticPartition, Partition, Place, worker_steps
from streamplug.plan.partition_algorithm import (
    ElasticPartitionAlgorithm,
    Parallelism,
    PartitionAlgorithm,
    WeightedStream,
)
from streamplug.plan.planner import BATCHING_METHODS, EpochConfig, Planner
from streamplug.plan.row_selection import RowSelection, StreamSelections, parse_selection
from streamplug.plan.selection import AllSamples, Selection, ShardSampler
from streamplug.plan.substitutes import global_batch, order_substitutes

__all__ = [
    "BATCHING_METHODS",
    "AllSamples",
    "BatchPlanner",
    "ChangedMixture",
    "Curriculum",
    "CurriculumChange",
    "CurriculumEpochs",
    "DatasetFingerprint",
    "ElasticPartition",
    "ElasticPartitionAlgorithm",
    "Epoch",
    "EpochConfig",
    "Mixture",
    "OrderedSamples",
    "Parallelism",
    "Partition",
    "PartitionAlgorithm",
    "PartitionedEpoch",
    "Place",
    "Planner",
    "RowSelection",
    "Selection",
    "ShardSampler",
    "StreamMixture",
    "StreamSelections",
    "Weight",
    "WeightedStream",
    "change_mixture",
    "check_ids",
    "choose_per_stream",
    "global_batch",
    "keep_first_changes",
    "order_substitutes",
    "parse_selection",
    "proportion_per_stream",
    "resume_mixture",
    "worker_steps",
]
