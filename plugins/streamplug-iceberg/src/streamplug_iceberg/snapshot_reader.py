"""Snapshots of Iceberg tables: their data files, deleted rows and columns."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestEntry, ManifestFile
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.name_mapping import MappedField
from pyiceberg.table.puffin import PuffinFile
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import ListType, MapType, NestedField, StructType
from streamplug_parquet.deletion_vectors import MAX_POSITIONS, parse_stored_vector
from streamplug_parquet.metadata_tables import read_row_groups
from streamplug_parquet.table_columns import TableColumn
from streamplug_parquet.table_reader import TableFile
from streamplug_parquet.types import plain

from streamplug.errors import ConfigError, CorruptShardError, DataError
from streamplug.plugin_kit import parsing
from streamplug.transfer import map_threads
from streamplug.types import Int64
from streamplug_iceberg.manifest_reader import parse_manifest, parse_manifest_list
from streamplug_iceberg.table_files import TableFiles

_MAX_READS_IN_FLIGHT = 16


def find_snapshot(
    metadata: TableMetadata, version: int | str | None, where: str
) -> tuple[Snapshot | None, Schema]:
    """Return a snapshot and its schema; None for a table without snapshots.

    Args:
        metadata: The table.
        version: Id of a snapshot, name of a branch or a tag, or None for the current snapshot.
        where: Name of the table in errors.

    Raises:
        ConfigError: If there is no such snapshot.
        DataError: If the metadata do not have the current snapshot, or the schema of the snapshot.
    """
    if version is None:
        current = metadata.current_snapshot()
        if current is None and metadata.current_snapshot_id is not None:
            raise DataError(
                f"{where}: the metadata do not have the current snapshot, {metadata.current_snapshot_id}"
            )
        return current, metadata.schema()
    ref = metadata.refs.get(version) if isinstance(version, str) else None
    number = version if ref is None else ref.snapshot_id
    snapshot = metadata.snapshot_by_id(number) if isinstance(number, int) else None
    if snapshot is None:
        ids = ", ".join(str(known.snapshot_id) for known in metadata.snapshots[-5:])
        refs = ", ".join(sorted(metadata.refs))
        raise ConfigError(
            f"version={version!r}: {where} has no such snapshot, branch or tag; the latest snapshots are "
            f"{ids or 'none'}, its branches and tags {refs or 'none'}"
        )
    # The latest snapshot of a branch is read with the current schema of the table, as Iceberg's readers do.
    is_branch = ref is not None and ref.snapshot_ref_type is SnapshotRefType.BRANCH
    if is_branch or snapshot.schema_id is None:
        return snapshot, metadata.schema()
    schema = {schema.schema_id: schema for schema in metadata.schemas}.get(snapshot.schema_id)
    if schema is None:
        raise DataError(f"{where}: the metadata do not have the schema of snapshot {number}")
    return snapshot, schema


def read_entries(files: TableFiles, snapshot: Snapshot) -> list[ManifestEntry]:
    """Return the entries of all files of a snapshot.

    Raises:
        DataError: If a manifest is damaged.
    """

    def read(manifest: ManifestFile) -> list[ManifestEntry]:
        data = files.read(files.key_of(manifest.manifest_path))
        with parsing(manifest.manifest_path):
            return parse_manifest(data, manifest)

    data = files.read(files.key_of(snapshot.manifest_list))
    with parsing(snapshot.manifest_list):
        manifests = parse_manifest_list(data)
    return [
        entry for entries in map_threads(read, manifests, _MAX_READS_IN_FLIGHT) for entry in entries
    ]


def data_entries(entries: Sequence[ManifestEntry]) -> list[ManifestEntry]:
    """Return the entries of data files, by sequence number and location."""
    data = [e for e in entries if e.data_file.content == DataFileContent.DATA]
    return sorted(data, key=lambda entry: (entry.sequence_number or 0, entry.data_file.file_path))


def list_files(
    files: TableFiles, entries: Sequence[ManifestEntry], metadata: TableMetadata, schema: Schema
) -> list[TableFile]:
    """Return the data files of a snapshot, in the order of `data_entries`.

    Raises:
        DataError: If a file is of a kind that is not supported, or a file of deletions is damaged.
    """
    deletes = [e for e in entries if e.data_file.content != DataFileContent.DATA]
    deleted = _read_deletes(files, deletes)
    partitions = _identity_columns(metadata, schema)
    listed = []
    for entry in data_entries(entries):
        file = entry.data_file
        if file.file_format != FileFormat.PARQUET:
            raise DataError(
                f"{file.file_path} is of the format {file.file_format.name}; only Parquet is supported"
            )
        positions = [
            rows
            for sequence, rows in deleted.get(file.file_path, ())
            if sequence >= (entry.sequence_number or 0)
        ]
        rows = np.unique(np.concatenate(positions)) if positions else np.empty(0, np.int64)
        if len(rows) and not 0 <= rows[0] <= rows[-1] < file.record_count:
            raise DataError(
                f"{file.file_path}: row {rows[-1]} is deleted; the file has {file.record_count} rows, from 0"
            )
        constants = {
            name: _constant(file.partition[place], type_)
            for place, name, type_ in partitions[file.spec_id]
        }
        key = files.key_of(file.file_path)
        listed.append(TableFile(key, file.file_size_in_bytes, file.record_count, rows, constants))
    return listed


def _read_deletes(
    files: TableFiles, entries: Sequence[ManifestEntry]
) -> dict[str, list[tuple[int, Int64]]]:
    """Return sequence number and positions of the deleted rows by location of the data file."""

    def read(entry: ManifestEntry) -> bytes:
        file: DataFile = entry.data_file
        if file.content == DataFileContent.EQUALITY_DELETES:
            raise DataError(
                f"{file.file_path} deletes rows by their values, which is not supported; rewrite the data "
                "files of the table (rewrite_data_files), or read a snapshot without such deletions"
            )
        return files.read(files.key_of(file.file_path))

    deleted: defaultdict[str, list[tuple[int, Int64]]] = defaultdict(list)
    # A file of deletion vectors has an entry for each data file, and is read once.
    by_path = {entry.data_file.file_path: entry for entry in entries}
    contents = map_threads(read, list(by_path.values()), _MAX_READS_IN_FLIGHT)
    remaining = MAX_POSITIONS
    for (where, entry), content in zip(by_path.items(), contents):
        try:
            with parsing(where):
                for path, positions in _positions_of(entry.data_file, content, remaining):
                    deleted[path].append((entry.sequence_number or 0, positions))
                    remaining -= len(positions)
        except CorruptShardError as error:
            raise DataError(f"{where} is damaged: {error}") from error
    return deleted


def _positions_of(
    file: DataFile, content: bytes, max_positions: int
) -> Iterator[tuple[str, Int64]]:
    """Yield the deleted rows of data files from a file of deletions, of which there are at most so many."""
    if file.file_format.name == "PUFFIN":
        puffin = PuffinFile(content)
        for blob in puffin.footer.blobs:
            if blob.type == "deletion-vector-v1":
                if blob.compression_codec is not None:  # as the specification demands
                    raise ValueError("its deletion vectors are compressed")
                yield (
                    blob.properties["referenced-data-file"],
                    positions := parse_stored_vector(puffin.get_blob_payload(blob), max_positions),
                )
                max_positions -= len(positions)
        return
    if file.file_format != FileFormat.PARQUET:
        raise ValueError(f"the format {file.file_format.name} is not supported")
    for table in read_row_groups(content, ["file_path", "pos"], max_positions):
        paths = table["file_path"].dictionary_encode().combine_chunks()
        if isinstance(paths, pa.ChunkedArray):
            paths = paths.combine_chunks()
        indices, positions = paths.indices.to_numpy(), table["pos"].to_numpy().astype(np.int64)
        order = np.argsort(indices, kind="stable")
        cuts = np.searchsorted(indices[order], np.arange(1, len(paths.dictionary)))
        yield from zip(paths.dictionary.to_pylist(), np.split(positions[order], cuts))


def _identity_columns(
    metadata: TableMetadata, schema: Schema
) -> dict[int, list[tuple[int, str, pa.DataType]]]:
    """Return place, name and type of the columns that partitions have as they are, by id of the spec."""
    types = {field.field_id: field for field in schema.fields}
    arrow = schema_to_pyarrow(schema)
    return {
        spec.spec_id: [
            (
                place,
                types[field.source_id].name,
                plain(arrow.field(types[field.source_id].name).type),
            )
            for place, field in enumerate(spec.fields)
            if isinstance(field.transform, IdentityTransform) and field.source_id in types
        ]
        for spec in metadata.specs().values()
    }


def _constant(value: Any, type_: pa.DataType) -> Any:
    """Return the value of a partition as one of the type."""
    if isinstance(value, UUID):
        return value.bytes
    if isinstance(value, int) and pa.types.is_date32(type_):
        return pa.scalar(value, pa.int32()).cast(type_).as_py()
    if isinstance(value, int) and pa.types.is_temporal(type_):
        return pa.scalar(value, pa.int64()).cast(type_).as_py()
    return value


def table_columns(
    metadata: TableMetadata, schema: Schema, entries: Sequence[ManifestEntry]
) -> list[TableColumn]:
    """Return the columns of a snapshot whose data files with samples have these entries."""
    data = [entry.data_file for entry in entries]
    nulls: Counter[int] = Counter()
    known: Counter[int] = Counter()
    for file in data:
        counts = dict(file.null_value_counts or {})
        nulls.update(counts)
        known.update(counts.keys())
    mapping = metadata.name_mapping()
    names = None if mapping is None else _names_by_id(mapping)
    arrow = schema_to_pyarrow(schema)
    columns = []
    for field in schema.fields:
        number = field.field_id
        has_none = bool(data) and known[number] == len(data) and not nulls[number]
        column = _column(field, arrow.field(field.name), names)
        columns.append(replace(column, nullable=column.nullable and not has_none))
    return columns


def _names_by_id(fields: Iterable[MappedField]) -> dict[int | None, list[str]]:
    """Return the names of fields in files without ids, at all depths."""
    names: dict[int | None, list[str]] = {}
    for field in fields:
        names |= {field.field_id: list(field.names), **_names_by_id(field.fields)}
    return names


def _column(
    field: NestedField, arrow: pa.Field, names: Mapping[int | None, list[str]] | None
) -> TableColumn:
    """Return a column of a table, or a field, an item, a key or a value of one."""
    type_, inner = field.field_type, arrow.type
    pairs: Sequence[tuple[NestedField, pa.Field]] = ()
    if isinstance(type_, StructType):
        pairs = list(zip(type_.fields, inner))
    elif isinstance(type_, ListType):
        pairs = [(type_.element_field, inner.value_field)]
    elif isinstance(type_, MapType):
        pairs = [(type_.key_field, inner.key_field), (type_.value_field, inner.item_field)]
    return TableColumn(
        arrow,
        not field.required,
        None if names is None else names.get(field.field_id, []),
        field.initial_default,
        [_column(child, child_arrow, names) for child, child_arrow in pairs],
    )
