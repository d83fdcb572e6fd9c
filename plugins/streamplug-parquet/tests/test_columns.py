"""However samples are given to a writer, the files are the same."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from enum import Enum

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from streamplug_tools import iterate_batches

from streamplug import StreamingDataset, Writer
from streamplug.errors import ConfigError, EncodeError, EncodeTypeError, UnknownNameError

COLUMNS = {
    "id": "int64",
    "small": "int8?",
    "share": "float",
    "text": "string",
    "more": "string?",
    "raw": "binary",
    "vector": "fixed_size_list<float>[2]",
    "ids": "list<int32>",
    "tags": "list<string>?",
    "cell": "struct<bytes: binary, path: string>",
    "deep": "list<struct<a: int64, b: list<double>>>",
    "marks": "map<string, list<int8>>?",
    "when": "timestamp[us]",
    "price": "decimal128(9, 2)",
}
COUNT = 500
MIDNIGHT = datetime(2020, 1, 1)  # noqa: DTZ001 - columns without a zone take it


def row(n):
    return {
        "id": n,
        "small": n % 100 if n % 7 else None,
        "share": n / 4,
        "text": f"text {n} " * (n % 5) + "é" * (n % 300 == 299),
        "more": None if n % 3 else f"{n}",
        "raw": bytes([n % 256]) * (n % 9),
        "vector": np.array([n, -n], np.float32),
        "ids": list(range(n % 4)),
        "tags": None if n % 11 == 0 else ["a", None, "ü" * (n % 3)][: n % 4],
        "cell": {"bytes": b"x" * (n % 20), "path": None if n % 2 else f"{n}.jpg"},
        "deep": [{"a": n, "b": [0.5] * (n % 3)}, {"a": None, "b": None}][: n % 3],
        "marks": None if n % 5 == 0 else {f"{m}": [m] * (n % 3) for m in range(n % 4)},
        "when": np.datetime64(n, "us"),
        "price": Decimal(n).scaleb(-2),
    }


ROWS = [row(n) for n in range(COUNT)]


def columns_of(rows):
    columns = {name: [each[name] for each in rows] for name in COLUMNS}
    arrays = {"id": np.int64, "share": np.float32, "vector": np.float32, "when": "M8[us]"}
    return columns | {name: np.array(columns[name], dtype) for name, dtype in arrays.items()}


def table_of(rows):
    columns = columns_of(rows)
    types = dict.fromkeys(COLUMNS)
    types |= {"small": pa.int8(), "ids": pa.list_(pa.int32()), "price": pa.decimal128(9, 2)}
    types["marks"] = pa.map_(pa.string(), pa.list_(pa.int8()))
    types["vector"] = pa.list_(pa.float32(), 2)
    columns["vector"] = columns["vector"].tolist()
    columns["text"] = pa.array(columns["text"]).dictionary_encode()
    return pa.table({name: pa.array(columns[name], types[name]) for name in COLUMNS})


def by_rows(out):
    for each in ROWS:
        out.write(each)


def by_rows_of_numpy(out):
    for each in ROWS:
        out.write({**each, "id": np.int64(each["id"]), "ids": np.array(each["ids"], np.int32)})


def by_small_batches(out):
    for start in range(0, COUNT, 7):
        out.write_batch(columns_of(ROWS[start : start + 7]))


def by_both(out):
    for start in range(0, COUNT, 50):
        for each in ROWS[start : start + 20]:
            out.write(each)
        out.write_batch(columns_of(ROWS[start + 20 : start + 50]))


def by_arrow(out, data, size=None):
    for batch in iterate_batches(data, size, arrow=True):
        out.write_batch(batch)


WAYS = [
    by_rows_of_numpy,
    by_small_batches,
    by_both,
    lambda out: out.write_batch(columns_of(ROWS)),
    lambda out: by_arrow(out, ROWS),
    lambda out: by_arrow(out, table_of(ROWS)),
    lambda out: by_arrow(out, pa.concat_tables([table_of(ROWS[:33]), table_of(ROWS[33:])]), 40),
]
NAMES = ["of numpy", "small batches", "both", "batch", "samples", "table", "tables"]


def written(folder, way, **options):
    with Writer(out=folder, columns=COLUMNS, format="parquet:60", **options) as out:
        way(out)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("options", [{"size_limit": 16384}, {"max_samples_per_shard": 90}], ids=str)
@pytest.mark.parametrize("way", WAYS, ids=NAMES)
def test_files_do_not_depend_on_how_samples_are_given(way, options, tmp_path, monkeypatch):
    monkeypatch.setattr("streamplug.write.writer._MAX_UNPACKED_PIECES", 64)
    expected = written(tmp_path / "a", by_rows, **options)
    assert len(expected) > 4
    assert written(tmp_path / "b", way, **options) == expected


def test_all_samples_are_there(tmp_path):
    written(tmp_path / "set", by_both)
    table = pq.read_table(tmp_path / "set" / "shard.00000.parquet")
    found = table.to_pylist(maps_as_pydicts="strict")
    expected = [
        {**each, "vector": each["vector"].tolist(), "when": each["when"].item()} for each in ROWS
    ]
    assert found == expected


def test_what_was_given_may_be_changed_afterwards(tmp_path):
    columns = {"n": "int64", "v": "fixed_size_list<int8>[2]", "b": "binary", "l": "list<int64>"}
    n, v, b, items = np.arange(3), np.ones((3, 2), np.int8), bytearray(b"ab"), [1, 2]
    with Writer(out=tmp_path, columns=columns, format="parquet", exist_ok=True) as out:
        out.write({"n": 9, "v": v[0], "b": b, "l": items})
        out.write_batch({"n": n, "v": v, "b": [b] * 3, "l": [items, n, items]})
        n[:], v[:], b[:], items[:] = 7, 7, b"zz", [7]
    found = pq.read_table(tmp_path / "shard.00000.parquet").to_pydict()
    assert found == {
        "n": [9, 0, 1, 2],
        "v": [[1, 1]] * 4,
        "b": [b"ab"] * 4,
        "l": [[1, 2], [1, 2], [0, 1, 2], [1, 2]],
    }


def test_a_sample_that_was_refused_leaves_no_trace(tmp_path):
    columns = {"a": "int64", "b": "string?", "c": "struct<x: int8, y: list<string>>"}
    fine = {"a": 1, "b": None, "c": {"x": 1, "y": ["z"]}}
    wrong = [
        {**fine, "a": 1 << 63},
        {**fine, "a": None},
        {**fine, "b": 1},
        {**fine, "b": "\ud800"},
        {**fine, "c": {"x": 300, "y": None}},
        {**fine, "c": {"x": 1, "z": 1}},
        {**fine, "c": None},
    ]
    with Writer(out=tmp_path / "set", columns=columns, format="parquet") as out:
        for sample in wrong:
            name = next(name for name in columns if sample[name] != fine[name])
            with pytest.raises(EncodeError, match=f"column '{name}'"):
                out.write(sample)
            with pytest.raises(EncodeError, match=f"column '{name}'"):
                out.write_batch({key: [fine[key], sample[key]] for key in columns})
            out.write(fine)
    dataset = StreamingDataset(local=str(tmp_path / "set"), batch_size=1)
    assert [dataset[n] for n in range(len(dataset))] == [fine] * len(wrong)


class Color(str, Enum):
    RED = "red"


@pytest.mark.parametrize("spec", ["string", "string?", "list<string>"])
def test_members_of_enumerations_of_text_are_their_text(spec, tmp_path):
    value = [Color.RED] if spec == "list<string>" else Color.RED
    with Writer(out=tmp_path / "set", columns={"x": spec}, format="parquet") as out:
        out.write({"x": value})
        out.write_batch({"x": [value]})
    dataset = StreamingDataset(local=str(tmp_path / "set"), batch_size=1)
    assert [dataset[n]["x"] for n in range(2)] == [["red"] if spec == "list<string>" else "red"] * 2


@pytest.mark.parametrize(
    "spec",
    [
        "fixed_size_list<int32>[2]", "fixed_size_list<float>[2]", "list<int32>", "list<int64>?",
        "list<list<int32>>", "struct<a: list<int32>>",
    ],
)  # fmt: skip
@pytest.mark.parametrize("mask", [[False, True], [False, False], np.ma.nomask])
def test_masked_arrays_are_refused(spec, mask, tmp_path):
    masked = np.ma.array([1, 2], np.int32, mask=mask)
    value = {"list<list<int32>>": [masked], "struct<a: list<int32>>": {"a": masked}}.get(
        spec, masked
    )
    with Writer(out=tmp_path / "set", columns={"x": spec}, format="parquet") as out:
        for give in (
            lambda: out.write({"x": value}),
            lambda: out.write_batch({"x": [value]}),
            lambda: out.write_batch({"x": np.ma.stack([masked]) if value is masked else [value]}),
        ):
            with pytest.raises(EncodeError, match="column 'x': takes arrays without a mask"):
                give()


@pytest.mark.parametrize(
    ("spec", "value"),
    [
        ("fixed_size_list<timestamp[us]>[2]", np.array(["2020-01-01", "NaT"], "M8[us]")),
        ("fixed_size_list<duration[s]>[2]", np.array([1, "NaT"], "m8[s]")),
        (
            "fixed_size_list<fixed_size_list<date32>[1]>[2]",
            np.array([["NaT"], ["2020-01-01"]], "M8[D]"),
        ),
        ("timestamp[us]", np.array("NaT", "M8[us]")),
        ("timestamp[us]", np.datetime64("NaT", "us")),
    ],
)
def test_a_missing_time_is_refused_with_its_sample_where_parquet_has_none(spec, value, tmp_path):
    fine = np.ones_like(value) if isinstance(value, np.ndarray) else np.datetime64(1, "us")
    with Writer(out=tmp_path / "set", columns={"x": spec}, format="parquet") as out:
        out.write({"x": fine})
        with pytest.raises(EncodeTypeError, match=r"column 'x': takes (no|values)"):
            out.write({"x": value})
        with pytest.raises(EncodeTypeError, match=r"column 'x': takes (no|values)"):
            out.write_batch({"x": [fine, value]})
    assert len(StreamingDataset(local=str(tmp_path / "set"), batch_size=1)) == 1


@pytest.mark.parametrize(
    ("spec", "fine", "value"),
    [
        ("date32", MIDNIGHT, MIDNIGHT + timedelta(hours=12)),
        ("date32", np.datetime64("2020-01-01", "s"), np.datetime64("2020-01-01T12", "s")),
        ("timestamp[ms]", MIDNIGHT, MIDNIGHT + timedelta(microseconds=1)),
        ("timestamp[ms]?", None, MIDNIGHT + timedelta(microseconds=1)),
        ("duration[s]", timedelta(seconds=1), timedelta(seconds=1, microseconds=1)),
        ("list<duration[s]>", [timedelta(seconds=1)], [timedelta(milliseconds=-1)]),
    ],
)
def test_a_time_more_precise_than_its_column_is_refused(spec, fine, value, tmp_path):
    with Writer(out=tmp_path / "set", columns={"x": spec}, format="parquet") as out:
        out.write({"x": fine})
        out.write_batch({"x": [fine]})
        for give in (lambda: out.write({"x": value}), lambda: out.write_batch({"x": [value]})):
            with pytest.raises(
                EncodeError, match=r"column 'x': takes values of.*(round|lose data)"
            ):
                give()
    first, second = (sample["x"] for sample in StreamingDataset(local=str(tmp_path / "set")))
    assert first == second


def test_a_missing_time_is_none_where_that_is_allowed(tmp_path):
    columns = {"a": "timestamp[us]?", "b": "duration[s]?", "c": "list<timestamp[us]>"}
    missing = {
        "a": np.datetime64("NaT", "us"),
        "b": np.timedelta64("NaT", "s"),
        "c": np.array(["NaT"], "M8[us]"),
    }
    with Writer(out=tmp_path / "set", columns=columns, format="parquet") as out:
        out.write(missing)
        out.write_batch({name: [value] for name, value in missing.items()})
    dataset = StreamingDataset(local=str(tmp_path / "set"), batch_size=1)
    assert [dataset[n] for n in range(2)] == [{"a": None, "b": None, "c": [None]}] * 2


@pytest.mark.parametrize(
    "columns",
    [{"\ud800": "int8"}, {"a": 'struct<"\ud800": int8>'}, {"a": r'struct<"\ud800": int8>'}],
)
def test_names_of_columns_and_fields_that_are_not_utf8_are_refused(columns, tmp_path):
    with pytest.raises((ConfigError, UnknownNameError), match=r"UTF-8|no encoding"):
        Writer(out=tmp_path / "set", columns=columns, format="parquet")
    assert not (tmp_path / "set").exists()


def test_the_value_that_is_refused_in_a_batch_is_named(tmp_path):
    with Writer(out=tmp_path / "set", columns={"x": "int8"}, format="parquet") as out:
        with pytest.raises(EncodeError, match="got 128"):
            out.write_batch({"x": [1, 2, 128, 3]})
        with pytest.raises(EncodeError, match="got str: 'no'"):
            out.write_batch({"x": [1, "no"]})
        out.write({"x": 1})


def test_plain_values_of_structs_are_those_that_arrow_makes_of_others(tmp_path):
    spec = "struct<a: float, b: list<int16>>"
    given = [
        {"a": 1, "b": (1, 2)},
        {"a": np.float32(0.5), "b": np.array([3], np.int16)},
        {"a": 2.0},
    ]
    for name, write in {
        "rows": lambda out: [out.write({"x": each}) for each in given],
        "batch": lambda out: out.write_batch({"x": given}),
    }.items():
        with Writer(out=tmp_path / name, columns={"x": spec}, format="parquet") as out:
            write(out)
    one, other = (tmp_path / name / "shard.00000.parquet" for name in ("rows", "batch"))
    assert one.read_bytes() == other.read_bytes()
    found = pq.read_table(one)["x"].to_pylist()
    assert found == [{"a": 1.0, "b": [1, 2]}, {"a": 0.5, "b": [3]}, {"a": 2.0, "b": None}]


PAIR = pa.struct([("a", pa.float64()), ("b", pa.list_(pa.float64()))])
TOO_LARGE = {
    "float": [1e39, -1e300, np.float64(1e39), 2**130],
    "float?": [1e39],
    "float16": [65520.0, np.float32(1e6), 70000, -1e9],
    "fixed_size_list<float>[2]": [[1e39, 0.0], np.array([1.0, 1e39])],
    "fixed_size_list<float16>[2]": [
        [1e5, 0.0],
        np.array([1, 1e5], np.float32),
        np.array([1, 70000]),
    ],
    "list<float>": [[0.0, 1e39], np.array([1e39])],
    "list<float>?": [[1e39]],
    "struct<a: float, b: list<float>>": [
        *({"a": 1e39, "b": []}, {"a": 0, "b": [1.0, 1e39]}, {"a": 0, "b": np.array([1e39])}),
        {"b": (1e39,)},
    ],
    "list<list<float>>": [[[0.0], [1e39]], [np.array([1e39])]],
}
FITTING = {
    "float": [np.inf, -np.inf, 3.4028235e38, 3.40282355e38, 7, np.float32(np.inf)],
    "float16": [np.inf, 65519.0, np.float16(-np.inf), 1],
    "fixed_size_list<float>[2]": [[np.inf, 0.0], np.array([-np.inf, 3e38])],
    "list<float>": [[np.inf], np.array([np.inf, 1.0]), []],
    "struct<a: float, b: list<float>>": [{"a": np.inf, "b": [np.inf, 3.40282355e38]}],
    "list<list<float>>": [[[np.inf]], [np.array([-np.inf])]],
}


@pytest.mark.parametrize("spec", TOO_LARGE)
def test_numbers_that_would_become_infinite_are_refused(spec, tmp_path):
    with Writer(out=tmp_path / "set", columns={"x": spec}, format="parquet") as out:
        for value in TOO_LARGE[spec]:
            for give in (
                lambda value=value: out.write({"x": value}),
                lambda value=value: out.write_batch({"x": [value]}),
                lambda value=value: (
                    out.write_batch({"x": np.array([value])})
                    if isinstance(value, (float, int, np.ndarray))
                    else out.write({"x": value})
                ),
            ):
                with pytest.raises(
                    EncodeError, match=r"column 'x': takes (numbers that fit .*clip it|values of)"
                ):
                    give()


@pytest.mark.parametrize("spec", FITTING)
def test_infinities_and_what_is_rounded_stay(spec, tmp_path):
    for name, write in {
        "rows": lambda out: [out.write({"x": value}) for value in FITTING[spec]],
        "batch": lambda out: out.write_batch({"x": FITTING[spec]}),
    }.items():
        with Writer(out=tmp_path / name, columns={"x": spec}, format="parquet") as out:
            write(out)
    rows, batch = (
        pq.read_table(tmp_path / name / "shard.00000.parquet")["x"].to_pylist()
        for name in ("rows", "batch")
    )
    assert rows == batch
    assert len(rows) == len(FITTING[spec])
    assert "inf" in str(rows[0])


@pytest.mark.parametrize(
    ("spec", "array", "where"),
    [
        ("float", pa.array([1.0, 1e39]), "float"),
        ("float16", pa.array([70000]), "halffloat"),
        ("list<float>", pa.array([[1.0], None, [1e39]])[:1:-1], "float"),
        (
            "struct<a: float, b: list<float>>",
            pa.array([None, {"b": [1e39]}], PAIR),
            "in the field 'b'",
        ),
        ("struct<a: float, b: list<float>>", pa.array([{"a": -1e39}], PAIR), "in the field 'a'"),
        ("list<struct<k: float>>", pa.array([[{"k": 1e39}]]), "in the field 'k'"),
    ],
)
def test_arrow_arrays_whose_numbers_do_not_fit_are_refused(spec, array, where, tmp_path):
    with Writer(out=tmp_path / "set", columns={"x": spec + "?"}, format="parquet") as out:
        with pytest.raises(EncodeError, match=f"takes numbers that fit .*{where}.*clip it"):
            out.write_batch({"x": array})
        out.write_batch({"x": pa.array([None], array.type)})
