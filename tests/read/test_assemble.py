from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamplug.read.gather import ShardGroups, make_samples


@pytest.mark.parametrize("count", range(1, 7))
def test_samples_have_each_column_in_order(count):
    names = [f"c{n}" for n in range(count)]
    columns = [[f"{row} of {name}" for row in range(5)] for name in names]
    samples = make_samples(names, columns)
    assert samples == [{name: f"{row} of {name}" for name in names} for row in range(5)]
    assert all(list(sample) == names for sample in samples)


def test_rows_of_an_array_are_values():
    (first, second) = make_samples(["x"], [np.arange(4).reshape(2, 2)])
    assert first["x"].tolist() == [0, 1]
    assert second["x"].tolist() == [2, 3]


@given(st.data())
def test_samples_are_grouped_by_shard(data):
    counts = data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=8).filter(any))
    starts = np.cumsum([0, *counts])
    ids = np.array(data.draw(st.lists(st.integers(0, int(starts[-1]) - 1), max_size=20)), np.int64)
    groups = ShardGroups(starts, ids)
    expected: dict[int, list[int]] = {}
    for place, sample in enumerate(ids.tolist()):
        shard = int(np.searchsorted(starts, sample, side="right")) - 1
        expected.setdefault(shard, []).append(place)
        assert starts[shard] + groups.rows[place] == sample
    assert {shard: places.tolist() for shard, places in groups} == expected
    assert groups.shards == sorted(expected)
    assert groups.counts.tolist() == [len(expected[shard]) for shard in groups.shards]
    values = groups.per_sample(np.array(groups.shards, np.int64))
    assert (starts[values] + groups.rows == ids).all()


def test_shards_beyond_sixteen_bits_are_told_apart():
    starts = np.arange((1 << 16) + 9)
    ids = np.array([1 << 16, 0, (1 << 16) + 7, 0])
    groups = ShardGroups(starts, ids)
    assert groups.shards == [0, 1 << 16, (1 << 16) + 7]
    assert groups.counts.tolist() == [2, 1, 1]
