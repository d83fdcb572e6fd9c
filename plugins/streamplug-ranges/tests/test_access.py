from __future__ import annotations

import numpy as np
import pytest
from streamplug_ranges import RangeReader, RangeShards, read_header_sizes
from streamplug_testing import AccessTests
from streamplug_testing.fakes import CountingStorage

from streamplug import MDSWriter, Stream, StreamingDataset
from streamplug.builtin.local_storage import LocalStorage
from streamplug.errors import ConfigError, CorruptShardError
from streamplug.read import OpenShards, Reader


class TestRange(AccessTests):
    name = "range"


class TestAuto(AccessTests):
    name = "auto"


@pytest.fixture
def folder(tmp_path):
    columns = {"n": "int", "b": "bytes"}
    with MDSWriter(out=tmp_path / "set", columns=columns, max_samples_per_shard=10) as out:
        for n in range(60):
            out.write({"n": n, "b": bytes(100 * (n % 7) + 1)})
    return str(tmp_path / "set")


def test_needs_of_whole_shards_and_of_ranges_come_in_the_order_of_first_need(folder):
    stream = Stream(remote=folder).open()
    ranges = RangeShards(stream.index, RangeReader(LocalStorage(folder), 0), None)
    whole = OpenShards(stream.index, stream.store, None)
    reader = Reader([stream.index.starts] * 3, [whole, ranges, whole])
    ids = np.array([125, 65, 5, 71, 6, 119, 64])
    needs = reader.needs(ids)
    assert [need if isinstance(need, int) else need.shards for need in needs] == [
        12, [6], 0, [7], [11],
    ]  # fmt: skip
    assert [reader.file_of(need)[0] for need in needs] == [12, 6, 0, 7, 11]
    assert reader.weight(needs[0]) == stream.index.shard(0).raw_bytes
    assert 0 < reader.weight(needs[3]) < reader.weight(needs[1]) < reader.weight(needs[0])
    assert [row["n"] for row in reader.rows(ids)] == [n % 60 for n in ids.tolist()]
    assert reader.describe(65) == "shard.00000.mds, row 5"
    # The limits of ranges hold only where nothing else is read.
    assert reader.prefetch_limits == whole.prefetch_limits
    assert Reader([stream.index.starts] * 2, [ranges] * 2).prefetch_limits == ranges.prefetch_limits


def test_several_streams_are_fetched_at_once(folder):
    index = Stream(remote=folder).open().index
    storages = [CountingStorage(LocalStorage(folder)) for _ in range(2)]
    shards = [RangeShards(index, RangeReader(storage, 0), None) for storage in storages]
    reader = Reader([index.starts] * 2, shards)
    with reader._start_fetching(groups_of(reader, [0, 12, 60, 72])) as fetcher:
        assert {number for need in fetcher._jobs for number in need.shards} == {0, 1, 6, 7}
    assert [row["n"] for row in reader.rows(np.array([0, 60, 72, 12]))] == [0, 0, 12, 12]
    assert not any(of_stream._process_state.ranges for of_stream in shards)


def groups_of(reader, ids):
    from streamplug.read.gather import ShardGroups

    return ShardGroups(np.asarray(reader.starts), np.array(ids))


@pytest.mark.parametrize("access", ["shard", "range", "auto"])
def test_sizes_of_values_are_read_of_headers(folder, tmp_path, access):
    local = None if access == "range" else str(tmp_path / "cache")
    stream = Stream(remote=folder, local=local, access=access).open()
    sizes = [read_header_sizes(stream, shard, "b").tolist() for shard in range(6)]
    assert [n for of_shard in sizes for n in of_shard] == [100 * (n % 7) + 1 for n in range(60)]
    assert read_header_sizes(stream, 0, "n").tolist() == [8] * 10
    assert read_header_sizes(stream, 0, "c") is None
    assert not list((tmp_path / "cache").glob("*.mds"))


def test_compressed_headers_have_no_sizes_and_damaged_ones_are_named(tmp_path):
    for name, compression in (("plain", None), ("packed", "gz")):
        columns = {"b": "bytes"}
        with MDSWriter(out=tmp_path / name, columns=columns, compression=compression) as out:
            out.write({"b": b"bytes"})
    assert read_header_sizes(Stream(remote=str(tmp_path / "packed")).open(), 0, "b") is None
    path = tmp_path / "plain" / "shard.00000.mds"
    path.write_bytes(b"\xff" * 4 + path.read_bytes()[4:])
    with pytest.raises(CorruptShardError, match=r"plain/index\.json: shard 0: "):
        read_header_sizes(Stream(remote=str(tmp_path / "plain")).open(), 0, "b")


def test_a_range_stream_keeps_no_shards(folder):
    stream = Stream(remote=folder, access="range")
    assert stream.shown_cache == "nowhere: read by access='range'"
    with pytest.raises(ConfigError, match="access='range' and views keep no shards"):
        _ = stream.open().store
    assert StreamingDataset(streams=[stream])[3]["n"] == 3
