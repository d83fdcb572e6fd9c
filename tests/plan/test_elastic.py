from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from itertools import chain

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from streamplug.builtin.shuffles.bijection import GlobalShuffle
from streamplug.builtin.shuffles.none import NoShuffle
from streamplug.builtin.shuffles.window import WindowShuffle
from streamplug.interfaces import ShuffleAlgorithm
from streamplug.plan import AllSamples, Epoch, OrderedSamples, Place, worker_steps
from streamplug.plan.elastic import ElasticEpoch
from streamplug.types import World
from tests.plan.plans import batches_of, places_of, ranks_of

algorithms = st.sampled_from([NoShuffle(), WindowShuffle(), GlobalShuffle()])
sizes = st.lists(st.integers(0, 40), min_size=1, max_size=8).filter(any)


def divisions(ranks: int) -> list[tuple[int, int]]:
    """All ways to spread so many ranks over nodes."""
    return [(n, ranks // n) for n in range(1, ranks + 1) if ranks % n == 0]


def make(
    algorithm: ShuffleAlgorithm, shards: list[int], canonical_nodes: int, global_batch: int
) -> ElasticEpoch:
    canonical_nodes = min(canonical_nodes, sum(shards))
    starts = np.cumsum([0, *shards], dtype=np.int64)
    order = partial(
        algorithm.order, starts, canonical_nodes=canonical_nodes, seed=7, epoch=0, block_size=16
    )
    ordered = OrderedSamples(AllSamples(starts), order, canonical_nodes)
    return ElasticEpoch(ordered, canonical_nodes, global_batch)


def taken(epoch: Epoch) -> list[int]:
    return list(chain(*batches_of(epoch, World())))


def by_workers(epoch: Epoch, world: World, first: int = 0) -> list[list[int]]:
    """What all ranks and workers of a world get, step by step."""
    steps: dict[int, list[int]] = {}
    for rank in ranks_of(world):
        for worker in range(world.workers_per_rank):
            own = worker_steps(replace(rank, worker=worker), first, epoch.steps(world))
            for step, ids in zip(own, batches_of(epoch, rank, own)):
                steps.setdefault(step, []).extend(ids)
    return [steps[step] for step in sorted(steps)]


@given(algorithms, sizes, st.integers(1, 6), st.sampled_from([1, 2, 4, 6, 12]), st.data())
def test_a_global_batch_is_the_same_in_every_world(algorithm, shards, canonical_nodes, total, data):
    expected, epoch = None, make(algorithm, shards, canonical_nodes, total)
    for _ in range(3):
        ranks = data.draw(st.sampled_from([r for r in range(1, total + 1) if total % r == 0]))
        nodes, local = data.draw(st.sampled_from(divisions(ranks)))
        world = World(nodes, local, data.draw(st.integers(1, 3)))
        found = [sorted(ids) for ids in by_workers(epoch, world)]
        expected = expected or found
        assert found == expected
        step = data.draw(st.integers(0, len(found) - 1))
        assert epoch.global_ids(world, step).tolist() == sorted(set(found[step]))


@given(algorithms, sizes, st.integers(1, 6), st.integers(1, 12))
def test_every_sample_appears_and_few_appear_twice(algorithm, shards, canonical_nodes, batch):
    epoch = make(algorithm, shards, canonical_nodes, batch)
    counts = Counter(taken(epoch))
    size = sum(shards)
    assert set(counts) == set(range(size))
    assert 0 <= epoch.steps(World()) * batch - size < batch


@given(algorithms, sizes, st.integers(1, 4), st.integers(1, 5))
def test_where_a_sample_is_seen(algorithm, shards, canonical_nodes, batch):
    world = World(1, 3)
    epoch = make(algorithm, shards, canonical_nodes, 3 * batch)
    seen = places_of(epoch, world)
    for sample, places in seen.items():
        found = epoch.where(world, sample)
        assert [p.step for p in found] == sorted(p.step for p in found)
        assert set(found) == set(places)
    assert epoch.where(world, sum(shards)) == []


@given(algorithms, sizes, st.integers(1, 4), st.integers(1, 8), st.data())
def test_resuming_at_any_step_gives_the_rest(algorithm, shards, canonical_nodes, batch, data):
    epoch = make(algorithm, shards, canonical_nodes, batch)
    whole = by_workers(epoch, World())
    first = data.draw(st.integers(0, epoch.steps(World())))
    workers = data.draw(st.integers(1, 4))
    again = make(algorithm, shards, canonical_nodes, batch)
    assert by_workers(again, World(workers_per_rank=workers), first) == whole[first:]


@given(
    st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.integers(1, 5), st.integers(1, 150)
)
def test_a_node_takes_canonical_nodes_of_its_own(nodes, more, local, batch, size):
    world, canonical_nodes = World(nodes, local), nodes * more
    assume(size >= canonical_nodes)
    bounds = [size * node // canonical_nodes for node in range(canonical_nodes + 1)]
    epoch = make(NoShuffle(), [size], canonical_nodes, batch * world.ranks)
    whole = size // canonical_nodes * canonical_nodes // world.ranks // batch  # before any repeats
    for rank in ranks_of(world):
        for ids in batches_of(epoch, rank, range(whole)):
            canonical_node = np.searchsorted(bounds, ids, side="right") - 1
            assert set((canonical_node % nodes).tolist()) <= {rank.node}


def test_canonical_nodes_are_interleaved():
    assert taken(make(NoShuffle(), [10], 2, 5)) == [0, 5, 1, 6, 2, 7, 3, 8, 4, 9]


def test_the_last_of_longer_canonical_nodes_come_last():
    assert taken(make(NoShuffle(), [5], 2, 5)) == [0, 2, 1, 3, 4]


def test_the_epoch_is_filled_up_from_its_beginning():
    assert taken(make(NoShuffle(), [5], 1, 4)) == [0, 1, 2, 3, 4, 0, 1, 2]


def test_a_batch_larger_than_the_set_goes_round_it():
    assert taken(make(NoShuffle(), [3], 1, 8)) == [0, 1, 2, 0, 1, 2, 0, 1]


def test_an_example():
    world = World(nodes=2, ranks_per_node=2, rank=3)
    epoch = make(NoShuffle(), [100], 1, 12)
    assert batches_of(epoch, world, [0, 5]) == [[3, 7, 11], [63, 67, 71]]
    assert epoch.where(world, 67) == [Place(5, 3, 1)]
    assert list(worker_steps(World(workers_per_rank=2, worker=1), 3, 9)) == [4, 6, 8]


def test_no_steps_give_no_ids():
    ids, offsets = make(NoShuffle(), [12], 1, 4).ids(World(), np.empty(0, np.int64))
    assert (ids.tolist(), offsets.tolist()) == ([], [0])


@given(st.integers(1, 5), st.integers(0, 30), st.integers(0, 30))
def test_the_workers_of_a_rank_take_its_steps_in_turn(workers, first, steps):
    taken = [
        worker_steps(World(workers_per_rank=workers, worker=w), first, steps)
        for w in range(workers)
    ]
    assert sorted(chain.from_iterable(taken)) == list(range(first, max(steps, first)))
    # A loader asks its workers in turn, so this is the order that it hands out.
    turns = [taken[number % workers][number // workers] for number in range(max(steps - first, 0))]
    assert turns == list(range(first, max(steps, first)))


def test_steps_take_no_memory_until_they_are_served():
    steps = worker_steps(World(workers_per_rank=3, worker=2), 10, 1 << 50)
    assert (steps[0], steps[1 << 40]) == (12, 12 + 3 * (1 << 40))
