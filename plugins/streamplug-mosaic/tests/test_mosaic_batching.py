"""Epochs put together stream by stream: those of mosaicml-streaming, and what is refused."""

from __future__ import annotations

import hashlib
import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from streamplug_mosaic.batching import MOSAIC_BATCHING_METHODS, MosaicBatching, WeightedStream
from streamplug_mosaic.sampling import MosaicSampler

from streamplug.errors import ConfigError
from streamplug.plan import (
    OrderedSamples,
    Place,
    Weight,
    WeightedMixture,
    choose_per_stream,
    proportion_per_stream,
    rows_of,
)
from streamplug.plugin import make
from streamplug.types import World

GOLDEN = json.loads((Path(__file__).parent / "mosaic_work.json").read_text())
"""Layouts of mosaicml-streaming 0.13: the sha1 of its array."""

SHARDS = [[19, 19, 12], [19, 11], [20]]
STREAM_STARTS = [0, 50, 80]
WORLD = World(2, 2)


def parts_of(
    shards,
    weights=None,
    epoch_size=None,
    *,
    method="balanced",
    algo=None,
    canonical_nodes=2,
    seed=1,
    epoch=0,
    block=100,
):
    sizes = [sum(stream) for stream in shards]
    given = [Weight(**weight) for weight in weights or [{}] * len(shards)]
    choose = choose_per_stream(sizes, given, epoch_size, seed)
    shares = proportion_per_stream(sizes, given, epoch_size, choose)
    mixture = WeightedMixture(tuple(choose), method, 1, MosaicSampler())
    starts = np.cumsum([0, *(size for stream in shards for size in stream)], dtype=np.int64)
    streams = np.cumsum([0, *map(len, shards)]).tolist()
    shuffle = make("shuffle", algo or "none")
    return choose, [
        WeightedStream(
            OrderedSamples(
                selection,
                partial(
                    shuffle.order,
                    selection.starts,
                    canonical_nodes=canonical_nodes,
                    seed=seed,
                    epoch=epoch,
                    block_size=max(int(share * block), 1),
                ),
                canonical_nodes,
            ),
            share,
        )
        for selection, share in zip(
            (
                mixture.select(starts, streams, seed, epoch, number, shuffled=algo is not None)
                for number in range(len(choose))
            ),
            shares,
        )
    ]


def rows(epoch, world, steps, batch):
    """Return the ids of a rank's batches, shape ``[steps, batch]``, -1 at the end of short ones."""
    found = np.full((len(steps), batch), -1, np.int64)
    for row, ids in zip(found, rows_of(*epoch.ids(world, steps))):
        row[: len(ids)] = ids
    return found


def layout(epoch, world, batch, first):
    """Return an epoch from a step on in the shape that mosaicml-streaming gives it."""
    workers = world.workers_per_rank
    steps = np.arange(first, epoch.steps(world))
    numbers = -(-len(steps) // workers)
    found = np.full((world.nodes, world.ranks_per_node, workers, numbers, batch), -1, np.int64)
    for rank in range(world.ranks):
        place = World(world.nodes, world.ranks_per_node, workers, rank)
        for number, row in enumerate(rows(epoch, place, steps, batch)):
            found[place.node, place.rank_of_node, number % workers, number // workers] = row
    return found


@pytest.mark.parametrize("case", GOLDEN["cases"])
def test_an_epoch_is_that_of_mosaicml_streaming(case):
    seed, batch, world = GOLDEN["seed"], GOLDEN["batch_size"], World(*case["world"])
    choose, parts = parts_of(
        GOLDEN["samples_per_shard"],
        case["weights"],
        case["epoch_size"],
        method=case["sampling"],
        algo=case["algo"] if case["shuffle"] else None,
        canonical_nodes=case["ncn"],
        seed=seed,
        epoch=case["epoch"],
        block=GOLDEN["block"],
    )
    assert choose == case["choose"]
    turns = seed + (case["epoch"] if case["shuffle"] and case["sampling"] == "balanced" else 0)
    epoch = MosaicBatching(world, batch, case["ncn"], turns).epoch(case["batching"], parts)
    first = case["sample_in_epoch"] // (batch * world.ranks)
    found = layout(epoch, world, batch, first)
    theirs = np.full(case["shape"], -1, np.int64)  # may end with empty batches
    theirs[..., : found.shape[3], :] = found
    assert hashlib.sha1(theirs.astype("<i8").tobytes()).hexdigest() == case["sha1"]


def batching(world=WORLD, *, canonical_nodes=2, batch=4, seed=5):
    return MosaicBatching(world, batch, canonical_nodes, seed)


def whole(epoch, world, batch):
    """Return all ids, shape ``[steps, ranks, batch]``."""
    steps = np.arange(epoch.steps(world))
    places = [World(world.nodes, world.ranks_per_node, 1, rank) for rank in range(world.ranks)]
    return np.stack([rows(epoch, place, steps, batch) for place in places], axis=1)


def streams_of(ids):
    """Return the stream of each sample."""
    return np.searchsorted(STREAM_STARTS, ids, side="right") - 1


@pytest.mark.parametrize("method", MOSAIC_BATCHING_METHODS)
def test_streams_share_batches_as_the_method_says(method):
    ids = whole(batching().epoch(method, parts_of(SHARDS)[1]), WORLD, 4)
    if method == "stratified":
        for step in ids:
            assert np.bincount(streams_of(step).reshape(-1)).tolist() == [8, 5, 3]
    else:
        batches = ids.reshape(-1, 16 if method == "per_stream" else 4)
        batches = batches[batches[:, 0] >= 0]
        assert (streams_of(batches[:, 0]) == streams_of(batches).T).all()
        turns = streams_of(batches[:, 0]).tolist()
        assert set(turns) == {0, 1, 2}
        assert turns != sorted(turns)


@pytest.mark.parametrize("method", MOSAIC_BATCHING_METHODS)
def test_an_epoch_can_be_asked_both_ways(method):
    epoch = batching().epoch(method, parts_of(SHARDS)[1])
    ids = whole(epoch, WORLD, 4)
    for sample in range(100):
        places = [Place(*place) for place in np.argwhere(ids == sample).tolist()]
        assert epoch.where(WORLD, sample) == places
    assert epoch.units == range(ids.size)


@pytest.mark.parametrize("method", MOSAIC_BATCHING_METHODS)
def test_another_world_cuts_the_global_batches_otherwise(method):
    epoch, other = batching().epoch(method, parts_of(SHARDS)[1]), World(4, 2)
    ids = whole(epoch, other, 2)
    assert (
        ids.reshape(len(ids), -1).tolist() == whole(epoch, WORLD, 4).reshape(len(ids), -1).tolist()
    )
    for sample in range(100):
        places = [Place(*place) for place in np.argwhere(ids == sample).tolist()]
        assert epoch.where(other, sample) == places
    with pytest.raises(ConfigError, match="a global batch of 16 cannot be divided among 3 ranks"):
        epoch.ids(World(3), np.array([0]))


def test_ranks_may_get_fewer_batches_where_they_are_made_for_each():
    epoch = batching().epoch("device_per_stream", parts_of([[50], [30], [28]])[1])
    ranks = [World(2, 2, rank=rank) for rank in range(4)]
    steps = np.arange(epoch.steps(WORLD))
    assert [len(epoch.ids(rank, steps)[0]) for rank in ranks] == [28, 28, 24, 24]
    ids, offsets = epoch.ids(ranks[3], steps[-1:])
    assert (ids.tolist(), offsets.tolist()) == ([], [0, 0])


def test_the_order_of_the_streams_depends_on_the_seed_alone():
    parts = parts_of(SHARDS)[1]
    first, again, other = (
        whole(batching(seed=seed).epoch("per_stream", parts), WORLD, 4) for seed in (5, 5, 6)
    )
    assert first.tolist() == again.tolist()
    assert sorted(first.tolist()) == sorted(other.tolist())
    assert first.tolist() != other.tolist()


def test_nodes_take_turns_over_all_ranks():
    # As many canonical nodes as nodes: those of the first are the lower half of a stream.
    world = World(2, 2)
    ids = whole(batching(world, batch=2).epoch("device_per_stream", parts_of([[16]])[1]), world, 2)
    assert (ids[..., 0] // 8).tolist() == [[0, 1, 0, 1], [0, 1, 0, 1]]


@pytest.mark.parametrize(
    ("method", "shards", "changes", "message"),
    [
        (
            "stratified",
            [[900], [3]],
            {},
            r"stream 1 is too small: its share of 0.00332 .* global batch of 16",
        ),
        ("stratified", [[9], [3]], {}, r"stream 0: an epoch has 10 samples .* batch takes 12"),
        ("per_stream", [[90], [12]], {}, "stream 1: .* 12 samples of it, too few for one global"),
        ("device_per_stream", [[90], [3]], {}, "stream 1: .*too few for one batch of 4 for node 0"),
        (
            "device_per_stream",
            [[90]],
            {"canonical_nodes": 3},
            "_nodes=3 and 2 nodes: .* multiple of the nod",
        ),
        (
            "per_stream",
            [[90]],
            {"canonical_nodes": 3},
            "num_canonical_nodes=3 and 2 nodes: partition_algo",
        ),
    ],
)
def test_what_makes_no_batches_is_refused(method, shards, changes, message):
    canonical_nodes = changes.get("canonical_nodes", 2)
    with pytest.raises(ConfigError, match=message):
        batching(canonical_nodes=canonical_nodes).epoch(
            method, parts_of(shards, canonical_nodes=canonical_nodes)[1]
        )


@pytest.mark.parametrize("method", MOSAIC_BATCHING_METHODS)
def test_a_stream_that_an_epoch_leaves_out_is_refused(method):
    parts = parts_of([[90], [90]], [{}, {"repeat": 0}])[1]
    with pytest.raises(ConfigError, match=r"stream 1: an epoch takes no samples .* leave the str"):
        batching().epoch(method, parts)


def test_shares_are_those_of_the_weights_before_rounding():
    given = [Weight(proportion=1), Weight(proportion=2)]
    assert proportion_per_stream([5, 5], given, None, [3, 7]) == [1 / 3, 2 / 3]
    assert proportion_per_stream([1, 2], [Weight()] * 2, 10, [3, 7]) == [1 / 3, 2 / 3]
    assert proportion_per_stream([1, 2], [Weight()] * 2, None, [1, 2]) == [1 / 3, 2 / 3]
    assert proportion_per_stream([9, 9], [Weight(choose=1), Weight()], None, [1, 9]) == [0.1, 0.9]
    assert proportion_per_stream([9], [Weight(repeat=0)], None, [0]) == [0]
