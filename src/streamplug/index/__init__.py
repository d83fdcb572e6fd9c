"""Index of the shards of a data set."""

from streamplug.index.basename import (
    NAME_RULES,
    is_shard_name,
    normalize_basename,
    validate_basename,
)
from streamplug.index.builder import make_encoding
from streamplug.index.column_mismatch import (
    ColumnMismatch,
    check_same_columns,
    find_mismatches,
    find_shard_mismatches,
)
from streamplug.index.columns import (
    DigestColumns,
    TextColumn,
    TextColumnBuilder,
    offsets_from_sizes,
)
from streamplug.index.hashes import chosen_hashes, digests, hash_names, new_hash
from streamplug.index.json_index import INDEX_NAME, digest_index, parse_index
from streamplug.index.json_writer import file_entry, format_index
from streamplug.index.model import FileTable, Index, Schema, shards_digest

__all__ = [
    "INDEX_NAME",
    "NAME_RULES",
    "ColumnMismatch",
    "DigestColumns",
    "FileTable",
    "Index",
    "Schema",
    "TextColumn",
    "TextColumnBuilder",
    "check_same_columns",
    "chosen_hashes",
    "digest_index",
    "digests",
    "file_entry",
    "find_mismatches",
    "find_shard_mismatches",
    "format_index",
    "hash_names",
    "is_shard_name",
    "make_encoding",
    "new_hash",
    "normalize_basename",
    "offsets_from_sizes",
    "parse_index",
    "shards_digest",
    "validate_basename",
]
