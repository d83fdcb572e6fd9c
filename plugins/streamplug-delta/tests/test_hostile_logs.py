"""Logs that an enemy wrote: small files that would take all memory, or crash the parser."""

from __future__ import annotations

import json
from base64 import b85encode

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64
from streamplug_testing.memory import takes_less_of_the_system

from streamplug import StreamingDataset
from streamplug.errors import ConfigError, DataError

MB = 1 << 20
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"

SCHEMA = {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True}]}


def commit(folder, *actions, version=0, schema=SCHEMA):
    log = folder / "_delta_log"
    log.mkdir(exist_ok=True)
    metadata = {"schemaString": json.dumps(schema), "partitionColumns": [], "configuration": {}}
    first = [{"protocol": {"minReaderVersion": 1}}, {"metaData": metadata}]
    lines = [json.dumps(action) for action in [*first, *actions]]
    (log / f"{version:020}.json").write_text("\n".join(lines))
    return log


def refused(folder, match, error=DataError):
    def act():
        with pytest.raises(error, match=match):
            StreamingDataset(remote=str(folder), format="delta")

    return takes_less_of_the_system(60 * MB, act)


def add(path="a.parquet", **more):
    rows = json.dumps({"numRecords": 1 << 40})
    return {"add": {"path": path, "size": 1000, "partitionValues": {}, "stats": rows, **more}}


def test_versions_that_are_far_apart(tmp_path):
    log = commit(tmp_path)
    (log / f"{10**19}.json").write_text("")
    assert refused(tmp_path, "commit 1 is not in _delta_log/", ConfigError)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"add": ' * 100_000])
def test_lines_that_are_nested_deeply(text, tmp_path):
    (commit(tmp_path) / f"{1:020}.json").write_text(text)
    assert refused(tmp_path, r"1\.json is damaged: maximum recursion depth exceeded")


def test_statistics_that_are_nested_deeply(tmp_path):
    commit(tmp_path, add(stats="[" * 100_000))
    assert refused(tmp_path, r"statistics of 'a\.parquet' is damaged: RecursionError")


@pytest.mark.parametrize("depth", [30, 200])
def test_types_that_are_nested_deeply(depth, tmp_path):
    type_ = "long"
    for _ in range(depth):
        type_ = {"type": "array", "elementType": type_}
    commit(tmp_path, schema={"fields": [{"name": "id", "type": type_}]})
    assert refused(tmp_path, "column 'id': its type is nested too deeply", ConfigError)


def vector(count, cardinality):
    positions = BitMap64()
    positions.add_range(0, count)
    positions.run_optimize()
    data = (1681511377).to_bytes(4, "little") + positions.serialize()
    padded = data + bytes(-len(data) % 4)
    text = b85encode(padded).decode().translate(str.maketrans(_B85, _Z85))
    return {
        "storageType": "i",
        "pathOrInlineDv": text,
        "sizeInBytes": len(data),
        "cardinality": cardinality,
    }


def test_deleted_rows_of_all_files_are_counted_before_they_are_expanded(tmp_path):
    each = vector(1 << 24, 1 << 24)
    adds = [add(f"{n}.parquet", deletionVector=each) for n in range(9)]
    commit(tmp_path, *adds)
    assert refused(tmp_path, "150994944 rows are deleted, more than 134217728")
    lies = [add(f"{n}.parquet", deletionVector={**each, "cardinality": 5}) for n in range(9)]
    commit(tmp_path, *lies)
    assert refused(tmp_path, "16777216 positions, more than 5")
    del each["cardinality"]
    commit(tmp_path, add(deletionVector=each))
    assert refused(tmp_path, "cardinality=None")


def checkpoint(folder, table):
    log = commit(folder)
    pq.write_table(
        table,
        log / f"{0:020}.checkpoint.parquet",
        compression="zstd",
        store_schema=False,
        dictionary_pagesize_limit=1 << 30,
        row_group_size=1 << 30,
    )
    assert (log / f"{0:020}.checkpoint.parquet").stat().st_size < 20_000


def test_a_checkpoint_that_expands(tmp_path):
    paths = pa.DictionaryArray.from_arrays(
        pa.array(np.zeros(60_000, np.int32)), pa.array(["x" * MB])
    )
    checkpoint(tmp_path, pa.table({"add": pa.StructArray.from_arrays([paths], ["path"])}))
    assert refused(
        tmp_path, r"checkpoint\.parquet is damaged: row group 0: the values take up to 62"
    )


def test_a_checkpoint_of_very_many_rows(tmp_path):
    checkpoint(tmp_path, pa.table({"add": pa.nulls(10**6, pa.struct({"path": pa.string()}))}))
    assert refused(tmp_path, r"checkpoint\.parquet is damaged: it has 1000000 rows in \d+ bytes")
