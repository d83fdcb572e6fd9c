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
from streamplug.interfaces.encoding import Encoding, GatherBuffer, StoredRange
from streamplug.interfaces.engine import Engine, Task
from streamplug.interfaces.format import (
    Format,
    RangeReadableFormat,
    WritableFormat,
)
from streamplug.interfaces.lazy_value import LazyValue
from streamplug.interfaces.shard import Column, ShardFile, ShardInfo, WriteSettings
from streamplug.interfaces.shard_reader import MultiShardReader, ShardHeader, ShardReader
from streamplug.interfaces.shard_writer import ColumnarRows, EncodedRows, RowPiece, ShardWriter
from streamplug.interfaces.shuffle import Permutation, ShuffleAlgorithm
from streamplug.interfaces.storage import Storage
from streamplug.interfaces.vector_column import VectorColumn

__all__ = [
    "CacheHit",
    "Callback",
    "Column",
    "ColumnarRows",
    "Compression",
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
]
