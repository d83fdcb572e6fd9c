"""Plans for tests: epochs of a planner, and what all ranks read of them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np

from streamplug.builtin.shuffles.window import WindowShuffle
from streamplug.plan import ElasticPlanner, Place, Position, Segment, Streams, WeightedMixture
from streamplug.types import World


def ranks_of(world):
    return [replace(world, rank=rank) for rank in range(world.ranks)]


def batches_of(epoch, world, steps=None):
    """Return the sample ids of each batch of a rank."""
    steps = np.arange(epoch.steps(world)) if steps is None else np.array(steps, np.int64)
    ids, offsets = epoch.ids(world, steps)
    return [ids[start:stop].tolist() for start, stop in pairwise(offsets.tolist())]


def global_batches(epoch, world):
    """Return the sorted sample ids of each step over all ranks."""
    parts = [batches_of(epoch, rank) for rank in ranks_of(world)]
    return [sorted(sample for batch in step for sample in batch) for step in zip(*parts)]


def places_of(epoch, world):
    """Return where each sample is read."""
    places = defaultdict(list)
    for rank in ranks_of(world):
        for step, batch in enumerate(batches_of(epoch, rank)):
            for position, sample in enumerate(batch):
                places[sample].append(Place(step, rank.rank, position))
    return places


class Plan:
    """A planner of streams of some shards, and the segments of a run."""

    def __init__(
        self, shards, mixture, algorithm=None, *, method="random", total=12, unit=1,
        canonical_nodes=3, block_size=16,
    ):  # fmt: skip
        sizes = [size for stream in shards for size in stream]
        self.starts = np.cumsum([0, *sizes], dtype=np.int64)
        stream_shards = np.cumsum([0, *(len(stream) for stream in shards)]).tolist()
        self.firsts = self.starts[stream_shards]
        self.streams = Streams(
            self.starts, stream_shards, mixture, algorithm or WindowShuffle(), True, 5, block_size
        )
        self.planner = planner_of(self.streams, method)
        origin = World(ranks_per_node=total // unit)
        self.segments = [Segment(Position(), origin, total, canonical_nodes)]

    def change(self, step, proportions):
        position = self.planner.position_of(step, self.segments)
        self.segments = self.planner.with_proportions(self.segments, position, proportions)

    def epoch(self, number):
        return self.planner.epoch(number, self.segments)

    def ids(self, number, world):
        """Return the sample ids of a whole epoch, shape ``[ranks, steps, batch]``."""
        return np.array([batches_of(self.epoch(number), rank) for rank in ranks_of(world)])

    def batches(self, number, world):
        return global_batches(self.epoch(number), world)

    def stream_of(self, ids):
        return np.searchsorted(self.firsts, ids, side="right") - 1


def planner_of(streams, method):
    plan = partial(plan_mixture, streams, method)
    is_whole = method == "random" and isinstance(streams.mixture, WeightedMixture)
    return ElasticPlanner(streams, plan) if is_whole else plan()


def plan_mixture(streams, method):
    from streamplug_mixing import MixturePlanner

    return MixturePlanner(streams, method)
