"""What footers say is read as pyarrow reads it, and damage to them ends in an error, never the process."""

from __future__ import annotations

import io
import random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from streamplug_parquet import footer as footers
from streamplug_parquet import thrift
from streamplug_parquet.footer import scanned
from streamplug_parquet.format import Parquet
from streamplug_parquet.thrift import check_schema_depth, chunks_of
from streamplug_parquet.writer import LISTS_OR_NONE
from streamplug_testing.memory_shard import MemoryFile
from streamplug_testing.shard_headers import info_of

from streamplug import StreamingDataset
from streamplug.errors import ConfigError, CorruptShardError, DataError
from streamplug.index import make_encoding

COUNT = 60


def file_of(**options):
    numbers = range(COUNT)
    table = pa.table(
        {
            "maybe": [n if n % 3 else None for n in numbers],
            "text": [f"text {n % 7}" for n in numbers],
            "a.b": [["x"] * (n % 4) if n % 5 else None for n in numbers],
            "cell": [{"bytes": bytes([n]), "more": [n, None]} for n in numbers],
            "vector": pa.array([[n, n] for n in numbers], pa.list_(pa.float32(), 2)),
        }
    )
    out = io.BytesIO()
    pq.write_table(table, out, row_group_size=20, **options)
    return out.getvalue()


@pytest.mark.parametrize("dictionary", [True, False])
@pytest.mark.parametrize("statistics", [True, False])
def test_columns_are_as_pyarrow_has_them(dictionary, statistics):
    data = file_of(use_dictionary=dictionary, write_statistics=statistics)
    metadata = pq.read_metadata(io.BytesIO(data))
    found = chunks_of(data)
    assert len(found) == metadata.num_row_groups == 3
    for group, chunks in enumerate(found):
        assert len(chunks) == metadata.num_columns
        for leaf, chunk in enumerate(chunks):
            theirs = metadata.row_group(group).column(leaf)
            assert theirs.path_in_schema.startswith(chunk.name)
            assert chunk.stored == theirs.total_compressed_size
            assert chunk.size == theirs.total_uncompressed_size
            assert chunk.values == theirs.num_values
            starts = theirs.dictionary_page_offset, theirs.data_page_offset
            assert chunk.start == min(start for start in starts if start)
            assert chunk.missing == (not statistics or theirs.statistics.null_count > 0)
    assert [chunk.name for chunk in found[0]][2:4] == ["a.b", "cell"]


def test_columns_with_dots_in_their_names_are_read():
    table = pa.table({"a.b": [1, 2], "a": [{"b": "x"}] * 2, "a.c": [[1], []]})
    out = io.BytesIO()
    pq.write_table(table, out)
    data = np.frombuffer(out.getvalue(), np.uint8)
    columns, reader = opened(out.getvalue(), scanned(MemoryFile(out.getvalue())), data)
    assert [values[1] for values in reader.take(np.arange(2), columns)] == [2, {"b": "x"}, []]


def opened(content, found, data):
    make = lambda name, spec: make_encoding(name, spec, Parquet.encodings)  # noqa: E731
    columns = Parquet().columns(found.entry, make)
    info = info_of(found.samples, {"data": content})
    return columns, Parquet().open(info, {"data": data}, columns)


@pytest.mark.parametrize("seed", range(4))
def test_damage_ends_in_an_error(seed):
    draw = random.Random(seed)
    version = "2.0" if seed % 2 else "1.0"
    whole = file_of(compression=("none", "snappy")[seed % 2], data_page_version=version)
    outcomes = {"read": 0, "refused": 0}
    for _ in range(150):
        data = bytearray(whole)
        for _ in range(draw.randint(1, 4)):
            at = draw.choice((draw.randrange(len(data)), len(data) - 1 - draw.randrange(3000)))
            data[at] ^= 1 << draw.randrange(8)
        try:
            found = scanned(MemoryFile(bytes(data)))
            columns, reader = opened(bytes(data), found, np.frombuffer(data, np.uint8))
            reader.take(np.arange(min(len(reader), COUNT)), columns)
            outcomes["read"] += 1
        except DataError:
            outcomes["refused"] += 1
    assert min(outcomes.values()) > 5


def test_footers_that_go_on_for_ever_are_refused():
    for footer in (
        b"\x1c" * 500,
        b"\x19" * 500,
        b"\x15" + b"\xff" * 40,
        b"\x19\xfc\xff\xff\xff\x7f",
        b"\x18\xff\xff\xff\x7f",
        b"\x1b\x01",
        b"",
    ):
        with pytest.raises(CorruptShardError, match="footer is damaged"):
            chunks_of(footer + len(footer).to_bytes(4, "little") + b"PAR1")


def test_schemas_that_are_nested_deeply_are_refused(monkeypatch):
    monkeypatch.setattr(footers, "_LIMITS_DEPTH", False)  # as of old versions of pyarrow
    group, leaf = b"\x35\x02\x18\x01a\x15\x02\0", b"\x15\x04\x25\x02\x18\x01x\0"
    count = 100_000
    size = bytes([count & 127 | 128, count >> 7 & 127 | 128, count >> 14])
    schema = b"\x19\xfc" + size + group * (count - 1) + leaf
    footer = b"\x15\x02" + schema + b"\x16\0\x19\x0c\0"
    data = b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1"
    with pytest.raises(CorruptShardError, match="its schema is nested more than 100 times"):
        footers.parsed(data)
    wide = pa.table({f"column {n}": [n] for n in range(2000)})
    out = io.BytesIO()
    pq.write_table(wide, out)
    assert footers.parsed(out.getvalue()).num_columns == 2000


@pytest.mark.parametrize("kind", range(1, 13))
@pytest.mark.parametrize("parse", [chunks_of, check_schema_depth])
def test_a_footer_that_ends_within_a_value_is_damaged(parse, kind):
    footer = bytes([0x10 | kind, 0x80])
    with pytest.raises(CorruptShardError, match="footer is damaged"):
        parse(footer + len(footer).to_bytes(4, "little") + b"PAR1")


# -- null counts of other writers -------------------------------------------------------------


def without_nested_null_counts(table, writer):
    """Return a file whose 77 missing lists or structs are not counted, as in the files of some writers."""
    out = io.BytesIO()
    pq.write_table(table, out)
    data = out.getvalue()
    for head in (b"\x16", b"\x36"):
        data = data.replace(head + b"\x9a\x01", head + b"\x80\x00")  # 77 and 0, as zigzag varints
    created_by = f"parquet-cpp-arrow version {pa.__version__}".encode()
    assert data.count(created_by) == 1
    return data.replace(created_by, writer.encode().ljust(len(created_by)))


@pytest.mark.parametrize("writer", ["Polars", "DuckDB v1", "parquet-cpp-arrow version 6.0.1"])
@pytest.mark.parametrize(
    ("value", "type_", "spec"),
    [
        ([1, 2], pa.list_(pa.int32()), "list<int32>?"),
        pytest.param(
            [1, 2],
            pa.list_(pa.int32(), 2),
            "fixed_size_list<int32>[2]?",
            marks=pytest.mark.skipif(not LISTS_OR_NONE, reason="needs pyarrow 26"),
        ),
        ({"a": 1}, pa.struct([("a", pa.int32())]), "struct<a: int32>?"),
    ],
)
def test_missing_lists_and_structs_that_a_writer_does_not_count_are_none(
    writer, value, type_, spec, tmp_path
):
    table = pa.table({"x": pa.array([value] * 100 + [None] * 77, type_)})
    data = without_nested_null_counts(table, writer)
    statistics = pq.read_metadata(io.BytesIO(data)).row_group(0).column(0).statistics
    assert statistics.null_count == 0
    (tmp_path / "x.parquet").write_bytes(data)
    dataset = StreamingDataset(remote=str(tmp_path), format="parquet", batch_size=1)
    assert scanned(MemoryFile(data)).entry["columns"] == {"x": spec}
    assert [dataset[0]["x"], dataset[176]["x"]] == [value, None]


def test_lists_of_one_size_of_other_writers_are_arrays_if_none_is_missing():
    table = pa.table({"x": pa.array([[1, 2]] * 100, pa.list_(pa.int32(), 2))})
    data = without_nested_null_counts(table, "Polars")
    assert scanned(MemoryFile(data)).entry["columns"] == {"x": "fixed_size_list<int32>[2]"}


# -- row groups and files without rows --------------------------------------------------------

TYPED = pa.schema(
    {
        "x": pa.float32(),
        "v": pa.list_(pa.float32(), 2),
        "when": pa.timestamp("us"),
        "text": pa.string(),
        "tags": pa.list_(pa.string()),
        "cell": pa.struct({"a": pa.int64()}),
    }
)
ROWS = {
    "x": [0.5, 1.5],
    "v": [[0, 1], [2, 3]],
    "when": [0, 1],
    "text": ["a", "b"],
    "tags": [["a"], ["b", "c"]],
    "cell": [{"a": 1}, {"a": 2}],
}


def row_groups(*counts, writer=None, **options):
    """Return a file with row groups of 0 or 2 rows."""
    table, out = pa.table(ROWS, TYPED), io.BytesIO()
    with pq.ParquetWriter(out, TYPED, **options) as file:
        for count in counts:
            file.write_table(table.slice(0, count))
    data = out.getvalue()
    if writer is None:
        return data
    created_by = f"parquet-cpp-arrow version {pa.__version__}".encode()
    return data.replace(created_by, writer.encode().ljust(len(created_by)))


@pytest.mark.parametrize("statistics", [True, False])
@pytest.mark.parametrize("writer", [None, "Polars", "parquet-mr version 1.12"])
@pytest.mark.parametrize("counts", [(0, 2), (2, 0), (2, 0, 2), (0, 0, 2, 0)])
def test_row_groups_without_rows_change_no_column(counts, writer, statistics, tmp_path):
    options = {"writer": writer, "write_statistics": statistics}
    data = row_groups(*counts, **options)
    full = row_groups(*filter(None, counts), **options)
    assert scanned(MemoryFile(data)) == scanned(MemoryFile(full))
    (tmp_path / "x.parquet").write_bytes(data)
    dataset = StreamingDataset(remote=str(tmp_path), format="parquet", batch_size=sum(counts))
    batch = next(dataset.batches())
    if statistics:
        assert batch["x"].dtype == np.float32
        assert batch["when"].dtype == "<M8[us]"
        assert batch["v"].dtype == np.float32 or writer == "Polars"
    assert np.stack(batch["v"]).tolist() == ROWS["v"] * (sum(counts) // 2)
    assert list(batch["tags"]) == ROWS["tags"] * (sum(counts) // 2)


def untyped_file():
    """Return an empty file as pandas writes it of columns of objects: their type is null."""
    out = io.BytesIO()
    pq.write_table(pa.table({name: pa.nulls(0) for name in ROWS}), out)
    return out.getvalue()


EMPTY_FILES = {
    "typed": row_groups,
    "row group": lambda: row_groups(0),
    "no statistics": lambda: row_groups(0, write_statistics=False),
    "Polars": lambda: row_groups(writer="Polars"),
    "Polars, row group": lambda: row_groups(0, writer="Polars"),
    "no types": untyped_file,
}


@pytest.mark.parametrize("empty", EMPTY_FILES)
@pytest.mark.parametrize("places", ["a", "ce"])
def test_files_without_rows_change_no_column(places, empty, tmp_path):
    for name in "bd":
        (tmp_path / f"{name}.parquet").write_bytes(row_groups(2))
    for name in places:
        (tmp_path / f"{name}.parquet").write_bytes(EMPTY_FILES[empty]())
    dataset = StreamingDataset(remote=str(tmp_path), format="parquet", batch_size=4)
    batch = next(dataset.batches())
    assert (batch["x"].dtype, batch["v"].dtype, batch["v"].shape) == ("f4", "f4", (4, 2))
    assert batch["when"].dtype == "<M8[us]"
    assert [sample["cell"] for sample in dataset] == ROWS["cell"] * 2


def test_data_sets_of_nothing_but_files_without_rows_have_no_samples(tmp_path):
    for number, empty in enumerate(EMPTY_FILES.values()):
        (tmp_path / f"{number}.parquet").write_bytes(empty())
    dataset = StreamingDataset(remote=str(tmp_path), format="parquet", batch_size=2)
    assert dataset.size == 0
    with pytest.raises(ConfigError, match="no samples"):
        next(dataset.batches())


def test_a_file_of_nothing_but_none_makes_a_column_nullable(tmp_path):
    pq.write_table(pa.table({"x": [1, 2]}), tmp_path / "a.parquet")
    for options in ({}, {"write_statistics": False}):
        pq.write_table(pa.table({"x": pa.nulls(2)}), tmp_path / "b.parquet", **options)
        dataset = StreamingDataset(remote=str(tmp_path), format="parquet", batch_size=4)
        assert [sample["x"] for sample in dataset] == [1, 2, None, None]


# -- structs of dictionaries ------------------------------------------------------------------

TEXTS = pa.dictionary(pa.int32(), pa.string())
BYTES = pa.dictionary(pa.int8(), pa.large_binary())


@pytest.mark.parametrize("store_schema", [True, False])
@pytest.mark.parametrize("has_levels", [True, False])
@pytest.mark.parametrize(
    ("value", "type_"),
    [
        ({"a": "x"}, pa.struct([("a", TEXTS)])),
        ({"a": "x", "b": b"y"}, pa.struct([("a", TEXTS), ("b", BYTES)])),
        ({"a": "x", "b": 1}, pa.struct([("a", TEXTS), ("b", pa.int64())])),
        ({"s": {"a": "x"}}, pa.struct([("s", pa.struct([("a", TEXTS)]))])),
        ({"a": ["x"]}, pa.struct([("a", pa.list_(TEXTS))])),
        ([{"a": "x"}], pa.list_(pa.struct([("a", TEXTS)]))),
    ],
)
def test_missing_structs_of_dictionaries_are_none(
    value, type_, has_levels, store_schema, tmp_path, monkeypatch
):
    """Arrow does not count them in the null counts; newer releases do in the levels."""
    if not has_levels:
        monkeypatch.setattr(thrift, "_chunk", without_levels)
    for values in ([value, None, value], [None], [value]):
        try:
            table = pa.table({"v": pa.array(values, type_)})
        except pa.ArrowNotImplementedError as error:  # of this pyarrow
            pytest.skip(str(error))
        pq.write_table(table, tmp_path / "x.parquet", store_schema=store_schema)
        data = (tmp_path / "x.parquet").read_bytes()
        spec = scanned(MemoryFile(data)).entry["columns"]["v"]
        assert spec.endswith("?") or None not in values
        if has_levels:
            assert spec.endswith("?") == (None in values)
        dataset = StreamingDataset(remote=str(tmp_path), format="parquet", batch_size=3)
        assert [dataset[n]["v"] for n in range(len(values))] == values
        assert list(next(dataset.batches())["v"])[: len(values)] == values


_chunk = thrift._chunk


def without_levels(column):
    return _chunk({field: value for field, value in column.items() if field != 16})
