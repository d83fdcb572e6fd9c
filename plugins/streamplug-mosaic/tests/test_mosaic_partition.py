"""Partitions of mosaicml-streaming, over many worlds, in both directions."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from streamplug_mosaic.partition import Partition, make_partition

from streamplug.errors import ConfigError
from streamplug.plan import Place
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
    """Return the places of each entry, by asking for everything, and compare `Partition.places`."""
    found = defaultdict(list)
    for rank in ranks(world):
        entries = partition.entries(rank, np.arange(partition.steps))
        assert entries.shape == (partition.steps, batch)
        for (step, position), entry in np.ndenumerate(entries):
            if entry >= 0:
                found[int(entry)].append(Place(step, rank.rank, position))
    for entry, places in found.items():
        assert set(partition.places(entry)) == set(places)
        assert len(partition.places(entry)) == len(places)
    return found


@settings(deadline=None)
@given(sizes, canonical_nodes_of, worlds, batches)
def test_every_entry_is_handed_out_and_found_again(size, canonical_nodes, world, batch):
    assume(not (canonical_nodes % world.nodes and world.nodes % canonical_nodes))
    partition = make_partition("orig", size, canonical_nodes, world, batch)
    found = handed_out(partition, world, batch)
    assert sorted(found) == list(range(size))
    assert sum(map(len, found.values())) == partition.per_rank * world.ranks


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
        entries = partition.entries(place, np.arange(partition.steps))
        for step, row in enumerate(entries):
            number, worker = divmod(step, world.workers_per_rank)
            whole[place.node, place.rank_of_node, worker, number] = row
    assert hashlib.sha1(whole.astype("<i8").tobytes()).hexdigest() == case["sha1"]
    if case["algo"] == "relaxed" and case["drop_first"]:
        return  # ranks then get some fewer than `per_rank`
    found = handed_out(partition, world, case["batch"])
    assert sum(map(len, found.values())) == partition.per_rank * world.ranks
    dropped = set(range(case["N"])) - set(found)
    assert not any(partition.places(entry) for entry in dropped)


@settings(deadline=None)
@given(
    sizes, st.sampled_from([(3, 2, 4), (3, 1, 8), (5, 1, 4), (5, 2, 6)]), st.sampled_from([2, 4])
)
def test_relaxed_entries_are_found_again_on_other_nodes(size, shape, first):
    nodes, local, batch = shape
    world = World(nodes, local)
    assume(batch * nodes % first == 0)
    partition = make_partition("relaxed", size, first, world, batch, initial_nodes=first)
    assert sorted(handed_out(partition, world, batch)) == list(range(size))


def test_a_set_as_small_as_its_canonical_nodes_is_spread_over_more_nodes():
    world = World(4)
    partition = make_partition("orig", 2, 2, world, 1)
    found = handed_out(partition, world, 1)
    assert {entry: [p.rank for p in places] for entry, places in found.items()} == {
        0: [0, 1],
        1: [2, 3],
    }


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
