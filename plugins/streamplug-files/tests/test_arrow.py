"""Maps of Arrow are dicts wherever they become values of Python, and JSON objects in a data set."""

from __future__ import annotations

import json

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow")

from click.testing import CliRunner  # noqa: E402
from streamplug_files import maps_as_dicts, to_python, value_sizes  # noqa: E402

from streamplug import StreamingDataset, write_from  # noqa: E402
from streamplug.cli import main  # noqa: E402
from streamplug.errors import DataError, EncodeError  # noqa: E402

TEXT_TO_INT = pa.map_(pa.string(), pa.int32())
CASES = {
    "a map": (TEXT_TO_INT, [{"a": 1, "b": None}, {}, None]),
    "in a struct": (
        pa.struct([("f", TEXT_TO_INT), ("n", pa.int8())]),
        [{"f": {"a": 1}, "n": 2}, None],
    ),
    "in a list": (pa.list_(TEXT_TO_INT), [[{"a": 1}, {}], [], None]),
    "in a large list": (pa.large_list(TEXT_TO_INT), [[{"a": 1}]]),
    "in lists of one size": (pa.list_(TEXT_TO_INT, 1), [[{"a": 1}]]),
    "of maps": (pa.map_(pa.string(), TEXT_TO_INT), [{"outer": {"inner": 1}}, {"none": None}]),
    "of lists of structs": (
        pa.map_(pa.string(), pa.list_(pa.struct([("m", TEXT_TO_INT)]))),
        [{"x": [{"m": {"a": 1}}, {"m": None}]}],
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_map_becomes_an_object_of_json_at_any_depth(case, tmp_path):
    type_, values = case
    values = [value for value in values if value is not None]
    table = pa.table({"m": pa.array(values, type_)})
    write_from(table, out=tmp_path / "set")
    [shard] = json.loads((tmp_path / "set/index.json").read_bytes())["shards"]
    assert shard["column_encodings"] == ["json"]
    assert [sample["m"] for sample in StreamingDataset(local=str(tmp_path / "set"))[:]] == values


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_values_are_those_that_arrow_was_given(case):
    type_, values = case
    assert to_python(pa.array(values, type_)) == values
    assert to_python(pa.chunked_array([pa.array(values, type_)])) == values


def test_other_types_are_left_alone():
    for type_ in (pa.int8(), pa.string(), pa.list_(pa.struct([("x", pa.int8())])), pa.null()):
        assert maps_as_dicts(type_) is None


def test_keys_that_are_numbers_become_text(tmp_path):
    table = pa.table({"m": pa.array([{1: "one"}], pa.map_(pa.int64(), pa.string()))})
    write_from(table, out=tmp_path / "set")
    assert StreamingDataset(local=str(tmp_path / "set"))[0] == {"m": {"1": "one"}}


def test_keys_that_neither_json_nor_a_dict_can_have_are_refused(tmp_path):
    bytes_ = pa.table({"m": pa.array([[(b"a", 1)]], pa.map_(pa.binary(), pa.int32()))})
    with pytest.raises(
        EncodeError, match=r"column 'm': json takes what JSON can express .*keys must"
    ):
        write_from(bytes_, out=tmp_path / "bytes", columns={"m": "json"})
    twice = pa.table({"m": pa.array([[("a", 1), ("a", 2)]], TEXT_TO_INT)})
    with pytest.raises(DataError, match="a map has the key 'a' twice"):
        write_from(twice, out=tmp_path / "twice")
    key = pa.map_(pa.struct([("x", pa.int8())]), pa.int32())
    structs = pa.table({"m": pa.array([[({"x": 1}, 1)]], key)})
    with pytest.raises(DataError, match=r"a map has the key {'x': 1}: a dict cannot be"):
        write_from(structs, out=tmp_path / "structs")


def test_data_frames_of_arrow_types_have_them_too(tmp_path):
    pandas = pytest.importorskip("pandas")
    values = pandas.Series(pa.array([{"a": 1}], TEXT_TO_INT), dtype=pandas.ArrowDtype(TEXT_TO_INT))
    write_from(pandas.DataFrame({"m": values}), out=tmp_path / "set")
    assert StreamingDataset(local=str(tmp_path / "set"))[0] == {"m": {"a": 1}}


def test_parquet_with_a_map_is_converted_to_json_objects(tmp_path):
    pytest.importorskip("streamplug_parquet")
    from pyarrow import parquet

    (tmp_path / "tables").mkdir()
    rows = [{"a": 1}, {"b": 2, "c": 3}, {}]
    parquet.write_table(
        pa.table({"m": pa.array(rows, TEXT_TO_INT)}), tmp_path / "tables" / "x.parquet"
    )
    command = [
        "convert",
        str(tmp_path / "tables"),
        str(tmp_path / "set"),
        "--src-format",
        "parquet",
    ]
    done = CliRunner().invoke(main, [*command, "--format", "mds", "--columns", "m:json"])
    assert done.exit_code == 0, done.stderr
    assert [sample["m"] for sample in StreamingDataset(local=str(tmp_path / "set"))[:]] == rows


TEXT = pa.string()
SIZES = {
    "numbers": (pa.array([1, None], pa.int8()), 40.0),
    "text": (pa.array(["abc", None, ""]), [67, 64, 64]),
    "a view of text": (pa.array(["abc", None, "x" * 50], pa.string_view()), [67, 64, 114]),
    "fixed bytes": (pa.array([b"ab"], pa.binary(2)), 66.0),
    "a dictionary": (pa.array(["abc", None, "abc"]).dictionary_encode(), [67, 8, 67]),
    "nulls in lists": (pa.array([[None] * 3, []], pa.list_(pa.null())), [88, 64]),
    "lists of one size": (pa.array([[None] * 3], pa.list_(pa.null(), 3)), 88.0),
    "text in them": (pa.array([["a", "b"], ["", "abc"]], pa.list_(TEXT, 2)), [194, 195]),
    "structs": (pa.array([{"a": 1, "b": "x"}]), [64 * 3 + 40 + 65]),
    "maps": (pa.array([[("a", 1)], []], TEXT_TO_INT), [64 + 65 + 40, 64]),
    "views of lists": (pa.array([["a"], ["b", ""]], pa.list_view(TEXT)), [129, 193]),
    "runs": (pa.RunEndEncodedArray.from_arrays(pa.array([9], pa.int32()), ["a"]), 65.0),
}


@pytest.mark.parametrize(("array", "expected"), SIZES.values(), ids=SIZES)
def test_sizes_of_values_count_them_as_python_objects(array, expected):
    assert np.array_equal(value_sizes(array), expected)
    if not isinstance(expected, float):
        assert np.array_equal(value_sizes(array.slice(1)), expected[1:])


def test_sizes_of_values_take_no_memory_for_nulls():
    lists = pa.FixedSizeListArray.from_arrays(pa.nulls(1 << 31), 1 << 30)
    assert value_sizes(lists) == 64 + 8 * (1 << 30)
