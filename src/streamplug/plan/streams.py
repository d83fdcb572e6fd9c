"""The streams of a run, what an epoch takes of them, and the order of that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from hashlib import blake2b
from itertools import pairwise

import numpy as np

from streamplug.errors import ConfigError
from streamplug.interfaces import ShuffleAlgorithm
from streamplug.plan.curriculum import Curriculum
from streamplug.plan.mixture import Mixture
from streamplug.plan.ordered_samples import OrderedSamples
from streamplug.plan.selection import AllSamples, Selection
from streamplug.plan.stream_samples import RepeatedPasses, StreamSamples
from streamplug.types import Int64

MIN_SAMPLES_PER_CANONICAL_NODE = 64
"""Minimum size of a canonical node of a single stream, in samples."""


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
    mixture: Mixture | Curriculum
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

    def select(self, epoch: int, stream: int | None = None) -> Selection:
        """Return the samples of an epoch in stored order, of one stream or of all.

        Raises:
            ConfigError: With a curriculum.
        """
        if isinstance(self.mixture, Curriculum):
            raise ConfigError(
                "curriculum= reads streams pass after pass: no epoch is taken of them"
            )
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

    def stream_canonical_nodes(self, size: int, canonical_nodes: int) -> int:
        """Return the number of canonical nodes of a stream of `size` samples.

        A small stream has too few shards for many canonical nodes, and is ordered faster with fewer.
        """
        return max(min(canonical_nodes, size // MIN_SAMPLES_PER_CANONICAL_NODE), 1)

    def order_stream(
        self, selection: Selection, epoch: int, canonical_nodes: int, stream: int, total: int
    ) -> OrderedSamples:
        """Return a stream in an order of its own, with a block size by their share of `total`."""
        return self.order(
            selection,
            epoch,
            self.stream_canonical_nodes(selection.size, canonical_nodes),
            block_size=max(self.block_size(canonical_nodes) * selection.size // max(total, 1), 1),
            seed=self.seed + (stream << 40),  # streams of equal size need different orders
        )

    def repeat(self, canonical_nodes: int, first_pass: int = 0) -> list[StreamSamples]:
        """Return the samples of each stream, pass after pass over all of it."""
        return [
            self._passes(stream, canonical_nodes, first_pass) for stream in range(len(self.sizes))
        ]

    def _passes(self, stream: int, canonical_nodes: int, first_pass: int) -> StreamSamples:
        first, last = self.stream_shards[stream], self.stream_shards[stream + 1]
        selection = AllSamples(np.asarray(self.starts)[first : last + 1])
        return RepeatedPasses(
            lambda number: self.order_stream(
                selection, first_pass + number, canonical_nodes, stream, self.samples
            ),
            selection.size,
            self.stream_canonical_nodes(selection.size, canonical_nodes),
        )

    def key(self) -> str:
        """Return text that differs for different orders: it is part of the keys of cached plans."""
        digest = blake2b(np.ascontiguousarray(self.starts, "<i8").data, digest_size=16).hexdigest()
        sampler = self.mixture.sampler if isinstance(self.mixture, Mixture) else None
        parts = [_describe_algorithm(part) for part in (self.algorithm, sampler)]
        options = (self.seed, self.shuffle_block_size, self.shuffled)
        return f"{options} {self.mixture.identity()} {self.stream_shards} {parts} {digest}"

    def with_mixture(self, mixture: Mixture | Curriculum) -> Streams:
        """Return the same streams, of which epochs take something else."""
        return replace(self, mixture=mixture)


def _describe_algorithm(algorithm: object) -> str:
    """Return the class and the options of an algorithm.

    The text of an option may differ between processes, which then only misses a cached plan.
    """
    options = sorted(getattr(algorithm, "__dict__", {}).items())
    return f"{type(algorithm).__module__}.{type(algorithm).__qualname__} {options}"
