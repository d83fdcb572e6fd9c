"""Reading of samples from local shards, or by range requests."""

from streamplug.read.decoders import apply_decoders, limit_values
from streamplug.read.indexing import resolve_index, resolve_indices
from streamplug.read.open_shards import OpenShards
from streamplug.read.promotion import promote_numbers
from streamplug.read.range_shards import RangeShards
from streamplug.read.reader import Reader
from streamplug.read.sample_reader import SampleReader
from streamplug.read.selection_reader import SelectedReader

__all__ = [
    "OpenShards",
    "RangeShards",
    "Reader",
    "SampleReader",
    "SelectedReader",
    "apply_decoders",
    "limit_values",
    "promote_numbers",
    "resolve_index",
    "resolve_indices",
]
