"""Iceberg tables, compared with what pyiceberg reads."""

from __future__ import annotations

import datetime
import decimal
import gzip
import json
import random
import shutil
import uuid
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.avro.decoder import StreamingBinaryDecoder
from pyiceberg.avro.file import META_SCHEMA, AvroFileHeader
from pyiceberg.avro.resolver import construct_reader
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DoubleType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    StructType,
)
from streamplug_iceberg import snapshot_reader
from streamplug_testing import SourceTests
from streamplug_testing.http import serving
from streamplug_testing.memory import takes_less_of_the_system
from streamplug_testing.source import in_any_order, plain_row

from streamplug import Stream, StreamingDataset
from streamplug.errors import (
    ConfigError,
    CorruptShardError,
    DataError,
    StateError,
    StreamplugError,
)
from tests.start_methods import SOAK

NOON = datetime.datetime(2024, 2, 29, 12, tzinfo=datetime.timezone.utc)


@pytest.fixture
def helpers(request):
    """Return the functions of conftest.py, which is not importable by a fixed name."""
    plugin = request.config.pluginmanager
    return next(m for m in plugin.get_plugins() if hasattr(m, "commit_deletes"))


def read(location, version=None, **options):
    samples, by_range = (
        [
            plain_row(sample)
            for sample in StreamingDataset(
                remote=location, format="iceberg", version=version, access=access, **options
            )
        ]
        for access in ("shard", "range")
    )
    assert by_range == samples
    return samples


class TestIceberg(SourceTests):
    name = "iceberg"

    def make_location(self, folder):
        from pyiceberg.catalog.sql import SqlCatalog

        place = {"uri": f"sqlite:///{folder}/c.db", "warehouse": f"file://{folder}/w"}
        with SqlCatalog("c", **place) as catalog:
            catalog.create_namespace("n")
            rows = {"id": list(range(20)), "text": [f"text {n}" for n in range(20)]}
            table = catalog.create_table("n.t", schema=pa.table(rows).schema)
            table.append(pa.table(rows))
            table.append(pa.table({"id": [20, 21], "text": ["text 20", "text 21"]}))
            table.delete("id = 7")
        order = [20, 21, *(n for n in range(20) if n != 7)]  # deleting wrote a file anew
        return table.metadata_location, [{"id": np.int64(n), "text": f"text {n}"} for n in order]


@pytest.mark.parametrize("format_version", ["1", "2"] if SOAK else ["2"])
def test_random_tables_are_read_as_pyiceberg_reads_them(tables, helpers, format_version):
    chance = random.Random(3)
    table = tables.create(Schema(
        NestedField(1, "id", IntegerType()),
        NestedField(2, "lang", StringType()),
        NestedField(3, "x", DoubleType()),
    ), properties={"format-version": format_version})  # fmt: skip
    with table.update_spec() as change:
        change.add_identity("lang")
    for step in range(10):
        arrow = table.schema().as_arrow()
        size = chance.randrange(1, 20)
        table.append(
            pa.table(
                {
                    field.name: pa.array(
                        [1000 * step + n for n in range(size)]
                        if field.name == "id"
                        else [chance.choice(VALUES[str(field.type)]) for _ in range(size)],
                        field.type,
                    )
                    for field in arrow
                },
                schema=arrow,
            )
        )
        if step == 2:
            table.delete("x = 2.5")
        if step == 3:
            with table.update_schema() as change:
                change.rename_column("x", "y")
            with table.update_schema() as change:
                change.add_column("x", StringType())
                change.update_column("id", LongType())
        if step == 5:
            with table.update_spec() as change:
                change.remove_field("lang")
        if step == 6:
            with table.update_schema() as change:
                change.delete_column("x")
                change.move_first("y")
        if step == 7:
            table.delete("id < 500")
    for snapshot in table.snapshots():
        number = snapshot.snapshot_id
        expected = helpers.read_by_pyiceberg(table.metadata_location, number)
        found = read(table.metadata_location, number)
        assert in_any_order(found) == in_any_order(expected)
        assert [list(row) for row in found[:1]] == [list(row) for row in expected[:1]]
    assert read(table.metadata_location) == read(tables_folder(table))


VALUES = {
    "double": [None, 0.5, 2.5],
    "large_string": ["en", "d e", None],
    "string": ["en", "d e", None],
}


def tables_folder(table):
    return table.location().removeprefix("file://")


def test_types_of_columns(tables, helpers):
    rows = pa.table(
        {
            "b": [True, None],
            "f": pa.array([0.5, None], pa.float32()),
            "d": [datetime.date(2024, 2, 29), None],
            "t": pa.array([NOON, None], pa.timestamp("us", "UTC")),
            "n": pa.array([1709168523000000, None], pa.timestamp("us")),
            "time": pa.array([datetime.time(1, 2, 3), None], pa.time64("us")),
            "m": pa.array([decimal.Decimal("12.50"), None], pa.decimal128(10, 2)),
            "bytes": [b"\0\1", None],
            "fixed": pa.array([b"abcd", None], pa.binary(4)),
            "list": [[1, 2], None],
            "struct": [{"a": 1, "b": "x"}, None],
            "map": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
        }
    )  # fmt: skip
    table = tables.create(rows.schema)
    table.append(rows)
    expected = helpers.read_by_pyiceberg(table.metadata_location)
    for row in expected:
        row["map"] = row["map"] and dict(row["map"])
    assert in_any_order(read(table.metadata_location)) == in_any_order(expected)


def test_numbers_without_missing_values_are_arrays(tables):
    rows = pa.table({"a": [1, 2], "b": [None, 1.0]})
    table = tables.create(rows.schema)
    table.append(rows)
    [batch] = StreamingDataset(
        remote=table.metadata_location, format="iceberg", batch_size=2
    ).batches()
    assert batch["a"].dtype == "int64"
    assert isinstance(batch["b"], list)


@pytest.fixture
def two_files(tables):
    table = tables.create(pa.schema([("id", pa.int64())]))
    table.append(pa.table({"id": list(range(10))}))
    table.append(pa.table({"id": list(range(10, 20))}))
    paths = [task.file.file_path for task in table.scan().plan_files()]
    return table, sorted(paths, key=lambda path: pq.read_table(path[7:])["id"][0].as_py())


def ids(location, **options):
    return [row["id"] for row in read(location, **options)]


@pytest.mark.parametrize("kind", ["positions", "vectors"])
def test_deleted_rows(two_files, helpers, tmp_path, kind):
    table, (first, second) = two_files
    folder = helpers.path_of(table.location()) / "data"
    deleted = {first: [0, 3, 4], second: [9]}
    if kind == "positions":
        path, format_ = folder / "deletes.parquet", FileFormat.PARQUET
        helpers.write_positions(path, deleted)
    else:
        path, format_ = folder / "deletes.puffin", FileFormat.PUFFIN
        helpers.write_vectors(path, deleted)
    location = helpers.commit_deletes(
        table, [(path, DataFileContent.POSITION_DELETES, format_, None)]
    )
    assert ids(location) == [n for n in range(20) if n not in (0, 3, 4, 19)]
    assert in_any_order(read(location)) == in_any_order(helpers.read_by_pyiceberg(location))
    assert ids(table.metadata_location) == list(range(20))


def test_compressed_deletion_vectors_are_refused(two_files, helpers):
    table, (first, _) = two_files
    path = helpers.path_of(table.location()) / "data" / "deletes.puffin"
    helpers.write_vectors(path, {first: [0]}, **{"compression-codec": "zstd"})
    files = [(path, DataFileContent.POSITION_DELETES, FileFormat.PUFFIN, None)]
    with pytest.raises(DataError, match=r"deletes\.puffin is damaged: .* are compressed"):
        read(helpers.commit_deletes(table, files))


def test_deletions_of_an_earlier_commit_do_not_count(two_files, helpers):
    table, (first, second) = two_files
    path = helpers.path_of(table.location()) / "data" / "deletes.parquet"
    helpers.write_positions(path, {first: [0], second: [0]})
    location = helpers.commit_deletes(
        table, [(path, DataFileContent.POSITION_DELETES, FileFormat.PARQUET, 1)]
    )
    assert ids(location) == list(range(1, 20))  # the second file was added later


def test_deletions_that_expand_are_refused(two_files, helpers, monkeypatch):
    table, (first, _) = two_files
    path = helpers.path_of(table.location()) / "data" / "deletes.parquet"
    paths = pa.DictionaryArray.from_arrays(
        pa.array(np.zeros(60_000, np.int32)), pa.array(["x" * (1 << 20)])
    )
    rows = pa.table({"file_path": paths, "pos": np.arange(60_000)})
    options = {"store_schema": False, "dictionary_pagesize_limit": 1 << 30}
    pq.write_table(rows, path, compression="zstd", **options)
    assert path.stat().st_size < 500_000
    kind = DataFileContent.POSITION_DELETES, FileFormat.PARQUET, None
    location = helpers.commit_deletes(table, [(path, *kind)])

    def act():
        with pytest.raises(DataError, match=r"deletes\.parquet is damaged.*take up to 62"):
            read(location)

    assert takes_less_of_the_system(60 << 20, act)
    monkeypatch.setattr(snapshot_reader, "MAX_POSITIONS", 3)
    pq.write_table(pa.table({"file_path": [first] * 4, "pos": range(4)}), path)
    with pytest.raises(DataError, match=r"deletes\.parquet is damaged.*4 rows.*more than 3"):
        read(location)


def test_deletions_by_value_and_damaged_ones_are_refused(two_files, helpers):
    table, (first, _) = two_files
    path = helpers.path_of(table.location()) / "data" / "deletes.parquet"
    pq.write_table(pa.table({"id": [3]}), path)
    location = helpers.commit_deletes(
        table, [(path, DataFileContent.EQUALITY_DELETES, FileFormat.PARQUET, None)]
    )
    with pytest.raises(DataError, match=r"deletes\.parquet deletes rows by their values"):
        read(location)
    location = helpers.commit_deletes(
        table, [(path, DataFileContent.POSITION_DELETES, FileFormat.PARQUET, None)]
    )
    with pytest.raises(DataError, match=r"deletes\.parquet is damaged"):
        read(location)
    helpers.write_positions(path, {first: [10]})
    with pytest.raises(DataError, match="row 10 is deleted; the file has 10 rows"):
        read(location)
    path.unlink()
    with pytest.raises(StreamplugError, match=r"deletes\.parquet"):
        read(location)


def test_branches_tags_and_snapshots(two_files):
    table, _ = two_files
    first, second = (snapshot.snapshot_id for snapshot in table.snapshots())
    table.manage_snapshots().create_tag(first, "paper").commit()
    location = table.metadata_location
    assert ids(location, version="paper") == ids(location, version=first) == list(range(10))
    assert ids(location, version="main") == ids(location, version=second) == list(range(20))
    with pytest.raises(ConfigError, match=r"has no such snapshot, branch or tag; .* main, paper"):
        read(location, "papers")
    with table.update_schema() as update:
        update.add_column("more", LongType())
    location = table.metadata_location
    assert read(location)[0]["more"] is read(location, "main")[0]["more"] is None
    assert all("more" not in read(location, version)[0] for version in ("paper", first, second))


def test_of_few_columns_little_more_than_their_chunks_is_fetched(tables, helpers):
    draw, chosen = np.random.default_rng(0), ["c03", "c05", "c41"]
    schema = pa.schema([(f"c{n:02}", pa.int64()) for n in range(50)])
    options = {"write.parquet.row-group-limit": "5000", "write.parquet.dict-size-bytes": "1"}
    table = tables.create(schema, properties=options)
    for _ in range(2):
        rows = [draw.integers(0, 1 << 60, 20_000) for _ in schema]
        table.append(pa.table(rows, schema=schema))
    chunks = 0
    for task in table.scan().plan_files():
        about = pq.read_metadata(helpers.path_of(task.file.file_path))
        assert about.num_row_groups == 4
        for group in map(about.row_group, range(about.num_row_groups)):
            columns = map(group.column, range(group.num_columns))
            chunks += sum(c.total_compressed_size for c in columns if c.path_in_schema in chosen)
    place = helpers.path_of(table.metadata_location).relative_to(tables.folder)
    with serving(tables.folder) as server:
        dataset = StreamingDataset(
            remote=f"{server.url}/{place}",
            format="iceberg",
            access="range",
            storage_options={"hedge": False},
            columns=chosen,
            shuffle=True,
            batch_size=100,
        )
        before = server.bytes_sent
        ids = np.concatenate([batch["c41"] for batch in dataset.batches()])
        fetched = server.bytes_sent - before
    assert chunks <= fetched <= 1.1 * chunks
    assert np.array_equal(np.sort(ids), np.sort(table.scan().to_arrow()["c41"]))


def test_the_latest_metadata_file_of_a_folder(two_files, helpers):
    table, _ = two_files
    folder = tables_folder(table)
    assert ids(folder) == list(range(20))
    metadata = helpers.path_of(table.metadata_location).parent
    older = sorted(metadata.glob("*.metadata.json"))[-2]
    (metadata / "version-hint.text").write_text(older.name.removesuffix(".metadata.json"))
    assert ids(folder) == list(range(10))
    (metadata / "version-hint.text").write_bytes(b"\xff")
    with pytest.raises(DataError, match=r"version-hint\.text is damaged: UnicodeDecodeError"):
        read(folder)
    (metadata / "version-hint.text").unlink()
    latest = helpers.path_of(table.metadata_location)
    shutil.copy(latest, metadata / f"{latest.name.partition('-')[0]}-{uuid.uuid4()}.metadata.json")
    with pytest.raises(ConfigError, match=r"several latest metadata files, .*metadata_location"):
        read(folder)
    shutil.copy(latest, metadata.parent / latest.name)
    with pytest.raises(ConfigError, match="must be in the folder metadata/ of its table"):
        read(str(metadata.parent / latest.name))
    shutil.rmtree(metadata)
    with pytest.raises(StreamplugError, match="there is no metadata/ of an Iceberg table"):
        read(folder)


@pytest.mark.parametrize("ending", [".metadata.json", ".gz.metadata.json", ".metadata.json.gz"])
def test_a_hint_may_be_older_than_the_latest_version(two_files, helpers, ending):
    table, _ = two_files
    folder = tables_folder(table)
    metadata = helpers.path_of(table.metadata_location).parent
    old, new = sorted(metadata.glob("*.metadata.json"))[-2:]
    for number, path in enumerate((old, new), 7):
        content = path.read_bytes()
        content = gzip.compress(content) if ".gz" in ending else content
        (metadata / f"v{number}{ending}").write_bytes(content)
        (metadata / "version-hint.text").write_text("7\n")
        assert ids(folder) == list(range(10 * (number - 6)))
    (metadata / f"v7{ending}").unlink()
    with pytest.raises(StreamplugError, match=r"v7\.metadata\.json"):
        read(folder)
    (metadata / "version-hint.text").write_text("8")
    assert ids(folder) == list(range(20))


def test_a_table_that_was_copied_is_read_where_it_is(two_files, helpers, tmp_path):
    table, _ = two_files
    shutil.copytree(tables_folder(table), tmp_path / "copy")
    shutil.rmtree(tables_folder(table))
    assert ids(str(tmp_path / "copy")) == list(range(20))


def test_snapshots_share_a_cache_and_states_name_them(two_files, tmp_path):
    table, _ = two_files
    first = table.snapshots()[0].snapshot_id
    import fsspec

    memory = fsspec.filesystem("memory")
    memory.put(tables_folder(table), "/iceberg-cache/table", recursive=True)
    url = "memory://iceberg-cache/table"
    options = {"format": "iceberg", "local": str(tmp_path / "cache"), "batch_size": 1}
    old = StreamingDataset(remote=url, version=first, **options)
    assert len(list(old)) == 10
    fetched = set((tmp_path / "cache").rglob("*.parquet"))
    assert len(fetched) == 1
    new = StreamingDataset(remote=url, **options)
    with pytest.raises(StateError, match=f"snapshot {first}"):
        new.load_state_dict(StreamingDataset(remote=url, version=first, **options).state_dict(4))
    assert len(list(new)) == 20
    assert len(set((tmp_path / "cache").rglob("*.parquet")) - fetched) == 1


def without_ids(path):
    rows = pq.read_table(path)
    plain = pa.schema([pa.field(field.name, field.type) for field in rows.schema])
    pq.write_table(pa.table(rows.columns, schema=plain), path)


def change_metadata(location, change):
    path = Path(location.removeprefix("file://"))
    metadata = json.loads(path.read_text())
    change(metadata)
    path.write_text(json.dumps(metadata))


def replace_file(file, rows):
    """Write other rows into a data file, which keeps its size, as the manifest has it."""
    path, size = Path(file.file_path[7:]), file.file_size_in_bytes
    pq.write_table(rows, path)
    content = path.read_bytes()
    footer = int.from_bytes(content[-8:-4], "little") + 8
    assert len(content) <= size
    path.write_bytes(content[:-footer] + bytes(size - len(content)) + content[-footer:])


def test_imported_files_take_columns_by_name_and_partitions_from_the_manifest(tables):
    table = tables.create(
        Schema(NestedField(1, "id", LongType()), NestedField(2, "day", StringType()))
    )
    with table.update_spec() as change:
        change.add_identity("day")
    table.append(pa.table({"id": [1, 2], "day": ["mon", "mon"]}, schema=table.schema().as_arrow()))
    [task] = table.scan().plan_files()
    replace_file(task.file, pa.table({"old_id": [1, 2]}))
    with pytest.raises(CorruptShardError, match="no field ids, and the table has no names"):
        read(table.metadata_location)
    mapping = [{"field-id": 1, "names": ["id", "old_id"]}, {"field-id": 2, "names": ["day"]}]
    change_metadata(
        table.metadata_location,
        lambda m: m.setdefault("properties", {}).update(
            {"schema.name-mapping.default": json.dumps(mapping)}
        ),
    )
    assert read(table.metadata_location) == [{"id": 1, "day": "mon"}, {"id": 2, "day": "mon"}]


POINT = pa.struct([("a", pa.int32()), ("b", pa.string()), ("c", pa.float32())])
NESTED = pa.schema(
    {
        "id": pa.int64(),
        "s": POINT,
        "l": pa.list_(POINT),
        "m": pa.map_(pa.string(), POINT),
        "deep": pa.list_(pa.struct([("m", pa.map_(pa.string(), pa.list_(POINT)))])),
    }
)
POINTS = ("s", "l.element", "m.value", "deep.element.m.value.element")
"""Where in the columns the struct is."""


def nested_value(type_, chance, depth=0):
    """Return a random value of a type, with missing values at each depth."""
    if depth and chance.random() < 0.2:
        return None
    if pa.types.is_struct(type_):
        return {field.name: nested_value(field.type, chance, depth + 1) for field in type_}
    count = chance.randrange(3)
    if pa.types.is_map(type_):
        items = [nested_value(type_.item_type, chance, depth + 1) for _ in range(count)]
        return [(f"k{n}", item) for n, item in enumerate(items)]
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return [nested_value(type_.value_type, chance, depth + 1) for _ in range(count)]
    number = chance.randrange(100)
    return str(number) if "string" in str(type_) else number


def random_rows(schema, chance, first):
    """Return rows; pyiceberg writes missing lists and maps as empty ones."""
    depth = {field.name: int(field.name == "s") for field in schema}
    return [
        {
            f.name: n if f.name == "id" else nested_value(f.type, chance, depth[f.name])
            for f in schema
        }
        for n in range(first, first + 6)
    ]


def change_points(row, change):
    """Return a row with other structs, and dicts for the lists of pairs of its maps."""

    def points(values):
        return values and [value and change(value) for value in values]

    def items(pairs, change_value):
        if pairs is None:
            return None
        return {key: change_value(value) for key, value in dict(pairs).items()}

    return {
        "id": row["id"],
        "s": row["s"] and change(row["s"]),
        "l": points(row["l"]),
        "m": items(row["m"], lambda value: value and change(value)),
        "deep": row["deep"] and [each and {"m": items(each["m"], points)} for each in row["deep"]],
    }


def without(point, name):
    return {key: value for key, value in point.items() if key != name}


CHANGES = [
    (
        lambda change, at: change.add_column((*at, "d"), LongType()),
        lambda point: {**point, "d": None},
    ),
    (
        lambda change, at: change.rename_column(".".join([*at, "a"]), "z"),
        lambda point: {**without(point, "a"), "z": point["a"]},
    ),
    (lambda change, at: change.update_column(".".join([*at, "z"]), LongType()), dict),
    (lambda change, at: change.update_column(".".join([*at, "c"]), DoubleType()), dict),
    (lambda change, at: change.move_first(".".join([*at, "c"])), dict),
    (
        lambda change, at: change.delete_column(".".join([*at, "b"])),
        lambda point: without(point, "b"),
    ),
    (
        lambda change, at: change.add_column((*at, "b"), StringType()),
        lambda point: {**point, "b": None},
    ),
    (
        lambda change, at: change.add_column(
            (*at, "more"), StructType(NestedField(900, "x", StringType()))
        ),
        lambda point: {**point, "more": None},
    ),
    (
        lambda change, at: change.add_column((*at, "more", "y"), StringType()),
        lambda point: {**point, "more": point["more"] and {**point["more"], "y": None}},
    ),
    (
        lambda change, at: change.rename_column(".".join([*at, "more", "x"]), "w"),
        lambda point: {
            **point,
            "more": point["more"] and {"w": point["more"]["x"], "y": point["more"]["y"]},
        },
    ),
]
"""Changes of the schema, and what they do to a value."""


@pytest.mark.parametrize("seed", range(5 if SOAK else 1))
def test_nested_fields_that_change(tables, helpers, seed):
    chance = random.Random(seed)
    table, expected = tables.create(NESTED), []
    for number in range(len(CHANGES) + 1):
        arrow = table.schema().as_arrow()
        rows = random_rows(arrow, chance, 6 * number)
        table.append(pa.Table.from_pylist(rows, schema=arrow))
        expected += [change_points(row, dict) for row in rows]
        if number < len(CHANGES):
            change_schema, change_value = CHANGES[number]
            with table.update_schema() as change:
                for place in POINTS:
                    change_schema(change, place.split("."))
            expected = [change_points(row, change_value) for row in expected]
    found = read(table.metadata_location)
    assert sorted(found, key=lambda row: row["id"]) == expected
    assert {tuple(row["s"]) for row in found if row["s"]} == {("c", "z", "d", "b", "more")}
    # pyiceberg does not find renamed fields in a map in a list.
    flat = [without(row, "deep") for row in helpers.read_by_pyiceberg(table.metadata_location)]
    assert in_any_order(without(row, "deep") for row in found) == in_any_order(flat)
    old = table.snapshots()[5].snapshot_id
    assert in_any_order(
        without(row, "deep") for row in read(table.metadata_location, old)
    ) == in_any_order(
        without(row, "deep") for row in helpers.read_by_pyiceberg(table.metadata_location, old)
    )
    dataset = StreamingDataset(remote=table.metadata_location, format="iceberg", batch_size=66)
    [batch, *_] = dataset.batches()
    for name in ("s", "l", "m", "deep"):
        assert list(batch[name]) == [dataset[n][name] for n in range(66)]


def test_fields_of_structs_that_were_exchanged_are_found_by_id(tables):
    schema = Schema(
        NestedField(
            1, "s", StructType(NestedField(2, "a", LongType()), NestedField(3, "b", LongType()))
        )
    )
    table = tables.create(schema)
    table.append(pa.table({"s": [{"a": 1, "b": 2}]}, schema=table.schema().as_arrow()))
    assert read(table.metadata_location) == [{"s": {"a": 1, "b": 2}}]

    def exchange(metadata):
        [field] = metadata["schemas"][0]["fields"]
        one, other = field["type"]["fields"]
        one["id"], other["id"] = other["id"], one["id"]

    change_metadata(table.metadata_location, exchange)
    assert read(table.metadata_location) == [{"s": {"a": 2, "b": 1}}]


def test_nested_fields_of_imported_files_are_found_by_the_mapping(tables):
    inner = StructType(NestedField(2, "x", LongType()))
    table = tables.create(Schema(NestedField(1, "s", inner)))
    table.append(pa.table({"s": [{"x": 1}]}, schema=table.schema().as_arrow()))
    [task] = table.scan().plan_files()
    replace_file(task.file, pa.table({"t": [{"old": 5}]}))
    mapping = [
        {"field-id": 1, "names": ["t"], "fields": [{"field-id": 2, "names": ["x", "old"]}]},
    ]
    change_metadata(
        table.metadata_location,
        lambda m: m.setdefault("properties", {}).update(
            {"schema.name-mapping.default": json.dumps(mapping)}
        ),
    )
    assert read(table.metadata_location) == [{"s": {"x": 5}}]


def test_files_without_rows_make_no_column_nullable(tables):
    rows = pa.table({"x": [1.5, 2.5], "n": [1, 2]})
    table = tables.create(rows.schema)
    table.append(rows)
    table.append(rows.slice(0, 0))
    table.append(pa.table({"x": [None], "n": [3]}, schema=rows.schema))
    table.delete("n = 3")
    dataset = StreamingDataset(remote=table.metadata_location, format="iceberg", batch_size=2)
    batch = next(dataset.batches())
    assert (batch["x"].dtype, batch["n"].dtype) == ("f8", "i8")


def test_damaged_and_foreign_files_are_refused(two_files, helpers):
    table, _ = two_files
    location = table.metadata_location
    whole = helpers.path_of(location).read_bytes()
    helpers.path_of(location).write_bytes(whole[:100])
    with pytest.raises(DataError, match=r"metadata\.json is damaged"):
        read(location)
    helpers.path_of(location).write_bytes(whole)
    change_metadata(location, lambda m: m.update({"format-version": 9}))
    with pytest.raises(DataError, match=r"metadata\.json is damaged.* version is not supported"):
        read(location)
    helpers.path_of(location).write_bytes(whole)
    change_metadata(
        location, lambda m: m["snapshots"][-1].update({"manifest-list": "s3://elsewhere/x.avro"})
    )
    with pytest.raises(DataError, match=r"'s3://elsewhere/x.avro' is outside of the table"):
        read(location)
    helpers.path_of(location).write_bytes(whole)
    listed = helpers.path_of(json.loads(whole)["snapshots"][-1]["manifest-list"])
    listed.write_bytes(listed.read_bytes()[:50])
    with pytest.raises(DataError, match=r"\.avro is damaged"):
        read(location)


def test_manifests_are_read_within_bounds(two_files, helpers, monkeypatch):
    table, _ = two_files
    path = helpers.path_of(table.current_snapshot().manifest_list)
    whole = path.read_bytes()

    def refused(data, text):
        path.write_bytes(data)
        with pytest.raises(DataError, match=rf"\.avro is damaged: {text}"):
            read(table.metadata_location)

    huge = b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\1"  # 2**63 - 1
    refused(whole[:5] + huge + whole[6:], "")  # the length of the first key in the head
    refused(whole[:-20], "EOFError")
    refused(whole[:-1] + b"\0", "ValueError: a block does not end")
    sync = whole[-16:]
    head = whole[: whole.index(sync) + 16]
    packer = zlib.compressobj(wbits=-15)
    packed = packer.compress(b"x" * 50) + packer.flush()
    block = bytes([2 * len(packed)]) + packed + sync
    refused(head + b"\xfe\1" + block, "ValueError: a block of 50 bytes has 127 records")
    monkeypatch.setattr("streamplug_iceberg.manifest_reader._MAX_BLOCK_BYTES", 49)
    refused(head + b"\2" + block, "ValueError: a block is cut short, or has more than 49")


def avro_int(number):
    """Return the bytes of an int in Avro."""
    number = (number << 1) ^ (number >> 63)
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def avro_file(schema, block, count=1):
    """Return an Avro file with one block that is not compressed."""
    head = b"".join(
        avro_int(len(part)) + part for part in (b"avro.schema", json.dumps(schema).encode())
    )
    sync = b"s" * 16
    return b"".join(
        [
            b"Obj\1",
            avro_int(1),
            head,
            b"\0",
            sync,
            avro_int(count),
            avro_int(len(block)),
            block,
            sync,
        ]
    )


@pytest.mark.parametrize(
    ("length", "text"),
    [
        (avro_int(-1), "ValueError: Requested -1 bytes"),
        (avro_int(1 << 40), "EOFError"),
        (b"\xff" * 1000, "ValueError: a number takes more than 10 bytes"),
    ],
)
def test_numbers_in_manifests_lead_forward_and_not_beyond_the_end(two_files, helpers, length, text):
    table, _ = two_files
    path = helpers.path_of(table.current_snapshot().manifest_list)
    header = construct_reader(META_SCHEMA, {-1: AvroFileHeader}).read(
        StreamingBinaryDecoder(path.read_bytes())
    )
    schema = json.loads(header.meta["avro.schema"])
    schema["fields"].insert(0, {"name": "unknown", "field-id": 9999, "type": "bytes"})
    path.write_bytes(avro_file(schema, length))
    with pytest.raises(DataError, match=rf"\.avro is damaged: {text}"):
        read(table.metadata_location)


def test_a_manifest_does_not_decompress_to_many_times_its_size(two_files, helpers):
    table, _ = two_files
    path = helpers.path_of(table.current_snapshot().manifest_list)
    whole = path.read_bytes()
    sync = whole[-16:]
    packer = zlib.compressobj(wbits=-15)
    packed = packer.compress(bytes(40_000_000)) + packer.flush()
    head = whole[: whole.index(sync) + 16]
    path.write_bytes(head + avro_int(1) + avro_int(len(packed)) + packed + sync)
    with pytest.raises(DataError, match=r"has more than \d{8} bytes, too many for"):
        read(table.metadata_location)


def test_metadata_without_their_snapshot_or_its_schema_are_refused(two_files):
    table, _ = two_files
    number = table.current_snapshot().snapshot_id
    change_metadata(table.metadata_location, lambda m: m["snapshots"][-1].update({"schema-id": 77}))
    with pytest.raises(DataError, match=f"do not have the schema of snapshot {number}"):
        read(table.metadata_location, version=number)
    change_metadata(table.metadata_location, lambda m: m.update(snapshots=[], refs={}))
    with pytest.raises(DataError, match=f"do not have the current snapshot, {number}"):
        read(table.metadata_location)


def test_a_table_without_rows_is_refused_like_a_data_set_without_samples(tables):
    table = tables.create(pa.schema([("id", pa.int64())]))
    with pytest.raises(StreamplugError, match="no samples"):
        list(StreamingDataset(remote=table.metadata_location, format="iceberg"))


def test_a_view_of_a_table_keeps_its_snapshot(two_files, tmp_path):
    views = pytest.importorskip("streamplug_views")
    table, _ = two_files
    view = views.View.of(table.metadata_location, format="iceberg").where("id % 4 == 0")
    assert view.commit(str(tmp_path / "view")).samples == 5
    table.append(pa.table({"id": [100]}))
    rows = StreamingDataset(remote=str(tmp_path / "view"))
    assert [int(row["id"]) for row in rows] == [0, 4, 8, 12, 16]


def test_views_have_the_columns_of_the_snapshot_that_they_record(tables, tmp_path):
    views = pytest.importorskip("streamplug_views")
    rows = pa.table({"id": [1, 2, 3], "x": [1, 2, 3]})
    table = tables.create(rows.schema)
    table.append(rows)
    with table.update_schema() as change:
        change.rename_column("id", "key")
    place = {"location": table.metadata_location, "format": "iceberg"}
    views.View.of(**place).where("id > 1").commit(tmp_path / "view")
    assert views.View.of(**place).concat(**place).commit(tmp_path / "twice").samples == 6
    table.append(pa.table({"key": [4], "x": [4]}))
    assert [row["id"] for row in StreamingDataset(remote=str(tmp_path / "view"))] == [2, 3]
    assert len(StreamingDataset(remote=str(tmp_path / "twice"))[:]) == 6


def test_views_read_only_files_that_may_have_a_sample(tables, tmp_path):
    views = pytest.importorskip("streamplug_views")
    import fsspec

    rows = {
        "day": [datetime.date(2024, 1, 1), datetime.date(2024, 1, 9)],
        "at": pa.array([0, 10], pa.timestamp("us")),
        "x": pa.array([0.5, 1.5], pa.float32()),
        "lang": ["a", "a very long text that statistics cut off"],
    }
    table = tables.create(pa.table(rows).schema)
    table.append(pa.table(rows))
    with table.update_schema() as change:
        change.update_column("x", DoubleType())
    later = {
        "day": [datetime.date(2024, 2, 1)],
        "at": pa.array([20], pa.timestamp("us")),
        "x": [float("nan")],
        "lang": ["b"],
    }
    table.append(pa.table(later))
    memory = fsspec.filesystem("memory")
    memory.put(tables_folder(table), "/iceberg-pruned/table", recursive=True)
    for number, (text, samples, files) in enumerate(
        [
            ("day < np.datetime64('2024-01-31')", 2, 1),
            ("at >= np.datetime64(20, 'us')", 1, 1),
            ("x > 1", 1, 2),  # a file with NaN has no bounds
            ("lang == 'a very long text that statistics cut off'", 1, 1),
            ("lang > 'c'", 0, 0),
        ]
    ):
        cache = tmp_path / str(number)
        stream = Stream(remote="memory://iceberg-pruned/table", format="iceberg", local=str(cache))
        assert len(views.View.of(stream).where(text)) == samples
        assert len(list(cache.rglob("*.parquet"))) == files


def test_defaults_of_columns_that_files_do_not_have(two_files):
    table, _ = two_files

    def change(metadata):
        fields = metadata["schemas"][-1]["fields"]
        fields.append(
            {"id": 7, "name": "kind", "required": True, "type": "string", "initial-default": "web"}
        )
        metadata.update({"format-version": 3, "last-column-id": 7, "next-row-id": 20})

    change_metadata(table.metadata_location, change)
    rows = read(table.metadata_location)
    assert rows == [{"id": n, "kind": "web"} for n in range(20)]

    def require(metadata):
        del metadata["schemas"][-1]["fields"][-1]["initial-default"]

    change_metadata(table.metadata_location, require)
    with pytest.raises(CorruptShardError, match="it has no column 'kind', whose values the table"):
        read(table.metadata_location)


@pytest.mark.parametrize("below", ["/**/*.parquet", "/data", "/data/*.parquet", "/data/0*"])
def test_files_of_a_table_are_not_read_as_plain_files(tables, below):
    rows = pa.table({"n": [1, 2, 3]})
    table = tables.create(rows.schema)
    table.append(rows)
    table.delete("n = 2")
    with pytest.raises(ConfigError, match=r"is a table of the format iceberg.*format='iceberg'"):
        StreamingDataset(remote=f"{tables_folder(table)}{below}", format="parquet")
    assert in_any_order(read(tables_folder(table))) == in_any_order([{"n": 1}, {"n": 3}])
