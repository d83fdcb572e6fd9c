"""Delta tables, compared with what deltalake reads."""

from __future__ import annotations

import datetime
import decimal
import json
import random
import shutil
import time
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable, write_deltalake
from streamplug_testing import SourceTests
from streamplug_testing.source import in_any_order, plain_row

from streamplug import Stream, StreamingDataset
from streamplug.builtin.encodings.plain import Bytes
from streamplug.cli import main
from streamplug.errors import ConfigError, CorruptShardError, DataError, StateError, StreamplugError
from streamplug.interfaces import Encoding

UTC = datetime.timezone.utc


def read(table, version=None, **options):
    dataset = StreamingDataset(remote=table.path, format="delta", version=version, **options)
    return [plain_row(sample) for sample in dataset]


def assert_same(table, version=None):
    samples = read(table, version)
    assert in_any_order(samples) == in_any_order(table.read_by_deltalake(version))
    assert read(table, version, access="range") == samples


class TestDelta(SourceTests):
    name = "delta"

    def make_location(self, folder):
        path = folder / "table"
        for first in (0, 20):
            ids = list(range(first, first + 20))
            rows = pa.table({"id": ids, "text": [f"text {n}" for n in ids]})
            write_deltalake(path, rows, mode="append")
        DeltaTable(path).delete("id = 7")
        order = [*range(20, 40), *(n for n in range(20) if n != 7)]  # deleting wrote a file anew
        return str(path), [{"id": np.int64(n), "text": f"text {n}"} for n in order]


def test_random_tables_are_read_as_deltalake_reads_them(table):
    chance = random.Random(5)
    columns = ["id", "lang", "x"]
    for step in range(14):
        size = chance.randrange(1, 30)
        ids = [1000 * step + n for n in range(size)]
        data = {
            "id": ids,
            "lang": [chance.choice(["en", "d e", "a=b/c", None]) for _ in ids],
            "x": [chance.choice([None, 0.5, 2.0]) for _ in ids],
        }
        for name in columns[3:]:
            data[name] = [chance.choice([None, name]) for _ in ids]
        write_deltalake(
            table.path,
            pa.table(
                data,
                schema=pa.schema(
                    [("id", pa.int64()), ("lang", pa.string()), ("x", pa.float64())]
                    + [(name, pa.string()) for name in columns[3:]]
                ),
            ),
            mode="append",
            partition_by=["lang"],
            schema_mode="merge",
        )
        if step % 3 == 1:
            DeltaTable(table.path).delete(f"id % {chance.randrange(2, 9)} = 0")
        if step % 4 == 2:
            columns.append(f"more {step}")
        if step == 6:
            DeltaTable(table.path).create_checkpoint()
        if step == 9:
            DeltaTable(table.path).optimize.compact()
    latest = DeltaTable(table.path).version()
    for version in range(latest + 1):
        assert_same(table, version)
    assert read(table) == read(table, latest)


PARTITIONS = {
    "b": (pa.bool_(), True),
    "i8": (pa.int8(), -3),
    "i64": (pa.int64(), 2**40),
    "f": (pa.float32(), 0.5),
    "d": (pa.date32(), datetime.date(2024, 2, 29)),
    "t": (pa.timestamp("us", "UTC"), datetime.datetime(2024, 2, 29, 1, 2, 3, 456, UTC)),
    "n": (pa.timestamp("us"), datetime.datetime.fromisoformat("2024-02-29T01:02:03")),
    "m": (pa.decimal128(10, 2), decimal.Decimal("12.50")),
    "s": (pa.string(), "%2F ä?*"),
}


@pytest.mark.parametrize("name", PARTITIONS)
def test_values_of_partitions_have_the_type_of_the_column(table, name):
    type_, value = PARTITIONS[name]
    rows = pa.table({"id": [1, 2, 3], name: pa.array([value, None, value], type_)})
    write_deltalake(table.path, rows, partition_by=[name])
    assert_same(table)
    [batch] = StreamingDataset(remote=table.path, format="delta", batch_size=3).batches()
    values = [plain_row({name: element})[name] for element in batch[name]]
    assert sorted(map(str, values)) == sorted(
        map(str, [None, *[plain_row({name: value})[name]] * 2])
    )


def test_types_of_columns(table):
    rows = pa.table(
        {
            **{name: pa.array([value, None], type_) for name, (type_, value) in PARTITIONS.items()},
            "list": pa.array([[1, 2], None], pa.list_(pa.int32())),
            "struct": pa.array([{"a": 1, "b": "x"}, None]),
            "map": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
            "bytes": pa.array([b"\0\1", None]),
        }
    )
    write_deltalake(table.path, rows)
    expected = table.read_by_deltalake()
    for row in expected:
        row["map"] = row["map"] and dict(row["map"])
    assert in_any_order(read(table)) == in_any_order(expected)


def test_numbers_without_missing_values_are_arrays(table):
    write_deltalake(
        table.path, pa.table({"a": [1, 2], "b": [None, 1.0], "p": [5, 5]}), partition_by=["p"]
    )
    [batch] = StreamingDataset(remote=table.path, format="delta", batch_size=2).batches()
    assert batch["a"].dtype == "int64"
    assert batch["p"].dtype == "int64"
    assert isinstance(batch["b"], list)


@pytest.mark.parametrize("inline", [True, False])
def test_deletion_vectors(table, inline):
    write_deltalake(table.path, pa.table({"id": list(range(100))}))
    [add] = [action["add"] for action in table.actions(0) if "add" in action]
    table.delete_rows(1, add, [0, 5, 6, 99], inline=inline)
    table.delete_rows(2, table.actions(1)[-1]["add"], [0, 5, 6, 7, 8, 98, 99], inline=inline)
    for version in (0, 1, 2):
        assert_same(table, version)
    dataset = StreamingDataset(remote=table.path, format="delta")
    assert [int(dataset[n]["id"]) for n in (0, 4, -1)] == [1, 9, 97]
    [batch] = StreamingDataset(remote=table.path, format="delta", batch_size=93).batches()
    assert batch["id"].tolist() == [n for n in range(100) if n not in (0, 5, 6, 7, 8, 98, 99)]


def test_a_file_of_deleted_rows_only_is_left_out(table):
    write_deltalake(table.path, pa.table({"id": [1, 2]}))
    [add] = [action["add"] for action in table.actions(0) if "add" in action]
    write_deltalake(table.path, pa.table({"id": [3]}), mode="append")
    table.delete_rows(2, add, [0, 1], inline=True)
    assert read(table) == [{"id": 3}]


def rename_columns(table, mode):
    """Make the table one whose columns have other names in files."""
    protocol, metadata, *adds = (a for a in table.actions(0) if "commitInfo" not in a)
    schema = json.loads(metadata["metaData"]["schemaString"])
    for number, field in enumerate(schema["fields"], 1):
        field["metadata"] = {
            "delta.columnMapping.id": number,
            "delta.columnMapping.physicalName": field["name"],
        }
        field["name"] = f"new {field['name']}"
    metadata["metaData"] |= {
        "schemaString": json.dumps(schema),
        "configuration": {"delta.columnMapping.mode": mode},
        "partitionColumns": [f"new {n}" for n in metadata["metaData"]["partitionColumns"]],
    }
    protocol = {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}
    table.commit(0, protocol, metadata, *adds)


def test_columns_with_other_names_in_files(table):
    rows = pa.table({"id": [1, 2, 3], "lang": ["a", "b", "a"], "x": [0.5, None, 1.0]})
    write_deltalake(table.path, rows, partition_by=["lang"])
    rename_columns(table, "name")
    assert in_any_order(read(table)) == in_any_order(
        {f"new {name}": value for name, value in row.items()} for row in rows.to_pylist()
    )
    assert read(table, columns=["new x"])[0].keys() == {"new x"}


def test_columns_are_found_by_their_ids(table):
    fields = [
        pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "2"}),
        pa.field("x", pa.int64(), metadata={"PARQUET:field_id": "1"}),
    ]
    write_deltalake(table.path, pa.table({"id": [1], "x": [2]}))
    rename_columns(table, "id")
    [file] = table.folder.glob("*.parquet")
    pq.write_table(pa.table([[1], [2]], schema=pa.schema(fields)), file)
    resize(table, 0, file.stat().st_size)
    assert read(table) == [{"new id": 2, "new x": 1}]


def resize(table, version, size):
    actions = table.actions(version)
    for action in actions:
        if "add" in action:
            action["add"]["size"] = size
    table.commit(version, *actions)


def test_types_that_became_wider(table):
    write_deltalake(
        table.path, pa.table({"a": pa.array([1], pa.int16()), "b": pa.array([0.5], pa.float32())})
    )
    actions = table.actions(0)
    for action in actions:
        if "metaData" in action:
            text = action["metaData"]["schemaString"]
            text = text.replace('"short"', '"long"').replace('"float"', '"double"')
            action["metaData"]["schemaString"] = text
    table.commit(0, *actions)
    [batch] = StreamingDataset(remote=table.path, format="delta", batch_size=1).batches()
    assert (batch["a"].dtype, batch["b"].dtype) == ("int64", "float64")
    for action in actions:
        if "metaData" in action:
            text = action["metaData"]["schemaString"].replace('"long"', '"byte"')
            action["metaData"]["schemaString"] = text
    table.commit(0, *actions)
    with pytest.raises(
        CorruptShardError, match="column 'a' is int16, which cannot be read as int8"
    ):
        read(table)


NESTED = {
    "struct": (lambda t: t, lambda v: v),
    "list": (pa.list_, lambda v: [v, None, v]),
    "map": (lambda t: pa.map_(pa.string(), t), lambda v: [("k", v), ("l", None)]),
    "structs": (lambda t: pa.struct([("i", t)]), lambda v: {"i": v}),
    "deep": (
        lambda t: pa.list_(pa.struct([("m", pa.map_(pa.string(), pa.list_(t)))])),
        lambda v: [None, {"m": [("k", [v, None]), ("l", None)]}, {"m": None}],
    ),
}
"""Where in a column a struct is: its type, and values around a value of it."""


@pytest.mark.parametrize("place", NESTED)
def test_nested_fields_that_were_added(table, place):
    type_of, value_of = NESTED[place]
    point = {"a": pa.int64(), "b": pa.string(), "c": pa.list_(pa.struct({"x": pa.int32()}))}
    value = {"a": 1, "b": "x", "c": [{"x": 5}, None]}
    expected = []
    for names in ("a", "ab", "abc"):
        struct = pa.struct({name: point[name] for name in names})
        some = {name: value[name] for name in names}
        values = [value_of(some), value_of(None), None]
        rows = pa.table({"s": pa.array(values, type_of(struct))})
        write_deltalake(table.path, rows, mode="append", schema_mode="merge")
        padded = {name: some.get(name) for name in point}
        expected += [value_of(padded), value_of(None), None]
    rows = [{"s": without_pairs(row)} for row in expected]
    assert in_any_order(read(table)) == in_any_order(rows)
    if place in {"struct", "list", "structs"}:  # deltalake reads no others
        assert_same(table)


def without_pairs(value):
    """Return a value with dicts for the lists of pairs of its maps."""
    if isinstance(value, dict):
        return {key: without_pairs(item) for key, item in value.items()}
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return {key: without_pairs(item) for key, item in value}
    return [without_pairs(item) for item in value] if isinstance(value, list) else value


def change_schema(table, change, mode="none"):
    """Change the schema of the table's first version, as its fields have these names in files."""
    actions = [action for action in table.actions(0) if "commitInfo" not in action]
    for action in actions:
        if "metaData" in action:
            schema = json.loads(action["metaData"]["schemaString"])
            change(schema)
            action["metaData"]["schemaString"] = json.dumps(schema)
            action["metaData"]["configuration"] = {"delta.columnMapping.mode": mode}
        if "protocol" in action:
            action["protocol"] = {"minReaderVersion": 2, "minWriterVersion": 5}
    table.commit(0, *actions)


def structs_of(type_):
    """Yield the lists of fields of all structs in a type of a schema."""
    if isinstance(type_, dict):
        if type_["type"] == "struct":
            yield type_["fields"]
            inner = [field["type"] for field in type_["fields"]]
        else:
            inner = [type_[part] for part in type_.keys() - {"type"}]
        for part in inner:
            yield from structs_of(part)


@pytest.mark.parametrize("mode", ["name", "id"])
@pytest.mark.parametrize("place", NESTED)
def test_nested_fields_that_were_renamed_dropped_exchanged_and_widened(table, place, mode):
    type_of, value_of = NESTED[place]
    number = iter(range(1, 1000))
    stored = {"a": pa.int32(), "b": pa.string(), "c": pa.int64(), "d": pa.int64()}
    value = {"a": 1, "b": "x", "c": 3, "d": 4}
    rows = pa.table(
        {"s": pa.array([value_of(value), value_of(None), None], type_of(pa.struct(stored)))}
    )
    write_deltalake(table.path, rows)

    def change(schema):
        for fields in structs_of(schema):
            for field in fields:
                field["metadata"] = {
                    "delta.columnMapping.id": next(number),
                    "delta.columnMapping.physicalName": field["name"] if mode == "name" else "?",
                }
            if [field["name"] for field in fields] == list("abcd"):
                a, b, c, d = fields
                a |= {"name": "new", "type": "long"}
                c["name"], d["name"] = "d", "c"
                again = {"physicalName": "col-1", "id": next(number)}
                metadata = {f"delta.columnMapping.{key}": text for key, text in again.items()}
                added = {"name": "b", "type": "string", "nullable": True, "metadata": metadata}
                fields[:] = [d, a, added, c]  # b was dropped, and another added
                assert b["name"] == "b"

    change_schema(table, change, mode)
    if mode == "id":
        add_ids(table)
    expected = {"c": 4, "new": 1, "b": None, "d": 3}
    assert read(table) == [
        {"s": without_pairs(value_of(expected))}, {"s": without_pairs(value_of(None))}, {"s": None}
    ]  # fmt: skip


def add_ids(table):
    """Give the fields in the table's file the ids that they have in its schema."""
    number = iter(range(1, 1000))

    def numbered(fields):
        ids = [{"PARQUET:field_id": str(next(number))} for _ in fields]
        return [pa.field(f.name, type_of(f.type), metadata=id_) for f, id_ in zip(fields, ids)]

    def type_of(type_):
        if pa.types.is_struct(type_):
            return pa.struct(numbered(list(type_)))
        if pa.types.is_map(type_):
            return pa.map_(type_.key_type, type_of(type_.item_type))
        return pa.list_(type_of(type_.value_type)) if pa.types.is_list(type_) else type_

    [file] = table.folder.glob("*.parquet")
    rows = pq.read_table(file)
    pq.write_table(rows.cast(pa.schema(numbered(list(rows.schema)))), file)
    resize(table, 0, file.stat().st_size)


def test_files_without_statistics(table):
    write_deltalake(table.path, pa.table({"id": [1, None, 3]}))
    actions = table.actions(0)
    for action in actions:
        action.get("add", {}).pop("stats", None)
    table.commit(0, *actions)
    assert read(table) == [{"id": 1}, {"id": None}, {"id": 3}]


def test_checkpoints_of_several_files_and_of_version_2(table):
    for n in range(4):
        write_deltalake(table.path, pa.table({"id": [n, n + 10]}), mode="append")
    expected = read(table)
    log = table.folder / "_delta_log"
    DeltaTable(table.path).create_checkpoint()
    [whole] = log.glob("*.checkpoint.parquet")
    rows = pq.read_table(whole)
    for part, some in enumerate((rows[:3], rows[3:]), 1):
        pq.write_table(some, log / f"{3:020}.checkpoint.{part:010}.{2:010}.parquet")
    whole.unlink()
    (log / "_last_checkpoint").unlink()
    for n in range(4):
        table.log(n).unlink()
    assert read(table) == expected
    (log / f"{3:020}.checkpoint.{2:010}.{2:010}.parquet").unlink()
    with pytest.raises(StreamplugError, match="there is no _delta_log"):  # a part is missing
        read(table)

    adds = [row for row in rows.to_pylist() if row["add"] is not None]
    (log / "_sidecars").mkdir()
    sidecar = pa.Table.from_pylist(
        [{"add": row["add"]} for row in adds], pa.schema([rows.field("add")])
    )
    pq.write_table(sidecar, log / "_sidecars" / "one.parquet")
    [metadata] = [row["metaData"] for row in rows.to_pylist() if row["metaData"] is not None]
    actions = [
        {
            "protocol": {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": ["v2Checkpoint"],
            }
        },
        {"metaData": {**metadata, "configuration": {}}},
        {"checkpointMetadata": {"version": 3}},
        {"sidecar": {"path": "one.parquet", "sizeInBytes": 1, "modificationTime": 1}},
    ]
    name = f"{3:020}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json"
    (log / name).write_text("".join(f"{json.dumps(action)}\n" for action in actions))
    assert read(table) == expected


def test_a_version_that_the_log_does_not_have_any_more(table):
    for n in range(3):
        write_deltalake(table.path, pa.table({"id": [n]}), mode="append")
    table.log(1).unlink()
    with pytest.raises(
        ConfigError, match=r"version 2 of .* commit 1 is not in _delta_log/ any more"
    ):
        read(table)
    assert read(table, 0) == [{"id": 0}]
    with pytest.raises(ConfigError, match=r"version=7: the latest version of .* is 2"):
        read(table, 7)
    with pytest.raises(ConfigError, match="versions of Delta tables are numbers"):
        read(table, "2024-01-01")


def damage(table, change):
    write_deltalake(table.path, pa.table({"id": [1, 2]}))
    actions = table.actions(0)
    change(actions, next(action["add"] for action in actions if "add" in action))
    table.commit(0, *actions)


def protocol_of(actions):
    return next(action["protocol"] for action in actions if "protocol" in action)


def metadata_of(actions):
    return next(action["metaData"] for action in actions if "metaData" in action)


BAD = {
    "feature": (
        lambda actions, _: protocol_of(actions).update(
            minReaderVersion=3, readerFeatures=["deletionVectors", "catalogManaged"]
        ),
        r"needs the features \['catalogManaged'\]",
    ),
    "reader": (
        lambda actions, _: protocol_of(actions).update(minReaderVersion=4),
        "needs version 4 of readers",
    ),
    "no metadata": (
        lambda actions, _: actions.__setitem__(
            slice(None), [action for action in actions if "metaData" not in action]
        ),
        "no metaData",
    ),
    "path": (lambda _, add: add.pop("path"), "is damaged: KeyError: 'path'"),
    "size": (lambda _, add: add.update(size=None), "is damaged: TypeError"),
    "infinite size": (lambda _, add: add.update(size=float("inf")), "size of add is inf"),
    "huge size": (lambda _, add: add.update(size=1 << 63), "size of add is 9223372036854775808"),
    "time": (lambda _, add: add.update(modificationTime="x"), "modificationTime of add is 'x'"),
    "partition": (lambda _, add: add.update(partitionValues=True), "partitionValues of add is"),
    "partition value": (
        lambda _, add: add.update(partitionValues={"id": 1}),
        "a value in partitionValues is 1",
    ),
    "surrogate": (
        lambda actions, add: (
            metadata_of(actions).update(
                partitionColumns=["text"],
                schemaString='{"fields": [{"name": "text", "type": "string"}]}',
            ),
            add.update(partitionValues={"text": "\ud800"}),
        ),
        "for the partition column 'text' of .* is damaged: UnicodeEncodeError",
    ),
    "number of rows": (
        lambda actions, add: (
            add.update(stats=f'{{"numRecords": {(1 << 63) - 1}}}'),
            actions.append({"add": {**add, "path": "b.parquet"}}),
        ),
        "has more samples than can be counted",
    ),
    "kind of size": (lambda _, add: add.update(size=True), "size of add is True"),
    "metadata": (
        lambda actions, _: metadata_of(actions).update(partitionColumns=True),
        "partitionColumns of metaData is True",
    ),
    "configuration": (
        lambda actions, _: metadata_of(actions).update(configuration="x"),
        "configuration of metaData is 'x'",
    ),
    "schema": (
        lambda actions, _: metadata_of(actions).update(schemaString='{"fields": [1]}'),
        "the schema is damaged: TypeError",
    ),
    "stats": (lambda _, add: add.update(stats="{"), "statistics of"),
    "kind of stats": (lambda _, add: add.update(stats=True), "stats of add is True"),
    "list of stats": (
        lambda _, add: add.update(stats="[1]"),
        r"statistics is \[1\], not an object",
    ),
    "nulls": (lambda _, add: add.update(stats='{"nullCount": 1}'), "nullCount of statistics is 1"),
    "negative rows": (
        lambda _, add: add.update(stats='{"numRecords": -1}'),
        "numRecords of statistics is -1",
    ),
    "rows": (
        lambda _, add: add.update(stats='{"numRecords": 9}'),
        "it has 2 rows that are not deleted, the table says 9",
    ),
    "absolute": (lambda _, add: add.update(path="/etc/passwd"), "is an absolute location"),
    "clone": (lambda _, add: add.update(path="s3://other/file"), "is an absolute location"),
    "outside": (lambda _, add: add.update(path="../x.parquet"), "not a relative path inside"),
    "encoded": (lambda _, add: add.update(path="%2e%2e/x.parquet"), "not a relative path inside"),
    "vector": (
        lambda _, add: add.update(
            deletionVector={
                "storageType": "i",
                "pathOrInlineDv": "HelloWorld",
                "sizeInBytes": 8,
                "cardinality": 1,
            }
        ),
        "a deletion vector is damaged: it does not begin",
    ),
    "vector elsewhere": (
        lambda _, add: add.update(
            deletionVector={
                "storageType": "p",
                "pathOrInlineDv": "/x",
                "sizeInBytes": 8,
                "cardinality": 1,
            }
        ),
        "is at an absolute location",
    ),
}


@pytest.mark.parametrize("kind", BAD)
def test_damaged_or_unknown_logs_are_refused(table, kind):
    change, message = BAD[kind]
    damage(table, change)
    with pytest.raises(DataError, match=message):
        read(table)


def test_newer_logs_are_not_called_damaged(table):
    def change(actions, add):
        protocol_of(actions).update(minReaderVersion=9)
        add.update(size="1 kB")

    damage(table, change)
    with pytest.raises(DataError, match="needs version 9 of readers"):
        read(table)


def test_bounds_that_are_no_numbers_are_left_out(table):
    damage(
        table,
        lambda _, add: add.update(
            stats='{"numRecords": 2, "minValues": {"id": Infinity}, "maxValues": {"id": 1e999}}'
        ),
    )
    assert [sample["id"] for sample in read(table, select="id > 1")] == [2]


@pytest.mark.parametrize("kind", ["float", "double"])
def test_bounds_of_float32_may_be_their_shortest_text(table, kind):
    """The column may be wider than its files by now."""
    numbers = pa.array([0.1, 0.3], pa.float32())
    write_deltalake(table.path, pa.table({"x": numbers}))
    actions = table.actions(0)
    text = metadata_of(actions)["schemaString"].replace('"float"', f'"{kind}"')
    metadata_of(actions)["schemaString"] = text
    [add] = [action["add"] for action in actions if "add" in action]
    bounds = '"minValues": {"x": 0.1}, "maxValues": {"x": 0.3}, "nullCount": {"x": 0}'
    add["stats"] = f'{{"numRecords": 2, {bounds}}}'
    table.commit(0, *actions)
    low, high = np.float32([0.1, 0.3]).astype(float).tolist()
    assert [s["x"] for s in read(table, select="x > 0.3")] == [high]
    assert [s["x"] for s in read(table, select=f"x == {low!r}")] == [low]
    assert [s["x"] for s in read(table, select=f"x >= {high!r}")] == [high]
    for text in ("x > 0.31", "x < 0.09"):
        with pytest.raises(ConfigError, match="no samples"):
            read(table, select=text)


def test_lines_and_vectors_that_are_cut_are_refused(table):
    write_deltalake(table.path, pa.table({"id": [1, 2]}))
    whole = table.log(0).read_bytes()
    table.log(0).write_bytes(whole[:-20])
    with pytest.raises(DataError, match=r"00000\.json is damaged"):
        read(table)
    table.log(0).write_bytes(whole)
    [add] = [action["add"] for action in table.actions(0) if "add" in action]
    table.delete_rows(1, add, [5], inline=True)
    with pytest.raises(DataError, match=r"row 5 of .* is deleted; the file has 2 rows"):
        read(table)
    table.delete_rows(1, add, [1], inline=False)
    [vector] = table.folder.rglob("deletion_vector_*.bin")
    stored = vector.read_bytes()
    vector.write_bytes(stored[:-1] + b"\0")
    with pytest.raises(
        DataError, match="a deletion vector is damaged: it does not have its checksum"
    ):
        read(table)
    vector.write_bytes(stored[:20])
    with pytest.raises(DataError, match="a deletion vector is damaged: it has"):
        read(table)
    vector.unlink()
    with pytest.raises(StreamplugError, match=r"deletion_vector_.*\.bin"):
        read(table)


def test_a_folder_without_a_log_is_refused(tmp_path):
    with pytest.raises(StreamplugError, match="there is no _delta_log/ of a Delta table"):
        StreamingDataset(remote=str(tmp_path), format="delta")


def test_versions_share_a_cache_and_states_name_them(table, tmp_path):
    for n in range(3):
        write_deltalake(table.path, pa.table({"id": list(range(9 * n, 9 * n + 9))}), mode="append")
    url = "memory://delta-cache/table"
    copy_to_memory(table.folder, "/delta-cache/table")
    options = {
        "format": "delta",
        "local": str(tmp_path / "cache"),
        "batch_size": 1,
        "shuffle": True,
    }
    old = StreamingDataset(remote=url, version=1, **options)
    order = [int(sample["id"]) for sample in old]
    assert sorted(order) == list(range(18))
    fetched = set((tmp_path / "cache").rglob("*.parquet"))
    assert len(fetched) == 2
    state = StreamingDataset(remote=url, version=1, **options).state_dict(4)
    new = StreamingDataset(remote=url, **options)
    with pytest.raises(StateError, match="version 1"):
        new.load_state_dict(state)
    assert len(list(new)) == 27
    assert len(set((tmp_path / "cache").rglob("*.parquet")) - fetched) == 1
    again = StreamingDataset(remote=url, version=1, **options)
    again.load_state_dict(state)
    assert [int(sample["id"]) for sample in again] == order[4:]


def copy_to_memory(folder, url):
    import fsspec

    memory = fsspec.filesystem("memory")
    for file in folder.rglob("*"):
        if file.is_file():
            memory.pipe(f"{url}/{file.relative_to(folder)}", file.read_bytes())


def test_tables_mix_with_other_streams_and_take_decoders(table):
    write_deltalake(table.path, pa.table({"id": [1, 2], "p": ["x", "y"]}), partition_by=["p"])
    other = table.folder.parent / "other"
    shutil.copytree(table.folder, other)
    streams = [Stream(remote=str(folder), format="delta") for folder in (table.folder, other)]
    assert len(list(StreamingDataset(streams=streams))) == 4
    decoded = read(table, decoders={"p": lambda _: Bytes()})
    assert {sample["p"] for sample in decoded} == {b"x", b"y"}


def test_a_view_of_a_table_keeps_its_version(table, tmp_path):
    views = pytest.importorskip("streamplug_views")
    write_deltalake(
        table.path,
        pa.table({"id": list(range(20)), "lang": ["en", "de"] * 10}),
        partition_by=["lang"],
    )
    DeltaTable(table.path).delete("id = 4")
    view = views.View.of(table.path, format="delta").where("lang == 'en' and id < 12")
    assert view.commit(str(tmp_path / "view")).samples == 5
    write_deltalake(table.path, pa.table({"id": [1000], "lang": ["en"]}), mode="append")
    rows = StreamingDataset(remote=str(tmp_path / "view"))
    assert sorted(int(row["id"]) for row in rows) == [0, 2, 6, 8, 10]


def test_versions_of_a_view_whose_table_was_written_again_are_not_compared(table, tmp_path):
    views = pytest.importorskip("streamplug_views")
    for n, mode in enumerate(["append", "append", "overwrite"]):
        time.sleep(0.01)  # files are in the order of their times, in milliseconds
        rows = pa.table({"id": list(range(10 * n, 10 * n + 10))})
        write_deltalake(table.path, rows, mode=mode)
        views.View.of(table.path, format="delta").commit(tmp_path / "view")
    assert views.diff(tmp_path / "view", 1, 2).added == 10
    assert views.diff(tmp_path / "view", 2, 1).removed == 10
    with pytest.raises(
        ConfigError, match=r"version 0 and version 2 of the table .* differ by more"
    ):
        views.diff(tmp_path / "view", 1, 3)
    DeltaTable(table.path).delete("id < 22")
    views.View.of(table.path, format="delta").commit(tmp_path / "view")
    with pytest.raises(ConfigError, match="differ by more than new files, so the rows"):
        views.diff(tmp_path / "view", 3)


def test_views_read_only_files_that_may_have_a_sample(table, tmp_path):
    views = pytest.importorskip("streamplug_views")
    day = datetime.date(2024, 1, 1)
    for month in range(4):
        days = [day + datetime.timedelta(30 * month + n) for n in range(10)]
        rows = pa.table({"day": days, "n": list(range(10)), "lang": ["en", "de"] * 5})
        write_deltalake(table.path, rows, mode="append", partition_by=["lang"])
    url = "memory://delta-pruned/table"
    copy_to_memory(table.folder, "/delta-pruned/table")
    for text, files in [
        ("lang == 'en' and day < np.datetime64('2024-01-31')", 1),
        ("day < np.datetime64('2024-01-31')", 2),
        ("n >= 0", 8),
        ("lang == 'fr'", 0),
    ]:
        cache = tmp_path / str(files)
        stream = Stream(remote=url, format="delta", local=str(cache))
        view = views.View.of(stream).where(text)
        rows = [{**row, "day": np.datetime64(row["day"]), "np": np} for row in read(table)]
        assert len(view) == sum(map(partial(eval, text), rows))
        assert len(list(cache.rglob("*.parquet"))) == files


class UpperCase(Encoding):
    def encode(self, value):
        return value.lower().encode()

    def decode(self, data):
        return bytes(data).decode().upper()


def test_views_read_all_files_if_the_column_has_a_decoder(table):
    views = pytest.importorskip("streamplug_views")
    for text in ("a", "b", "c"):
        write_deltalake(table.path, pa.table({"lang": [text], "n": [1]}), mode="append")
    decoders = {"lang": lambda _: UpperCase()}
    view = views.View.of(Stream(remote=table.path, format="delta", decoders=decoders))
    assert len(view.where("lang == 'A'")) == 1
    assert len(view.where("lang >= 'a'")) == 0
    assert len(view.where("n > 1 or lang == 'C'")) == 1


@pytest.mark.parametrize("year", [1, 2024, 9999])
def test_timestamps_of_old_writers(table, year):
    moment = datetime.datetime(year, 2, 28, 1, 2, 3, 456, UTC)
    write_deltalake(table.path, pa.table({"t": pa.array([moment], pa.timestamp("us", "UTC"))}))
    [file] = table.folder.glob("*.parquet")
    pq.write_table(pq.read_table(file), file, use_deprecated_int96_timestamps=True)
    assert pq.read_schema(file).field("t").type == pa.timestamp("ns")
    resize(table, 0, file.stat().st_size)
    assert read(table) == [{"t": moment.replace(tzinfo=None)}]


def test_a_table_whose_cache_is_its_own_directory_is_read_where_it_is(tmp_path):
    write_deltalake(tmp_path / "tables" / "t", pa.table({"id": range(3)}))
    before = set((tmp_path / "tables").rglob("*"))
    place = str(tmp_path / "tables")
    dataset = StreamingDataset(remote=place, local=place, split="t", format="delta")
    assert [int(sample["id"]) for sample in dataset] == [0, 1, 2]
    assert set((tmp_path / "tables").rglob("*")) == before


@pytest.mark.parametrize("statistics", [True, False])
@pytest.mark.parametrize("empty", ["no rows", "deleted", "removed"])
def test_files_without_rows_make_no_column_nullable(table, empty, statistics):
    rows = pa.table({"x": [1.5, 2.5], "n": [1, 2]})
    other = pa.table({"x": pa.array([None], pa.float64()), "n": [3]})
    write_deltalake(table.path, rows)
    write_deltalake(table.path, other, mode="append")
    write_deltalake(table.path, rows, mode="append")
    [add] = [action["add"] for action in table.actions(1) if "add" in action]
    if empty == "deleted":
        table.delete_rows(3, add, [0], inline=True)
    elif empty == "removed":
        DeltaTable(table.path).delete("n = 3")
    else:
        path = table.folder / add["path"]
        pq.write_table(other.slice(0, 0), path)
        add |= {"size": path.stat().st_size, "stats": None}
        add["stats"] = json.dumps({"numRecords": 0}) if statistics else None
        table.commit(1, {"add": add})
    dataset = StreamingDataset(remote=table.path, format="delta", batch_size=4)
    batch = next(dataset.batches())
    assert (len(dataset), batch["x"].dtype, batch["n"].dtype) == (4, "f8", "i8")


@pytest.mark.parametrize("below", ["", "/*.parquet", "/part-*", "/**/*.parquet"])
def test_files_of_a_table_are_not_read_as_plain_files(table, below):
    write_deltalake(table.path, pa.table({"n": [1, 2, 3]}))
    DeltaTable(table.path).delete("n = 2")
    with pytest.raises(ConfigError, match=r"is a table of the format delta.*format='delta'"):
        StreamingDataset(remote=f"{table.path}{below}", format="parquet")
    assert in_any_order(read(table)) == in_any_order([{"n": 1}, {"n": 3}])


def test_commands_recognize_a_table(table):
    write_deltalake(table.path, pa.table({"n": [1, 2, 3]}))
    printed = CliRunner().invoke(main, ["inspect", str(table.path), "--json"])
    assert printed.exit_code == 0, printed.output
    assert "read as delta, since it is a table of the format delta" in printed.stderr
