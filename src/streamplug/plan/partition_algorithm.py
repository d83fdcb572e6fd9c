"""Interface of partition algorithms, and the built-in one."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from streamplug.errors import ConfigError
from streamplug.interfaces.plugin import Plugin
from streamplug.plan.epoch import Epoch
from streamplug.plan.ordered_samples import OrderedSamples
from streamplug.plan.partition import ElasticPartition, Partition
from streamplug.plan.selection import ShardSampler
from streamplug.types import World


@dataclass(frozen=True, slots=True)
class WeightedStream:
    """Samples of a stream in an epoch, and the stream's `share` of it; all shares add up to 1."""

    ordered: OrderedSamples
    share: float


@dataclass(frozen=True, slots=True)
class Parallelism:
    """Processes and batches among which an epoch is split.

    Attributes:
        canonical_nodes: Number of canonical nodes.
        world: The number of nodes and ranks.
        batch: Samples per batch of one rank.
        initial_nodes: Number of nodes on which the run began; None for those of `world`.
    """

    canonical_nodes: int
    world: World
    batch: int
    initial_nodes: int | None = None


class PartitionAlgorithm(Plugin):
    """Named way to split epochs among ranks; a pure function of its arguments.

    Attributes:
        elastic: Whether global batches are the same for every world. If not, the algorithm makes the batches
            of all batching methods except ``random`` itself.
        sampler: Samples a part of a stream.
    """

    elastic: ClassVar[bool] = False
    sampler: ClassVar[ShardSampler] = ShardSampler()

    @abstractmethod
    def partition(self, size: int, parallelism: Parallelism) -> Partition:
        """Return the partition of an order.

        Args:
            size: Number of entries of the order.
            parallelism: The processes and batches.

        Raises:
            ConfigError: If the algorithm does not support this world.
        """

    def combine_streams(
        self, method: str, streams: Sequence[WeightedStream], parallelism: Parallelism, seed: int
    ) -> Epoch:
        """Return an epoch of batches made stream by stream; only called if the algorithm is not `elastic`.

        A resumed run may read it in another world with the same global batch, of which rank r then reads
        the samples from ``r * batch`` on.

        Args:
            method: Name of the batching method.
            streams: The streams.
            parallelism: The processes and batches.
            seed: Seed of the sequence of streams.

        Raises:
            ConfigError: If the algorithm does not support the method or this world.
        """
        raise ConfigError(
            f"batching_method={method!r}: {type(self).__name__} has only batching_method='random'"
        )


class ElasticPartitionAlgorithm(PartitionAlgorithm):
    """Built-in partition algorithm ``elastic``."""

    elastic = True

    def partition(self, size: int, parallelism: Parallelism) -> Partition:
        return ElasticPartition(
            size, parallelism.canonical_nodes, parallelism.world, parallelism.batch
        )
