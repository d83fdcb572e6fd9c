from __future__ import annotations

import numpy as np
import pytest
from streamplug_tools import Columns, Output, SampleDifference, convert, diff

from streamplug import Stream
from streamplug.errors import ConfigError


def test_a_set_does_not_differ_from_itself_written_otherwise(source, tmp_path):
    convert(source, Output(tmp_path / "out", compression="gz", size_limit="1kb", processes=0))
    found = diff(source, tmp_path / "out")
    assert found.same
    assert (found.compared, found.differing, found.first) == (200, 0, ())


def test_samples_that_differ_are_counted_and_the_first_are_told(tmp_path, write, sample, source):
    def other(n):
        changed = sample(n)
        if n % 50 == 7:
            changed["name"] = "other"
        if n == 57:
            changed["vector"] = changed["vector"] + 1
        if n == 100:
            changed["score"] = np.float32("nan")
        return changed

    found = diff(source, write(tmp_path / "other", range(200), make=other), max_differences=3)
    assert not found.same
    assert found.differing == 5
    assert found.first == (
        SampleDifference(7, ("name",)),
        SampleDifference(57, ("name", "vector")),
        SampleDifference(100, ("score",)),
    )


def test_columns_and_counts_and_encodings_are_told(source, tmp_path, write):
    columns = {"id": "int32", "name": "str", "other": "int"}
    other = write(
        tmp_path / "other",
        range(150),
        columns,
        lambda n: {"id": n, "name": f"name {n % 7}", "other": 0},
    )
    found = diff(source, other)
    assert found.only == (("score", "vector", "x"), ("other",))
    assert found.encodings == {"id": ("int", "int32")}
    assert (found.samples, found.compared, found.differing) == ((200, 150), 150, 0)
    assert not found.same


def test_encodings_may_be_left_aside(tmp_path, write):
    columns = {"id": "int", "score": "float32", "vector": "ndarray:int16:3"}
    source = write(tmp_path / "source", range(20), columns)
    asked = Columns(encodings={"id": "str_int", "score": "float64", "vector": "json"})
    convert(source, Output(tmp_path / "out"), columns=asked)
    assert not diff(source, tmp_path / "out").same
    assert diff(source, tmp_path / "out", values=True).same


def test_integers_that_were_rounded_differ(tmp_path, write):
    large = 2**53 + 1  # as a float64, it is 2**53
    floats = {"a": "ndarray:float64:2", "n": "float64", "u": "float64"}
    sources = []
    for name, columns, kind in (
        ("integers", {"a": "ndarray:int64:2", "n": "int64", "u": "uint64"}, np.int64),
        ("floats", floats, np.float64),
    ):

        def make(n, kind=kind):
            number = large if n == 1 else n
            return {"a": np.array([n, number], kind), "n": kind(number), "u": kind(n)}

        sources.append(write(tmp_path / name, range(3), columns, make))
    found = diff(*sources, values=True)
    assert found.first == (SampleDifference(1, ("a", "n")),)


def test_no_number_is_like_itself(tmp_path, write):
    def make(n):
        return {"f": float("nan"), "a": np.array([np.nan, n]), "j": [1.5, {"k": float("nan")}]}

    columns = {"f": "float64", "a": "ndarray", "j": "json"}
    one = write(tmp_path / "one", range(3), columns, make)
    convert(one, Output(tmp_path / "two"), columns=Columns(encodings={"f": "float32"}))
    assert diff(one, tmp_path / "two", values=True).same


def test_times_that_are_none_are_alike(tmp_path):
    pytest.importorskip("streamplug_parquet")
    import pyarrow as pa
    import pyarrow.parquet as pq

    numbers = pa.array([0, -(2**63)])  # the latter is NaT
    table = pa.table({"at": numbers.cast("timestamp[us]"), "took": numbers.cast("duration[us]")})
    pq.write_table(table, tmp_path / "a.parquet")
    source = Stream(remote=str(tmp_path / "a.parquet"), format="parquet")
    assert diff(source, source).same


def test_sets_without_a_column_in_common_are_not_compared(tmp_path, write):
    one = write(tmp_path / "one", range(3), {"id": "int"})
    two = write(tmp_path / "two", range(3), {"name": "str"})
    with pytest.raises(ConfigError, match="no column in common"):
        diff(one, two)


def test_what_could_run_code_is_compared_as_it_is_stored(tmp_path, write):
    one = write(tmp_path / "one", range(3), {"id": "pkl"})
    two = write(tmp_path / "two", range(1, 4), {"id": "pkl"})
    assert diff(one, one).same
    assert diff(one, two).differing == 3
