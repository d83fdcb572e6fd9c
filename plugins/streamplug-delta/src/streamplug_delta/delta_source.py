"""Delta Lake tables as streams."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import unquote

import numpy as np
from streamplug_files import ScanSource
from streamplug_parquet.deletion_vectors import check_positions
from streamplug_parquet.footer import scanned
from streamplug_parquet.table_columns import TableColumn
from streamplug_parquet.table_reader import TableFile
from streamplug_parquet.table_snapshot import Bounds, TableSnapshot, open_table, open_table_storage

from streamplug.errors import ConfigError, DataError
from streamplug.interfaces import Storage
from streamplug.plugin import is_url, join
from streamplug.plugin_kit import parsing
from streamplug.source import OpenStream, Source
from streamplug.stream import Stream
from streamplug.transfer import Observer, call_with_retries, map_threads
from streamplug_delta.column_bounds import column_bounds
from streamplug_delta.deletion_vectors import count_positions, read_vector
from streamplug_delta.log import DeltaLog
from streamplug_delta.log_checks import Action, check_fields
from streamplug_delta.schema import parse_columns, parse_partition_value

_MAX_READS_IN_FLIGHT = 16


class DeltaSource(Source):
    """``delta``: tables of Delta Lake, at one version; a directory with a ``_delta_log``."""

    def open(self, stream: Stream, observer: Observer | None) -> OpenStream:
        if isinstance(stream.version, str):
            raise ConfigError(
                f"version={stream.version!r}: versions of Delta tables are numbers; deltalake finds that of "
                "a time (DeltaTable.load_as_version)"
            )
        url = join(stream.location.parent, stream.split or "")
        storage = open_table_storage(stream, url)
        log = DeltaLog(storage, stream.retries)
        state = log.read(stream.version)
        version = state.version
        table = _DeltaFiles(storage, stream.retries, f"{storage.url}, version {version}")
        adds = state.ordered_adds
        deleted = sum(count_positions(add.get("deletionVector")) for add in adds)
        check_positions(deleted, table.where)
        statistics = [table.statistics_of(add) for add in adds]
        partition = state.metadata.get("partitionColumns") or ()
        columns = parse_columns(state.metadata, table.where)
        constants = {stored: c for stored, c in columns.items() if c.name in partition}
        pairs = list(zip(adds, statistics))
        # Most files are known from the log alone, without another request.
        in_storage = [pair for pair in pairs if _needs_requests(*pair)]
        requested = map_threads(
            lambda pair: table.file_of(*pair, constants), in_storage, _MAX_READS_IN_FLIGHT
        )
        files = [
            next(requested) if _needs_requests(*pair) else table.file_of(*pair, constants)
            for pair in pairs
        ]
        nulls = _count_nulls([pair for pair, file in zip(pairs, files) if file.samples])
        columns = {
            stored: replace(column, nullable=nulls.get(stored) != 0)
            for stored, column in columns.items()
        }

        def read_bounds() -> list[Bounds]:
            adds = log.read(version).ordered_adds
            return [column_bounds(add, table.statistics_of(add), columns) for add in adds]

        snapshot = TableSnapshot(
            url,
            "version",
            version,
            list(columns.values()),
            files,
            read_bounds,
        )
        return open_table(stream, snapshot, observer)


@dataclass(frozen=True)
class _DeltaFiles:
    """Files of a table at one version; `where` names it in errors."""

    storage: Storage
    retries: int
    where: str

    def statistics_of(self, add: Action) -> Mapping[str, Any]:
        """Return the statistics of a file, from their text or from columns of a checkpoint."""
        text = add.get("stats")
        with parsing(f"{self.where}: the record of statistics of {add['path']!r:.200}"):
            statistics: dict[str, Any] = (
                json.loads(text) if text else add.get("stats_parsed")
            ) or {}
            check_fields("statistics", statistics)
        return statistics

    def file_of(
        self, add: Action, statistics: Mapping[str, Any], partition: Mapping[str, TableColumn]
    ) -> TableFile:
        """Return a file of the table; `partition` has the partition columns by their names in files."""
        key = self._key_of(add["path"])
        size, rows = add["size"], statistics.get("numRecords")
        if rows is None:
            rows = scanned(_FooterSource(self, key, size)).samples
        vector, deleted = add.get("deletionVector"), np.empty(0, np.int64)
        if vector is not None:
            deleted = read_vector(vector, self.read_range)
        if len(deleted) and deleted[-1] >= rows:
            raise DataError(
                f"{self.where}: row {deleted[-1]} of {key} is deleted; the file has {rows} rows, from 0"
            )
        values = add.get("partitionValues") or {}
        constants = {
            column.name: self._value(values.get(stored), column, key)
            for stored, column in partition.items()
        }
        return TableFile(key, size, rows, deleted, constants)

    def _key_of(self, path: str) -> str:
        if is_url(path) or path.startswith(("/", "file:")):
            raise DataError(
                f"{self.where}: {path!r:.200} is an absolute location, as in clones of tables, which is not "
                "supported"
            )
        return unquote(path)

    def _value(self, text: str | None, column: TableColumn, key: str) -> Any:
        value = f"{text!r:.80} for the partition column {column.name!r} of {key}"
        with parsing(f"{self.where}: {value}"):
            return parse_partition_value(text, column.type)

    def read_range(self, key: str, start: int, stop: int) -> bytes:
        """Return bytes of a file of the table."""
        return call_with_retries(lambda: self.storage.read_range(key, start, stop), self.retries)


class _FooterSource(ScanSource):
    """A data file, to read its footer."""

    def __init__(self, table: _DeltaFiles, key: str, size: int) -> None:
        self.name, self.size = key, size
        self._table = table

    def read(self, start: int, stop: int) -> bytes:
        return self._table.read_range(self.name, start, stop)

    def read_sibling(self, name: str) -> bytes | None:
        return None


def _needs_requests(add: Action, statistics: Mapping[str, Any]) -> bool:
    """Return whether the rows of a file are only known from its footer, or its deletion vector."""
    return add.get("deletionVector") is not None or statistics.get("numRecords") is None


def _count_nulls(files: Sequence[tuple[Action, Mapping[str, Any]]]) -> dict[str, int]:
    """Return the number of missing values of each column for which all files give it.

    Args:
        files: The action ``add`` and the statistics of each file.
    """
    counts: Counter[str] = Counter()
    known: Counter[str] = Counter()
    for add, statistics in files:
        values = add.get("partitionValues") or {}
        nulls = {name: int(value in (None, "")) for name, value in values.items()}
        nulls |= {
            name: count
            for name, count in (statistics.get("nullCount") or {}).items()
            if isinstance(count, int)
        }
        counts.update(nulls)
        known.update(nulls.keys())
    return {name: counts[name] for name, count in known.items() if count == len(files)}
