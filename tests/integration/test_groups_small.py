"""Data sets with fewer samples than there are ranks, for which one process stands in for all.

With STREAMPLUG_TEST_SOAK in the environment many cases are drawn, else some.
"""

from __future__ import annotations

import os
from itertools import chain
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamplug import MDSWriter, World
from streamplug.dataset import StreamingDataset
from streamplug.errors import ConfigError

EXAMPLES = 150 if os.environ.get("STREAMPLUG_TEST_SOAK") else 12
SIZES = range(1, 6)
EPOCHS = 2
worlds = st.builds(World, st.integers(1, 4), st.integers(1, 4))


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[int, str]:
    """Sets of each size, in shards of two samples."""
    found = {}
    for size in SIZES:
        out = tmp_path_factory.mktemp("sets") / str(size)
        with MDSWriter(columns={"id": "int"}, out=out, size_limit=200) as writer:
            writer.write_batch({"id": list(range(size))})
        found[size] = str(out)
    return found


def read(
    folder: str, world: World, state: dict[str, Any] | None = None, **kwargs: Any
) -> list[list[list[list[int]]]]:
    """Return what the ranks of a world read, from a state on: epochs, steps, ranks, ids."""
    ranks = []
    for rank in range(world.ranks):
        dataset = StreamingDataset(
            local=folder, world=World(world.nodes, world.ranks_per_node, rank=rank), **kwargs
        )
        if state:
            dataset.load_state_dict(state)
        epochs = [[batch["id"].tolist() for batch in dataset.batches()] for _ in range(EPOCHS)]
        lengths = [sum(map(len, epoch)) for epoch in epochs]
        assert lengths[state is not None :] == [len(dataset)] * (EPOCHS - (state is not None))
        ranks.append(epochs)
    return [list(zip(*epoch, strict=True)) for epoch in zip(*ranks, strict=True)]


def global_batches(epoch: list[list[list[int]]]) -> list[list[int]]:
    return [sorted(chain(*step)) for step in epoch]


@settings(deadline=None, max_examples=EXAMPLES)
@given(
    size=st.sampled_from(SIZES),
    world=worlds,
    batch=st.integers(1, 4),
    canonical_nodes=st.none() | st.integers(1, 9),
    shuffle=st.booleans(),
)
def test_elastic_fills_up_the_same_way_for_every_world(
    folders, size, world, batch, canonical_nodes, shuffle
):
    settings = {"shuffle": shuffle, "num_canonical_nodes": canonical_nodes}
    found = read(folders[size], world, batch_size=batch, **settings)
    assert all(len(ids) == batch for epoch in found for step in epoch for ids in step)
    for epoch in found:
        assert {i for step in global_batches(epoch) for i in step} == set(range(size))
    settings["num_canonical_nodes"] = (
        canonical_nodes or world.nodes
    )  # those of the run's first world
    alone = read(folders[size], World(), batch_size=batch * world.ranks, **settings)
    assert [global_batches(epoch) for epoch in found] == [global_batches(e) for e in alone]


@settings(deadline=None, max_examples=EXAMPLES)
@given(size=st.sampled_from(SIZES), world=worlds, batch=st.integers(1, 4), data=st.data())
def test_a_state_moves_to_worlds_with_more_ranks_than_samples(folders, size, world, batch, data):
    total = batch * world.ranks
    other = data.draw(worlds.filter(lambda other: total % other.ranks == 0))
    first = StreamingDataset(local=folders[size], world=world, batch_size=batch, shuffle=True)
    steps = len(first) // batch
    stop = data.draw(st.integers(0, steps))
    state = first.state_dict(num_samples=stop * total)
    whole = read(folders[size], world, batch_size=batch, shuffle=True)
    rest = read(folders[size], other, state=state, batch_size=total // other.ranks, shuffle=True)
    assert global_batches(rest[0]) == global_batches(whole[0])[stop:]
    assert global_batches(rest[1]) == global_batches(whole[1])


@settings(deadline=None, max_examples=EXAMPLES)
@given(
    size=st.sampled_from(SIZES),
    world=worlds,
    batch=st.integers(1, 4),
    canonical_nodes=st.none() | st.integers(1, 9),
    algo=st.sampled_from(["orig", "relaxed"]),
)
def test_other_partitions_serve_all_samples_or_say_that_they_cannot(
    folders, size, world, batch, canonical_nodes, algo
):
    pytest.importorskip("streamplug_mosaic")
    settings = {"shuffle": True, "num_canonical_nodes": canonical_nodes, "partition_algo": algo}
    try:
        found = read(folders[size], world, batch_size=batch, **settings)
    except ConfigError:
        return
    for epoch in found:
        assert all(len({len(ids) for ids in step}) == 1 for step in epoch)
        assert {i for step in global_batches(epoch) for i in step} == set(range(size))
