"""What an order costs and how well it mixes, measured on the plan alone, before anything is read.

`measure` looks at an epoch step by step, so that of a long one some steps can be looked at.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from streamplug.errors import ConfigError
from streamplug.interfaces import ShuffleAlgorithm
from streamplug.plan.epoch import Dealt, Epoch
from streamplug.plan.feed import Feed
from streamplug.plan.orig import make_partition
from streamplug.plan.selection import Whole
from streamplug.types import Int64, World

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
"""Shares of the samples whose displacement `Measures` names."""

_ROWS = 1 << 20


@dataclass(frozen=True, slots=True)
class Measures:
    """What was found in the steps of an epoch that were looked at.

    Attributes:
        samples: How many samples were read, over all ranks.
        displacement: Mean distance of a sample's position in the epoch from its place in the data set,
            in samples. A third of the data set for a uniform permutation.
        displacement_quantiles: The distances that `QUANTILES` of the samples stay below, in samples.
        same_shard: Share, from 0 to 1, of the samples that lie in the shard of the one before them, of
            what one node reads of a global batch.
        shards_per_batch: Mean number of distinct shards of a global batch.
        shards_per_node: Mean number of distinct shards of what one node reads of a global batch.
        downloads: Shards that each node downloads, again where its cache could not hold them, shape
            ``[nodes]``.
        bytes: The same in bytes, shape ``[nodes]``.
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
    """The shards that a node holds: the least recently used go first when there is no room.

    Attributes:
        downloads: How many shards were downloaded so far.
        bytes: The same in bytes.
    """

    def __init__(self, sizes: Int64, limit: int | None) -> None:
        """Begin with nothing.

        Args:
            sizes: Bytes of each shard, shape ``[shards]``.
            limit: Bytes that the node may hold, or None for any number. A shard that is larger is held
                alone.
        """
        self.downloads = self.bytes = 0
        self._sizes, self._limit, self._used = sizes, limit, 0
        self._held: OrderedDict[int, int] = OrderedDict()

    def need(self, shards: Int64) -> None:
        """Read from shards, in this order, shape ``[n]``."""
        if not len(shards):
            return
        if self._limit is None:  # then only the first time counts
            shards = np.unique(shards)
        else:
            shards = shards[np.concatenate([[True], shards[1:] != shards[:-1]])]
        for shard in shards.tolist():
            if shard in self._held:
                self._held.move_to_end(shard)
            else:
                self._download(shard)

    def _download(self, shard: int) -> None:
        size = int(self._sizes[shard])
        self.downloads += 1
        self.bytes += size
        while self._held and self._limit is not None and self._used + size > self._limit:
            self._used -= self._held.popitem(last=False)[1]
        self._held[shard] = size
        self._used += size


def shuffled(
    starts: Int64,
    algorithm: ShuffleAlgorithm,
    world: World,
    batch: int,
    *,
    canonical_nodes: int | None = None,
    block_size: int | None = None,
    seed: int = 9176,
    epoch: int = 0,
    partition_algo: str = "elastic",
) -> Epoch:
    """Return an epoch of a data set that need not exist.

    Args:
        starts: First id of each shard, and the total, shape ``[shards + 1]``.
        algorithm: The shuffle.
        world: Who reads.
        batch: Samples per batch of one rank.
        canonical_nodes: Lanes; None for the default of the shuffle.
        block_size: In samples; None for the default of the shuffle.
        seed: Of the shuffle.
        epoch: Which one.
        partition_algo: Name of the partition.

    Raises:
        ConfigError: If there are no samples, or the partition cannot serve this world.
    """
    total = int(starts[-1])
    if total < 1:
        raise ConfigError("a data set without samples has no epoch to measure")
    lanes = canonical_nodes or algorithm.default_canonical_nodes(world.nodes)
    lanes = min(lanes, total) if partition_algo == "elastic" else lanes
    size = block_size or algorithm.default_block_size(lanes)
    order = algorithm.order(starts, canonical_nodes=lanes, seed=seed, epoch=epoch, block_size=size)
    partition = make_partition(partition_algo, total, lanes, world, batch)
    return Dealt(Feed(Whole(starts), order, lanes), partition)


def reads(
    epoch: Epoch, world: World, batch: int, steps: Int64 | None = None
) -> Iterator[tuple[Int64, Int64]]:
    """Yield what all ranks read, about a million samples at a time.

    Args:
        epoch: The epoch.
        world: Who reads; the rank is of no account.
        batch: Samples per batch of one rank.
        steps: Which global batches, shape ``[n]``; None for all.

    Yields:
        Some of the steps, shape ``[m]``, and their ids, int64, shape
        ``[m, nodes, ranks per node, batch]``; -1 at the end of a batch that is short.
    """
    steps = np.arange(epoch.steps) if steps is None else np.asarray(steps, np.int64)
    each = max(_ROWS // (batch * world.ranks), 1)
    for first in range(0, len(steps), each):
        chunk = steps[first : first + each]
        ids = [epoch.ids(replace(world, rank=rank), batch, chunk) for rank in range(world.ranks)]
        shape = (len(chunk), world.nodes, world.ranks_per_node, batch)
        yield chunk, np.stack(ids, 1).reshape(shape)


def in_order(ids: Int64) -> Int64:
    """Return ids as `reads` gives them in the order of the epoch, shape ``[m, global batch]``."""
    # Nodes take turns, and on each of them its ranks.
    found: Int64 = ids.transpose(0, 3, 2, 1).reshape(len(ids), -1)
    return found


def shards_of(ids: Int64, starts: Int64) -> Int64:
    """Return the shard that each sample lies in, in the same shape; -1 for -1."""
    found: Int64 = np.searchsorted(starts, ids, side="right") - 1
    return found


def displacements(ids: Int64, steps: Int64) -> Int64:
    """Return how far samples are from their place in the data set, in samples.

    Args:
        ids: Ids in the order of the epoch, shape ``[m, global batch]``; -1 is left out.
        steps: Which global batches they are, shape ``[m]``.
    """
    size = ids.shape[1]
    positions = steps[:, None] * size + np.arange(size)
    found: Int64 = np.abs(positions - ids)[ids >= 0]
    return found


def distinct(shards: Int64) -> Int64:
    """Return how many distinct shards there are in each row, besides -1: shape ``[rows]``."""
    ordered = np.sort(shards, axis=1)
    found: Int64 = (ordered[:, 1:] != ordered[:, :-1]).sum(1) + 1 - (ordered[:, 0] < 0)
    return found


def measure(
    epoch: Epoch,
    world: World,
    batch: int,
    starts: Int64,
    *,
    shard_bytes: Int64 | None = None,
    cache_limit: int | None = None,
    steps: Int64 | None = None,
) -> Measures:
    """Measure an epoch; takes 8 bytes for each sample that is looked at.

    Args:
        epoch: The epoch.
        world: Who reads; the rank is of no account.
        batch: Samples per batch of one rank.
        starts: First sample id of each shard, and the total, shape ``[shards + 1]``.
        shard_bytes: Size of each shard, shape ``[shards]``; None takes a sample for a byte.
        cache_limit: Bytes of shards that a node may hold, or None for any number.
        steps: Which global batches to look at, shape ``[n]``; None for all. A node's cache is empty
            before the first.

    Raises:
        ConfigError: If no steps are given.
    """
    if steps is not None and not len(steps):
        raise ConfigError("no steps to measure: name at least one, or leave steps= out for all")
    sizes = np.diff(starts) if shard_bytes is None else shard_bytes
    tally = _Tally(starts, [ShardCache(sizes, cache_limit) for _ in range(world.nodes)])
    for chunk, ids in reads(epoch, world, batch, steps):
        tally.add(chunk, ids)
    return tally.total()


class _Tally:
    """Adds up what `measure` finds."""

    def __init__(self, starts: Int64, caches: list[ShardCache]) -> None:
        self._starts, self._caches = starts, caches
        self._moved: list[Int64] = []
        self._per_batch: list[Int64] = []
        self._per_node: list[Int64] = []
        self._together = self._pairs = 0

    def add(self, steps: Int64, ids: Int64) -> None:
        """Add some steps, as `reads` gives them."""
        self._moved.append(displacements(in_order(ids), steps))
        shards = shards_of(ids, self._starts)
        self._per_batch.append(distinct(in_order(shards)))
        for node, cache in enumerate(self._caches):
            needed = in_order(shards[:, [node]])
            self._per_node.append(distinct(needed))
            before, after = needed[:, :-1], needed[:, 1:]
            self._together += int(((before == after) & (after >= 0)).sum())
            self._pairs += int((after >= 0).sum())
            cache.need(needed[needed >= 0])

    def total(self) -> Measures:
        distances = np.concatenate(self._moved)
        return Measures(
            samples=len(distances),
            displacement=float(distances.mean()),
            displacement_quantiles=tuple(np.quantile(distances, QUANTILES).tolist()),
            same_shard=self._together / max(self._pairs, 1),
            shards_per_batch=float(np.concatenate(self._per_batch).mean()),
            shards_per_node=float(np.concatenate(self._per_node).mean()),
            downloads=tuple(cache.downloads for cache in self._caches),
            bytes=tuple(cache.bytes for cache in self._caches),
        )
