"""Opening of streams: sources, the index of a data set, and opened streams."""

from streamplug.source.access import Access, ShardAccess, ShardFiles, make_access
from streamplug.source.index_source import IndexSource, keeps_index, read_index
from streamplug.source.open_stream import OpenSources, OpenStream, check_column_names
from streamplug.source.source import (
    Source,
    find_format_source,
    list_manifests,
    open_by_source,
    recognize_source,
)
from streamplug.source.stream_location import StreamLocation
from streamplug.transfer import Observer

__all__ = [
    "Access",
    "IndexSource",
    "Observer",
    "OpenSources",
    "OpenStream",
    "ShardAccess",
    "ShardFiles",
    "Source",
    "StreamLocation",
    "check_column_names",
    "find_format_source",
    "keeps_index",
    "list_manifests",
    "make_access",
    "open_by_source",
    "read_index",
    "recognize_source",
]
