from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamplug import plugin
from streamplug.builtin.shuffles.bijection import GlobalShuffle
from streamplug.builtin.shuffles.none import NoShuffle
from streamplug.builtin.shuffles.window import WindowShuffle
from streamplug.interfaces import ShuffleAlgorithm
from streamplug.plan import (
    AllSamples,
    Epoch,
    OrderedSamples,
    Parallelism,
    PartitionedEpoch,
    Place,
    worker_steps,
)
from streamplug.types import World

algorithms = st.sampled_from([NoShuffle(), WindowShuffle(), GlobalShuffle()])
sizes = st.lists(st.integers(0, 40), min_size=1, max_size=8).filter(any)


def divisions(ranks: int) -> list[tuple[int, int]]:
    """All ways to spread so many ranks over nodes."""
    return [(n, ranks // n) for n in range(1, ranks + 1) if ranks % n == 0]


def make(
    algorithm: ShuffleAlgorithm,
    shards: list[int],
    canonical_nodes: int,
    world: World,
    batch: int,
    algo: str = "elastic",
) -> Epoch:
    total = sum(shards)
    canonical_nodes = min(canonical_nodes, total)
    starts = np.cumsum([0, *shards], dtype=np.int64)
    order = algorithm.order(starts, canonical_nodes=canonical_nodes, seed=7, epoch=0, block_size=16)
    partition = plugin.make("partition", algo).partition(
        total, Parallelism(canonical_nodes, world, batch)
    )
    return PartitionedEpoch(OrderedSamples(AllSamples(starts), order, canonical_nodes), partition)


def taken(epoch: Epoch, world: World, batch: int) -> list[int]:
    return epoch.ids(world, batch, np.arange(epoch.steps)).reshape(-1).tolist()


def global_batches(epoch: Epoch, world: World, batch: int, first: int = 0) -> list[list[int]]:
    """What all ranks and workers of a world get, step by step."""
    steps: dict[int, list[int]] = {}
    for rank in range(world.ranks):
        for worker in range(world.workers_per_rank):
            place = World(world.nodes, world.ranks_per_node, world.workers_per_rank, rank, worker)
            own = np.array(worker_steps(place, first, epoch.steps), np.int64)
            for step, ids in zip(own.tolist(), epoch.ids(place, batch, own)):
                steps.setdefault(step, []).extend(ids.tolist())
    return [steps[step] for step in sorted(steps)]


@given(algorithms, sizes, st.integers(1, 6), st.sampled_from([1, 2, 4, 6, 12]), st.data())
def test_a_global_batch_is_the_same_in_every_world(algorithm, shards, canonical_nodes, total, data):
    expected = None
    for _ in range(3):
        ranks = data.draw(st.sampled_from([r for r in range(1, total + 1) if total % r == 0]))
        nodes, local = data.draw(st.sampled_from(divisions(ranks)))
        world = World(nodes, local, data.draw(st.integers(1, 3)))
        epoch = make(algorithm, shards, canonical_nodes, world, total // ranks)
        found = [sorted(ids) for ids in global_batches(epoch, world, total // ranks)]
        expected = expected or found
        assert found == expected


@given(algorithms, sizes, st.integers(1, 6), st.integers(1, 12))
def test_every_sample_appears_and_few_appear_twice(algorithm, shards, canonical_nodes, batch):
    epoch = make(algorithm, shards, canonical_nodes, World(), batch)
    counts = Counter(taken(epoch, World(), batch))
    size = sum(shards)
    assert set(counts) == set(range(size))
    assert 0 <= epoch.steps * batch - size < batch


@given(
    algorithms, st.sampled_from(["elastic", "orig"]), sizes, st.integers(1, 4), st.integers(1, 5)
)
def test_where_a_sample_is_seen(algorithm, algo, shards, canonical_nodes, batch):
    pytest.importorskip("streamplug_mosaic")
    world = World(1, 3)
    epoch = make(algorithm, shards, canonical_nodes, world, batch, algo)
    seen: dict[int, set[Place]] = {sample: set() for sample in range(sum(shards))}
    for rank in range(3):
        ids = epoch.ids(World(1, 3, rank=rank), batch, np.arange(epoch.steps))
        for (step, place), sample in np.ndenumerate(ids):
            if sample >= 0:
                seen[int(sample)].add(Place(step, rank, place))
    for sample, places in seen.items():
        found = epoch.where(world, batch, sample)
        assert [p.step for p in found] == sorted(p.step for p in found)
        assert set(found) == places
    assert epoch.where(world, batch, sum(shards)) == []


@given(algorithms, sizes, st.integers(1, 4), st.integers(1, 8), st.data())
def test_resuming_at_any_step_gives_the_rest(algorithm, shards, canonical_nodes, batch, data):
    epoch = make(algorithm, shards, canonical_nodes, World(), batch)
    whole = global_batches(epoch, World(), batch)
    first = data.draw(st.integers(0, epoch.steps))
    workers = data.draw(st.integers(1, 4))
    again = make(algorithm, shards, canonical_nodes, World(), batch)
    assert global_batches(again, World(workers_per_rank=workers), batch, first) == whole[first:]


def test_canonical_nodes_are_interleaved():
    epoch = make(NoShuffle(), [10], 2, World(), 5)
    assert taken(epoch, World(), 5) == [0, 5, 1, 6, 2, 7, 3, 8, 4, 9]


def test_the_last_of_longer_canonical_nodes_come_last():
    epoch = make(NoShuffle(), [5], 2, World(), 5)
    assert taken(epoch, World(), 5) == [0, 2, 1, 3, 4]


def test_the_epoch_is_filled_up_from_its_beginning():
    epoch = make(NoShuffle(), [5], 1, World(), 4)
    assert taken(epoch, World(), 4) == [0, 1, 2, 3, 4, 0, 1, 2]


def test_a_batch_larger_than_the_set_goes_round_it():
    epoch = make(NoShuffle(), [3], 1, World(), 8)
    assert taken(epoch, World(), 8) == [0, 1, 2, 0, 1, 2, 0, 1]


def test_the_last_batch_of_orig_is_short():
    pytest.importorskip("streamplug_mosaic")
    epoch = make(NoShuffle(), [5], 1, World(), 4, "orig")
    assert epoch.ids(World(), 4, np.arange(2)).tolist() == [[0, 1, 2, 3], [4, -1, -1, -1]]


def test_no_steps_give_no_ids():
    epoch = make(NoShuffle(), [12], 1, World(), 4)
    assert epoch.ids(World(), 4, np.empty(0, np.int64)).shape == (0, 4)
