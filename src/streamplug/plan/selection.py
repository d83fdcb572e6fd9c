"""Which samples of each shard an epoch takes, as virtual shards: parts of shards, repeated or left out.

A virtual shard is a complete shard or some of its samples. An order permutes the concatenation of the
virtual shards; an entry is a position in it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamplug.errors import (
    PluginError,
    class_name,
)
from streamplug.interfaces import Permutation, canonical_node_bounds, mix_bits
from streamplug.types import Int64


class Selection(ABC):
    """Virtual shards of an epoch; `starts` has the first entry of each and the total."""

    starts: Int64

    @property
    def size(self) -> int:
        """Number of entries."""
        return int(self.starts[-1])

    @abstractmethod
    def samples(self, entries: Int64) -> Int64:
        """Return the sample ids of entries, in any shape."""

    @abstractmethod
    def entries(self, sample: int) -> list[int]:
        """Return the entries of a sample, any number of them."""


class AllSamples(Selection):
    """Every sample once; the argument `starts` has the first sample id of each shard and the end."""

    def __init__(self, starts: Int64) -> None:
        self._first = int(starts[0])
        self.starts = starts - self._first if self._first else starts

    def samples(self, entries: Int64) -> Int64:
        return entries + self._first if self._first else entries

    def entries(self, sample: int) -> list[int]:
        return [sample - self._first] if 0 <= sample - self._first < self.size else []


class SampledShards(Selection):
    """`chosen` samples of each shard, in several passes over some shards."""

    def __init__(self, starts: Int64, chosen: Int64) -> None:
        sizes = np.diff(starts)
        passes, remainder = np.divmod(chosen, np.maximum(sizes, 1))
        units = passes + (remainder > 0)
        self._shard = np.repeat(np.arange(len(sizes)), units)
        self._first, self._sizes = starts[:-1], sizes
        # The units of a shard are its complete passes, then the remainder.
        number = np.arange(len(self._shard)) - np.repeat(np.cumsum(units) - units, units)
        self._partial = number >= passes[self._shard]
        taken = np.where(self._partial, remainder[self._shard], sizes[self._shard])
        self.starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(taken)])

    def samples(self, entries: Int64) -> Int64:
        flat = entries.reshape(-1)
        unit = np.searchsorted(self.starts, flat, side="right") - 1
        offset = flat - self.starts[unit]
        partial = self._partial[unit]
        if partial.any():
            offset[partial] = self._offsets(unit[partial], offset[partial])
        ids: Int64 = self._first[self._shard[unit]] + offset
        return ids.reshape(entries.shape)

    def entries(self, sample: int) -> list[int]:
        shard = int(np.searchsorted(self._first, sample, side="right")) - 1
        offset = sample - int(self._first[shard])
        entries = []
        first, last = np.searchsorted(self._shard, [shard, shard + 1]).tolist()
        for unit in range(first, last):
            numbers = self._numbers(unit, offset) if self._partial[unit] else [offset]
            entries += [int(self.starts[unit]) + number for number in numbers]
        return entries

    @abstractmethod
    def _offsets(self, units: Int64, numbers: Int64) -> Int64:
        """Return the offsets in their shards of the n-th samples of partial units."""

    @abstractmethod
    def _numbers(self, unit: int, offset: int) -> list[int]:
        """Return the numbers, none or one, in a partial unit of the sample at an offset of its shard."""


class HashSampledShards(SampledShards):
    """Shards that are sampled by a hash of each entry, in constant memory.

    To take k of n samples, the n samples form a circle, rotated by a random number and cut into k cells whose
    sizes differ by one at most; one random sample is taken of each cell. So all samples are equally likely.
    """

    def __init__(
        self, starts: Int64, chosen: Int64, seed: int, epoch: int, stream: int = 0
    ) -> None:
        super().__init__(starts, chosen)
        self._key = np.uint64(0)
        for word in (seed % (1 << 64), epoch, stream):
            self._key = _mix_bits(self._key ^ np.uint64(word))

    def _offsets(self, units: Int64, numbers: Int64) -> Int64:
        sizes, counts, rotations, keys = self._cells(units)
        cells = numbers * sizes // counts
        width = (numbers + 1) * sizes // counts - cells
        offsets = _scale_below(_mix_bits(keys + numbers.view(np.uint64)), width)
        return (cells + rotations + offsets) % sizes

    def _numbers(self, unit: int, offset: int) -> list[int]:
        units = np.array([unit])
        sizes, counts, rotations, _ = self._cells(units)
        position = (offset - rotations) % sizes
        number = ((position + 1) * counts - 1) // sizes  # the cell of the offset
        return [int(number[0])] if self._offsets(units, number)[0] == offset else []

    def _cells(self, units: Int64) -> tuple[Int64, Int64, Int64, NDArray[np.uint64]]:
        """Return the size, number of taken samples, rotation and key of each unit's shard."""
        shards = self._shard[units]
        sizes, counts = self._sizes[shards], self.starts[units + 1] - self.starts[units]
        keys = _mix_bits(self._key ^ shards.view(np.uint64))
        return sizes, counts, _scale_below(keys, sizes), _mix_bits(keys)


def _mix_bits(bits: Any) -> Any:
    """Mix bits by a step of SplitMix64."""
    with np.errstate(over="ignore"):
        return mix_bits(bits + np.uint64(0x9E3779B97F4A7C15))


def _scale_below(bits: NDArray[np.uint64], limits: Int64) -> Int64:
    """Scale random bits to numbers in ``[0, limit)``, for limits of at most 2**31."""
    products = (bits >> np.uint64(33)) * limits.view(np.uint64)
    scaled: Int64 = (products >> np.uint64(31)).view(np.int64)
    return scaled


@dataclass(frozen=True)
class ShardSampler:
    """Sampler of a part of a stream; a pure function of its arguments.

    Samplers of one class are equal: a worker recognizes the mixture of its order when it is sent again.
    Its memory depends only on the number of shards. Subclasses sample in another way.
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
        """Return the number of samples taken of each shard of a stream, shape ``[shards]``.

        Args:
            sizes: Samples of each shard, shape ``[shards]``.
            choose: Samples of the stream to take.
            granularity: Samples chosen of a shard at a time.
            seed: The run's seed.
            epoch: Number of the epoch, or 0 if all epochs have the same samples.
            stream: Number of the stream.
            shuffled: Whether the epoch is shuffled.
        """
        return spread_over_shards(sizes, choose, granularity, (seed, epoch, stream))

    def select(
        self, starts: Int64, chosen: Int64, *, seed: int, epoch: int, stream: int
    ) -> Selection:
        """Select samples of shards, `chosen` of each.

        `starts` has the first sample id of each shard and the end; `stream` is 0 for all streams together.
        """
        return HashSampledShards(starts, chosen, seed, epoch, stream)


def spread_over_shards(sizes: Int64, choose: int, granularity: int, seed: tuple[int, ...]) -> Int64:
    """Return the number of samples taken of each shard, shape ``[shards]``.

    The remainder after complete passes is distributed over the shards in a random order, in runs of
    `granularity` samples at equal distances: a shard gets its share of them to within one run. Memory depends
    only on the number of shards.
    """
    total = int(sizes.sum())
    passes, rest = divmod(choose, max(total, 1))
    chosen: Int64 = sizes * passes
    if not rest:
        return chosen
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(sizes))
    ordered_sizes = sizes[order]
    # Integer products could overflow int64; rounding errors of the sum are corrected below.
    reached = np.cumsum(ordered_sizes) * (rest / total) / granularity + rng.random()
    runs = np.diff(np.floor(reached).astype(np.int64), prepend=0)
    taken = np.minimum(np.minimum(runs * granularity, ordered_sizes), rest)
    taken -= np.clip(np.cumsum(taken) - rest, 0, taken)  # surplus, from the end
    spare = ordered_sizes - taken
    missing = rest - int(taken.sum())
    taken += np.clip(missing - (np.cumsum(spare) - spare), 0, spare)  # deficit, from the beginning
    chosen[order] += taken
    return chosen


class OrderedSamples:
    """A selection of samples in the order of a shuffle; `size` is its number of entries.

    An entry is a position in the concatenation of the canonical nodes.
    """

    def __init__(
        self, selection: Selection, make_order: Callable[[], Permutation], canonical_nodes: int
    ) -> None:
        """Order a selection; `make_order` is called at the first use, as it may compute all positions."""
        self.size = selection.size
        self._selection, self._make_order = selection, make_order
        self._canonical_nodes = canonical_nodes
        self._bounds = canonical_node_bounds(self.size, canonical_nodes)
        self._is_checked = False

    @cached_property
    def _order(self) -> Permutation:
        return self._make_order()

    def samples(self, entries: Int64) -> Int64:
        """Return the sample ids of entries, in any shape."""
        flat = entries.reshape(-1)
        if not len(flat):
            return entries
        if self._canonical_nodes == 1:
            ids = self._selection.samples(self._read_order(0, flat))
        else:
            ids = self._samples_by_canonical_node(flat)
        return ids.reshape(entries.shape)

    def _samples_by_canonical_node(self, entries: Int64) -> Int64:
        nodes = np.searchsorted(self._bounds, entries, side="right") - 1
        if self._canonical_nodes < 1 << 15:
            nodes = nodes.astype(np.int16)  # NumPy sorts int16 much faster
        by_node = np.argsort(nodes, kind="stable")
        nodes = nodes[by_node]
        positions = entries[by_node] - self._bounds[nodes]
        edges = [0, *(np.flatnonzero(np.diff(nodes)) + 1).tolist(), len(entries)]
        for node, begin, end in zip(nodes[edges[:-1]].tolist(), edges, edges[1:]):
            run = slice(begin, end)
            positions[run] = self._selection.samples(self._read_order(node, positions[run]))
        ids = np.empty_like(positions)
        ids[by_node] = positions
        return ids

    def _read_order(self, node: int, positions: Int64) -> Int64:
        """Return the ids at positions of a canonical node; those of the first call are checked for repeats.

        Raises:
            PluginError: If the order returns anything but ids of its samples.
        """
        ids: Int64 = self._order.at(node, positions)
        result: object = ids  # unchecked so far
        kind = f"the order {class_name(type(self._order))}"
        if not isinstance(result, np.ndarray):
            raise PluginError(f"{kind}: at() returned {type(result).__name__}, not an array of ids")
        if ids.shape != positions.shape or ids.dtype.kind not in "iu":
            raise PluginError(
                f"{kind}: at() returned {ids.dtype} of shape {ids.shape}: expected ids, that is, integers of "
                f"shape {positions.shape}"
            )
        if ids.min() < 0 or ids.max() >= self.size:
            wrong = int(ids[(ids < 0) | (ids >= self.size)][0])
            raise PluginError(
                f"{kind}: at() returned {wrong} in canonical node {node}: expected ids in [0, {self.size})"
            )
        if not self._is_checked:
            if len(np.unique(ids)) < len(np.unique(positions)):
                raise PluginError(
                    f"{kind}: at() returned an id for several positions of canonical node {node}: expected "
                    f"each of the {self.size} ids once over all canonical nodes"
                )
            self._is_checked = True
        return ids

    def entries(self, sample: int) -> list[int]:
        entries = []
        for selected in self._selection.entries(sample):
            canonical_node, position = self._order.find(selected)
            entries.append(int(self._bounds[canonical_node]) + position)
        return entries
