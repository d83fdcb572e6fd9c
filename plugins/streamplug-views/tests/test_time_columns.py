"""Expressions about times, and keys that are times."""

from __future__ import annotations

from datetime import datetime, timedelta

import numpy as np
import pytest
from streamplug_views import View

from streamplug import StreamingDataset

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("streamplug_parquet")

DAYS = np.datetime64("2024-01-01", "ns") + np.arange(4) * np.timedelta64(1, "D")
UNITS = ["ns", "us", "ms", "s", "D"]


@pytest.fixture
def times(tmp_path):
    """Days from 2024-01-01 on in all units, and the time since then, without and with missing values."""
    columns = {}
    for unit in UNITS:
        columns[f"at_{unit}"] = pa.array(DAYS.astype(f"M8[{unit}]"))
    for unit in ("ns", "us"):
        columns[f"after_{unit}"] = pa.array((DAYS - DAYS[0]).astype(f"m8[{unit}]"))
    maybe = {f"maybe_{name}": pa.array(a.to_pylist(), a.type) for name, a in columns.items()}
    schema = pa.schema(
        [pa.field(name, array.type, nullable=False) for name, array in columns.items()]
        + [pa.field(name, array.type) for name, array in maybe.items()]
    )
    (tmp_path / "times").mkdir()
    table = pa.table([*columns.values(), *maybe.values()], schema=schema)
    parquet.write_table(table, tmp_path / "times" / "0.parquet", write_statistics=False)
    return str(tmp_path / "times")


@pytest.mark.parametrize("prefix", ["", "maybe_"])
@pytest.mark.parametrize("unit", UNITS)
def test_times_of_any_unit_compare_with_those_of_numpy(times, unit, prefix):
    view, name = View.of(times, format="parquet"), f"{prefix}at_{unit}"
    assert len(view.where(f"{name} >= np.datetime64('2024-01-03')")) == 2
    assert len(view.where(f"{name} == np.datetime64('2024-01-03T00:00:00')")) == 1
    assert len(view.where(f"{name} in (np.datetime64('2024-01-03'),)")) == 1
    if unit in ("ns", "us"):
        assert len(view.where(f"{prefix}after_{unit} >= np.timedelta64(2, 'D')")) == 2


def test_a_selection_of_a_run_compares_times(times):
    selected = StreamingDataset(
        remote=times, format="parquet", select="at_us > np.datetime64('2024-01-01')"
    )
    assert selected.size == 3


@pytest.mark.parametrize("prefix", ["", "maybe_"])
@pytest.mark.parametrize("unit", UNITS)
def test_keys_that_are_times_are_excluded_whatever_their_unit(times, unit, prefix):
    view, on = View.of(times, format="parquet"), f"{prefix}at_{unit}"
    for key in (
        *(DAYS[1].astype(f"M8[{other}]") for other in UNITS),
        DAYS[1].astype("M8[D]").item(),
    ):
        assert len(view.exclude(keys=[key], on=on)) == 3, key
    assert len(view.exclude(keys=[datetime(2024, 1, 2)], on=on)) == 3  # noqa: DTZ001 - columns without a zone
    if unit in ("ns", "us"):
        on = f"{prefix}after_{unit}"
        for span in (timedelta(1), np.timedelta64(24, "h")):
            assert len(view.exclude(keys=[span], on=on)) == 3, span


def test_data_sets_are_joined_by_times_of_other_units(times, tmp_path):
    (tmp_path / "more").mkdir()
    more = pa.table({"at_us": pa.array(DAYS[::-1]), "n": [3, 2, 1, 0]})
    parquet.write_table(more, tmp_path / "more" / "0.parquet")
    other = View.of(str(tmp_path / "more"), format="parquet")
    other.commit(tmp_path / "other")
    View.of(times, format="parquet").add(tmp_path / "other", on="at_us").commit(tmp_path / "view")
    assert [s["n"] for s in StreamingDataset(remote=str(tmp_path / "view"))] == [0, 1, 2, 3]
