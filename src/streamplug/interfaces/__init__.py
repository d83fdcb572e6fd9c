"""The interfaces of plugins."""

from streamplug.interfaces.callback import (
    CacheHit,
    Callback,
    EpochEnded,
    EpochStarted,
    Event,
    RangesRead,
    RequestRetried,
    SampleSubstituted,
    ShardDownloaded,
    ShardEvicted,
    ShardRepaired,
    Stalled,
    Stats,
)
from streamplug.interfaces.compression import Compression
from streamplug.interfaces.encoding import (
    MAX_VALUE_BYTES,
    Decoder,
    Encoding,
    GatherBuffer,
    StoredRange,
    bypasses,
)
from streamplug.interfaces.engine import Engine, Task
from streamplug.interfaces.format import Format, RangeReadableFormat, WritableFormat
from streamplug.interfaces.lazy_value import LazyValue, lazy_values
from streamplug.interfaces.plugin import Plugin
from streamplug.interfaces.shard import Column, ShardFile, ShardInfo, WriteSettings
from streamplug.interfaces.shard_reader import MultiShardReader, ShardHeader, ShardReader
from streamplug.interfaces.shard_writer import ColumnarRows, EncodedRows, RowPiece, ShardWriter
from streamplug.interfaces.shuffle import Permutation, ShuffleAlgorithm
from streamplug.interfaces.shuffle_order import (
    ArrayOrder,
    canonical_node_bounds,
    locate_entry,
    mix_bits,
)
from streamplug.interfaces.storage import Storage, public_url, public_urls, replaced_error
from streamplug.interfaces.vector_column import VectorColumn

__all__ = [
    "MAX_VALUE_BYTES",
    "ArrayOrder",
    "CacheHit",
    "Callback",
    "Column",
    "ColumnarRows",
    "Compression",
    "Decoder",
    "EncodedRows",
    "Encoding",
    "Engine",
    "EpochEnded",
    "EpochStarted",
    "Event",
    "Format",
    "GatherBuffer",
    "LazyValue",
    "MultiShardReader",
    "Permutation",
    "Plugin",
    "RangeReadableFormat",
    "RangesRead",
    "RequestRetried",
    "RowPiece",
    "SampleSubstituted",
    "ShardDownloaded",
    "ShardEvicted",
    "ShardFile",
    "ShardHeader",
    "ShardInfo",
    "ShardReader",
    "ShardRepaired",
    "ShardWriter",
    "ShuffleAlgorithm",
    "Stalled",
    "Stats",
    "Storage",
    "StoredRange",
    "Task",
    "VectorColumn",
    "WritableFormat",
    "WriteSettings",
    "bypasses",
    "canonical_node_bounds",
    "lazy_values",
    "locate_entry",
    "mix_bits",
    "public_url",
    "public_urls",
    "replaced_error",
]
