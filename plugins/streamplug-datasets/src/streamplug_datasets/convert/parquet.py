"""Reads files of Parquet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from streamplug.errors import ConfigError, DataError


class ParquetTable:
    """Some columns of a file.

    Attributes:
        groups: How many rows each row group has.
    """

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        """Open a file of which these columns are read.

        Raises:
            ConfigError: If pyarrow is not installed.
            DataError: If the file is damaged, or lacks a column.
        """
        try:
            from pyarrow import ArrowException, parquet
        except ImportError as error:
            raise ConfigError(
                "Parquet needs pyarrow: pip install 'streamplug-datasets[parquet]'"
            ) from error
        self._path, self._columns, self._errors = path, list(columns), (ArrowException, OSError)
        try:
            self._file = parquet.ParquetFile(path)
        except self._errors as error:
            raise self._damaged(error) from error
        if lacking := sorted(set(columns) - set(self._file.schema_arrow.names)):
            raise DataError(f"{path}: lacks the columns {', '.join(lacking)}")
        about = self._file.metadata
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
            DataError: If the file is damaged.
        """
        groups = None if group is None else [group]
        try:
            with self._file as file:
                for batch in file.iter_batches(at_once, row_groups=groups, columns=self._columns):
                    if start >= batch.num_rows:
                        start -= batch.num_rows
                        continue
                    yield from batch.slice(start).to_pylist()
                    start = 0
        except self._errors as error:
            raise self._damaged(error) from error

    def _damaged(self, error: Exception) -> DataError:
        return DataError(f"{self._path}: damaged: {type(error).__name__}: {error}")
