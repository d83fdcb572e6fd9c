"""Reading of samples from shards."""

from streamplug.read.decoders import apply_decoders, limit_values
from streamplug.read.gather import ShardGroups, make_samples, slice_columns
from streamplug.read.memory_map import MappedFiles, spanned
from streamplug.read.open_shards import (
    MAX_OPEN,
    PART_OPEN,
    SHARD_ERRORS,
    SWEEP_SECONDS,
    USED_SECONDS,
    ColumnSelection,
    OpenShard,
    OpenShards,
    ShardFailures,
)
from streamplug.read.reader import Reader
from streamplug.read.sample_reader import SampleReader, SelectedReader, WrappedReader
from streamplug.read.stream_shards import Need, NeedFetcher, PartialNeed, StreamShards
from streamplug.read.type_promotion import promote_numbers

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
    "WrappedReader",
    "apply_decoders",
    "limit_values",
    "make_samples",
    "promote_numbers",
    "slice_columns",
    "spanned",
]
