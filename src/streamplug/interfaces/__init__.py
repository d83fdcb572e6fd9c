"""The five interfaces: all that the author of a plugin has to read."""

from streamplug.interfaces.compression import Compression
from streamplug.interfaces.encoding import Encoding
from streamplug.interfaces.format import (
    Column,
    Format,
    Layout,
    ShardFile,
    ShardHead,
    ShardInfo,
    ShardReader,
    ShardWriter,
    WriteSettings,
)
from streamplug.interfaces.fsspec import FsspecStorage
from streamplug.interfaces.shuffle import EagerOrder, Order, ShuffleAlgorithm
from streamplug.interfaces.storage import Storage

__all__ = [
    "Column",
    "Compression",
    "EagerOrder",
    "Encoding",
    "Format",
    "FsspecStorage",
    "Layout",
    "Order",
    "ShardFile",
    "ShardHead",
    "ShardInfo",
    "ShardReader",
    "ShardWriter",
    "ShuffleAlgorithm",
    "Storage",
    "WriteSettings",
]
