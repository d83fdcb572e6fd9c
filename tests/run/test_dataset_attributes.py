from __future__ import annotations

import pytest

from streamplug import MDSWriter, Stream, StreamingDataset
from streamplug.errors import ConfigError
from streamplug.types import World


@pytest.fixture
def far(tmp_path):
    for name, count in (("a", 40), ("b", 20)):
        with MDSWriter(
            out=tmp_path / name, columns={"n": "int"}, size_limit=200, compression="gz"
        ) as out:
            for n in range(count):
                out.write({"n": n})
    return tmp_path


def test_options_and_sizes_can_be_read(far):
    streams = [
        Stream(remote=f"{far}/{name}", local=f"{far}/near-{name}", cache_limit=limit)
        for name, limit in (("a", 1e5), ("b", "100kb"))
    ]
    dataset = StreamingDataset(
        streams=streams,
        epoch_size=1e2,
        batch_size=4,
        shuffle=True,
        shuffle_seed=7,
        shuffle_block_size=50,
        num_canonical_nodes=2,
        sampling_method="fixed",
        replication=2,
        world=World(1, 4),
    )
    assert (dataset.epoch_size, dataset.size, dataset.num_streams) == (100, 60, 2)
    assert dataset.samples_per_stream.tolist() == [40, 20]
    assert dataset.shards_per_stream.sum() == dataset.num_shards == len(dataset.samples_per_shard)
    assert (dataset.shuffle, dataset.shuffle_algo, dataset.shuffle_seed) == (True, "window", 7)
    assert (dataset.shuffle_block_size, dataset.num_canonical_nodes) == (50, 2)
    assert (dataset.partition_algo, dataset.batching_method) == ("elastic", "random")
    assert (dataset.sampling_method, dataset.sampling_granularity) == ("fixed", 1)
    assert (dataset.replication, dataset.cache_limit) == (2, 100_000 + 102_400)


def test_what_was_not_given_can_be_read_too(far):
    dataset = StreamingDataset(local=f"{far}/a", batch_size=4)
    assert (dataset.shuffle, dataset.shuffle_algo) == (False, "window")
    assert (dataset.epoch_size, dataset.replication, dataset.cache_limit) == (40, 1, None)
    assert dataset.num_canonical_nodes == 1
    some = [
        Stream(remote=f"{far}/a", local=f"{far}/1", cache_limit=1e5),
        Stream(remote=f"{far}/b", local=f"{far}/2"),
    ]
    assert StreamingDataset(streams=some).cache_limit is None


def test_the_next_epoch_is_told(far):
    dataset = StreamingDataset(local=f"{far}/a", batch_size=4)
    assert dataset.next_epoch == 0
    list(dataset)
    assert dataset.next_epoch == 1
    dataset.load_state_dict({**dataset.state_dict(), "epoch": 5})
    assert dataset.next_epoch == 5


def files(place):
    return sorted(path.name for path in place.glob("*.mds*"))


@pytest.mark.parametrize("keep_zip", [False, True])
def test_a_shard_is_fetched_and_evicted_by_hand(far, keep_zip):
    near = far / "near"
    dataset = StreamingDataset(remote=str(far / "a"), local=str(near), keep_zip=keep_zip)
    assert files(near) == []
    dataset.prepare_shard(1)
    expected = ["shard.00001.mds", *["shard.00001.mds.gz"] * keep_zip]
    assert files(near) == expected
    first = int(dataset.samples_per_shard[0])
    assert dataset[first] == {"n": first}
    dataset.evict_shard(1)
    assert files(near) == []
    dataset.evict_shard(1)  # there is nothing left to do
    assert dataset[first] == {"n": first}
    assert files(near) == expected


def test_an_evicted_shard_counts_no_longer_for_the_limit(far):
    near = far / "near"
    dataset = StreamingDataset(remote=str(far / "a"), local=str(near), cache_limit="10kb")
    for shard in range(dataset.num_shards):
        dataset.prepare_shard(shard)
        dataset.evict_shard(shard)
    assert files(near) == []
    assert [sample["n"] for sample in dataset[:]] == list(range(40))


def test_shards_of_other_streams_are_found(far):
    streams = [Stream(remote=f"{far}/{name}", local=f"{far}/near-{name}") for name in "ab"]
    dataset = StreamingDataset(streams=streams)
    dataset.prepare_shard(dataset.num_shards - 1)
    assert files(far / "near-a") == []
    assert len(files(far / "near-b")) == 1


def test_a_data_set_that_is_read_in_place_loses_nothing(far):
    dataset = StreamingDataset(local=str(far / "b"))
    before = files(far / "b")
    with pytest.raises(ConfigError, match=r"shard 0 of .*b: the data set is read in place"):
        dataset.evict_shard(0)
    assert files(far / "b") == before
    assert dataset[0] == {"n": 0}


def test_shards_that_there_are_not_are_refused(far, tmp_path):
    dataset = StreamingDataset(local=str(far / "a"))
    for number in (dataset.num_shards, -1, 1.5, None):
        with pytest.raises(ConfigError, match="shard_id="):
            dataset.prepare_shard(number)
    with MDSWriter(out=tmp_path / "plain", columns={"n": "int"}) as out:
        out.write({"n": 1})
    by_range = StreamingDataset(remote=str(tmp_path / "plain"), access="range")
    with pytest.raises(ConfigError, match=r"shard 0: .*: access='range' and views keep no shards"):
        by_range.prepare_shard(0)


@pytest.mark.parametrize(
    ("name", "value"), [("epoch_size", 2.5), ("cache_limit", 1e3 + 0.5), ("epoch_size", -1e3)]
)
def test_sizes_that_are_not_whole_are_refused(far, name, value):
    with pytest.raises(ConfigError, match=rf"{name}={value!r}"):
        StreamingDataset(remote=f"{far}/a", local=f"{far}/near", **{name: value})


def test_a_config_may_have_whole_floats(far):
    config = {"remote": f"{far}/a", "local": f"{far}/near", "epoch_size": 1e2, "cache_limit": 1e6}
    assert StreamingDataset.from_config(config).epoch_size == 100
    [stream] = StreamingDataset(streams=[Stream(local=f"{far}/a", choose=1e1)]).streams
    assert stream.weight.choose == 10
