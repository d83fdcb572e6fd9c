"""Index of the shards of a data set."""

from streamplug.index.builder import (
    NAME_RULES,
    is_shard_name,
    make_encoding,
    normalize_basename,
    validate_basename,
)
from streamplug.index.column_mismatch import (
    ColumnMismatch,
    check_same_columns,
    find_mismatches,
    find_shard_mismatches,
)
from streamplug.index.hashes import chosen_hashes, digests, hash_names, new_hash
from streamplug.index.json_index import (
    INDEX_NAME,
    digest_index,
    file_entry,
    format_index,
    parse_index,
)
from streamplug.index.model import (
    DigestColumns,
    FileTable,
    Index,
    Schema,
    TextColumn,
    TextColumnBuilder,
    offsets_from_sizes,
    shards_digest,
)

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
