"""Files of a few kilobytes that would take gigabytes when they are decoded."""

from __future__ import annotations

import io
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from streamplug_parquet import memory_bounds
from streamplug_parquet.budget import VARIABLE, Budget
from streamplug_parquet.column_chunks import ColumnChunks
from streamplug_parquet.page_headers import parse_pages
from streamplug_parquet.page_values import count_missing, count_prefix_bytes
from streamplug_parquet.thrift import chunks_of
from streamplug_parquet.writer import LISTS_OR_NONE
from streamplug_testing.memory import takes_less_of_the_system

from streamplug import StreamingDataset
from streamplug.errors import CorruptShardError, DecodeError

MB = 1 << 20
REMEDY = rf"more than the limit of \d+; .*{VARIABLE}=\d+"


@pytest.fixture(autouse=True)
def low_limit(monkeypatch):
    monkeypatch.setattr(memory_bounds, "MIN_LIMIT_BYTES", 32 * MB)
    monkeypatch.setattr(memory_bounds, "budget", Budget(0))


def opened(folder, **options):
    options = {"batch_size": 10, "format": "parquet", "shuffle": False, **options}
    return StreamingDataset(remote=str(folder), **options)


def repeated(count, size=MB, text="x"):
    indices = pa.array(np.zeros(count, np.int32))
    return pa.DictionaryArray.from_arrays(indices, pa.array([text * size]))


def write(folder, array, **options):
    options = {
        "compression": "zstd",
        "store_schema": False,
        "dictionary_pagesize_limit": 1 << 30,
        "row_group_size": 1 << 30,
        **options,
    }
    pq.write_table(pa.table({"x": array}), folder / "x.parquet", **options)
    assert (folder / "x.parquet").stat().st_size < 20_000


def refuses(folder, match, **options):
    dataset = opened(folder, **options)

    def act():
        with pytest.raises(CorruptShardError, match=match):
            dataset[0]
        with pytest.raises(CorruptShardError, match=match):
            next(iter(dataset.batches()))

    return takes_less_of_the_system(30 * MB, act)


def in_lists(values, size):
    offsets = pa.array(np.arange(0, len(values) + 1, size), pa.int32())
    return pa.ListArray.from_arrays(offsets, values)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda values: in_lists(values, 10),
        lambda values: pa.StructArray.from_arrays([values], ["text"]),
        lambda values: in_lists(pa.StructArray.from_arrays([values], ["text"]), 1),
    ],
)
def test_text_that_repeats_inside_of_others_is_measured_before_it_is_expanded(wrap, tmp_path):
    write(tmp_path, wrap(repeated(10_000)))
    assert refuses(tmp_path, rf"row group 0, column 'x': .*{REMEDY}")


def test_text_that_repeats_is_read_one_by_one_and_refused_in_batches_that_are_too_large(tmp_path):
    write(tmp_path, repeated(200))
    assert takes_less_of_the_system(30 * MB, lambda: opened(tmp_path)[99])
    assert len(opened(tmp_path)[0]["x"]) == MB
    dataset = opened(tmp_path, batch_size=200)

    def act():
        with pytest.raises(
            DecodeError, match=r"column 'x': 200 values take 209715200 bytes.*batch"
        ):
            next(iter(dataset.batches()))

    assert takes_less_of_the_system(30 * MB, act)


def test_nested_values_that_would_be_many_objects_are_refused(tmp_path):
    structs = pa.StructArray.from_arrays([pa.nulls(400_000, pa.int32())], ["a"])
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 400_000], pa.int32()), structs)
    write(tmp_path, lists)
    assert opened(tmp_path)[0]["x"] == [{"a": None}]
    dataset = opened(tmp_path)

    def act():
        with pytest.raises(DecodeError, match=rf"column 'x': 1 values take \d+ bytes, {REMEDY}"):
            dataset[1]
        with pytest.raises(DecodeError, match=rf"column 'x': \d+ values take \d+ bytes, {REMEDY}"):
            next(iter(dataset.batches()))

    assert takes_less_of_the_system(30 * MB, act)


def test_text_that_shares_prefixes_is_measured_before_it_is_decoded(tmp_path):
    options = {"use_dictionary": False, "column_encoding": {"x": "DELTA_BYTE_ARRAY"}}
    write(tmp_path, pa.array(["x" * MB] * 100), **options)
    assert refuses(tmp_path, rf"column 'x': .*{REMEDY}")
    pq.write_table(pa.table({"x": ["abc" * 999] * 100}), tmp_path / "x.parquet", **options)
    assert opened(tmp_path)[99]["x"] == "abc" * 999


class CountedNames(list):
    passes = 0

    def __iter__(self):
        self.passes += 1
        return super().__iter__()


def test_columns_of_wide_files_are_measured_without_a_look_at_all_for_each():
    names = CountedNames(f"column.{number}" for number in range(100))
    columns = {name: pa.array([{"x": 1, "y": 2}]) for name in names}
    file = io.BytesIO()
    pq.write_table(pa.table({**columns, "column": pa.array([1]), "column.1x": pa.array([1])}), file)
    data = file.getvalue()
    chunks = ColumnChunks(memoryview(data), pq.read_metadata(io.BytesIO(data)))
    sizes = memory_bounds.DecodedSizes(memoryview(data), chunks)
    names.passes = 0
    paths = [leaf.path for leaf in sizes._leaves(0, names)]
    assert paths == [f"{name}.{field}" for name in names for field in "xy"]
    assert names.passes < 10


def test_numbers_of_many_columns_are_refused_together(tmp_path):
    table = pa.table({f"x{n}": np.zeros(1_000_000, np.int64) for n in range(5)})
    path = tmp_path / "x.parquet"
    pq.write_table(table, path, compression="zstd", row_group_size=1 << 30)
    assert opened(tmp_path, columns=["x0"])[0] == {"x0": 0}
    assert refuses(tmp_path, rf"row group 0, columns 'x0', .*{REMEDY}")


def test_a_list_of_very_many_is_refused(tmp_path):
    count = 5_000_000
    offsets = pa.array([0, count], pa.int32())
    write(tmp_path, pa.ListArray.from_arrays(offsets, pa.array(np.zeros(count, np.int8))))
    assert refuses(tmp_path, rf"column 'x': .*{REMEDY}")


@pytest.mark.parametrize("is_nested", [False, True])
def test_lists_of_one_size_that_are_missing_are_counted(is_nested, tmp_path):
    one_size = pa.list_(pa.int64(), 1 << 14)
    array = pa.nulls(1000, one_size)
    if is_nested:
        offsets = pa.array(np.arange(0, 1001, 10), pa.int32())
        array = pa.ListArray.from_arrays(offsets, array)
    write(tmp_path, array, store_schema=True)
    assert refuses(tmp_path, rf"column 'x': .*{REMEDY}")


def test_a_page_that_lies_about_its_size_is_refused(tmp_path):
    write(tmp_path, pa.array(["x" * (40 * MB)]), use_dictionary=False, write_statistics=False)
    assert refuses(tmp_path, rf"column 'x': .*{REMEDY}")


def test_the_limit_is_that_of_the_cache_if_it_is_higher(tmp_path, monkeypatch):
    monkeypatch.setattr(memory_bounds, "MIN_LIMIT_BYTES", 1000)
    monkeypatch.setattr(memory_bounds, "budget", Budget(1000))
    write(tmp_path, pa.array(np.zeros(100_000)), row_group_size=1 << 20)
    with pytest.raises(CorruptShardError, match=REMEDY) as caught:
        opened(tmp_path)[0]
    needed = int(str(caught.value).rpartition("=")[2])
    monkeypatch.setattr(memory_bounds, "budget", Budget(needed))
    assert opened(tmp_path)[0]["x"] == 0


# -- what pages say --------------------------------------------------------------------------

WORDS = ["same prefix, one", None, "same prefix, two", "another", "another one"] * 300
BOXES = pa.array([[[1, 2, 3], None], None, [], [None]] * 300, pa.list_(pa.list_(pa.int32(), 3)))


@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "brotli", "lz4", "zstd"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.skipif(not LISTS_OR_NONE, reason="this pyarrow does not write them")
def test_numbers_inside_of_pages_are_counted(compression, version):
    out = io.BytesIO()
    table = pa.table({"word": WORDS, "box": [*BOXES.to_pylist(), *[None] * 300]})
    table = table.set_column(1, "box", table["box"].cast(BOXES.type))
    pq.write_table(
        table,
        out,
        compression=compression,
        data_page_version=version,
        use_dictionary=False,
        column_encoding={"word": "DELTA_BYTE_ARRAY"},
        data_page_size=1000,
        write_batch_size=100,
    )
    data = memoryview(out.getvalue())
    words, boxes = chunks_of(bytes(data))[0]
    pages = list(parse_pages(data, words))
    assert len(pages) > 3
    assert sum(page.values for page in pages) == 1500
    shared = sum(count_prefix_bytes(data, page, words.codec, (0, 1)) for page in pages)
    assert shared == 300 * (len("same prefix, ") + len("another"))
    schema = pq.ParquetFile(out).schema.column(1)
    levels = schema.max_repetition_level, schema.max_definition_level
    missing = sum(count_missing(data, p, boxes.codec, levels) for p in parse_pages(data, boxes))
    assert missing == 300 + 300 + 300 + 300 + 300


def test_all_ways_to_read_repeated_text_give_the_same(tmp_path, monkeypatch):
    table = pa.table(
        {
            "flat": WORDS,
            "list": [[word, "more"] if word else None for word in WORDS],
            "fixed": pa.array([[word, "x"] for word in WORDS], pa.list_(pa.string(), 2)),
            "struct": [{"a": word, "b": [{"c": word}]} for word in WORDS],
            "map": pa.array(
                [[(word or "", word)] for word in WORDS], pa.map_(pa.string(), pa.string())
            ),
            "file": [{"bytes": (word or "").encode(), "path": word} for word in WORDS],
            "large": pa.array(WORDS, pa.large_string()),
            "category": pa.array(WORDS).dictionary_encode(),
        }
    )
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=400, data_page_size=1000)
    (expected,) = opened(tmp_path, batch_size=1500).batches()
    monkeypatch.setattr(memory_bounds._Leaf, "max_expansion", lambda leaf: 1 << 60)
    (batch,) = opened(tmp_path, batch_size=1500).batches()
    assert batch == expected
    assert batch["list"] == table["list"].to_pylist()


@pytest.mark.parametrize("place", range(0, 40, 3))
def test_damaged_headers_of_pages_are_refused(place, tmp_path):
    write(tmp_path, pa.array(WORDS))
    path = tmp_path / "x.parquet"
    dataset = opened(tmp_path)
    dataset[0]
    data = bytearray(path.read_bytes())
    data[4 + place] = 0xFF
    path.write_bytes(data)
    with suppress(CorruptShardError, DecodeError):
        assert opened(tmp_path)[0]["x"] == WORDS[0]
