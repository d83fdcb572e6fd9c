"""The partition algorithms of mosaicml-streaming, with its batching and sampling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from streamplug.plan.epoch import Epoch
from streamplug.plan.partition import Partition
from streamplug.plan.partition_algorithm import Parallelism, PartitionAlgorithm, WeightedStream
from streamplug_mosaic.batching import MosaicBatching
from streamplug_mosaic.partition import OrigPartition, make_partition
from streamplug_mosaic.sampling import MosaicSampler


class OrigPartitionAlgorithm(PartitionAlgorithm):
    """The partition ``orig``: equal parts for the ranks, of which the last batch may be short."""

    sampler = MosaicSampler()
    name: ClassVar[str] = "orig"

    def partition(self, size: int, parallelism: Parallelism) -> Partition:
        p = parallelism
        return OrigPartition(size, p.canonical_nodes, p.world, p.batch)

    def combine_streams(
        self, method: str, streams: Sequence[WeightedStream], parallelism: Parallelism, seed: int
    ) -> Epoch:
        return MosaicBatching(self.name, parallelism, seed).epoch(method, streams)


class RelaxedPartitionAlgorithm(OrigPartitionAlgorithm):
    """The partition ``relaxed``: as ``orig``, for worlds that the number of canonical nodes does not fit."""

    name = "relaxed"

    def partition(self, size: int, parallelism: Parallelism) -> Partition:
        p = parallelism
        return make_partition(
            self.name, size, p.canonical_nodes, p.world, p.batch, initial_nodes=p.initial_nodes
        )
