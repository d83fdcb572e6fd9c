"""Reading of samples from shards."""

from streamplug.read.decoders import apply_decoders, limit_values
from streamplug.read.indexing import resolve_index, resolve_indices
from streamplug.read.open_shards import ColumnSelection, OpenShard, OpenShards
from streamplug.read.promotion import promote_numbers
from streamplug.read.reader import Reader
from streamplug.read.sample_reader import SampleReader
from streamplug.read.selection_reader import SelectedReader
from streamplug.read.shard_failures import ShardFailures
from streamplug.read.stream_shards import Need, NeedFetcher, PartialNeed, StreamShards

__all__ = [
    "ColumnSelection",
    "Need",
    "NeedFetcher",
    "OpenShard",
    "OpenShards",
    "PartialNeed",
    "Reader",
    "SampleReader",
    "SelectedReader",
    "ShardFailures",
    "StreamShards",
    "apply_decoders",
    "limit_values",
    "promote_numbers",
    "resolve_index",
    "resolve_indices",
]
