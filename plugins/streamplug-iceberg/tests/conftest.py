"""Helpers for tables: a catalog in SQLite, and deletions that pyiceberg reads, but does not write."""

from __future__ import annotations

import json
import uuid
import zlib
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestWriterV2,
    write_manifest_list,
)
from pyiceberg.table import StaticTable
from pyiceberg.typedef import Record
from pyroaring import BitMap64
from streamplug_parquet import file_bytes


class DeleteManifestWriter(ManifestWriterV2):
    def content(self):
        return ManifestContent.DELETES

    @property
    def _meta(self):
        return {**super()._meta, "content": "deletes"}


def path_of(location: str) -> Path:
    return Path(location.removeprefix("file://"))


def write_positions(path: Path, positions: dict[str, list[int]]) -> None:
    """Write a file of positional deletes."""
    rows = [(file, row) for file, rows in sorted(positions.items()) for row in rows]
    ids = [{b"PARQUET:field_id": b"2147483546"}, {b"PARQUET:field_id": b"2147483545"}]
    schema = pa.schema(
        [
            pa.field("file_path", pa.string(), False, ids[0]),
            pa.field("pos", pa.int64(), False, ids[1]),
        ]
    )
    pq.write_table(pa.table([list(column) for column in zip(*rows)], schema=schema), path)


def write_vectors(path: Path, positions: dict[str, list[int]], **properties: str) -> None:
    """Write a Puffin file of deletion vectors."""
    content, blobs = b"PFA1", []
    for file, rows in positions.items():
        data = (1681511377).to_bytes(4, "little") + BitMap64(rows).serialize()
        blob = len(data).to_bytes(4, "big") + data + zlib.crc32(data).to_bytes(4, "big")
        blobs.append(
            {
                **properties,
                "type": "deletion-vector-v1",
                "fields": [2147483645],
                "snapshot-id": -1,
                "sequence-number": -1,
                "offset": len(content),
                "length": len(blob),
                "properties": {"referenced-data-file": file, "cardinality": str(len(rows))},
            }
        )
        content += blob
    footer = json.dumps({"blobs": blobs}).encode()
    path.write_bytes(
        content + b"PFA1" + footer + len(footer).to_bytes(4, "little") + bytes(4) + b"PFA1"
    )


def commit_deletes(table, files) -> str:
    """Add files of deletions to the current snapshot of a table; return the location of the metadata file.

    `files` are (path, content, format, sequence number) of each file.
    """
    metadata = json.loads(path_of(table.metadata_location).read_text())
    snapshot = table.current_snapshot()
    number, sequence = snapshot.snapshot_id + 1, metadata["last-sequence-number"] + 1
    folder = path_of(table.metadata_location).parent
    manifest_path = str(folder / f"{uuid.uuid4()}-deletes.avro")
    with DeleteManifestWriter(
        table.spec(),
        table.schema(),
        table.io.new_output(manifest_path),
        number,
        "deflate",
    ) as writer:
        for path, content, format_, at in files:
            file = DataFile.from_args(
                content=content,
                file_path=str(path),
                file_format=format_,
                partition=Record(),
                record_count=1,
                file_size_in_bytes=path.stat().st_size,
                equality_ids=[1] if content == DataFileContent.EQUALITY_DELETES else None,
            )
            file.spec_id = table.spec().spec_id
            writer.add_entry(
                ManifestEntry.from_args(
                    status=ManifestEntryStatus.ADDED,
                    snapshot_id=number,
                    sequence_number=sequence if at is None else at,
                    file_sequence_number=sequence,
                    data_file=file,
                )
            )
    manifest = writer.to_manifest_file()
    list_path = str(folder / f"snap-{number}.avro")
    with write_manifest_list(
        2, table.io.new_output(list_path), number, snapshot.snapshot_id, sequence, "deflate"
    ) as writer:
        writer.add_manifests([*snapshot.manifests(table.io), manifest])
    metadata["snapshots"].append(
        {
            "snapshot-id": number,
            "parent-snapshot-id": snapshot.snapshot_id,
            "sequence-number": sequence,
            "timestamp-ms": metadata["last-updated-ms"] + 1,
            "manifest-list": list_path,
            "summary": {"operation": "delete"},
            "schema-id": table.schema().schema_id,
        }
    )
    metadata["current-snapshot-id"] = number
    metadata["last-sequence-number"] = sequence
    metadata["refs"]["main"]["snapshot-id"] = number
    path = folder / f"{90000 + sequence}-{uuid.uuid4()}.metadata.json"
    path.write_text(json.dumps(metadata))
    return str(path)


class Tables:
    """A catalog of tables in a folder."""

    def __init__(self, folder: Path) -> None:
        # It imports SQLAlchemy, which takes long.
        from pyiceberg.catalog.sql import SqlCatalog

        self.folder = folder
        folder.mkdir()
        self.catalog = SqlCatalog(
            "test", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/warehouse"
        )
        self.catalog.create_namespace("n")

    def create(self, schema, **options):
        return self.catalog.create_table("n.t", schema=schema, **options)


@pytest.fixture(autouse=True)
def _fetches_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ranges of small files be fetched, too, which otherwise are read with their footers."""
    monkeypatch.setattr(file_bytes, "LIKELY_FOOTER_BYTES", 8)


@pytest.fixture
def tables(tmp_path: Path) -> Iterator[Tables]:
    made = Tables(tmp_path / "tables")
    yield made
    made.catalog.close()


def read_by_pyiceberg(location: str, snapshot: int | None = None) -> list[dict]:
    table = StaticTable.from_metadata(location)
    assert isinstance(table.io, PyArrowFileIO)
    return table.scan(snapshot_id=snapshot).to_arrow().to_pylist(maps_as_pydicts="strict")


__all__ = ["DataFileContent", "FileFormat"]
