"""Whole epochs of mosaicml-streaming 0.13, weights and all: what each worker of each rank reads."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from streamplug_mosaic.order import MosaicPlanner
from streamplug_mosaic.sampling import MosaicSampler

from streamplug.plan import (
    Epoch,
    Position,
    Segment,
    Streams,
    Weight,
    WeightedMixture,
    choose_per_stream,
    rows_of,
)
from streamplug.plugin.registry import make
from streamplug.types import World

GOLDEN = json.loads((Path(__file__).parent / "mosaic_epochs.json").read_text())


def epoch_of(case, world: World) -> Epoch:
    sizes = [sum(stream) for stream in case["samples_per_shard"]]
    weights = [Weight(**weight) for weight in case["weights"]]
    choose = choose_per_stream(sizes, weights, case["epoch_size"], case["seed"])
    assert choose == case["choose"]
    shards = [size for stream in case["samples_per_shard"] for size in stream]
    streams = Streams(
        np.cumsum([0, *shards], dtype=np.int64),
        np.cumsum([0, *map(len, case["samples_per_shard"])]).tolist(),
        WeightedMixture(tuple(choose), case["sampling"], 1, MosaicSampler()),
        make("shuffle", case["algo"] if case["shuffle"] else "none"),
        case["shuffle"],
        case["seed"],
        case["block"],
    )
    segment = Segment(Position(), world, case["batch_size"] * world.ranks, case["ncn"])
    return MosaicPlanner(streams, "relaxed", "random").epoch(case["epoch"], [segment])


@pytest.mark.parametrize("case", GOLDEN)
def test_an_epoch_is_that_of_mosaicml_streaming(case):
    world = World(**case["world"])
    epoch = epoch_of(case, world)
    first = case["sample_in_epoch"] // (case["batch_size"] * world.ranks)
    whole = np.full(case["shape"], -1, np.int64)
    for rank in range(world.ranks):
        place = World(world.nodes, world.ranks_per_node, world.workers_per_rank, rank)
        steps = np.arange(first, epoch.steps(world))
        for step, ids in enumerate(rows_of(*epoch.ids(place, steps))):
            number, worker = divmod(step, world.workers_per_rank)
            whole[place.node, place.rank_of_node, worker, number, : len(ids)] = ids
    assert hashlib.sha1(whole.astype("<i8").tobytes()).hexdigest() == case["sha1"]
