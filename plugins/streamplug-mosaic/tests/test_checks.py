"""What mosaicml-streaming refuses or warns of, refused and warned of by the alias."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from streamplug import StreamingDataset
from streamplug.errors import CacheConflictError, EncodeTypeError, InvalidIndexError, NotFound


@pytest.fixture
def sharded(streaming, tmp_path):
    """Return a data set of a few shards."""
    place = tmp_path / "sharded"
    with streaming.MDSWriter(out=str(place), columns={"n": "int"}, size_limit=500) as out:
        for n in range(40):
            out.write({"n": n})
    return str(place)


def test_a_missing_index_is_a_runtime_error_too(streaming, tmp_path):
    with pytest.raises(RuntimeError, match="No `remote` provided, but local file") as caught:
        streaming.StreamingDataset(local=str(tmp_path), batch_size=1)
    assert isinstance(caught.value, NotFound)
    with pytest.raises(FileNotFoundError, match="No such file or directory"):
        streaming.StreamingDataset(
            remote=str(tmp_path), local=str(tmp_path / "cache"), batch_size=1
        )


@pytest.mark.parametrize("text", ["", "{"])
def test_a_damaged_index_is_a_json_error_too(streaming, tmp_path, text):
    (tmp_path / "index.json").write_text(text)
    with pytest.raises(json.JSONDecodeError, match="is empty or corrupted") as caught:
        streaming.StreamingDataset(local=str(tmp_path), batch_size=1)
    assert isinstance(caught.value, InvalidIndexError)


def test_an_index_without_samples_is_refused(streaming, tmp_path):
    (tmp_path / "index.json").write_text('{"version": 2, "shards": []}')
    with pytest.raises(RuntimeError, match="Stream contains no samples"):
        streaming.StreamingDataset(local=str(tmp_path), batch_size=1)


def test_a_data_set_needs_a_batch_size_to_be_iterated(streaming, place):
    dataset = streaming.StreamingDataset(local=place)
    with pytest.raises(ValueError, match="Please pass `batch_size` to StreamingDataset"):
        next(iter(dataset))


def test_a_loader_needs_a_data_set_with_a_batch_size(streaming, place):
    pytest.importorskip("torch")
    loader = streaming.StreamingDataLoader(streaming.StreamingDataset(local=place), batch_size=2)
    with pytest.raises(ValueError, match="Please pass `batch_size` to StreamingDataset"):
        next(iter(loader))


def test_a_cache_limit_must_hold_a_few_shards(streaming, sharded, tmp_path):
    index_size = Path(sharded, "index.json").stat().st_size
    settings = {"remote": sharded, "local": str(tmp_path / "cache"), "batch_size": 1}
    with pytest.raises(ValueError, match=r"Minimum cache usage.*is larger than the cache limit"):
        streaming.StreamingDataset(**settings, cache_limit=index_size - 1)
    with pytest.raises(ValueError, match=r"too low. Increase the `cache_limit` to at least \d+"):
        streaming.StreamingDataset(**settings, cache_limit=index_size + 1)
    assert streaming.StreamingDataset(**settings, cache_limit="1mb").cache_limit == 1 << 20


def test_a_short_prefetch_window_is_warned_of(streaming, place):
    with pytest.warns(UserWarning, match="predownload < batch_size: 2 < 4"):
        streaming.StreamingDataset(local=place, batch_size=4, predownload=2)


def test_a_small_shuffle_block_is_warned_of(streaming, sharded):
    dataset = streaming.StreamingDataset(
        local=sharded, batch_size=4, shuffle=True, shuffle_block_size=5
    )
    with pytest.warns(UserWarning, match="Shuffle block size was smaller than shard size: 5 < "):
        next(iter(dataset))
    with pytest.warns(UserWarning, match="Shuffle block size was smaller than shard size: 5 < 9"):
        sys.modules["streaming.base.shuffle"].get_shuffle("py1e", [4, 9], 1, 7, 0, 5)


def test_more_canonical_nodes_than_samples_are_refused(streaming, place):
    dataset = streaming.StreamingDataset(
        local=place, batch_size=1, shuffle=True, num_canonical_nodes=32
    )
    with pytest.raises(ValueError, match="samples assigned to a canonical node is 0: 20 samples"):
        next(iter(dataset))


@pytest.mark.parametrize(
    ("method", "what"),
    [("random", None), ("stratified", "/set in an epoch"), ("per_stream", "/set in an epoch")],
)
def test_canonical_nodes_are_compared_with_the_samples_of_an_epoch(streaming, place, method, what):
    """Each sequence of samples that is shuffled needs one for each canonical node, repeated or not."""

    def read(epoch_size, nodes, algo="py1e"):
        streams = [streaming.Stream(local=place, proportion=0.5) for _ in range(2)]
        settings = {"batch_size": 2, "shuffle": True, "shuffle_algo": algo}
        dataset = streaming.StreamingDataset(
            streams=streams,
            batching_method=method,
            epoch_size=epoch_size,
            num_canonical_nodes=nodes,
            **settings,
        )
        return next(iter(dataset))

    shuffled = 24 if what is None else 12
    assert read(24, shuffled)
    with pytest.raises(
        ValueError, match=rf"node is 0: {shuffled} samples of .*{what or 'an epoch'},"
    ):
        read(24, shuffled + 1)
    assert read(24, shuffled + 1, algo="py1s")
    assert read(80, 40)  # more than the 20 stored samples of each


def test_a_shuffle_of_too_few_samples_is_refused(streaming):
    shuffle = sys.modules["streaming.base.shuffle"]
    with pytest.raises(
        ValueError, match="node is 0: 4 samples of all shards, num_canonical_nodes=5"
    ):
        shuffle.get_shuffle_py1e([2, 2], 5, 7, 0)
    assert sorted(shuffle.get_shuffle_py1s([2, 2], 5, 7, 0)) == [0, 1, 2, 3]


def test_partitions_are_checked(streaming):
    get_partitions = sys.modules["streaming.base.partition"].get_partitions
    assert get_partitions("orig", 8, 1, 2, 1, 1, 4, 10).shape == (2, 1, 1, 0, 4)
    with pytest.raises(ValueError, match=r"Resuming further into the dataset .*drop_first=11"):
        get_partitions("orig", 8, 1, 2, 1, 1, 4, 11)
    with pytest.raises(ValueError, match="Either canonical or physical nodes must be"):
        get_partitions("orig", 100, 15, 2, 1, 1, 4)
    with pytest.warns(UserWarning, match="Trying to partition 3 samples"):
        get_partitions("orig", 3, 4, 1, 1, 1, 4)
    with pytest.warns(UserWarning, match="Attempting to partition 5 samples among 8 ranks"):
        get_partitions("orig", 5, 4, 1, 8, 1, 4)


def test_replication_is_checked(streaming):
    world = sys.modules["streaming.base.world"].World(2, 4, 1, 0)
    with pytest.raises(ValueError, match="Replication factor must be positive"):
        world.replicate(0)
    with pytest.raises(ValueError, match="World size must be divisible by replication=3"):
        world.replicate(3)


def test_values_are_checked_before_they_are_encoded(streaming):
    mds_encode = sys.modules["streaming.base.format.mds.encodings"].mds_encode
    with pytest.raises(AttributeError, match="bytes takes bytes") as caught:
        mds_encode("bytes", 9)
    assert isinstance(caught.value, EncodeTypeError)
    with pytest.raises(ValueError, match="numpy array with 0 elements"):
        mds_encode("ndarray", np.array([]))
    with pytest.raises(ValueError, match="a scalar with NDArray encoding"):
        mds_encode("ndarray", np.array(1))


def test_a_cache_has_only_shards_and_their_index(streaming, sharded, tmp_path):
    cache = tmp_path / "cache"
    settings = {"remote": sharded, "local": str(cache), "batch_size": 1}
    files = {path.name for path in Path(sharded).iterdir()}
    for _ in range(2):
        assert len(list(streaming.StreamingDataset(**settings))) == 40
        assert {path.name for path in cache.iterdir()} == files
    assert (tmp_path / ".cache.streamplug" / "origin.json").exists()


def test_a_cache_that_was_removed_can_be_that_of_another_data_set(
    streaming, sharded, place, tmp_path
):
    cache = tmp_path / "cache"
    assert len(streaming.StreamingDataset(remote=sharded, local=str(cache), batch_size=1)) == 40
    with pytest.raises(CacheConflictError, match="is the cache of"):
        streaming.StreamingDataset(remote=place, local=str(cache), batch_size=1)
    shutil.rmtree(cache)
    assert len(streaming.StreamingDataset(remote=place, local=str(cache), batch_size=1)) == 20


def test_a_cache_that_streamplug_made_keeps_its_state_within(streaming, place, tmp_path):
    cache = tmp_path / "cache"
    assert len(StreamingDataset(remote=place, local=str(cache))) == 20
    assert len(streaming.StreamingDataset(remote=place, local=str(cache), batch_size=1)) == 20
    assert (cache / ".streamplug").is_dir()
    assert not (tmp_path / ".cache.streamplug").exists()
