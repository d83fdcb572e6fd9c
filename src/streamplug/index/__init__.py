"""The index of a data set: what shards it has, and what is in them."""

from streamplug.index.agreement import (
    Disagreement,
    check_agreement,
    disagreements,
    shard_disagreements,
)
from streamplug.index.builder import make_encoding, make_schema
from streamplug.index.companion import Companion
from streamplug.index.emit import file_entry, index_bytes
from streamplug.index.emit_companion import write_companion
from streamplug.index.layout import COMPANION_NAME, HEAD_BYTES
from streamplug.index.model import Index, Schema, shards_digest
from streamplug.index.parse import INDEX_NAME, parse_index
from streamplug.index.source import Source, sample_digest, sample_ranges, source_of

__all__ = [
    "COMPANION_NAME",
    "HEAD_BYTES",
    "INDEX_NAME",
    "Companion",
    "Disagreement",
    "Index",
    "Schema",
    "Source",
    "check_agreement",
    "disagreements",
    "file_entry",
    "index_bytes",
    "make_encoding",
    "make_schema",
    "parse_index",
    "sample_digest",
    "sample_ranges",
    "shard_disagreements",
    "shards_digest",
    "source_of",
    "write_companion",
]
