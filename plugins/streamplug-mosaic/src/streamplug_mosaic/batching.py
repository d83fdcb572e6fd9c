"""Batches made stream by stream, bit for bit as mosaicml-streaming makes them.

Each stream is selected, ordered and partitioned by itself; then the streams are combined: parts of each in
every global batch (``stratified``), global batches of one stream (``per_stream``), or batches of one rank of
one stream (``device_per_stream``). Samples that do not fill a batch of a stream are left out of the epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from streamplug.errors import ConfigError
from streamplug.plan import OrderedSamples
from streamplug.types import Int64, World
from streamplug_mosaic.epoch import ArrayEpoch
from streamplug_mosaic.partition import OrigPartition


@dataclass(frozen=True, slots=True)
class WeightedStream:
    """Samples of a stream in an epoch, and the stream's `share` of it; all shares add up to 1."""

    ordered: OrderedSamples
    share: float


@dataclass(frozen=True, slots=True)
class MosaicBatching:
    """Combines the streams of an epoch.

    Attributes:
        world: The numbers of nodes and of ranks per node for which batches are made.
        batch: Samples per batch of one rank.
        canonical_nodes: Number of canonical nodes of each stream.
        seed: Seed of the sequence of streams.
    """

    world: World
    batch: int
    canonical_nodes: int
    seed: int

    def epoch(self, method: str, streams: Sequence[WeightedStream]) -> ArrayEpoch:
        """Return an epoch.

        Args:
            method: One of `MOSAIC_BATCHING_METHODS`.
            streams: The streams.

        Raises:
            ConfigError: If a stream has too few samples for a batch, or the partition cannot serve this
                world.
        """
        for number, stream in enumerate(streams):
            if not stream.ordered.size:
                raise ConfigError(
                    f"stream {number}: an epoch takes no samples of it, and "
                    f"batching_method={method!r} needs some of each; leave the stream out"
                )
        return ArrayEpoch(MOSAIC_BATCHING_METHODS[method](self, streams))

    def stratified(self, streams: Sequence[WeightedStream]) -> Int64:
        """Return ids, shape ``[steps, ranks, batch]``: global batches with a part of every stream."""
        counts = self._samples_per_global_batch([stream.share for stream in streams])
        one_node = World(1, self.world.ranks_per_node)
        columns = []
        for number, (stream, count) in enumerate(zip(streams, counts)):
            ids = self._partitioned_ids(stream, one_node, 1).reshape(-1)
            columns.append(_complete_rows(ids, count))
            if not len(columns[-1]):
                raise ConfigError(
                    f"stream {number}: an epoch has {len(ids)} samples of it, and each global batch "
                    f"takes {count}; choose more of it, or make batches smaller"
                )
        steps = min(map(len, columns))
        ids = np.concatenate([rows[:steps] for rows in columns], axis=1)
        return ids.reshape(steps, self.world.ranks, self.batch)

    def _samples_per_global_batch(self, shares: Sequence[float]) -> list[int]:
        """Return the number of samples of each stream in a global batch."""
        total = self.batch * self.world.ranks
        exact = total * np.array(shares, np.float64)
        counts = exact.astype(np.int64)
        # The remainder goes to those rounded down most; of equals, to the later. The sort is the default
        # one, though not stable, so that more than a few equals fall as they do there.
        counts[np.flip(np.argsort(exact - counts))[: total - int(counts.sum())]] += 1
        for number, (count, share) in enumerate(zip(counts.tolist(), shares)):
            if count < 1:
                raise ConfigError(
                    f"Number of samples for stream {number} is too small: its share of {share:.3g} is not "
                    f"one sample of a global batch of {total}; make the share or batch_size larger, or "
                    "take another batching_method"
                )
        return counts.tolist()  # type: ignore[no-any-return]  # NumPy says Any

    def per_stream(self, streams: Sequence[WeightedStream]) -> Int64:
        """Return ids, shape ``[steps, ranks, batch]``: global batches of one stream each."""
        batches = []
        for number, stream in enumerate(streams):
            rows = self._partitioned_ids(stream, self.world, self.batch)
            batches.append(rows[(rows >= 0).all((1, 2))])
            if not len(batches[-1]):
                total = self.batch * self.world.ranks
                raise _too_few_samples(number, stream.ordered.size, f"global batch of {total}")
        return _interleave_randomly(batches, np.random.default_rng(self.seed))

    def device_per_stream(self, streams: Sequence[WeightedStream]) -> Int64:
        """Return ids, shape ``[steps, ranks, batch]``: batches of one stream for each rank."""
        nodes, canonical_nodes = self.world.nodes, self.canonical_nodes
        if canonical_nodes % nodes:
            raise ConfigError(
                f"num_canonical_nodes={canonical_nodes} and {nodes} nodes: "
                "batching_method='device_per_stream' needs a multiple of the nodes"
            )
        canonical_world = World(canonical_nodes, self.world.ranks_per_node)
        stream_ids = [self._partitioned_ids(stream, canonical_world, 1) for stream in streams]
        rng = np.random.default_rng(self.seed)
        per_node = []
        for node in range(nodes):
            batches = []
            for number, ids in enumerate(stream_ids):
                node_ids = np.split(ids, nodes, axis=1)[node].reshape(-1)
                batches.append(_complete_rows(node_ids, self.batch))
                if not len(batches[-1]):
                    batch = f"batch of {self.batch} for node {node}"
                    raise _too_few_samples(number, len(node_ids), batch)
            per_node.append(_interleave_randomly(batches, rng))
        # The nodes' batches go to all ranks round robin, not each node's to its own.
        flat = np.stack(per_node, axis=1).reshape(-1, self.batch)
        missing = -len(flat) % self.world.ranks
        flat = np.concatenate([flat, np.full((missing, self.batch), -1, np.int64)])
        return flat.reshape(-1, self.world.ranks, self.batch)

    def _partitioned_ids(self, stream: WeightedStream, world: World, batch: int) -> Int64:
        """Return the ids of one stream, partitioned for a world: shape ``[steps, ranks, batch]``."""
        ordered = stream.ordered
        partition = OrigPartition(ordered.size, self.canonical_nodes, world, batch)
        steps = np.arange(partition.steps)
        ranks = (replace(world, rank=rank) for rank in range(world.ranks))
        entries = np.stack([partition.entries(rank, steps) for rank in ranks], axis=1)
        ids = np.full_like(entries, -1)
        ids[entries >= 0] = ordered.samples(entries[entries >= 0])
        return ids


MOSAIC_BATCHING_METHODS = {
    "stratified": MosaicBatching.stratified,
    "per_stream": MosaicBatching.per_stream,
    "device_per_stream": MosaicBatching.device_per_stream,
}
"""Ways to combine streams, by their names."""


def _complete_rows(ids: Int64, length: int) -> Int64:
    """Return rows of `length` ids, without the ids that do not fill one."""
    return ids[: len(ids) // length * length].reshape(-1, length)


def _interleave_randomly(batches: Sequence[Int64], rng: np.random.Generator) -> Int64:
    """Return the batches of all streams in random order, but those of each stream in their own."""
    streams = np.repeat(np.arange(len(batches)), [len(of_stream) for of_stream in batches])
    rng.shuffle(streams)
    interleaved = np.empty((len(streams), *batches[0].shape[1:]), np.int64)
    interleaved[np.argsort(streams, kind="stable")] = np.concatenate(batches)
    return interleaved


def _too_few_samples(number: int, size: int, batch: str) -> ConfigError:
    return ConfigError(
        f"stream {number}: an epoch has {size} samples of it, too few for one {batch}; "
        "choose more of it, or make batches smaller"
    )
