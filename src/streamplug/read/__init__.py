"""Reading of samples from shards."""

from streamplug.read.assemble import ShardGroups, make_samples
from streamplug.read.decoders import apply_decoders, limit_values
from streamplug.read.gather import slice_columns
from streamplug.read.indexing import resolve_index, resolve_indices
from streamplug.read.memory_map import MappedFiles, spanned
from streamplug.read.open_shards import (
    MAX_OPEN,
    PART_OPEN,
    SWEEP_SECONDS,
    USED_SECONDS,
    ColumnSelection,
    OpenShard,
    OpenShards,
)
from streamplug.read.promotion import promote_numbers
from streamplug.read.reader import Reader
from streamplug.read.sample_reader import SampleReader
from streamplug.read.selection_reader import SelectedReader
from streamplug.read.shard_failures import SHARD_ERRORS, ShardFailures
from streamplug.read.stream_shards import Need, NeedFetcher, PartialNeed, StreamShards

__all__ = [
    "MAX_OPEN",
    "PART_OPEN",
    "SHARD_ERRORS",
    "SWEEP_SECONDS",
    "USED_SECONDS",
    "ColumnSelection",
    "MappedFiles",
    "Need",
    "NeedFetcher",
    "OpenShard",
    "OpenShards",
    "PartialNeed",
    "Reader",
    "SampleReader",
    "SelectedReader",
    "ShardFailures",
    "ShardGroups",
    "StreamShards",
    "apply_decoders",
    "limit_values",
    "make_samples",
    "promote_numbers",
    "resolve_index",
    "resolve_indices",
    "slice_columns",
    "spanned",
]
