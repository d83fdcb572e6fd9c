"""The index of a data set: what shards it has, and what is in them."""

from streamplug.index.emit import file_entry, index_bytes
from streamplug.index.model import Index, Schema
from streamplug.index.parse import INDEX_NAME, make_encoding, make_schema, parse_index

__all__ = [
    "INDEX_NAME",
    "Index",
    "Schema",
    "file_entry",
    "index_bytes",
    "make_encoding",
    "make_schema",
    "parse_index",
]
