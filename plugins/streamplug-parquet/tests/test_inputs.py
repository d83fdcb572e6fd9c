"""Tables of Arrow are written as they are, to Parquet and to other formats."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from streamplug_testing.equality import same
from streamplug_tools import iterate_batches

from streamplug import StreamingDataset, write_from
from streamplug.errors import ConfigError

FILE = pa.struct({"bytes": pa.binary(), "path": pa.string()})


def table():
    return pa.table(
        {
            "id": pa.array(range(25), pa.int32()),
            "maybe": [n if n % 2 else None for n in range(25)],
            "late": pa.array([*range(20), *[None] * 5], pa.int64()),
            "text": pa.array([f"t{n}" for n in range(25)]).dictionary_encode(),
            "vector": pa.array([[n, n] for n in range(25)], pa.list_(pa.float32(), 2)),
            "when": pa.array(range(25), pa.timestamp("us")),
            "cell": pa.array([{"bytes": b"x", "path": None}] * 25, FILE),
        }
    )


def specs(folder):
    (entry, *_) = json.loads((folder / "index.json").read_text())["shards"]
    return entry.get("columns") or dict(zip(entry["column_names"], entry["column_encodings"]))


@pytest.mark.parametrize(
    "given",
    [
        table,
        lambda: pa.concat_tables([table()[:9], table()[9:]]),
        lambda: pa.RecordBatchReader.from_batches(table().schema, table().to_batches(7)),
        lambda: table().to_batches(7),
        lambda: iter([table()[:9], table()[9:]]),
    ],
    ids=["table", "chunks", "reader", "batches", "tables"],
)
def test_a_table_comes_back(given, tmp_path):
    whole = isinstance(given(), pa.Table)
    columns = None if whole else {
        "id": "int32", "maybe": "int64?", "late": "int64?", "text": "string",
        "vector": "fixed_size_list<float>[2]", "when": "timestamp[us]",
        "cell": "struct<bytes: binary, path: string>",
    }  # fmt: skip
    count = write_from(given(), out=tmp_path / "set", format="parquet:10", columns=columns, batch=8)
    assert count == 25
    assert specs(tmp_path / "set") == {
        "id": "int32",
        "maybe": "int64?",
        "late": "int64?",
        "text": "string",
        "vector": "fixed_size_list<float>[2]",
        "when": "timestamp[us]",
        "cell": "struct<bytes: binary, path: string>",
    }
    dataset = StreamingDataset(local=str(tmp_path / "set"), batch_size=1)
    rows = table().to_pylist()
    for n in (0, 8, 24):
        expected = {
            **rows[n],
            "id": np.int32(n),
            "vector": np.array([n, n], "f4"),
            "when": np.datetime64(n, "us"),
        }
        assert same(dict(sorted(dataset[n].items())), dict(sorted(expected.items())))


def test_other_formats_get_arrays_of_numpy_and_lists(tmp_path):
    chosen = table().select(["id", "text", "vector"])
    (batch, *_) = iterate_batches(chosen, 10)
    assert same(batch["id"], np.arange(10, dtype=np.int32))
    assert batch["text"] == [f"t{n}" for n in range(10)]
    columns = {"id": "int32", "text": "str", "vector": "json"}
    assert write_from(chosen, out=tmp_path / "set", columns=columns) == 25
    assert StreamingDataset(local=str(tmp_path / "set"), batch_size=1)[3] == {
        "id": 3, "text": "t3", "vector": [3.0, 3.0],
    }  # fmt: skip


def test_encodings_of_parquet_follow_from_samples(tmp_path):
    rows = [
        {"a": n, "b": [n], "c": np.zeros((2, 2), np.uint8), "d": None if n else "x"}
        for n in range(3)
    ]
    columns = {name: [row[name] for row in rows] for name in "abd"}
    columns["c"] = np.stack([row["c"] for row in rows])
    write_from(columns, out=tmp_path / "set", format="parquet")
    assert specs(tmp_path / "set") == {
        "a": "int64",
        "b": "list<int64>",
        "c": "fixed_size_list<fixed_size_list<uint8>[2]>[2]",
        "d": "string?",
    }
    with pytest.raises(ConfigError, match="column 'a'"):
        write_from([{"a": object()}], out=tmp_path / "other", format="parquet")
