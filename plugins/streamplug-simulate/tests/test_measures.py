from __future__ import annotations

import dataclasses
from collections import OrderedDict
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from streamplug_simulate import measures
from streamplug_simulate.measures import Measures, ShardCache, iter_reads, make_epoch, measure

from streamplug.builtin.shuffles.bijection import GlobalShuffle
from streamplug.builtin.shuffles.none import NoShuffle
from streamplug.builtin.shuffles.window import WindowShuffle
from streamplug.errors import ConfigError
from streamplug.types import World

algorithms = st.sampled_from([NoShuffle(), WindowShuffle(), GlobalShuffle()])
worlds = st.builds(World, st.integers(1, 3), st.integers(1, 3))
sizes_of_shards = st.lists(st.integers(0, 30), min_size=1, max_size=9).filter(any)


def starts_of(*sizes: int) -> np.ndarray:
    return np.cumsum([0, *sizes], dtype=np.int64)


def measured(algorithm, starts, world, batch, *, canonical_nodes=None, **arguments) -> Measures:
    epoch = make_epoch(starts, algorithm, world, batch, canonical_nodes=canonical_nodes, seed=1)
    return measure(epoch, world, starts, **arguments)


def test_stored_order_moves_nothing_and_downloads_each_shard_once():
    found = measured(NoShuffle(), starts_of(*[10] * 10), World(), 5)
    assert found == Measures(
        samples=100,
        displacement=0,
        displacement_quantiles=(0, 0, 0, 0, 0),
        same_shard=1,
        shards_per_batch=1,
        shards_per_node=1,
        downloads=(10,),
        bytes=(100,),
    )


def test_nodes_take_their_canonical_nodes():
    found = measured(NoShuffle(), starts_of(*[10] * 10), World(2), 5)
    assert (found.same_shard, found.shards_per_batch, found.shards_per_node) == (1, 2, 1)
    assert found.downloads == (5, 5)
    # Canonical node 0 at q has q // 2, canonical node 1 has 50 + q // 2.
    positions = np.arange(100)
    ids = positions // 2 + positions % 2 * 50
    assert found.displacement == np.abs(ids - positions).mean()


def test_a_uniform_order_moves_samples_by_a_third_and_needs_a_shard_for_each():
    starts = starts_of(*[10] * 5000)
    found = measured(GlobalShuffle(), starts, World(2, 2), 25)
    assert found.displacement / 50_000 == pytest.approx(1 / 3, abs=0.01)
    expected = [1 - np.sqrt(1 - share) for share in measures.QUANTILES]
    assert np.array(found.displacement_quantiles) / 50_000 == pytest.approx(expected, abs=0.02)
    assert 98 < found.shards_per_batch < 100
    assert 49 < found.shards_per_node < 50
    assert found.same_shard < 0.001


def test_a_cache_that_holds_little_downloads_again():
    starts = starts_of(*[10] * 10)
    sizes = np.full(10, 7)
    found = {
        limit: measured(
            GlobalShuffle(), starts, World(), 5, shard_bytes=sizes, cache_limit=limit
        ).downloads[0]
        for limit in (None, 70, 35, 7, 0)
    }
    assert found[None] == found[70] == 10 < found[35] < found[7] == found[0] <= 100


def test_a_sample_of_the_steps_tells_about_the_whole():
    starts = starts_of(*[100] * 400)
    whole = measured(WindowShuffle(), starts, World(), 50, canonical_nodes=1)
    some = measured(
        WindowShuffle(), starts, World(), 50, canonical_nodes=1, steps=np.arange(0, 800, 10)
    )
    assert some.samples == whole.samples / 10 == 4000
    assert some.displacement == pytest.approx(whole.displacement, rel=0.05)
    assert some.shards_per_batch == pytest.approx(whole.shards_per_batch, rel=0.05)


@given(algorithms, sizes_of_shards, worlds, st.integers(1, 5), st.sampled_from(["elastic", "orig"]))
def test_looking_at_fewer_rows_at_a_time_changes_nothing(algorithm, sizes, world, batch, partition):
    order = pytest.importorskip("streamplug_mosaic.order")
    planners = {"orig": lambda streams: order.MosaicPlanner(streams, "orig", "random")}
    starts = starts_of(*sizes)
    epoch = make_epoch(
        starts,
        algorithm,
        world,
        batch,
        block_size=8,
        make_planner=planners.get(partition),
    )
    if partition == "orig":  # samples are repeated there, and none is left out
        seen = np.concatenate([ids.ravel() for _, ids in iter_reads(epoch, world)])
        assert set(seen.tolist()) - {-1} == set(range(sum(sizes)))
    whole = measure(epoch, world, starts, cache_limit=20)
    with mock.patch.object(measures, "SAMPLES_PER_CHUNK", 7):
        assert measure(epoch, world, starts, cache_limit=20) == whole


@settings(deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 6), max_size=20), max_size=6),
    st.lists(st.integers(1, 9), min_size=7, max_size=7),
    st.none() | st.integers(0, 40),
)
def test_a_cache_does_as_one_that_is_told_of_each_sample(needed, sizes, limit):
    cache = ShardCache(np.array(sizes), limit)
    held: OrderedDict[int, int] = OrderedDict()
    downloaded = []
    for shards in needed:
        cache.read(np.array(shards, np.int64))
        for shard in shards:
            if shard not in held:
                downloaded.append(shard)
                while held and limit is not None and sum(held.values()) + sizes[shard] > limit:
                    held.popitem(last=False)
                held[shard] = sizes[shard]
            held.move_to_end(shard)
    assert cache.downloads == len(downloaded)
    assert cache.bytes == sum(sizes[shard] for shard in downloaded)


@given(sizes_of_shards, worlds, st.integers(1, 5))
def test_ids_come_in_the_order_of_the_epoch(sizes, world, batch):
    starts = starts_of(*sizes)
    alone = World()
    canonical_nodes = {"canonical_nodes": 2}
    several = make_epoch(starts, WindowShuffle(), world, batch, **canonical_nodes)
    single = make_epoch(starts, WindowShuffle(), alone, batch * world.ranks, **canonical_nodes)
    found = [measures.to_epoch_order(ids) for _, ids in iter_reads(several, world)]
    expected = [measures.to_epoch_order(ids) for _, ids in iter_reads(single, alone)]
    assert np.concatenate(found).tolist() == np.concatenate(expected).tolist()


def test_what_is_missing_in_a_short_batch_counts_nowhere():
    shards = np.array([[3, 1, 3, -1], [2, 2, 2, 2], [-1, -1, -1, -1]])
    assert measures.count_distinct(shards).tolist() == [2, 1, 0]
    assert measures.shards_of(np.array([[-1, 0, 4]]), starts_of(2, 0, 3)).tolist() == [[-1, 0, 2]]
    moved = measures.displacements(np.array([[0, 5], [-1, 3]]), np.array([0, 4]))
    assert moved.tolist() == [0, 4, 6]


def test_canonical_nodes_that_a_node_reads_in_turn_keep_samples_of_a_shard_apart():
    starts = starts_of(*[10] * 10)
    assert measured(NoShuffle(), starts, World(), 10, canonical_nodes=2).same_shard == 0
    uneven = starts_of(5, 5, 20)  # the second batch of 10 begins with the third shard
    assert measured(NoShuffle(), uneven, World(), 10).same_shard == 26 / 27


def test_batches_of_one_sample_have_no_neighbours():
    assert measured(NoShuffle(), starts_of(3), World(), 1).same_shard == 0


def test_nothing_to_measure_is_an_error():
    with pytest.raises(ConfigError, match=r"without samples"):
        measured(NoShuffle(), starts_of(0), World(), 1)
    with pytest.raises(ConfigError, match=r"no steps to measure: name at least one"):
        measured(NoShuffle(), starts_of(3), World(), 1, steps=np.array([], np.int64))


@pytest.mark.parametrize("steps", [[-1], [0, 3]])
def test_steps_that_an_epoch_does_not_have_are_an_error(steps):
    with pytest.raises(ConfigError, match="steps: the epoch has the steps 0 to 2"):
        measured(NoShuffle(), starts_of(3), World(), 1, steps=np.array(steps))


@pytest.mark.parametrize(
    "options",
    [{"batch": 0}, {"batch": 2.5}, {"block_size": 0}, {"canonical_nodes": 0}, {"seed": 1.5}],
)
def test_numbers_of_an_epoch_are_checked(options):
    with pytest.raises(ConfigError, match=f"{next(iter(options))}=.*: must be a whole number"):
        make_epoch(starts_of(3), NoShuffle(), World(), **{"batch": 1, **options})


def test_the_limit_of_a_cache_is_a_number():
    with pytest.raises(ConfigError, match="cache_limit='10gb': must be a whole number"):
        measured(NoShuffle(), starts_of(3), World(), 1, cache_limit="10gb")


def test_measures_do_not_change():
    with pytest.raises(dataclasses.FrozenInstanceError):
        measured(NoShuffle(), starts_of(3), World(), 1).samples = 5
