"""Quality and cost of an order, computed from the plan without reading data."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from streamplug.config import whole_number
from streamplug.errors import ConfigError
from streamplug.interfaces import ShuffleAlgorithm
from streamplug.plan import (
    ElasticPlanner,
    Epoch,
    Planner,
    Position,
    Segment,
    ShardSampler,
    Streams,
    WeightedMixture,
)
from streamplug.types import Int64, World

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
"""Quantiles of the displacement in `Measures`."""

SAMPLES_PER_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Measures:
    """Measurements over some steps of an epoch.

    Attributes:
        samples: Number of samples read by all ranks.
        displacement: Mean distance between the position of a sample in the epoch and its id, in samples; a
            third of the data set for a uniform permutation.
        displacement_quantiles: `QUANTILES` of the distance, in samples.
        same_shard: Fraction of samples in the same shard as the previous one, within the part of a global
            batch that one node reads.
        shards_per_batch: Mean number of distinct shards per global batch.
        shards_per_node: Mean number of distinct shards that one node reads per global batch.
        downloads: Shards that each node downloads, with repeated downloads, shape ``[nodes]``.
        bytes: Bytes that each node downloads, shape ``[nodes]``.
    """

    samples: int
    displacement: float
    displacement_quantiles: tuple[float, ...]
    same_shard: float
    shards_per_batch: float
    shards_per_node: float
    downloads: tuple[int, ...]
    bytes: tuple[int, ...]


class ShardCache:
    """Model of a node's shard cache with LRU eviction; counts downloads and their bytes."""

    def __init__(self, sizes: Int64, limit: int | None) -> None:
        self.downloads = self.bytes = 0
        self._sizes, self._limit, self._used = sizes, limit, 0
        self._cached: OrderedDict[int, int] = OrderedDict()

    def read(self, shards: Int64) -> None:
        """Read from shards in this order, shape ``[n]``."""
        if not len(shards):
            return
        if self._limit is None:  # only the first read of a shard counts
            shards = np.unique(shards)
        else:
            shards = shards[np.concatenate([[True], shards[1:] != shards[:-1]])]
        for shard in shards.tolist():
            if shard in self._cached:
                self._cached.move_to_end(shard)
            else:
                self._download(shard)

    def _download(self, shard: int) -> None:
        size = int(self._sizes[shard])
        self.downloads += 1
        self.bytes += size
        while self._cached and self._limit is not None and self._used + size > self._limit:
            self._used -= self._cached.popitem(last=False)[1]
        self._cached[shard] = size
        self._used += size


def make_epoch(
    starts: Int64,
    algorithm: ShuffleAlgorithm,
    world: World,
    batch: int,
    *,
    canonical_nodes: int | None = None,
    block_size: int | None = None,
    seed: int = 9176,
    epoch: int = 0,
    make_planner: Callable[[Streams], Planner] | None = None,
) -> Epoch:
    """Return an epoch of a data set that need not exist.

    Args:
        starts: First sample id of each shard and the total, shape ``[shards + 1]``.
        algorithm: The shuffle.
        world: The number of nodes and ranks.
        batch: Samples per batch of one rank.
        canonical_nodes: Number of canonical nodes; None for the default of the shuffle.
        block_size: Block size in samples; None for the default of the shuffle.
        seed: Seed of the shuffle.
        epoch: Number of the epoch.
        make_planner: Returns the planner of an order; None for that of ``batching_method="random"``.

    Raises:
        ConfigError: If there are no samples, a number is invalid, or the order does not support this world.
    """
    for name, value, lowest in (
        ("batch", batch, 1),
        ("canonical_nodes", canonical_nodes, 1),
        ("block_size", block_size, 1),
        ("seed", seed, 0),
        ("epoch", epoch, 0),
    ):
        whole_number(name, value, lowest)
    total = int(starts[-1])
    if total < 1:
        raise ConfigError("a data set without samples has no epoch to measure")
    canonical_nodes = canonical_nodes or algorithm.default_canonical_nodes(world.nodes)
    mixture = WeightedMixture((total,), "balanced", 1, ShardSampler())
    streams = Streams(starts, [0, len(starts) - 1], mixture, algorithm, True, seed, block_size)
    if make_planner is None:
        planner: Planner = ElasticPlanner(streams)
        canonical_nodes = min(canonical_nodes, total)
    else:
        planner = make_planner(streams)
    origin = World(world.nodes, world.ranks_per_node)
    return planner.epoch(epoch, [Segment(Position(), origin, batch * world.ranks, canonical_nodes)])


def iter_reads(
    epoch: Epoch, world: World, steps: Int64 | None = None
) -> Iterator[tuple[Int64, Int64]]:
    """Yield the sample ids that all ranks read, in chunks of about a million samples.

    Args:
        epoch: The epoch.
        world: The number of nodes and ranks.
        steps: Global batches, shape ``[n]``; None for all.

    Yields:
        Steps, shape ``[m]``, and ids, int64, shape ``[m, nodes, ranks per node, n]``; -1 at the end of a
        batch of less than n samples. All batches have n samples unless they vary in size.
    """
    steps = np.arange(epoch.steps(world)) if steps is None else np.asarray(steps, np.int64)
    samples_per_step = epoch.rows_per_step(world) * world.ranks
    steps_per_chunk = max(SAMPLES_PER_CHUNK // samples_per_step, 1)
    for first in range(0, len(steps), steps_per_chunk):
        chunk = steps[first : first + steps_per_chunk]
        ranks = [epoch.ids(replace(world, rank=rank), chunk) for rank in range(world.ranks)]
        sizes = np.stack([np.diff(offsets) for _, offsets in ranks])
        ids = np.full((world.ranks, len(chunk), sizes.max(initial=0)), -1, np.int64)
        ids[np.arange(ids.shape[2]) < sizes[:, :, None]] = np.concatenate([ids for ids, _ in ranks])
        shape = (len(chunk), world.nodes, world.ranks_per_node, ids.shape[2])
        yield chunk, ids.swapaxes(0, 1).reshape(shape)


def to_epoch_order(ids: Int64) -> Int64:
    """Reorder ids of `iter_reads` to the order of the epoch, shape ``[m, global batch]``."""
    # Positions alternate between nodes, and on each node between its ranks.
    ordered: Int64 = ids.transpose(0, 3, 2, 1).reshape(len(ids), -1)
    return ordered


def shards_of(ids: Int64, starts: Int64) -> Int64:
    """Return the shard of each sample, in the same shape; -1 for -1."""
    shards: Int64 = np.searchsorted(starts, ids, side="right") - 1
    return shards


def displacements(ids: Int64, steps: Int64, samples_per_step: int | None = None) -> Int64:
    """Return the distances between positions in the epoch and sample ids, in samples.

    Args:
        ids: Ids in the order of the epoch, shape ``[m, n]``; -1 is skipped.
        steps: Their steps, shape ``[m]``.
        samples_per_step: Mean number of samples of a step over all ranks; None for n in each.
    """
    present, size = ids >= 0, ids.shape[1]
    offsets = np.arange(size)
    if samples_per_step not in (None, size):
        offsets, size = np.cumsum(present, 1) - 1, samples_per_step
    positions = steps[:, None] * size + offsets
    distances: Int64 = np.abs(positions - ids)[present]
    return distances


def count_distinct(shards: Int64) -> Int64:
    """Return the number of distinct shards in each row, ignoring -1, shape ``[rows]``."""
    ordered = np.sort(shards, axis=1)
    counts: Int64 = (ordered[:, 1:] != ordered[:, :-1]).sum(1) + 1 - (ordered[:, 0] < 0)
    return counts


def measure(
    epoch: Epoch,
    world: World,
    starts: Int64,
    *,
    shard_bytes: Int64 | None = None,
    cache_limit: int | None = None,
    steps: Int64 | None = None,
) -> Measures:
    """Measure an epoch; needs 8 bytes of memory per measured sample.

    Args:
        epoch: The epoch.
        world: The number of nodes and ranks.
        starts: First sample id of each shard and the total, shape ``[shards + 1]``.
        shard_bytes: Size of each shard in bytes, shape ``[shards]``; None counts one byte per sample.
        cache_limit: Capacity of a node's cache in bytes; None is unlimited.
        steps: Global batches to measure, starting with empty caches, shape ``[n]``; None for all.

    Raises:
        ConfigError: If `steps` is empty, or the epoch does not have one; if the limit is invalid.
    """
    whole_number("cache_limit", cache_limit, 0)
    if steps is not None and not len(steps):
        raise ConfigError("no steps to measure: name at least one, or leave steps= out for all")
    if steps is not None and not 0 <= np.min(steps) <= np.max(steps) < epoch.steps(world):
        raise ConfigError(f"steps: the epoch has the steps 0 to {epoch.steps(world) - 1}")
    sizes = np.diff(starts) if shard_bytes is None else shard_bytes
    tally = _Tally(starts, [ShardCache(sizes, cache_limit) for _ in range(world.nodes)])
    for chunk, ids in iter_reads(epoch, world, steps):
        tally.add(chunk, ids, epoch.rows_per_step(world) * world.ranks)
    return tally.total()


def measure_kept_samples(epoch: Epoch, next_epoch: Epoch, world: World, samples: int) -> float:
    """Return the fraction of samples that the same node reads in the next epoch as well.

    It is 1 where nodes keep their shards, and then samples of different nodes never meet in the part of a
    batch that one node reads; it is one by the number of nodes for a uniform permutation.

    Args:
        epoch: An epoch.
        next_epoch: The epoch after it.
        world: The number of nodes and ranks.
        samples: Number of samples of the data set; takes 4 bytes of memory for each.
    """
    nodes = np.full((2, samples), -1, np.int16)
    for row, each in zip(nodes, (epoch, next_epoch)):
        for _, ids in iter_reads(each, world):
            for node in range(world.nodes):
                of_node = ids[:, node]
                row[of_node[of_node >= 0]] = node
    read = (nodes >= 0).all(0)
    return float((nodes[0] == nodes[1])[read].mean()) if read.any() else 0.0


class _Tally:
    def __init__(self, starts: Int64, caches: list[ShardCache]) -> None:
        self._starts, self._caches = starts, caches
        self._displacements: list[Int64] = []
        self._per_batch: list[Int64] = []
        self._per_node: list[Int64] = []
        self._same_shard = self._pairs = 0

    def add(self, steps: Int64, ids: Int64, samples_per_step: int) -> None:
        self._displacements.append(displacements(to_epoch_order(ids), steps, samples_per_step))
        shards = shards_of(ids, self._starts)
        self._per_batch.append(count_distinct(to_epoch_order(shards)))
        for node, cache in enumerate(self._caches):
            node_shards = to_epoch_order(shards[:, [node]])
            self._per_node.append(count_distinct(node_shards))
            before, after = node_shards[:, :-1], node_shards[:, 1:]
            self._same_shard += int(((before == after) & (after >= 0)).sum())
            self._pairs += int((after >= 0).sum())
            cache.read(node_shards[node_shards >= 0])

    def total(self) -> Measures:
        distances = np.concatenate(self._displacements)
        return Measures(
            samples=len(distances),
            displacement=float(distances.mean()),
            displacement_quantiles=tuple(np.quantile(distances, QUANTILES).tolist()),
            same_shard=self._same_shard / max(self._pairs, 1),
            shards_per_batch=float(np.concatenate(self._per_batch).mean()),
            shards_per_node=float(np.concatenate(self._per_node).mean()),
            downloads=tuple(cache.downloads for cache in self._caches),
            bytes=tuple(cache.bytes for cache in self._caches),
        )
