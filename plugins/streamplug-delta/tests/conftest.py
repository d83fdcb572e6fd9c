"""Helpers for tables: what deltalake reads, and features that it does not write."""

from __future__ import annotations

import json
import uuid
import zlib
from pathlib import Path

import pyarrow as pa
import pytest
from pyroaring import BitMap64
from streamplug_parquet import file_bytes

Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def encode_z85(data: bytes) -> str:
    text = ""
    for start in range(0, len(data), 4):
        number, block = int.from_bytes(data[start : start + 4], "big"), ""
        for _ in range(5):
            block = Z85[number % 85] + block
            number //= 85
        text += block
    return text


class Table:
    """A Delta table in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def path(self) -> str:
        return str(self.folder)

    def log(self, version: int) -> Path:
        return self.folder / "_delta_log" / f"{version:020}.json"

    def actions(self, version: int) -> list[dict]:
        return [json.loads(line) for line in self.log(version).read_text().splitlines()]

    def commit(self, version: int, *actions: dict) -> None:
        self.log(version).write_text("".join(f"{json.dumps(action)}\n" for action in actions))

    def delete_rows(self, version: int, add: dict, positions: list[int], *, inline: bool) -> None:
        """Delete rows of a file by a deletion vector."""
        data = (1681511377).to_bytes(4, "little") + BitMap64(positions).serialize()
        vector = {"sizeInBytes": len(data), "cardinality": len(positions)}
        if inline:
            padded = data + bytes(-len(data) % 4)
            vector |= {"storageType": "i", "pathOrInlineDv": encode_z85(padded)}
        else:
            name = uuid.uuid4()
            stored = len(data).to_bytes(4, "big") + data + zlib.crc32(data).to_bytes(4, "big")
            folder = self.folder / "ab"
            folder.mkdir(exist_ok=True)
            (folder / f"deletion_vector_{name}.bin").write_bytes(b"\1other" + stored)
            place = f"ab{encode_z85(name.bytes)}"
            vector |= {"storageType": "u", "pathOrInlineDv": place, "offset": 6}
        feature = ["deletionVectors"]
        protocol = {"minReaderVersion": 3, "minWriterVersion": 7}
        remove = {"path": add["path"], "dataChange": True, "deletionTimestamp": 1}
        if "deletionVector" in add:
            remove["deletionVector"] = add["deletionVector"]
        self.commit(
            version,
            {"protocol": {**protocol, "readerFeatures": feature, "writerFeatures": feature}},
            {"remove": remove},
            {"add": {**add, "deletionVector": vector}},
        )

    def read_by_deltalake(self, version: int | None = None) -> list[dict]:
        from deltalake import DeltaTable, QueryBuilder

        table = DeltaTable(self.path, version=version)
        names = ", ".join(f'"{field.name}"' for field in table.schema().fields)
        query = QueryBuilder().register("t", table).execute(f"select {names} from t")
        return pa.table(query.read_all()).to_pylist()


@pytest.fixture(autouse=True)
def _fetches_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ranges of small files be fetched, too, which otherwise are read with their footers."""
    monkeypatch.setattr(file_bytes, "LIKELY_FOOTER_BYTES", 8)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path / "table")
