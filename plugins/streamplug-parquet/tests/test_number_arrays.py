from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from streamplug_parquet import NumberArrays

from streamplug import StreamingDataset, Writer
from streamplug.errors import ConfigError, StreamplugError

TYPES = [pa.int8(), pa.uint16(), pa.int64(), pa.float16(), pa.float32(), pa.float64(), pa.bool_()]


def opened(path, values, type_, **options):
    pq.write_table(pa.table({"x": pa.array(values, type_)}), path, **options)
    return StreamingDataset(
        remote=str(path), format="parquet", decoders={"x": NumberArrays()}, batch_size=len(values)
    )


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(TYPES),
    st.lists(st.none() | st.lists(st.integers(0, 1), max_size=5), min_size=1, max_size=9),
    st.integers(1, 4),
)
def test_lists_become_arrays_of_their_type(tmp_path_factory, type_, values, rows):
    dtype = pa.array([], type_).to_numpy(zero_copy_only=False).dtype
    values = [v if v is None else [dtype.type(item) for item in v] for v in values]
    path = tmp_path_factory.mktemp("x") / "x.parquet"
    dataset = opened(path, values, pa.list_(type_), row_group_size=rows)
    [batch] = dataset.batches()
    singles = [dataset[n]["x"] for n in range(len(values))]
    for found in (batch["x"], singles):
        for expected, one in zip(values, found, strict=True):
            if expected is None:
                assert one is None
            else:
                assert (one.dtype, one.tolist()) == (dtype, [item.item() for item in expected])
                assert one.flags.writeable


def test_lists_of_arrays_have_more_axes(tmp_path):
    pairs = pa.list_(pa.list_(pa.float32(), 2))
    dataset = opened(tmp_path / "x.parquet", [[[1, 2], [3, 4]], [], [[5, 6]]], pairs)
    assert [dataset[n]["x"].shape for n in range(3)] == [(2, 2), (0, 2), (1, 2)]
    assert dataset[2]["x"].tolist() == [[5, 6]]


def test_missing_numbers_are_refused(tmp_path):
    dataset = opened(tmp_path / "x.parquet", [[1], [2, None]], pa.list_(pa.int32()))
    with pytest.raises(StreamplugError, match="1 numbers in lists are missing"):
        dataset[0]


@pytest.mark.parametrize(
    ("type_", "value"),
    [(pa.list_(pa.string()), ["a"]), (pa.string(), "a"), (pa.list_(pa.int8(), 2), [1, 2])],
)
def test_other_columns_are_refused(tmp_path, type_, value):
    with pytest.raises(
        ConfigError, match="NumberArrays takes columns of lists of numbers, such as"
    ):
        opened(tmp_path / "x.parquet", [value], type_)


def test_all_columns_that_cannot_be_written_are_named(tmp_path):
    columns = {"a": "time64[us]", "b": "int64", "c": "map<list<int8>, int8>"}
    with pytest.raises(ConfigError, match=r"column 'a': .*; column 'c': "):
        Writer(columns=columns, out=tmp_path, format="parquet")
