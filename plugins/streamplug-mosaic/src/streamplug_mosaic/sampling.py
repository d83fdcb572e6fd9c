"""Sampling of streams, bit for bit as mosaicml-streaming does it."""

from __future__ import annotations

import numpy as np

from streamplug.plan import SampledShards, Selection, ShardSampler
from streamplug.types import Int64


class MosaicSampler(ShardSampler):
    """The sampler of mosaicml-streaming, in memory for every sample of a stream that is sampled.

    Each stream has a generator of its own, all with the same seed.
    """

    def count_per_shard(
        self,
        sizes: Int64,
        choose: int,
        granularity: int,
        *,
        seed: int,
        epoch: int,
        stream: int,
        shuffled: bool,
    ) -> Int64:
        return choose_per_shard(sizes, choose, granularity, seed + (epoch if shuffled else 0))

    def select(
        self, starts: Int64, chosen: Int64, *, seed: int, epoch: int, stream: int
    ) -> Selection:
        return MosaicSampledShards(starts, chosen, np.random.default_rng(seed + epoch))


class MosaicSampledShards(SampledShards):
    """Shards of which a generator draws a part, one after the other, as mosaicml-streaming does."""

    def __init__(self, starts: Int64, chosen: Int64, rng: np.random.Generator) -> None:
        """Select samples as `SampledShards`; all partial shards are drawn from `rng`, in order."""
        super().__init__(starts, chosen)
        sizes, counts = np.diff(starts), np.where(self._partial, np.diff(self.starts), 0)
        drawn = [
            np.sort(rng.choice(int(sizes[self._shard[unit]]), int(counts[unit]), replace=False))
            for unit in np.flatnonzero(self._partial).tolist()
        ]
        # Offsets of all partial units in their shards, one unit after the other.
        self._drawn: Int64 = np.concatenate([np.empty(0, np.int64), *drawn])
        self._ends = np.cumsum(counts)
        self._begins = self._ends - counts

    def _offsets(self, units: Int64, numbers: Int64) -> Int64:
        return self._drawn[self._begins[units] + numbers]

    def _numbers(self, unit: int, offset: int) -> list[int]:
        of_unit = self._drawn[self._begins[unit] : self._ends[unit]]
        numbers: list[int] = np.flatnonzero(of_unit == offset).tolist()
        return numbers


def choose_per_shard(sizes: Int64, choose: int, granularity: int, seed: int) -> Int64:
    """Return the number of samples taken of each shard, bit for bit as mosaicml-streaming does.

    The remainder after complete passes over the stream is picked in runs of `granularity` samples. Uses
    memory for each run of the stream.

    Args:
        sizes: Samples of each shard, shape ``[shards]``.
        choose: Samples of the stream to take.
        granularity: Samples per run.
        seed: Seed of the picks.
    """
    total = int(sizes.sum())
    passes, rest = divmod(choose, max(total, 1))
    chosen: Int64 = sizes * passes
    if not rest:
        return chosen
    counts = -(-sizes // granularity)
    shard = np.repeat(np.arange(len(sizes)), counts)
    pick = np.full(len(shard), granularity, np.int64)
    ends = np.cumsum(counts)
    short = sizes > 0
    pick[ends[short] - 1] = (sizes - (counts - 1) * granularity)[short]
    order = np.random.default_rng(seed).permutation(len(shard))
    taken = np.cumsum(pick[order])
    last = int(np.searchsorted(taken, rest))
    amounts = pick[order][: last + 1]
    amounts[-1] -= taken[last] - rest
    np.add.at(chosen, shard[order][: last + 1], amounts)
    return chosen
