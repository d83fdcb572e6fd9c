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
    extend_index,
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
from streamplug.index.value_sizes import (
    VALUE_SIZES,
    ShardValueSizes,
    pack_value_sizes,
    unpack_value_sizes,
)

__all__ = [
    "INDEX_NAME",
    "NAME_RULES",
    "VALUE_SIZES",
    "ColumnMismatch",
    "DigestColumns",
    "FileTable",
    "Index",
    "Schema",
    "ShardValueSizes",
    "TextColumn",
    "TextColumnBuilder",
    "check_same_columns",
    "chosen_hashes",
    "digest_index",
    "digests",
    "extend_index",
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
    "pack_value_sizes",
    "parse_index",
    "shards_digest",
    "unpack_value_sizes",
    "validate_basename",
]
