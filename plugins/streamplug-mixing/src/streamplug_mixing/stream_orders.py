"""Orders of single streams: one pass over a part of a stream, or pass after pass over all of it."""

from __future__ import annotations

import numpy as np

from streamplug.plan import AllSamples, OrderedSamples, Selection, Streams
from streamplug_mixing.stream_samples import RepeatedPasses, SinglePass, StreamSamples

MIN_SAMPLES_PER_CANONICAL_NODE = 64
"""Minimum size of a canonical node of a single stream, in samples."""


class StreamOrders:
    """Orders of the streams of a run, each of its own, with so many canonical nodes at most."""

    def __init__(self, streams: Streams, canonical_nodes: int) -> None:
        self._streams, self._canonical_nodes = streams, canonical_nodes

    def single_pass(self, stream: int, epoch: int, unit: int) -> SinglePass:
        """Return the samples that an epoch takes of a stream, in units of one canonical node each."""
        selection = self._streams.select(epoch, stream)
        ordered = self._order(stream, selection, epoch, self._streams.epoch_size)
        return SinglePass(ordered, self._nodes_of(selection), unit)

    def repeat(self, first_pass: int = 0) -> list[StreamSamples]:
        """Return the samples of each stream, pass after pass over all of it."""
        return [self._passes(stream, first_pass) for stream in range(len(self._streams.sizes))]

    def _passes(self, stream: int, first_pass: int) -> RepeatedPasses:
        streams = self._streams
        first, last = streams.stream_shards[stream], streams.stream_shards[stream + 1]
        selection = AllSamples(np.asarray(streams.starts)[first : last + 1])
        return RepeatedPasses(
            lambda number: self._order(stream, selection, first_pass + number, streams.samples),
            selection.size,
            self._nodes_of(selection),
        )

    def _order(self, stream: int, selection: Selection, epoch: int, total: int) -> OrderedSamples:
        """Return samples of a stream in an order, with a block size by their share of `total`."""
        block_size = self._streams.block_size(self._canonical_nodes)
        return self._streams.order(
            selection,
            epoch,
            self._nodes_of(selection),
            block_size=max(block_size * selection.size // max(total, 1), 1),
            seed=self._streams.seed + (stream << 40),  # streams of equal size need different orders
        )

    def _nodes_of(self, selection: Selection) -> int:
        """Return the number of canonical nodes of a stream.

        A small stream has too few shards for many canonical nodes, and is ordered faster with fewer.
        """
        return max(min(self._canonical_nodes, selection.size // MIN_SAMPLES_PER_CANONICAL_NODE), 1)
