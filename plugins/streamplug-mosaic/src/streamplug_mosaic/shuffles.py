"""The five shuffle algorithms of mosaicml-streaming, bit for bit."""

from __future__ import annotations

import itertools
from abc import abstractmethod

import numpy as np

from streamplug.interfaces import ArrayOrder, Permutation, ShuffleAlgorithm
from streamplug.types import Int64
from streamplug_mosaic.shard_spans import Spans, cut, deal


class MosaicShuffle(ShuffleAlgorithm):
    """An algorithm that computes the epoch whole: 8 bytes per sample, and some more meanwhile."""

    def order(
        self, starts: Int64, *, canonical_nodes: int, seed: int, epoch: int, block_size: int
    ) -> Permutation:
        ids = self.ids(np.diff(starts), canonical_nodes, seed, epoch, block_size)
        return ArrayOrder(ids, canonical_nodes)

    @abstractmethod
    def ids(self, sizes: Int64, nodes: int, seed: int, epoch: int, block_size: int) -> Int64:
        """Return all ids of an epoch, one canonical node after the other."""


class Naive(MosaicShuffle):
    """``naive``: all samples at once, wherever they lie."""

    uses_block_size = False

    def ids(self, sizes: Int64, nodes: int, seed: int, epoch: int, block_size: int) -> Int64:
        return np.random.default_rng(seed + epoch).permutation(int(sizes.sum()))


class Py1s(MosaicShuffle):
    """``py1s``: shards, then the samples inside each part of a shard."""

    uses_block_size = False

    def default_canonical_nodes(self, nodes: int) -> int:
        return 64 * nodes

    def ids(self, sizes: Int64, nodes: int, seed: int, epoch: int, block_size: int) -> Int64:
        spans = deal(sizes, nodes, seed, epoch)
        return _expand(spans, slice(0, len(spans.starts)))


class Py2s(MosaicShuffle):
    """``py2s``: shards and the samples inside each, then the parts of each canonical node again."""

    uses_block_size = False

    def default_canonical_nodes(self, nodes: int) -> int:
        return 64 * nodes

    def ids(self, sizes: Int64, nodes: int, seed: int, epoch: int, block_size: int) -> Int64:
        run_rng = np.random.default_rng(seed)
        shards = np.arange(len(sizes))
        run_rng.shuffle(shards)
        starts = (np.cumsum(sizes) - sizes)[shards]
        parts = [np.arange(s, s + n) for s, n in zip(starts.tolist(), sizes[shards].tolist())]
        for part in parts:
            run_rng.shuffle(part)
        flat = np.concatenate(parts) if parts else np.empty(0, np.int64)
        # The parts are the spans of a sequence that begins at 0, whatever ids they hold.
        places = np.cumsum(sizes[shards]) - sizes[shards]
        begin, lengths, bounds = cut(places, sizes[shards], nodes)
        epoch_rng = np.random.default_rng(seed + epoch)
        done = []
        for first, last in itertools.pairwise(bounds):
            order = np.arange(first, last)
            epoch_rng.shuffle(order)
            for span in order.tolist():
                part = flat[begin[span] : begin[span] + lengths[span]]
                epoch_rng.shuffle(part)
                done.append(part)
        return np.concatenate(done) if done else flat


class Py1br(MosaicShuffle):
    """``py1br``: shards, then the samples inside blocks of random size, staggered by node."""

    def ids(self, sizes: Int64, nodes: int, seed: int, epoch: int, block_size: int) -> Int64:
        spans = deal(sizes, nodes, seed, epoch)
        rng = spans.epoch_rng
        # The bounds of the original, but that it has none for blocks of a single sample.
        low = max(int(0.75 * block_size), 1)
        high = max(int(1.25 * block_size), low + 1)
        staggers = rng.integers(0, low, nodes)
        done = []
        for node, stagger in enumerate(staggers.tolist()):
            ids = _ids(spans, slice(spans.nodes[node], spans.nodes[node + 1]))
            blocks, end = [], 0
            # Blocks overlap by the stagger, and so it is kept: the order is that of the original.
            while end < len(ids):
                stop = min(end + int(rng.integers(low, high)) - stagger, len(ids))
                start = max(end - stagger, 0)
                blocks.append((start, stop))
                end += stop - start
            for start, stop in blocks:
                rng.shuffle(ids[start:stop])
            done.append(ids)
        return np.concatenate(done)


class Py1e(MosaicShuffle):
    """``py1e``: shards, then every sample moves by a random distance."""

    def ids(self, sizes: Int64, nodes: int, seed: int, epoch: int, block_size: int) -> Int64:
        spans = deal(sizes, nodes, seed, epoch)
        done = []
        for first, last in zip(spans.nodes, spans.nodes[1:]):
            ids = _expand(spans, slice(first, last))
            places = np.arange(len(ids), dtype=np.float64)
            offset = 0
            for length in spans.sizes[first:last].tolist():
                reach = _reach(spans.epoch_rng, block_size, length)
                places[offset : offset + length] += spans.epoch_rng.uniform(
                    max(-reach, -offset), min(reach, len(ids) - offset - length), length
                )
                offset += length
            # The default sort is not stable; so that ties fall as they do there, nor is this one.
            done.append(ids[np.argsort(places)])
        return np.concatenate(done)


def _reach(rng: np.random.Generator, block_size: int, length: int) -> float:
    """Return how far the samples of a span may move."""
    low, high = int(0.75 * block_size), int(1.25 * block_size)
    return max((int(rng.integers(low, high)) - length) / 2, 0.0)


def _ids(spans: Spans, which: slice) -> Int64:
    """Return the ids of some spans, in order."""
    sizes = spans.sizes[which]
    ends = np.cumsum(sizes)
    total = int(ends[-1]) if len(ends) else 0
    ids: Int64 = np.arange(total) + np.repeat(spans.starts[which] - (ends - sizes), sizes)
    return ids


def _expand(spans: Spans, which: slice) -> Int64:
    """Return the ids of some spans, those of each shuffled by the epoch's generator."""
    ids = _ids(spans, which)
    end = 0
    for size in spans.sizes[which].tolist():
        spans.epoch_rng.shuffle(ids[end : end + size])
        end += size
    return ids
