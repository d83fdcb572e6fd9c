"""Index of the shards of a data set."""

from streamplug.index.builder import make_encoding, make_schema
from streamplug.index.column_mismatch import (
    ColumnMismatch,
    check_same_columns,
    find_mismatches,
    find_shard_mismatches,
)
from streamplug.index.json_index import INDEX_NAME, digest_index, parse_index
from streamplug.index.json_writer import file_entry, format_index
from streamplug.index.model import Index, Schema, shards_digest

__all__ = [
    "INDEX_NAME",
    "ColumnMismatch",
    "Index",
    "Schema",
    "check_same_columns",
    "digest_index",
    "file_entry",
    "find_mismatches",
    "find_shard_mismatches",
    "format_index",
    "make_encoding",
    "make_schema",
    "parse_index",
    "shards_digest",
]
