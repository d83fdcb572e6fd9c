"""Iceberg tables as streams."""

from __future__ import annotations

from streamplug_parquet.table_snapshot import Bounds, TableSnapshot, open_table, open_table_storage

from streamplug.plugin import join
from streamplug.plugin_kit import parsing
from streamplug.source import OpenStream, Source
from streamplug.stream import Stream
from streamplug.transfer import Observer
from streamplug_iceberg.column_bounds import column_bounds
from streamplug_iceberg.snapshot_reader import (
    data_entries,
    find_snapshot,
    list_files,
    read_entries,
    table_columns,
)
from streamplug_iceberg.table_files import TableFiles, split_metadata_url


class IcebergSource(Source):
    """``iceberg``: Iceberg tables, at one snapshot; a metadata file, or a directory with ``metadata``."""

    def open(self, stream: Stream, observer: Observer | None) -> OpenStream:
        root, key = split_metadata_url(join(stream.location.parent, stream.split or ""))
        storage = open_table_storage(stream, root)
        files = TableFiles(storage, stream.retries)
        metadata = files.read_metadata(key or files.find_metadata())
        snapshot, schema = find_snapshot(metadata, stream.version, storage.url)
        entries = [] if snapshot is None else read_entries(files, snapshot)
        with parsing(f"{storage.url}: the metadata"):
            listed = list_files(files, entries, metadata, schema)
            pairs = zip(data_entries(entries), listed)
            columns = table_columns(metadata, schema, [e for e, file in pairs if file.samples])

        def read_bounds() -> list[Bounds]:
            again = [] if snapshot is None else read_entries(files, snapshot)
            return [column_bounds(entry.data_file, schema) for entry in data_entries(again)]

        table = TableSnapshot(
            root,
            "snapshot",
            None if snapshot is None else snapshot.snapshot_id,
            columns,
            listed,
            read_bounds,
        )
        return open_table(stream, table, observer)
