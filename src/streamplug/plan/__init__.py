"""Order of samples: mixtures, batches, segments and states of a run, computed on integers."""

from streamplug.plan.dataset_fingerprint import DatasetFingerprint
from streamplug.plan.elastic import CanonicalNodes, ElasticPlanner
from streamplug.plan.epoch import (
    Epoch,
    JoinedEpoch,
    Place,
    batch_positions,
    checked_batches,
    equal_offsets,
    position_owner,
    rows_of,
    worker_steps,
)
from streamplug.plan.mixture import (
    Mixture,
    Weight,
    WeightedMixture,
    choose_per_stream,
    proportion_per_stream,
)
from streamplug.plan.planner import Planner, checked_epoch, checked_identity, order_substitutes
from streamplug.plan.row_selection import (
    RowRange,
    RowSelection,
    SelectedRows,
    StreamSelections,
    parse_selection,
)
from streamplug.plan.segment import Position, Segment, check_proportions
from streamplug.plan.selection import (
    AllSamples,
    OrderedSamples,
    SampledShards,
    Selection,
    ShardSampler,
)
from streamplug.plan.state import unpack
from streamplug.plan.streams import Streams

__all__ = [
    "AllSamples",
    "CanonicalNodes",
    "DatasetFingerprint",
    "ElasticPlanner",
    "Epoch",
    "JoinedEpoch",
    "Mixture",
    "OrderedSamples",
    "Place",
    "Planner",
    "Position",
    "RowRange",
    "RowSelection",
    "SampledShards",
    "Segment",
    "SelectedRows",
    "Selection",
    "ShardSampler",
    "StreamSelections",
    "Streams",
    "Weight",
    "WeightedMixture",
    "batch_positions",
    "check_proportions",
    "checked_batches",
    "checked_epoch",
    "checked_identity",
    "choose_per_stream",
    "equal_offsets",
    "order_substitutes",
    "parse_selection",
    "position_owner",
    "proportion_per_stream",
    "rows_of",
    "unpack",
    "worker_steps",
]
