"""The seven interfaces: all that the author of a plugin has to read."""

from streamplug.interfaces.callback import (
    Cached,
    Callback,
    EpochBegun,
    EpochEnded,
    Event,
    Evicted,
    Fetched,
    Healed,
    Ranged,
    Retried,
    Stats,
    Waited,
)
from streamplug.interfaces.compression import Compression
from streamplug.interfaces.encoding import Decoder, Encoding
from streamplug.interfaces.engine import Engine
from streamplug.interfaces.format import Format, Piece, Rows, RowsByColumn, ShardWriter
from streamplug.interfaces.scan import FileSelection, ListedFile, ScanFile, Scanned, SetFiles
from streamplug.interfaces.shard import Column, ShardFile, ShardInfo, WriteSettings
from streamplug.interfaces.shard_reader import Layout, ShardHead, ShardReader
from streamplug.interfaces.shuffle import EagerOrder, Order, ShuffleAlgorithm
from streamplug.interfaces.storage import Storage
from streamplug.interfaces.vector_column import Vectors

__all__ = [
    "Cached",
    "Callback",
    "Column",
    "Compression",
    "Decoder",
    "EagerOrder",
    "Encoding",
    "Engine",
    "EpochBegun",
    "EpochEnded",
    "Event",
    "Evicted",
    "Fetched",
    "FileSelection",
    "Format",
    "Healed",
    "Layout",
    "ListedFile",
    "Order",
    "Piece",
    "Ranged",
    "Retried",
    "Rows",
    "RowsByColumn",
    "ScanFile",
    "Scanned",
    "SetFiles",
    "ShardFile",
    "ShardHead",
    "ShardInfo",
    "ShardReader",
    "ShardWriter",
    "ShuffleAlgorithm",
    "Stats",
    "Storage",
    "Vectors",
    "Waited",
    "WriteSettings",
]
