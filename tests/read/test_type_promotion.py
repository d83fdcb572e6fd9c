"""One dtype for the numbers of a column that streams store with different ones."""

from __future__ import annotations

import json
import logging

import numpy as np
import pytest

from streamplug import MDSWriter, Stream, StreamingDataset
from streamplug.errors import ConfigError, DataError


def write(path, spec, values):
    with MDSWriter(out=str(path), columns={"q": spec}) as out:
        for value in values:
            out.write({"q": value})
    return Stream(local=str(path))


def open_both(streams, **options):
    return StreamingDataset(
        streams=list(streams), shuffle=True, shuffle_seed=3, batch_size=2, **options
    )


@pytest.mark.parametrize(
    ("first", "second", "dtype"),
    [
        ("float32", "float64", "float64"),
        ("float16", "float32", "float32"),
        ("int8", "uint8", "int16"),
        ("int", "float32", "float64"),
        ("int64", "uint64", "float64"),
        ("uint16", "int", "int64"),
        ("str_int", "int32", "int64"),
        ("str_float", "float32", "float64"),
        ("json", "float32", "float32"),
        ("json", "int16", "int16"),
        ("pkl", "int32", "int32"),
    ],
)
def test_numbers_have_one_dtype(tmp_path, caplog, first, second, dtype):
    def values(spec, start):
        numbers = range(start, start + 20)
        is_integer = "int" in spec or spec in ("json", "pkl")
        return [n if is_integer else float(n) for n in numbers]

    streams = [
        write(tmp_path / "a", first, values(first, 0)),
        write(tmp_path / "b", second, values(second, 20)),
    ]
    with caplog.at_level(logging.WARNING, "streamplug"):
        dataset = open_both(streams, allow_unsafe_types=True)
    [record] = caplog.records
    assert f"all of its numbers become {dtype}" in record.getMessage()
    assert "'q'" in record.getMessage()
    batches = [batch["q"] for batch in dataset.batches()]
    assert {batch.dtype.name for batch in batches} == {dtype}
    assert sorted(np.concatenate(batches).tolist()) == list(range(40))
    samples = [sample["q"] for sample in dataset]
    assert {type(value) for value in samples} == {np.dtype(dtype).type}
    assert [dataset[i]["q"] for i in (0, 39)] == [0, 39]
    assert {type(dataset[i]["q"]) for i in (0, 39)} == {np.dtype(dtype).type}
    assert {type(sample["q"]) for sample in dataset[[0, 39]]} == {np.dtype(dtype).type}


def test_equal_dtypes_are_read_as_before(tmp_path, caplog):
    streams = [write(tmp_path / name, "float32", np.float32(range(4))) for name in "ab"]
    dataset = open_both(streams)
    assert not caplog.records
    assert type(dataset.session.reader).__name__ == "Reader"


def test_arrays_of_unlike_dtype_and_shape(tmp_path):
    streams = [
        write(tmp_path / "a", "ndarray:float32:2", [np.full(2, n, "f4") for n in range(6)]),
        write(tmp_path / "b", "ndarray:float64", [np.full(2, n, "f8") for n in range(6)]),
    ]
    batches = [batch["q"] for batch in open_both(streams).batches()]
    assert {(batch.dtype.name, batch.shape[1:]) for batch in batches} == {("float64", (2,))}


def test_json_lines_take_the_dtype_of_the_others(tmp_path):
    pytest.importorskip("streamplug_text")
    path = tmp_path / "lines"
    path.mkdir()
    (path / "a.jsonl").write_text("".join(json.dumps({"q": n / 2}) + "\n" for n in range(8)))
    lines = Stream(remote=str(path), local=str(tmp_path / "cache"), format="jsonl")
    dataset = open_both([lines, write(tmp_path / "b", "float32", np.float32(range(8)))])
    assert {batch["q"].dtype.name for batch in dataset.batches()} == {"float32"}


@pytest.mark.parametrize(
    ("spec", "value", "other"),
    [
        ("json", 1.5, "int"),
        ("json", "text", "int"),
        ("json", 300, "uint8"),
        ("json", 1e60, "float32"),
        ("str_int", 1 << 70, "int"),
        ("pkl", np.float64(0.1), "float32"),
        ("bytes", b"text", "int"),
    ],
)
def test_value_that_the_dtype_cannot_hold(tmp_path, spec, value, other):
    streams = [write(tmp_path / "a", spec, [value]), write(tmp_path / "b", other, [1])]
    dataset = StreamingDataset(streams=streams, batch_size=1, allow_unsafe_types=True)
    for read in (
        lambda: list(dataset.batches()),
        lambda: list(dataset),
        lambda: dataset[0],
        lambda: dataset[[0, 1]],
    ):
        with pytest.raises(DataError, match=r"mds, row 0, column 'q': .*other streams have"):
            read()


@pytest.mark.parametrize(
    ("first", "kept", "lost", "second", "dtype"),
    [
        ("uint64", [0, 1 << 53], [(1 << 53) + 1, (1 << 64) - 1], "int64", "float64"),
        ("int64", [-(1 << 53), 1 << 53], [-(1 << 63), (1 << 63) - 1], "float32", "float64"),
        ("int", [-5, 1 << 53], [(1 << 53) + 1], "float64", "float64"),
        ("json", [3, 1 << 53], [(1 << 53) + 1], "float64", "float64"),
    ],
)
def test_integers_that_a_float_would_merge(tmp_path, first, kept, lost, second, dtype):
    streams = [write(tmp_path / "a", first, kept + lost), write(tmp_path / "b", second, [1])]
    dataset = StreamingDataset(streams=streams, batch_size=1)
    assert [sample["q"] for sample in dataset[[0, 1, -1]]] == [*kept, 1]
    assert dataset[0]["q"].dtype == dtype
    for number in range(2, dataset.size - 1):
        with pytest.raises(DataError, match=rf"row {number}, column 'q': .*{lost[number - 2]}"):
            dataset[number]
    with pytest.raises(DataError, match=rf"row 2, column 'q': .*{lost[0]}"):
        list(dataset.batches())


def test_empty_lists_have_any_dtype(tmp_path):
    streams = [
        write(tmp_path / "a", "json", [[], [7]]),
        write(tmp_path / "b", "ndarray:int16:1", [np.array([5], "i2")]),
    ]
    values = [sample["q"] for sample in StreamingDataset(streams=streams, batch_size=1)[:]]
    assert [value.tolist() for value in values] == [[], [7], [5]]
    assert {value.dtype.name for value in values} == {"int16"}


@pytest.mark.parametrize(("unit", "year"), [("s", 3000), ("D", 9999), ("us", 1600)])
def test_times_that_nanoseconds_cannot_hold(tmp_path, unit, year):
    pq = pytest.importorskip("pyarrow.parquet")
    import pyarrow as pa

    early = np.array(["2000-01-02", "NaT", f"{year}-01-01"], f"M8[{unit}]")
    late = np.array(["2000-01-03"], "M8[ns]")
    streams = []
    for name, times in (("a", early), ("b", late)):
        (tmp_path / name).mkdir()
        pq.write_table(pa.table({"q": pa.array(times)}), tmp_path / name / "0.parquet")
        local = str(tmp_path / f"{name}-cache")
        streams.append(Stream(remote=str(tmp_path / name), local=local, format="parquet"))
    dataset = StreamingDataset(streams=streams, batch_size=1)
    assert dataset[0]["q"] == np.datetime64("2000-01-02")
    assert dataset[1]["q"] is None
    assert dataset[0]["q"].dtype == dataset[3]["q"].dtype == "M8[ns]"
    for read in (lambda: dataset[2], lambda: list(dataset.batches())):
        with pytest.raises(DataError, match=rf"row 2, column 'q': datetime64.*{year}"):
            read()


@pytest.mark.parametrize(
    ("first", "value", "second", "other"),
    [
        ("int", 1, "str", "text"),
        ("ndarray:float32:2", np.zeros(2, "f4"), "float32", 1.0),
        ("ndarray:float32", np.zeros(2, "f4"), "int", 1),
    ],
)
def test_other_kinds_are_refused(tmp_path, first, value, second, other):
    streams = [write(tmp_path / "a", first, [value]), write(tmp_path / "b", second, [other])]
    with pytest.raises(ConfigError, match=r"column 'q' is .*/a.* and .*/b.*change their type"):
        StreamingDataset(streams=streams, batch_size=1)


def test_other_columns_can_be_read_instead(tmp_path):
    for name, spec, value in (("a", "int", 1), ("b", "str", "x")):
        with MDSWriter(out=str(tmp_path / name), columns={"q": spec, "n": "int"}) as out:
            out.write({"q": value, "n": 5})
    streams = [Stream(local=str(tmp_path / name)) for name in "ab"]
    dataset = StreamingDataset(streams=streams, batch_size=2, columns=["n"])
    [batch] = dataset.batches()
    assert batch["n"].tolist() == [5, 5]
