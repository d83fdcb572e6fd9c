"""The index of a data set: what shards it has, and what is in them."""

from streamplug.index.agreement import (
    Disagreement,
    check_agreement,
    disagreements,
    shard_disagreements,
)
from streamplug.index.builder import make_encoding, make_schema
from streamplug.index.emit import file_entry, index_bytes
from streamplug.index.model import Index, Schema, shards_digest
from streamplug.index.parse import INDEX_NAME, digest_index, parse_index

__all__ = [
    "INDEX_NAME",
    "Disagreement",
    "Index",
    "Schema",
    "check_agreement",
    "digest_index",
    "disagreements",
    "file_entry",
    "index_bytes",
    "make_encoding",
    "make_schema",
    "parse_index",
    "shard_disagreements",
    "shards_digest",
]
