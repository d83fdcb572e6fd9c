"""The default block size of the shuffle follows from the limit of the cache, and stays that of the run."""

from __future__ import annotations

import logging
from contextlib import suppress

import numpy as np
import pytest

from streamplug import MDSWriter, StreamingDataset, World
from streamplug.errors import StateError

SAMPLES, PER_SHARD, DEFAULT = 1200, 20, 1 << 18


@pytest.fixture(scope="module")
def far(tmp_path_factory):
    path = tmp_path_factory.mktemp("far")
    with MDSWriter(
        columns={"n": "int", "x": "bytes"}, out=path, max_samples_per_shard=PER_SHARD
    ) as out:
        out.write_batch({"n": np.arange(SAMPLES), "x": [b"x" * 100] * SAMPLES})
    return path


@pytest.fixture
def stored(far):
    return sum(file.stat().st_size for file in far.glob("*.mds"))


@pytest.fixture
def make(far, tmp_path):
    def make(local="cache", **options):
        options = {"batch_size": 10, "shuffle": True, **options}
        return StreamingDataset(remote=str(far), local=str(tmp_path / local), **options)

    return make


def size_of(cache):
    total = 0
    for file in cache.glob("*.mds"):
        with suppress(FileNotFoundError):  # evicted meanwhile
            total += file.stat().st_size
    return total


def ids(dataset):
    return [batch["n"].tolist() for batch in dataset.batches()]


def test_a_set_of_five_times_its_cache_is_downloaded_about_once_an_epoch(make, stored, tmp_path):
    dataset = make(cache_limit=stored // 5)
    largest = 0
    for epoch in range(2):
        for _ in dataset.batches():
            largest = max(largest, size_of(tmp_path / "cache"))
        assert dataset.stats().downloaded_bytes <= 1.3 * (epoch + 1) * stored
    assert largest <= stored // 5 + stored // (SAMPLES // PER_SHARD)


@pytest.mark.parametrize(
    ("nodes", "canonical_nodes", "at_once"), [(1, None, 1), (4, None, 1), (2, 4, 2), (4, 2, 1)]
)
def test_it_is_that_of_three_blocks_in_half_of_the_cache(
    make, stored, nodes, canonical_nodes, at_once
):
    limit = stored // 10
    world = World(nodes)
    dataset = make(cache_limit=limit, num_canonical_nodes=canonical_nodes, world=world)
    expected = 0.45 * limit / stored * SAMPLES / (3 * at_once)
    assert dataset.shuffle_block_size == pytest.approx(expected, abs=2)


def test_a_cache_that_holds_what_a_node_reads_changes_nothing(make, stored):
    assert make(cache_limit=2 * stored).shuffle_block_size == DEFAULT
    share = stored // 4 + 3 * stored // (SAMPLES // PER_SHARD)
    assert make(cache_limit=share, world=World(4)).shuffle_block_size == DEFAULT
    assert make(cache_limit=share, world=World(2)).shuffle_block_size < DEFAULT


def test_shares_of_disks_which_may_differ_between_machines_change_nothing(make):
    assert make(cache_limit="0.00001%").shuffle_block_size == DEFAULT


def test_what_is_given_stays(make, stored):
    assert make(cache_limit=stored // 5, shuffle_block_size=777).shuffle_block_size == 777


def test_a_run_keeps_its_own_with_another_cache(make, stored):
    dataset = make(cache_limit=stored // 5)
    size, expected = dataset.shuffle_block_size, ids(dataset)
    dataset = make(cache_limit=stored // 5)
    batches = dataset.batches()
    for _ in range(7):
        next(batches)
    saved = dataset.state_dict()
    batches.close()
    for options in ({}, {"cache_limit": stored // 10}, {"cache_limit": 2 * stored}):
        other = make("other", **options)
        other.load_state_dict(saved)
        assert other.shuffle_block_size == size
        assert ids(other) == expected[7:]
    with pytest.raises(StateError, match="shuffle_block_size"):
        make("other", shuffle_block_size=size + 1).load_state_dict(saved)


def test_a_run_keeps_a_size_of_millions(make):
    saved = make(shuffle_block_size=2_000_000).state_dict()
    dataset = make()
    dataset.load_state_dict(saved)
    assert dataset.shuffle_block_size == 2_000_000


def test_a_run_without_a_limit_keeps_the_default(make, stored, caplog):
    saved = make().state_dict()
    dataset = make(cache_limit=stored // 5)
    dataset.load_state_dict(saved)
    assert dataset.shuffle_block_size == DEFAULT
    with caplog.at_level(logging.WARNING, "streamplug"):
        next(dataset.batches())
    assert f"shuffle_block_size={DEFAULT} needs the shards of 3 blocks at once" in caplog.text


def test_the_choice_is_said(make, stored, caplog):
    dataset = make(cache_limit=stored // 7)
    with caplog.at_level(logging.WARNING, "streamplug"):
        next(dataset.batches())
    text = f"shuffle_block_size={dataset.shuffle_block_size}, chosen for it"
    assert text in caplog.text


@pytest.mark.parametrize("method", ["stratified", "per_stream", "budget"])
def test_other_orders_keep_it_as_well(far, make, stored, tmp_path, method):
    pytest.importorskip("streamplug_mixing")
    options = {"batching_method": method}
    if method == "budget":
        budget = pytest.importorskip("streamplug_budget")
        options |= {"batch_budget": budget.BatchBudget(limit=1000, column="x")}
    dataset = make(cache_limit=stored // 5, **options)
    expected = ids(dataset)
    saved = make(cache_limit=stored // 5, **options).state_dict()
    other = make("other", **options)
    other.load_state_dict(saved)
    assert ids(other) == expected
    assert ids(make("third", **options)) != expected
