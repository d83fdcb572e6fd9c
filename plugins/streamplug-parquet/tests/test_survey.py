from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
from streamplug_tools.statistics import collect_statistics

from streamplug import Stream


def test_values_that_are_no_bytes_are_shown_decoded(tmp_path):
    columns = {
        "x": [1, None, 3],
        "tokens": [[1, 2], [3, 4, 5], None],
        "s": ["a", None, "c"],
        "st": [{"a": 1}, {"a": 2}, None],
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    found = collect_statistics(Stream(remote=str(tmp_path), format="parquet"), samples=2)
    assert (found.seen, found.failures, found.sample_bytes) == (3, (), None)
    told = {column.name: column for column in found.columns}
    assert all(column.notes == {"no value": 1} for column in told.values())
    assert all(column.stored is None for column in told.values())
    assert (told["x"].measure, told["x"].numbers.maximum) == ("value", 3)
    assert (told["tokens"].measure, told["tokens"].numbers.maximum) == ("length", 3)
    assert [seen.text for _, seen in told["st"].previews] == ['{"a": 1}', '{"a": 2}']
    assert found.samples[1][1]["s"].note == "no value"


def test_values_that_are_bytes_are_measured(tmp_path):
    pq.write_table(pa.table({"x": [1, 2], "s": ["a", "bcd"]}), tmp_path / "a.parquet")
    columns = collect_statistics(Stream(remote=str(tmp_path), format="parquet")).columns
    assert {column.name: column.stored.maximum for column in columns} == {"x": 8, "s": 3}
