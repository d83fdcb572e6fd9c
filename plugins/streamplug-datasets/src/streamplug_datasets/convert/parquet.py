"""Reads files of Parquet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from streamplug.errors import ConfigError, DataError
from streamplug.plugin_kit import parsing


class ParquetTable:
    """Some columns of a file.

    Attributes:
        groups: How many rows each row group has.
    """

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        """Open a file of which these columns are read.

        Raises:
            ConfigError: If streamplug-parquet is not installed.
            DataError: If the file is damaged, or lacks a column.
        """
        try:
            import pyarrow
            from streamplug_parquet.column_chunks import ColumnChunks
            from streamplug_parquet.footer import parsed, schema_of
            from streamplug_parquet.memory_bounds import DecodedSizes, naming
        except ImportError as error:
            raise ConfigError(
                "Parquet needs streamplug-parquet: pip install 'streamplug-datasets[parquet]'"
            ) from error
        self._path, self._columns, self._naming = path, list(columns), naming
        try:
            self._data = pyarrow.memory_map(str(path)).read_buffer()
        except OSError as error:
            raise DataError(f"{path}: {error}") from error
        with naming(str(path)):
            self._metadata = about = parsed(self._data)
            names = schema_of(about).names
            view = memoryview(self._data).cast("B")
            self._sizes = DecodedSizes(view, ColumnChunks(view, about))
        if lacking := sorted(set(columns) - set(names)):
            raise DataError(f"{path}: lacks the columns {', '.join(lacking)}")
        self.groups = [about.row_group(number).num_rows for number in range(about.num_row_groups)]

    def rows(
        self, at_once: int, group: int | None = None, start: int = 0
    ) -> Iterator[dict[str, Any]]:
        """Yield the rows, each a dict of its values.

        Args:
            at_once: How many to have in memory.
            group: Of which row group; None for all.
            start: The first of them.

        Raises:
            DataError: If the file is damaged, or takes far more memory than its size.
        """
        for number in range(len(self.groups)) if group is None else [group]:
            if start >= self.groups[number]:
                start -= self.groups[number]
                continue
            where = str(self._path)
            with self._naming(where), parsing(f"{where}: row group {number}"):
                yield from self._rows_of_group(number, at_once, start)
            start = 0

    def _rows_of_group(self, group: int, at_once: int, start: int) -> Iterator[dict[str, Any]]:
        import pyarrow
        from pyarrow import parquet
        from streamplug_parquet.memory_bounds import expanded_size

        plan, expanded = self._sizes.plan(group, self._columns), 0
        file = parquet.ParquetFile(
            pyarrow.BufferReader(self._data),
            metadata=self._metadata,
            read_dictionary=plan.dictionaries,
        )
        for batch in file.iter_batches(at_once, row_groups=[group], columns=self._columns):
            expanded += sum(map(expanded_size, batch.columns))
            plan.check_expansion(expanded, f"row group {group}")
            yield from batch.slice(start).to_pylist()
            start = max(start - batch.num_rows, 0)
