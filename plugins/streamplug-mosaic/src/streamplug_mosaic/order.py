"""The orders of mosaicml-streaming, with its batching and sampling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from streamplug.errors import ConfigError
from streamplug.plan import Epoch, Planner, Segment, Streams, WeightedMixture
from streamplug.run import Order
from streamplug.source import OpenSources
from streamplug.types import World
from streamplug_mosaic.batching import MOSAIC_BATCHING_METHODS, MosaicBatching, WeightedStream
from streamplug_mosaic.epoch import ArrayEpoch, PartitionedEpoch
from streamplug_mosaic.partition import Partition, fits, make_partition
from streamplug_mosaic.sampling import MosaicSampler

if TYPE_CHECKING:
    from streamplug.run import OrderOptions

BATCHING_METHODS = ("random", *MOSAIC_BATCHING_METHODS)
"""Values of `batching_method` that these orders take."""


class MosaicPlanner(Planner):
    """Planner of epochs of one order over all streams (``random``), or made stream by stream."""

    def __init__(self, streams: Streams, partition_algo: str, method: str) -> None:
        super().__init__(streams)
        self._partition_algo, self._method = partition_algo, method
        self.depends_on_world = method != "random"

    def epoch(self, number: int, segments: Sequence[Segment]) -> Epoch:
        first = segments[0]
        if self._method != "random":
            return self._combined(number, first)
        ordered = self.streams.of(first).epoch(number, first.canonical_nodes)
        make = partial(self._partition, first)
        return PartitionedEpoch(ordered, first.canonical_nodes, first.global_batch, make)

    def length(self, segment: Segment, world: World) -> int:
        if self._method == "random":
            return self._partition(segment, world, segment.global_batch // world.ranks).per_rank
        epoch = self._combined(0, segment)
        return len(epoch.ids(world, np.arange(epoch.steps(world)))[0])

    def max_units(self, segments: Sequence[Segment]) -> int:
        # Each canonical node of a stream may be padded, for any world that a global batch can serve.
        nodes = 3 * segments[0].canonical_nodes * len(self.streams.sizes)
        return super().max_units(segments) + nodes * segments[0].global_batch

    def begun_on(self, nodes: int, segment: Segment) -> Segment:
        world = World(nodes, segment.world.ranks_per_node)
        if self._method == "random":  # only the number of nodes counts
            return replace(segment, world=world)
        # Batches of single streams are made for the current world, if it can be served.
        served = fits(segment.canonical_nodes, segment.world.nodes)
        relaxed = self._partition_algo == "relaxed" and self._method == "per_stream"
        if served or not relaxed or segment.global_batch % world.ranks:
            return segment
        return replace(segment, world=world)

    def _partition(self, segment: Segment, world: World, batch: int) -> Partition:
        return make_partition(
            self._partition_algo,
            self.streams.epoch_size,
            segment.canonical_nodes,
            world,
            batch,
            initial_nodes=segment.world.nodes,
        )

    def _combined(self, number: int, segment: Segment) -> ArrayEpoch:
        """Return an epoch made stream by stream, for the world with which the run began."""
        streams, nodes = self.streams.of(segment), segment.canonical_nodes
        mixture = streams.mixture
        if not isinstance(mixture, WeightedMixture):  # options refuse it
            raise ConfigError("curriculum= needs partition_algo='elastic'")
        block_size = streams.block_size(nodes)
        parts = []
        for stream, share in enumerate(mixture.shares):
            selection = streams.select(number, stream)
            of_stream = max(int(block_size * share), 1)
            ordered = streams.order(selection, number, nodes, block_size=of_stream)
            parts.append(WeightedStream(ordered, share))
        # The sequence of streams changes with the epoch if they are shuffled and resampled.
        offset = number if streams.shuffled and mixture.method == "balanced" else 0
        batching = MosaicBatching(segment.world, segment.batch, nodes, streams.seed + offset)
        return batching.epoch(self._method, parts)


class OrigOrder(Order):
    """The order ``orig``: equal parts for the ranks, of which the last batch may be short."""

    elastic = False
    sampler = MosaicSampler()
    partition_algo: ClassVar[str] = "orig"

    def check(self, options: OrderOptions) -> None:
        super().check(options)
        if options.batching_method not in BATCHING_METHODS:
            raise ConfigError(
                f"Invalid batching method: batching_method={options.batching_method!r}: "
                f"partition_algo={self.partition_algo!r} has {', '.join(BATCHING_METHODS)}; choose one of "
                "them, or partition_algo='elastic'"
            )

    def planner(self, options: OrderOptions, streams: Streams, sources: OpenSources) -> Planner:
        return MosaicPlanner(streams, self.partition_algo, options.batching_method)


class RelaxedOrder(OrigOrder):
    """The order ``relaxed``: as ``orig``, for worlds that the number of canonical nodes does not fit."""

    partition_algo = "relaxed"
