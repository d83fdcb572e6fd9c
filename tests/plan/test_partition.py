"""Partitions: what each promises, over many worlds, and that they can be asked both ways."""

from __future__ import annotations

from collections import defaultdict
from itertools import chain

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from streamplug.plan import ElasticPartition, Partition, Place, worker_steps
from streamplug.types import World

sizes = st.integers(1, 150)
canonical_nodes_of = st.integers(1, 9)
worlds = st.builds(World, st.integers(1, 4), st.integers(1, 4))
batches = st.integers(1, 5)


def ranks(world: World) -> list[World]:
    return [World(world.nodes, world.ranks_per_node, 1, r) for r in range(world.ranks)]


def handed_out(partition: Partition, world: World, batch: int) -> dict[int, list[Place]]:
    """Return where each entry is handed out, by asking for everything."""
    found = defaultdict(list)
    for place in ranks(world):
        entries = partition.entries(place, batch, np.arange(partition.steps))
        assert entries.shape == (partition.steps, batch)
        assert (entries >= 0).sum() == partition.per_rank
        for (step, at), entry in np.ndenumerate(entries):
            if entry >= 0:
                found[int(entry)].append(Place(step, place.rank, at))
    return {
        entry: sorted(at, key=lambda p: (p.step, p.rank, p.position)) for entry, at in found.items()
    }


def global_batches(partition: Partition, world: World, batch: int) -> list[list[int]]:
    parts = [partition.entries(p, batch, np.arange(partition.steps)) for p in ranks(world)]
    return np.sort(np.concatenate(parts, axis=1), axis=1).tolist()


@settings(deadline=None)
@given(sizes, canonical_nodes_of, worlds, batches)
def test_every_entry_is_handed_out_and_found_again(size, canonical_nodes, world, batch):
    partition = ElasticPartition(size, canonical_nodes, world, batch)
    found = handed_out(partition, world, batch)
    assert sorted(found) == list(range(size))
    for entry, places in found.items():
        asked = partition.places(world, batch, entry)
        assert sorted(asked, key=lambda p: (p.step, p.rank, p.position)) == places


@settings(deadline=None)
@given(sizes, canonical_nodes_of, st.sampled_from([1, 2, 4, 6, 12]), st.data())
def test_elastic_global_batches_are_those_of_every_world(size, canonical_nodes, total, data):
    expected = None
    for _ in range(3):
        count = data.draw(st.sampled_from([r for r in range(1, total + 1) if total % r == 0]))
        nodes = data.draw(st.sampled_from([n for n in range(1, count + 1) if count % n == 0]))
        world = World(nodes, count // nodes)
        partition = ElasticPartition(size, canonical_nodes, world, total // count)
        found = global_batches(partition, world, total // count)
        expected = expected or found
        assert found == expected


@settings(deadline=None)
@given(sizes, st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), batches)
def test_a_node_takes_canonical_nodes_of_its_own(size, nodes, more, local, batch):
    world = World(nodes, local)
    canonical_nodes = nodes * more
    assume(size >= canonical_nodes)
    bounds = [
        size * canonical_node // canonical_nodes for canonical_node in range(canonical_nodes + 1)
    ]
    whole = (
        size // canonical_nodes * canonical_nodes // world.ranks // batch
    )  # steps before anything starts again
    partition = ElasticPartition(size, canonical_nodes, world, batch)
    for place in ranks(world):
        taken = partition.entries(place, batch, np.arange(whole))
        canonical_node = np.searchsorted(bounds, taken, side="right") - 1
        assert set((canonical_node % nodes).reshape(-1).tolist()) <= {place.node}


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


def test_an_example():
    world = World(nodes=2, ranks_per_node=2, rank=3)
    partition = ElasticPartition(100, 1, world, 3)
    assert partition.entries(world, 3, np.array([0, 5])).tolist() == [[3, 7, 11], [63, 67, 71]]
    assert partition.places(world, 3, 67) == [Place(5, 3, 1)]
    assert list(worker_steps(World(workers_per_rank=2, worker=1), 3, 9)) == [4, 6, 8]
