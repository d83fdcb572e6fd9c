"""Parquet files with the metadata of tables, such as checkpoints of logs and positions of deleted rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from streamplug.errors import CorruptShardError
from streamplug_parquet.column_chunks import ColumnChunks
from streamplug_parquet.footer import parsed, schema_of
from streamplug_parquet.memory_bounds import DecodedSizes, decoded_limit, expanded_size, too_large

_FREE_ROWS = 1 << 16
"""Rows that a file of any size may have. Each further row takes a byte or more, as its values are its own."""


def read_row_groups(
    data: bytes, names: Sequence[str], max_rows: int | None = None
) -> Iterator[pa.Table]:
    """Yield the row groups of a file, with those of some columns that it has.

    Repeated text may be in dictionaries. By default, a file has at most 65,536 rows and one per byte.

    Raises:
        CorruptShardError: If the file is damaged, takes far more memory than its size, or has too many rows.
    """
    metadata = parsed(data)
    names = [name for name in schema_of(metadata).names if name in names]
    if max_rows is None:
        max_rows = _FREE_ROWS + len(data)
    if metadata.num_rows > max_rows:
        raise CorruptShardError(
            f"it has {metadata.num_rows} rows in {len(data)} bytes, more than {max_rows}"
        )
    view = memoryview(data)
    sizes = DecodedSizes(view, ColumnChunks(view, metadata))
    for group in range(metadata.num_row_groups):
        plan = sizes.plan(group, names)
        file = pq.ParquetFile(
            pa.BufferReader(data), metadata=metadata, read_dictionary=plan.dictionaries
        )
        try:
            table = file.read_row_group(group, columns=names, use_threads=False)
        except Exception as error:  # Arrow does not document its errors for damaged files
            raise CorruptShardError(f"row group {group} is damaged: {error}") from error
        plan.check_expansion(sum(map(expanded_size, table.columns)), f"row group {group}")
        yield table


def read_file(data: bytes, names: Sequence[str]) -> list[pa.Table]:
    """Return all row groups of a file, as `read_row_groups` yields them.

    Raises:
        CorruptShardError: As for `read_row_groups`, also if the row groups together take far more memory
            than the file.
    """
    tables: list[pa.Table] = []
    size, limit = 0, decoded_limit(len(data))
    for table in read_row_groups(data, names):
        size += table.nbytes + sum(map(expanded_size, table.columns))
        if size > limit:
            raise too_large(f"the first {len(tables) + 1} row groups", size, limit)
        tables.append(table)
    return tables
