"""Partitions: what each promises, over many worlds, and that they can be asked both ways."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from streamplug.errors import ConfigError
from streamplug.plan import ElasticPartition, Partition, Place, mosaic_partition, worker_steps
from streamplug.types import World

GOLDEN = json.loads((Path(__file__).parent / "mosaic_partitions.json").read_text())
"""Partitions of mosaicml-streaming 0.13: the sha1 of its array, or ``error``."""

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


def make_partition(algo, *arguments, **options):
    if algo == "elastic":
        return ElasticPartition(*arguments, **options)
    return mosaic_partition.make_partition(algo, *arguments, **options)


def global_batches(partition: Partition, world: World, batch: int) -> list[list[int]]:
    parts = [partition.entries(p, batch, np.arange(partition.steps)) for p in ranks(world)]
    return np.sort(np.concatenate(parts, axis=1), axis=1).tolist()


@settings(deadline=None)
@given(st.sampled_from(["elastic", "orig"]), sizes, canonical_nodes_of, worlds, batches)
def test_every_entry_is_handed_out_and_found_again(algo, size, canonical_nodes, world, batch):
    assume(
        algo == "elastic" or not (canonical_nodes % world.nodes and world.nodes % canonical_nodes)
    )
    partition = make_partition(algo, size, canonical_nodes, world, batch)
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
        partition = make_partition("elastic", size, canonical_nodes, world, total // count)
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
    partition = make_partition("elastic", size, canonical_nodes, world, batch)
    for place in ranks(world):
        taken = partition.entries(place, batch, np.arange(whole))
        canonical_node = np.searchsorted(bounds, taken, side="right") - 1
        assert set((canonical_node % nodes).reshape(-1).tolist()) <= {place.node}


@pytest.mark.parametrize("case", GOLDEN, ids=lambda c: "-".join(map(str, list(c.values())[:8])))
def test_the_partitions_of_mosaicml_streaming(case):
    world = World(case["pn"], case["rpn"], case["workers"])
    arguments = {"drop_first": case["drop_first"], "initial_nodes": case["initial_pn"]}
    if "error" in case:
        with pytest.raises(ConfigError):
            make_partition(case["algo"], case["N"], case["ncn"], world, case["batch"], **arguments)
        return
    partition = make_partition(
        case["algo"], case["N"], case["ncn"], world, case["batch"], **arguments
    )
    whole = np.full(case["shape"], -1, np.int64)
    for place in ranks(world):
        entries = partition.entries(place, case["batch"], np.arange(partition.steps))
        for step, row in enumerate(entries):
            number, worker = divmod(step, world.workers_per_rank)
            whole[place.node, place.rank_of_node, worker, number] = row
    assert hashlib.sha1(whole.astype("<i8").tobytes()).hexdigest() == case["sha1"]
    if case["algo"] == "relaxed" and case["drop_first"]:
        return  # ranks then get some fewer than `per_rank`
    for entry, places in handed_out(partition, world, case["batch"]).items():
        asked = partition.places(world, case["batch"], entry)
        assert sorted(asked, key=lambda p: (p.step, p.rank, p.position)) == places
    dropped = set(range(case["N"])) - set(handed_out(partition, world, case["batch"]))
    assert not any(partition.places(world, case["batch"], entry) for entry in dropped)


@settings(deadline=None)
@given(
    sizes, st.sampled_from([(3, 2, 4), (3, 1, 8), (5, 1, 4), (5, 2, 6)]), st.sampled_from([2, 4])
)
def test_relaxed_entries_are_found_again_on_other_nodes(size, shape, first):
    nodes, local, batch = shape
    world = World(nodes, local)
    assume(batch * nodes % first == 0)
    partition = make_partition("relaxed", size, first, world, batch, initial_nodes=first)
    found = defaultdict(list)
    for place in ranks(world):
        taken = partition.entries(place, batch, np.arange(partition.steps))
        for (step, at), entry in np.ndenumerate(taken):
            if entry >= 0:
                found[int(entry)].append(Place(step, place.rank, at))
    assert sorted(found) == list(range(size))
    for entry, places in found.items():
        asked = partition.places(world, batch, entry)
        assert sorted(asked, key=repr) == sorted(places, key=repr)


def test_a_set_as_small_as_its_canonical_nodes_is_spread_over_more_nodes():
    world = World(4)
    partition = make_partition("orig", 2, 2, world, 1)
    found = handed_out(partition, world, 1)
    assert {entry: [p.rank for p in places] for entry, places in found.items()} == {
        0: [0, 1],
        1: [2, 3],
    }
    assert [partition.places(world, 1, entry) for entry in range(2)] == [found[0], found[1]]


def test_a_world_that_orig_cannot_serve_is_refused_with_a_way_out():
    with pytest.raises(
        ConfigError, match=r"3 nodes: partition_algo='orig' needs.*'elastic' takes any"
    ):
        make_partition("orig", 100, 2, World(3), 4)
    with pytest.raises(ConfigError, match=r"global batch of 12 .* 8 ranks on which the run began"):
        make_partition("relaxed", 100, 2, World(3, 2), 2, initial_nodes=4)
    with pytest.raises(ConfigError, match="choose one of orig, relaxed"):
        make_partition("best", 100, 2, World(), 4)
    with pytest.raises(ConfigError, match="drop_first=200 of 100 samples"):
        make_partition("orig", 100, 1, World(), 4, drop_first=200)


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
    partition = make_partition("elastic", 100, 1, world, 3)
    assert partition.entries(world, 3, np.array([0, 5])).tolist() == [[3, 7, 11], [63, 67, 71]]
    assert partition.places(world, 3, 67) == [Place(5, 3, 1)]
    assert list(worker_steps(World(workers_per_rank=2, worker=1), 3, 9)) == [4, 6, 8]
