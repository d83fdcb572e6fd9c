"""The streams of a run, what an epoch takes of them, and the order of that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise

import numpy as np

from streamplug.interfaces import ShuffleAlgorithm
from streamplug.plan.mixture import Mixture
from streamplug.plan.segment import Segment
from streamplug.plan.selection import OrderedSamples, Selection
from streamplug.types import Int64


@dataclass(frozen=True)
class Streams:
    """The streams of a run; a pure function of the data and the options.

    Attributes:
        starts: First sample id of each shard over all streams, and the total, shape ``[shards + 1]``; it may
            be memory-mapped.
        stream_shards: First shard of each stream, and the total.
        mixture: What an epoch takes of each stream.
        algorithm: The shuffle.
        shuffled: Whether epochs are shuffled.
        seed: Seed of the run.
        shuffle_block_size: In samples; None for the default of the shuffle.
    """

    starts: Int64
    stream_shards: Sequence[int]
    mixture: Mixture
    algorithm: ShuffleAlgorithm
    shuffled: bool
    seed: int
    shuffle_block_size: int | None = None

    @cached_property
    def first_ids(self) -> list[int]:
        """First sample id of each stream, and the total."""
        return [int(self.starts[shard]) for shard in self.stream_shards]

    @property
    def samples(self) -> int:
        """Stored samples of all streams."""
        return self.first_ids[-1]

    @property
    def shards(self) -> int:
        """Shards of all streams."""
        return self.stream_shards[-1]

    @property
    def sizes(self) -> list[int]:
        """Number of samples of each stream."""
        return [last - first for first, last in pairwise(self.first_ids)]

    @property
    def epoch_size(self) -> int:
        """Samples of an epoch."""
        return self.mixture.epoch_size

    def block_size(self, canonical_nodes: int) -> int:
        """Return the block size of the shuffle in samples."""
        return self.shuffle_block_size or self.algorithm.default_block_size(canonical_nodes)

    def fitting_block_size(
        self, canonical_nodes: int, nodes: int, cache_share: float | None
    ) -> int | None:
        """Return the block size whose shards fit into a cache; None if the default of the shuffle does.

        They take 45 % of it: a loop uses half of a limited cache for what it reads and fetches ahead.

        Args:
            canonical_nodes: Number of canonical nodes of the order.
            nodes: Number of machines that read it.
            cache_share: Share of the shards that the cache of a machine holds; None if it holds all.
        """
        in_use = self.algorithm.blocks_in_use
        if cache_share is None or in_use is None or not self.epoch_size:
            return None
        at_once = -(-canonical_nodes // nodes)  # canonical nodes that a machine reads
        # Shards at the ends of a canonical node are those of two.
        if cache_share >= at_once * (1 / canonical_nodes + 2 / max(self.shards, 1)):
            return None
        size = max(int(0.45 * cache_share * self.epoch_size / (in_use * at_once)), 1)
        return size if size < self.algorithm.default_block_size(canonical_nodes) else None

    def of(self, segment: Segment) -> Streams:
        """Return the streams as a segment reads them: with its block size, unless the options give one."""
        if self.shuffle_block_size is not None or segment.block_size is None:
            return self
        return replace(self, shuffle_block_size=segment.block_size)

    def select(self, epoch: int, stream: int | None = None) -> Selection:
        """Return the samples of an epoch in stored order, of one stream or of all.

        Raises:
            ConfigError: If epochs are not made of parts of streams, as with a curriculum.
        """
        return self.mixture.select(
            np.asarray(self.starts),
            self.stream_shards,
            self.seed,
            epoch,
            stream,
            shuffled=self.shuffled,
        )

    def order(
        self,
        selection: Selection,
        epoch: int,
        canonical_nodes: int,
        *,
        block_size: int | None = None,
        seed: int | None = None,
    ) -> OrderedSamples:
        """Return a selection in the order of the shuffle; the defaults are those of the run."""
        make_order = partial(
            self.algorithm.order,
            selection.starts,
            canonical_nodes=canonical_nodes,
            seed=self.seed if seed is None else seed,
            epoch=epoch,
            block_size=self.block_size(canonical_nodes) if block_size is None else block_size,
        )
        return OrderedSamples(selection, make_order, canonical_nodes)

    def epoch(self, number: int, canonical_nodes: int) -> OrderedSamples:
        """Return the samples of an epoch in one order over all streams."""
        return self.order(self.select(number), number, canonical_nodes)
