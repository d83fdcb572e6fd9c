"""IPC files and streams of Arrow: what is read of them, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from streamplug_parquet.arrow_messages import iter_messages

from streamplug import StreamingDataset
from streamplug.errors import ConfigError, DataError, StreamplugError

slow = settings(
    deadline=None,
    max_examples=30,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

TABLE = pa.table(
    {
        "id": ["a", "b", None, "d", "e"],
        "ids": pa.array([[1, 2], [], [3], [4, 5, 6], [7]], pa.list_(pa.int32())),
        "label": pa.array(["x", "y", "x", "x", "z"]).dictionary_encode(),
        "n": pa.array(range(5), pa.int64()),
        "nested": [
            {"a": 1, "b": [None, "t"]},
            {"a": None, "b": []},
            None,
            {"a": 2, "b": ["u"]},
            None,
        ],
        "vector": pa.array([[n, n + 1] for n in range(5)], pa.list_(pa.float32(), 2)),
    }
)


@pytest.fixture(autouse=True)
def temporary_files(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))


def write(
    path: Path, table: Any = TABLE, *, kind: str = "stream", rows: int = 2, **options: Any
) -> str:
    make = pa.ipc.new_stream if kind == "stream" else pa.ipc.new_file
    with make(str(path), table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table, max_chunksize=rows)
    return str(path)


def plain(sample: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value
        for name, value in sample.items()
    }


@pytest.mark.parametrize("kind", ["stream", "file"])
@pytest.mark.parametrize("compression", [None, "zstd", "lz4"])
def test_rows_are_those_of_arrow(tmp_path, kind, compression):
    place = write(tmp_path / "x.arrow", kind=kind, compression=compression)
    dataset = StreamingDataset(local=place, format="arrow")
    assert [plain(sample) for sample in dataset] == TABLE.to_pylist()
    assert [plain(dataset[number]) for number in range(5)] == TABLE.to_pylist()
    assert isinstance(dataset[1]["n"], np.int64)
    assert dataset[1]["vector"].dtype == np.float32


def test_only_columns_that_lack_values_may_lack_them(tmp_path):
    place = write(tmp_path / "x.arrow")
    index = StreamingDataset(local=place, format="arrow").streams[0].open().index
    specs = {column.name: column.spec for column in index.schemas[0].columns}
    assert [name for name, spec in specs.items() if spec.endswith("?")] == ["id", "nested"]


@slow
@given(st.lists(st.none() | st.lists(st.integers(0, 100), max_size=5), min_size=1, max_size=20))
def test_lists_of_any_rows_per_batch_are_read(tmp_path, values):
    table = pa.table({"x": pa.array(values, pa.list_(pa.int16())), "y": range(len(values))})
    place = write(tmp_path / "x.arrow", table, rows=1 + len(values) // 3)
    dataset = StreamingDataset(local=place, format="arrow", batch_size=len(values))
    assert [sample["x"] for sample in dataset] == values
    [batch] = dataset.batches()
    assert list(batch["y"]) == list(range(len(values)))


def test_directories_of_saved_data_sets_are_read_without_caches(tmp_path):
    for number in range(2):
        write(tmp_path / f"data-0000{number}-of-00002.arrow")
    write(tmp_path / "cache-12ab.arrow", pa.table({"other": [1]}))
    (tmp_path / "state.json").write_text("{}")
    dataset = StreamingDataset(
        remote=str(tmp_path), local=str(tmp_path / "cache"), format="arrow", columns=["n"]
    )
    assert [int(sample["n"]) for sample in dataset] == [*range(5), *range(5)]


def test_an_empty_stream_has_no_rows(tmp_path):
    write(tmp_path / "a.arrow", TABLE[:0])
    write(tmp_path / "b.arrow", TABLE)
    assert len(list(StreamingDataset(local=str(tmp_path), format="arrow"))) == 5


def test_dictionaries_may_be_replaced(tmp_path):
    batches = [
        pa.record_batch({"x": pa.array(values).dictionary_encode()})
        for values in (["a", "b", "a"], ["c", "c"], ["d", "a"])
    ]
    with pa.ipc.new_stream(str(tmp_path / "x.arrow"), batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    dataset = StreamingDataset(local=str(tmp_path / "x.arrow"), format="arrow")
    assert [sample["x"] for sample in dataset] == list("abaccda")


@pytest.mark.parametrize("values", [[None, "x"], [None, 7], [None, [1, 2]]])
@pytest.mark.parametrize("rows", [2, 200])
def test_entries_of_dictionaries_may_be_missing(tmp_path, values, rows):
    numbers = pa.array([n % 2 for n in range(rows)])
    column = pa.DictionaryArray.from_arrays(numbers, pa.array(values))
    place = write(tmp_path / "x.arrow", pa.table({"x": column, "n": range(rows)}), rows=rows)
    dataset = StreamingDataset(local=place, format="arrow", batch_size=rows)
    expected = [values[n % 2] for n in range(rows)]
    assert [sample["x"] for sample in dataset] == expected
    [batch] = dataset.batches()
    assert list(batch["x"]) == expected
    assert isinstance(batch["n"], np.ndarray)


def test_lists_of_one_size_may_have_missing_numbers(tmp_path):
    values = [[1, 2], [None, 3]]
    table = pa.table({"x": pa.array(values, pa.list_(pa.int32(), 2))})
    dataset = StreamingDataset(local=write(tmp_path / "x.arrow", table), format="arrow")
    assert [plain(sample)["x"] for sample in dataset] == values


def write_repeated(path: Path, entry: Any, type_: pa.DataType) -> str:
    numbers = pa.array(np.zeros(len(entry), np.int8))
    column = pa.DictionaryArray.from_arrays(numbers, pa.array([entry], type_))
    return write(path, pa.table({"x": column}), rows=len(entry))


@pytest.mark.parametrize("type_", [pa.string_view(), pa.large_string()])
@pytest.mark.parametrize("first", ["", None])
def test_entries_of_dictionaries_may_be_of_any_type_of_text(tmp_path, type_, first):
    entries = [first, "short", "longer than the twelve bytes of a view"]
    numbers = pa.array([n % 3 if n % 7 else None for n in range(200)], pa.int8())
    column = pa.DictionaryArray.from_arrays(numbers, pa.array(entries, type_))
    place = write(tmp_path / "x.arrow", pa.table({"x": column}), rows=200)
    dataset = StreamingDataset(local=place, format="arrow", batch_size=200)
    expected = [entries[n % 3] if n % 7 else None for n in range(200)]
    assert [sample["x"] for sample in dataset] == expected
    [batch] = dataset.batches()
    assert batch["x"] == expected


def write_views(path: Path, *, is_dictionary: bool = False) -> str:
    views = np.zeros((20_000, 4), "<i4")
    views[:, 0], views[:, 1] = 200_000, int.from_bytes(b"xxxx", "little")
    buffers = [None, pa.py_buffer(views.tobytes()), pa.py_buffer(b"x" * 200_000)]
    column = pa.Array.from_buffers(pa.string_view(), len(views), buffers)
    if is_dictionary:
        column = pa.DictionaryArray.from_arrays(pa.array(range(len(views))), column)
    return write(path, pa.table({"x": column}), rows=len(views))


@pytest.mark.parametrize(
    "make",
    [
        lambda path: write(
            path, pa.table({"x": np.zeros(1 << 18)}), rows=1 << 18, compression="zstd"
        ),
        lambda path: write_repeated(path, [1] * 3000, pa.list_(pa.int8())),
        write_views,
        lambda path: write_views(path, is_dictionary=True),
    ],
    ids=["compressed", "dictionary", "views", "dictionary of views"],
)
def test_small_files_of_large_values_are_refused(tmp_path, monkeypatch, make):
    monkeypatch.setattr("streamplug_parquet.memory_bounds.MIN_LIMIT_BYTES", 1 << 20)
    monkeypatch.setattr("streamplug_parquet.budget.budget.limit", 1 << 20)
    dataset = StreamingDataset(local=make(tmp_path / "x.arrow"), format="arrow")
    with pytest.raises(DataError, match=r"x\.arrow.*column 'x': the values take up to .* limit of"):
        dataset[0]


def test_repeated_text_stays_in_its_dictionary(tmp_path, monkeypatch):
    monkeypatch.setattr("streamplug_parquet.memory_bounds.MIN_LIMIT_BYTES", 1 << 20)
    monkeypatch.setattr("streamplug_parquet.budget.budget.limit", 1 << 20)
    place = write_repeated(tmp_path / "x.arrow", "x" * 5000, pa.string())
    assert StreamingDataset(local=place, format="arrow")[4999]["x"] == "x" * 5000


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"PAR1" + bytes(50), "begins with b'PAR1', and not with a message of Arrow"),
        (b"\xff\xff\xff\xff\x10", "no message of Arrow at byte 0"),
        (b"\xff\xff\xff\xff\x00\x00\x00\x00", "does not begin with a schema"),
        (b"\xff\xff\xff\xff\x20\x00\x00\x00" + bytes(32), "damaged|does not begin with a schema"),
        (b"", "does not begin with a schema"),
    ],
)
def test_other_files_are_refused(tmp_path, content, message):
    (tmp_path / "x.arrow").write_bytes(content)
    with pytest.raises(DataError, match=rf"x\.arrow.*({message})"):
        StreamingDataset(local=str(tmp_path / "x.arrow"), format="arrow")


def test_files_that_were_cut_short_are_refused(tmp_path):
    place = Path(write(tmp_path / "x.arrow"))
    content = place.read_bytes()
    place.write_bytes(content[: len(content) - 100])
    with pytest.raises(DataError, match=r"x\.arrow.*cut short"):
        StreamingDataset(local=str(place), format="arrow")


def test_files_of_other_columns_are_refused(tmp_path):
    write(tmp_path / "a.arrow")
    write(tmp_path / "b.arrow", pa.table({"other": [1]}))
    with pytest.raises(DataError, match=r"a\.arrow and b\.arrow.*same columns"):
        StreamingDataset(local=str(tmp_path), format="arrow")


def test_types_that_cannot_be_read_are_named(tmp_path):
    kinds = pa.array([0], pa.int8())
    table = pa.table({"x": pa.UnionArray.from_sparse(kinds, [pa.array([1]), pa.array(["a"])])})
    with pytest.raises((ConfigError, DataError), match="column 'x'"):
        StreamingDataset(local=write(tmp_path / "x.arrow", table), format="arrow")


def test_several_columns_of_one_name_are_refused(tmp_path):
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["x", "x"])
    with pytest.raises(DataError, match="several columns of one name"):
        StreamingDataset(local=write(tmp_path / "x.arrow", table), format="arrow")


@slow
@given(st.data())
def test_damage_is_an_error_or_harmless(tmp_path, data):
    place = Path(write(tmp_path / "x.arrow", TABLE.select(["ids", "n"])))
    content = bytearray(place.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    place.write_bytes(content)
    try:
        list(StreamingDataset(local=str(place), format="arrow"))
    except StreamplugError as error:
        assert "x.arrow" in str(error) or "no samples" in str(error)  # noqa: PT017


@settings(deadline=None, max_examples=100)
@given(st.binary(max_size=200))
def test_no_bytes_crash_the_search_for_messages(content):
    data = b"\xff\xff\xff\xff" + content
    try:
        messages = list(iter_messages(lambda start, stop: data[start:stop], len(data)))
    except DataError:
        return
    assert all(message.stop <= len(data) for message in messages)
