from __future__ import annotations

import mmap

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamplug.read.assemble import ShardGroups
from streamplug.read.memory import spanned


def test_buffers_lie_in_one_without_a_copy():
    buffers = [np.arange(size, dtype=np.uint8) for size in (5, 1, 200)]
    whole, starts = spanned(buffers)
    for buffer, start in zip(buffers, starts):
        [view] = whole.slices(np.array([start]), np.array([len(buffer)]))
        assert view.tobytes() == buffer.tobytes()
        assert np.shares_memory(np.frombuffer(view, np.uint8), buffer)
    assert len(whole) == max(start + len(buffer) for buffer, start in zip(buffers, starts))


def test_nobody_writes_to_them():
    whole, _ = spanned([np.zeros(4, np.uint8)])
    [view] = whole.slices(np.array([0]), np.array([4]))
    with pytest.raises(TypeError, match="read-only"):
        view[0] = 1


def test_what_lies_between_them_is_no_array():
    whole, _ = spanned([np.zeros(4, np.uint8), np.zeros(4, np.uint8)])
    assert not hasattr(whole, "min")
    for use in (memoryview, bytes):
        with pytest.raises(TypeError):
            use(whole)


def test_mappings_far_apart_are_gathered_together(tmp_path):
    (tmp_path / "file").write_bytes(bytes(range(256)) * 64)
    maps = []
    for _ in range(20):
        with (tmp_path / "file").open("rb") as stream:
            maps.append(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))
    whole, starts = spanned([np.frombuffer(each, np.uint8) for each in maps])
    assert whole.gather(starts + np.arange(20), 1).tolist() == list(range(20))


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
