"""Canonical nodes keep their shards from epoch to epoch: what the shuffles promise that say so."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamplug.plan import (
    ElasticPlanner,
    Position,
    Segment,
    ShardSampler,
    Streams,
    WeightedMixture,
)
from streamplug.plugin import make
from streamplug.types import World

EPOCHS = 4
KEEPING = ["window", "none"]


def shards_by_epoch(shuffle, streams, choose, nodes, *, sampling="balanced"):
    """Return the shards that each node reads, by epoch; `streams` has the sizes of their shards."""
    starts = np.cumsum([0, *(size for stream in streams for size in stream)], dtype=np.int64)
    bounds = np.cumsum([0, *map(len, streams)]).tolist()
    mixture = WeightedMixture(tuple(choose), sampling, 1, ShardSampler())
    streams_of_run = Streams(
        starts,
        bounds,
        mixture,
        make("shuffle", shuffle),
        shuffled=shuffle != "none",
        seed=5,
        shuffle_block_size=64,
    )
    planner = ElasticPlanner(streams_of_run)
    # A global batch has one sample of each node, so that little is filled up.
    segments = [Segment(Position(), World(nodes), nodes, nodes)]

    def shards_of(number, node):
        epoch = planner.epoch(number, segments)
        steps = np.arange(sum(choose) // nodes)  # without the samples that fill up the last one
        ids, _ = epoch.ids(World(nodes, 1, 1, node), steps)
        return set((np.searchsorted(starts, ids, side="right") - 1).tolist())

    return [[shards_of(number, node) for node in range(nodes)] for number in range(EPOCHS)]


def fetched(epochs):
    """Return how many shards all nodes fetch in each epoch, if they keep what they have."""
    kept, counts = [set() for _ in epochs[0]], []
    for epoch in epochs:
        counts.append(sum(len(shards - have) for shards, have in zip(epoch, kept)))
        kept = [have | shards for shards, have in zip(epoch, kept)]
    return counts


streams_of = st.lists(st.lists(st.integers(8, 40), min_size=8, max_size=40), min_size=1, max_size=2)


@given(st.sampled_from(KEEPING), streams_of, st.integers(1, 8))
def test_whole_streams_are_fetched_once(shuffle, streams, nodes):
    # As many for each node: the last step, which is left out, would have samples that are not filled up.
    streams[0][0] += -sum(map(sum, streams)) % nodes
    epochs = shards_by_epoch(shuffle, streams, list(map(sum, streams)), nodes)
    assert epochs[1:] == epochs[:1] * (EPOCHS - 1)
    assert fetched(epochs)[0] <= sum(map(len, streams)) + nodes - 1  # with a border inside: twice


@given(st.sampled_from(KEEPING), streams_of, st.integers(1, 8), st.floats(0.2, 3))
def test_fixed_samples_are_fetched_once(shuffle, streams, nodes, factor):
    # As above.
    choose = [int(factor * sum(stream)) // nodes * nodes for stream in streams]
    epochs = shards_by_epoch(shuffle, streams, choose, nodes, sampling="fixed")
    assert epochs[1:] == epochs[:1] * (EPOCHS - 1)


@given(st.sampled_from(KEEPING), st.integers(2, 8), st.floats(0.2, 0.8), st.floats(1.2, 1.8))
def test_proportions_of_all_shards_move_only_borders(shuffle, nodes, less, more):
    """Where each shard gives some of its samples in each epoch, only shards at borders may change nodes."""
    streams = [[20] * 60, [20] * 60]
    epochs = shards_by_epoch(shuffle, streams, [int(less * 1200), int(more * 1200)], nodes)
    first, *later = fetched(epochs)
    assert first <= 60 + 2 * 60 + 2 * nodes  # what is taken twice may be at two nodes
    assert sum(later) <= 2 * nodes


def test_a_global_order_keeps_nothing():
    epochs = shards_by_epoch("global", [[20] * 60], [1200], 4)
    assert fetched(epochs)[0] > 3 * 60


@pytest.mark.parametrize("shuffle", ["py1s", "py2s", "py1br", "py1e"])
def test_shuffles_of_mosaicml_streaming_keep_their_shards(shuffle):
    pytest.importorskip("streamplug_mosaic")
    epochs = shards_by_epoch(shuffle, [[20] * 60], [1200], 4)
    assert epochs[1:] == epochs[:1] * (EPOCHS - 1)
    assert fetched(epochs)[0] <= 63
