"""Orders and partitions are those of mosaicml-streaming, over many shapes."""

from __future__ import annotations

import warnings

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from streamplug_mosaic.partition import make_partition

from streamplug.errors import ConfigError
from streamplug.interfaces.shuffle import canonical_node_bounds
from streamplug.plugin import make
from streamplug.types import World

seeds = st.integers(0, 2**31)
shards = st.lists(st.integers(1, 80), min_size=1, max_size=40)


@settings(deadline=None, max_examples=400)
@given(
    st.sampled_from(["naive", "py1s", "py2s", "py1br", "py1e"]),
    shards,
    st.integers(1, 9),
    seeds,
    st.integers(0, 100),
    st.integers(2, 300),
)
def test_shuffles(mosaic, algo, sizes, canonical_nodes, seed, epoch, block):
    assume(sum(sizes) >= canonical_nodes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of blocks smaller than shards
        theirs = mosaic.base.shuffle.get_shuffle(
            algo, np.array(sizes), canonical_nodes, seed, epoch, block
        )
    starts = np.cumsum([0, *sizes], dtype=np.int64)
    order = make("shuffle", algo).order(
        starts, canonical_nodes=canonical_nodes, seed=seed, epoch=epoch, block_size=block
    )
    lengths = np.diff(canonical_node_bounds(sum(sizes), canonical_nodes)).tolist()
    ours = np.concatenate(
        [order.take(canonical_node, 0, n) for canonical_node, n in enumerate(lengths)]
    )
    assert ours.tolist() == theirs.tolist()


def ours_whole(world, batch, partition):
    """Return all entries in the shape that mosaicml-streaming gives them."""
    workers = world.workers_per_rank
    numbers = -(-partition.steps // workers)
    shape = (world.nodes, world.ranks_per_node, workers, numbers, batch)
    whole = np.full(shape, -1, np.int64)
    for rank in range(world.ranks):
        place = World(world.nodes, world.ranks_per_node, 1, rank)
        entries = partition.entries(place, np.arange(partition.steps))
        for step, row in enumerate(entries):
            whole[place.node, place.rank_of_node, step % workers, step // workers] = row
    return whole


@settings(deadline=None, max_examples=600)
@given(
    st.sampled_from(["orig", "relaxed"]),
    st.integers(1, 400),
    st.integers(1, 8),
    st.builds(World, st.integers(1, 4), st.integers(1, 4), st.integers(1, 3)),
    st.integers(1, 5),
    st.integers(0, 6),
    st.none() | st.integers(1, 4),
)
def test_partitions(mosaic, algo, size, canonical_nodes, world, batch, dropped, initial_nodes):
    drop = dropped * batch * world.ranks
    assume(drop < size)
    arguments = (
        algo,
        size,
        canonical_nodes,
        world.nodes,
        world.ranks_per_node,
        world.workers_per_rank,
    )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of sets smaller than the world
            theirs = mosaic.base.partition.get_partitions(*arguments, batch, drop, initial_nodes)
    except ValueError:
        theirs = None
    try:
        partition = make_partition(
            algo, size, canonical_nodes, world, batch, drop_first=drop, initial_nodes=initial_nodes
        )
    except ConfigError:
        assert theirs is None
        return
    assume(theirs is not None)  # we may serve what it refuses
    assert ours_whole(world, batch, partition).tolist() == theirs.tolist()
