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
    FileListFormat,
    Format,
    IndexImportFormat,
    MultiFileFormat,
    RangeReadableFormat,
    ScannableFormat,
    WritableFormat,
)
from streamplug.interfaces.lazy_value import LazyValue
from streamplug.interfaces.scan import (
    DatasetFiles,
    FileListEntry,
    FileSelection,
    ScanResult,
    ScanSource,
)
from streamplug.interfaces.shard import Column, ShardFile, ShardInfo, WriteSettings
from streamplug.interfaces.shard_reader import MultiShardReader, ShardHeader, ShardReader
from streamplug.interfaces.shard_writer import ColumnarRows, EncodedRows, RowPiece, ShardWriter
from streamplug.interfaces.shuffle import Order, ShuffleAlgorithm
from streamplug.interfaces.storage import Storage
from streamplug.interfaces.vector_column import VectorColumn

__all__ = [
    "CacheHit",
    "Callback",
    "Column",
    "ColumnarRows",
    "Compression",
    "DatasetFiles",
    "EncodedRows",
    "Encoding",
    "Engine",
    "EpochEnded",
    "EpochStarted",
    "Event",
    "FileListEntry",
    "FileListFormat",
    "FileSelection",
    "Format",
    "GatherBuffer",
    "IndexImportFormat",
    "LazyValue",
    "MultiFileFormat",
    "MultiShardReader",
    "Order",
    "RangeReadableFormat",
    "RangesRead",
    "RequestRetried",
    "RowPiece",
    "SampleSubstituted",
    "ScanResult",
    "ScanSource",
    "ScannableFormat",
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
