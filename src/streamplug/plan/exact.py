"""Batches made stream by stream, bit for bit as mosaicml-streaming makes them.

Each stream is selected, ordered and dealt by itself, and then the streams are put together: parts of
each in every global batch (``stratified``), global batches of one stream (``per_stream``), or batches
of one rank of one stream (``device_per_stream``). What does not make a whole batch of a stream is left
out of the epoch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from streamplug.errors import ConfigError
from streamplug.plan.epoch import Dealt, Epoch
from streamplug.plan.feed import Feed
from streamplug.plan.orig import make_partition
from streamplug.plan.partition import Place
from streamplug.types import Int64, World


class Exact(Epoch):
    """An epoch held as an array of all its sample ids: 8 bytes per sample, on every rank."""

    def __init__(self, ids: Int64) -> None:
        """Hold the ids of all steps, shape ``[steps, ranks, batch]``, -1 where there is none."""
        self._ids = ids
        self.steps = len(ids)

    def ids(self, world: World, batch: int, steps: Int64) -> Int64:
        found: Int64 = self._ids[steps, world.rank]
        return found

    def where(self, world: World, batch: int, sample: int) -> list[Place]:
        return [Place(*found) for found in np.argwhere(self._ids == sample).tolist()]

    def length(self, rank: int) -> int:
        """Return how many samples a rank gets; with ``device_per_stream`` some get fewer."""
        return int(np.count_nonzero(self._ids[:, rank] >= 0))


@dataclass(frozen=True, slots=True)
class Part:
    """A stream in an epoch.

    Attributes:
        feed: What the epoch takes of it, in order.
        share: Its share of the epoch, of all shares together 1.
    """

    feed: Feed
    share: float


@dataclass(frozen=True, slots=True)
class Batching:
    """Puts the streams of an epoch together.

    Attributes:
        partition_algo: How each stream is dealt: ``"orig"`` or ``"relaxed"``.
        lanes: Canonical nodes.
        world: Who reads.
        batch: Samples per batch of one rank.
        first_nodes: Nodes on which the run began.
        seed: Decides in which order the streams take turns.
    """

    partition_algo: str
    lanes: int
    world: World
    batch: int
    first_nodes: int | None
    seed: int

    def epoch(self, method: str, parts: Sequence[Part]) -> Exact:
        """Return an epoch.

        Args:
            method: ``"stratified"``, ``"per_stream"`` or ``"device_per_stream"``.
            parts: The streams.

        Raises:
            ConfigError: If there is no such method, a stream has too few samples for a batch, or the
                partition cannot serve this world.
        """
        if method not in METHODS:
            raise ConfigError(f"batching_method={method!r}: choose one of {', '.join(METHODS)}")
        for number, part in enumerate(parts):
            if not part.feed.size:
                raise ConfigError(
                    f"stream {number}: an epoch takes no samples of it, and "
                    f"batching_method={method!r} needs some of each; leave the stream out"
                )
        return Exact(METHODS[method](self, parts))

    def stratified(self, parts: Sequence[Part]) -> Int64:
        """Return ids, shape ``[steps, ranks, batch]``: global batches with a part of every stream."""
        counts = self._per_batch([part.share for part in parts])
        one_node = World(1, self.world.ranks_per_node)
        columns = []
        for number, (part, count) in enumerate(zip(parts, counts)):
            ids = self._dealt(part, one_node, 1).reshape(-1)
            columns.append(_rows(ids, count))
            if not len(columns[-1]):
                raise ConfigError(
                    f"stream {number}: an epoch has {len(ids)} samples of it, and each global batch "
                    f"takes {count}; choose more of it, or make batches smaller"
                )
        steps = min(map(len, columns))
        whole = np.concatenate([rows[:steps] for rows in columns], axis=1)
        return whole.reshape(steps, self.world.ranks, self.batch)

    def _per_batch(self, shares: Sequence[float]) -> list[int]:
        """Return how many samples of each stream a global batch has."""
        total = self.batch * self.world.ranks
        exact = total * np.array(shares, np.float64)
        counts = exact.astype(np.int64)
        # What is left goes to those cut most; of equals, to the later. The sort is the default one,
        # though not stable, so that more than a few equals fall as they do there.
        counts[np.flip(np.argsort(exact - counts))[: total - int(counts.sum())]] += 1
        for number, (count, share) in enumerate(zip(counts.tolist(), shares)):
            if count < 1:
                raise ConfigError(
                    f"Number of samples for stream {number} is too small: its share of {share:.3g} is not "
                    f"one sample of a global batch of {total}; make the share or batch_size larger, or "
                    "take another batching_method"
                )
        return counts.tolist()  # type: ignore[no-any-return]  # NumPy says Any

    def per_stream(self, parts: Sequence[Part]) -> Int64:
        """Return ids, shape ``[steps, ranks, batch]``: global batches of one stream each."""
        batches = []
        for number, part in enumerate(parts):
            rows = self._dealt(part, self.world, self.batch)
            batches.append(rows[(rows >= 0).all((1, 2))])
            if not len(batches[-1]):
                total = self.batch * self.world.ranks
                raise _too_few(number, part.feed.size, f"global batch of {total}")
        return _taking_turns(batches, np.random.default_rng(self.seed))

    def device_per_stream(self, parts: Sequence[Part]) -> Int64:
        """Return ids, shape ``[steps, ranks, batch]``: batches of one stream for each rank."""
        nodes = self.world.nodes
        if self.lanes % nodes:
            raise ConfigError(
                f"num_canonical_nodes={self.lanes} and {nodes} nodes: "
                "batching_method='device_per_stream' needs a multiple of the nodes"
            )
        dealt = World(self.lanes, self.world.ranks_per_node)
        streams = [self._dealt(part, dealt, 1) for part in parts]
        rng = np.random.default_rng(self.seed)
        per_node = []
        for node in range(nodes):
            batches = []
            for number, stream in enumerate(streams):
                own = np.split(stream, nodes, axis=1)[node].reshape(-1)
                batches.append(_rows(own, self.batch))
                if not len(batches[-1]):
                    raise _too_few(number, len(own), f"batch of {self.batch} for node {node}")
            per_node.append(_taking_turns(batches, rng))
        # The nodes' batches are dealt to all ranks in turn, not each node's to its own.
        flat = np.stack(per_node, axis=1).reshape(-1, self.batch)
        short = -len(flat) % self.world.ranks
        flat = np.concatenate([flat, np.full((short, self.batch), -1, np.int64)])
        return flat.reshape(-1, self.world.ranks, self.batch)

    def _dealt(self, part: Part, world: World, batch: int) -> Int64:
        """Return the ids of one stream, dealt to a world: shape ``[steps, ranks, batch]``."""
        size = part.feed.size
        partition = make_partition(
            self.partition_algo, size, self.lanes, world, batch, first_nodes=self.first_nodes
        )
        dealt = Dealt(part.feed, partition)
        steps = np.arange(dealt.steps)
        return np.stack([dealt.ids(place, batch, steps) for place in _places(world)], axis=1)


METHODS = {
    "stratified": Batching.stratified,
    "per_stream": Batching.per_stream,
    "device_per_stream": Batching.device_per_stream,
}
"""Ways to put streams together, by their names."""


def _places(world: World) -> Iterator[World]:
    for rank in range(world.ranks):
        yield replace(world, rank=rank)


def _rows(ids: Int64, length: int) -> Int64:
    """Return rows of so many ids, without what does not make one."""
    return ids[: len(ids) // length * length].reshape(-1, length)


def _taking_turns(batches: Sequence[Int64], rng: np.random.Generator) -> Int64:
    """Return the batches of all streams in random order, but those of each in their own."""
    turns = np.repeat(np.arange(len(batches)), [len(own) for own in batches])
    rng.shuffle(turns)
    found = np.empty((len(turns), *batches[0].shape[1:]), np.int64)
    found[np.argsort(turns, kind="stable")] = np.concatenate(batches)
    return found


def _too_few(number: int, size: int, what: str) -> ConfigError:
    return ConfigError(
        f"stream {number}: an epoch has {size} samples of it, too few for one {what}; "
        "choose more of it, or make batches smaller"
    )
