"""Blocks of batches, which are read together, and their prefetching within the share of the cache."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Hashable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from streamplug.errors import StreamplugError
from streamplug.plan import Epoch, checked_batches, worker_steps
from streamplug.read import SHARD_ERRORS, Need, SampleReader
from streamplug.run.hints import warn_about_cache
from streamplug.source import OpenSources
from streamplug.transfer import (
    Handover,
    LoopClock,
    Observer,
    PrefetchLimits,
    decode_blocks,
    prefetch_blocks,
)
from streamplug.types import Int64, World

if TYPE_CHECKING:
    from streamplug.run.substitution import Substitution

T = TypeVar("T")

_BLOCK_STORED_BYTES = 4 << 20
_BLOCK_DECODED_BYTES = 32 << 20
_BLOCK_ROWS = 1024
"""Larger blocks are slower: they need fresh memory."""

_COLUMN_BLOCK_ROWS = 4096
"""Larger where columns are read: few values are Python objects, or batches are decoded one by one."""


class Block:
    """Some batches of one worker that are read together; `ids` are their sample ids, concatenated."""

    def __init__(self, steps: Int64, ids: Int64, offsets: Int64) -> None:
        """Create a block of the batches of `steps`; `ids` and `offsets` are as of `Epoch.ids`."""
        self.ids, self._offsets = ids, offsets
        self._steps: list[int] = steps.tolist()
        self._ends: list[int] = offsets[1:].tolist()
        self._num_yielded, self._is_truncated = 0, False

    @classmethod
    def of_batch(cls, step: int, ids: Sequence[int] | Int64) -> Block:
        """Return a block of one batch."""
        return cls(np.array([step]), np.asarray(ids, np.int64), np.array([0, len(ids)]))

    def batches(self) -> Iterator[tuple[int, slice]]:
        """Yield the step of each batch that is not empty, and the slice of its samples."""
        for step, part in self.places():
            self._num_yielded = part.stop
            yield step, part

    def places(self) -> Iterator[tuple[int, slice]]:
        """Yield what `batches` yields, and note nothing."""
        for step, start, end in zip(self._steps, [0, *self._ends], self._ends):
            if start < end:
                yield step, slice(start, end)

    def truncate(self) -> None:
        """Leave the samples out that `batches` has not yielded."""
        self._is_truncated = True

    def ids_by_step(self) -> Iterator[tuple[int, Int64]]:
        """Yield the step and the sample ids of each batch that is not empty, until `truncate`."""
        for step, part in self.places():
            if self._is_truncated and part.start >= self._num_yielded:
                return
            yield step, self.ids[part]

    @property
    def step(self) -> int:
        """Step of the first batch."""
        return self._steps[0]

    @property
    def parts(self) -> list[slice]:
        """Slices of the samples of the batches that are not empty."""
        return [part for _, part in self.places()]

    def latest(self) -> tuple[int, Int64] | None:
        """Return the step and the sample ids of the batch that `batches` has yielded last; None before."""
        if not self._num_yielded:
            return None
        at = self._ends.index(self._num_yielded)
        start = self._ends[at - 1] if at else 0
        return self._steps[at], self.ids[start : self._num_yielded]

    def yielded(self) -> tuple[int, int]:
        """Return how many batches and samples `batches` has yielded."""
        return len({end for end in self._ends if 0 < end <= self._num_yielded}), self._num_yielded

    def halve(self) -> list[Block]:
        """Return the block split into two blocks; an empty list for a single batch."""
        cut = len(self._steps) // 2
        return [self._cut(0, cut), self._cut(cut, len(self._steps))] if cut else []

    def split_by_needs(
        self, needs: Callable[[Int64], Sequence[Hashable]], rows: int
    ) -> Generator[Block, None, None]:
        """Split the block where its batches need more than the first batches of the current part.

        About `rows` samples stay together, whatever they need.
        """
        count, offsets = len(self._steps), self._offsets
        steps_at_once = max(rows * count // max(len(self.ids), 1), 1)
        first, first_needs = 0, set[Hashable]()
        for step in range(0, count, steps_at_once):
            end = min(step + steps_at_once, count)
            part_needs = set(needs(self.ids[offsets[step] : offsets[end]]))
            if not part_needs <= first_needs:
                if step:
                    yield self._cut(first, step)
                first, first_needs = step, part_needs
        yield self._cut(first, count)

    def _cut(self, start: int, stop: int) -> Block:
        offsets = self._offsets[start : stop + 1]
        ids = self.ids[offsets[0] : offsets[-1]]
        return Block(np.array(self._steps[start:stop], np.int64), ids, offsets - offsets[0])

    def split(self) -> list[Block]:
        """Return a block for each batch that is not empty."""
        ends = enumerate(pairwise([0, *self._ends]))
        return [self._cut(at, at + 1) for at, (start, end) in ends if start < end]


def plan_blocks(
    plan: Epoch, world: World, first: int, rows: int, *, size: int
) -> Generator[Block, None, None]:
    """Yield the blocks of a worker's epoch from step `first` on, of about `rows` samples each.

    The first blocks are smaller, to shorten the start. `size` is the number of samples of the data set.

    Raises:
        PluginError: If the plan returns ids of no samples.
    """
    steps = worker_steps(world, first, plan.steps(world))
    max_count = max(rows // max(plan.rows_per_step(world), 1), 1)
    start, count = 0, 1
    while start < len(steps):
        chunk = np.array(steps[start : start + count], np.int64)
        yield Block(chunk, *checked_batches(plan, world, chunk, size))
        start, count = start + count, min(2 * count, max_count)


@dataclass(frozen=True)
class Feed:
    """Reads the blocks that it is told, with prefetching; it knows no positions."""

    reader: SampleReader
    remote: bool  # whether any stream may have to download
    row_bytes: int  # approximate stored bytes of a sample
    decoded: int  # largest known bytes of a decoded sample; 0 if unknown
    predownload: int | None  # number of samples to fetch ahead; None adapts

    @classmethod
    def of(cls, opened: OpenSources, reader: SampleReader, predownload: int | None) -> Feed:
        """Describe streams that `reader` reads."""
        return cls(
            reader,
            remote=opened.downloads,
            row_bytes=opened.row_bytes,
            decoded=opened.decoded_bytes,
            predownload=predownload,
        )

    @property
    def rows(self) -> int:
        """Approximate number of samples per block."""
        return self._limit_rows(_BLOCK_ROWS)

    def rows_of_batches(self, *, num_threads: int) -> int:
        """Return the approximate number of samples per block where batches of columns are read."""
        if self.remote and (num_threads or not self._together):
            return self.rows  # a larger block would wait for more shards
        if self.reader.decodes_lazily and not num_threads:
            return _COLUMN_BLOCK_ROWS
        return self._limit_rows(_COLUMN_BLOCK_ROWS)

    @property
    def _together(self) -> bool:
        """Whether blocks are cut where they need more shards; not with an explicit `predownload`."""
        return self.reader.decodes_lazily and self.predownload is None

    def _limit_rows(self, max_rows: int) -> int:
        stored_rows = _BLOCK_STORED_BYTES // self.row_bytes
        decoded_rows = _BLOCK_DECODED_BYTES // max(self.decoded, 1)
        return max(min(max_rows, stored_rows, decoded_rows), 1)

    def parts(
        self,
        blocks: Iterator[Block],
        read: Callable[[Block], Any],
        process: World,
        observer: Observer,
        *,
        num_threads: int,
        clock: LoopClock | None = None,
        finish: Callable[[Block, Any], Any] | None = None,
        substitution: Substitution | None = None,
        handover: Handover | None = None,
    ) -> Generator[tuple[Block, Any], None, None]:
        """Yield blocks and what `read` returns for each, see `read_in_parts`, with prefetching.

        `finish` makes what is yielded of the values of a block, on the thread that has read them.

        `num_threads` blocks are read in parallel ahead of use; 0 reads each on demand. `clock` counts waits.
        Downloads go on that `handover` has of what was read before.
        """
        clock = clock or LoopClock()
        use: Callable[[Block], Iterator[tuple[Block, Any]]] = partial(
            substitution.read_in_parts if substitution else read_in_parts, read=read
        )
        if finish is not None:
            use = partial(_finished, use=use, finish=finish)
        if not self.remote:
            return decode_blocks(blocks, use, num_threads, clock)
        reader = self.reader
        blocks, limits = self.bounded(blocks, process)
        return prefetch_blocks(
            blocks,
            TolerantReader(reader, substitution.bad_samples) if substitution else reader,
            use,
            limits,
            num_threads=num_threads,
            waiting=lambda need: observer.waiting(clock, *reader.file_of(need)),
            clock=clock,
            handover=handover,
        )

    def bounded(
        self, blocks: Iterator[Block], process: World
    ) -> tuple[Iterator[Block], PrefetchLimits]:
        """Return the blocks of a worker, split to fit a limited cache, and the prefetch limits."""
        reader = self.reader
        limits = reader.prefetch_limits
        if reader.cache_limit is not None:
            share = _Share(reader, reader.cache_limit, self.row_bytes, process)
            limits = replace(
                limits, bytes=min(limits.bytes, share.bytes), strict=True, max_samples=share.samples
            )
            blocks = share.split_to_fit(blocks)
        if self._together:
            blocks = (
                part for block in blocks for part in block.split_by_needs(reader.needs, self.rows)
            )
        return blocks, replace(limits, samples=self.predownload)


class _Share:
    """Share of a limited cache that one process may use, so that shards are not evicted before they are read.

    The processes of a machine read neighbouring samples and prefetch at the same time. If the order mixes
    little, they share few shards, so the samples that all processes fetch ahead are limited. If it mixes
    well, every process needs nearly the same shards, so the shards of one process are limited. Both limits
    are half of the cache limit; the other half keeps shards that were read before.
    """

    def __init__(self, reader: SampleReader, limit: int, row_bytes: int, process: World) -> None:
        self._reader, self._limit, self._process = reader, limit, process
        self._shards: set[int] = set()  # of the blocks that do not fit, and their bytes
        self._shard_bytes = 0
        self.bytes = limit // 2  # of the shards for the current block and the prefetch window
        self.samples = self.bytes // (row_bytes * process.ranks_per_node * process.workers_per_rank)

    def split_to_fit(self, blocks: Iterator[Block]) -> Iterator[Block]:
        """Split blocks until each fits the share; half of `samples` is left for the prefetch window."""
        for block in blocks:
            fits = 2 * block.ids.size <= self.samples and self._needed_bytes(block) <= self.bytes
            if not fits and (halves := block.halve()):
                yield from self.split_to_fit(iter(halves))
                continue
            if not fits and self._evicts(block):
                warn_about_cache(self._needed_bytes(block), self._limit, self._process)
            yield block

    def _evicts(self, block: Block) -> bool:
        """Return whether the shards of this and earlier blocks that did not fit take more than the cache."""
        if self._shard_bytes <= self._limit:
            shards = {need for need in self._reader.needs(block.ids) if isinstance(need, int)}
            self._shard_bytes += sum(map(self._reader.weight, shards - self._shards))
            self._shards |= shards
        return self._shard_bytes > self._limit

    def _needed_bytes(self, block: Block) -> int:
        return sum(map(self._reader.weight, self._reader.needs(block.ids)))


class TolerantReader:
    """Needs of a reader, of which those that cannot be fetched fail where their samples are read.

    Those of `bad_samples`, which are not read, are left out.
    """

    def __init__(self, reader: SampleReader, bad_samples: Collection[int]) -> None:
        self._reader, self._bad_samples = reader, bad_samples
        self.weight = reader.weight
        self.claim, self.release = reader.claim, reader.release

    def needs(self, ids: Int64) -> Sequence[Need]:
        """Return what must be fetched to read the samples that may be readable."""
        if self._bad_samples:
            ids = ids[~np.isin(ids, list(self._bad_samples))]
        return self._reader.needs(ids)

    def ensure(self, need: Need) -> None:
        """Fetch a need, if possible."""
        with suppress(*SHARD_ERRORS):
            self._reader.ensure(need)


def read_in_parts(block: Block, read: Callable[[Block], T]) -> Iterator[tuple[Block, T]]:
    """Yield a block and what `read` returns; if that fails, batch by batch up to the damaged one."""
    try:
        values = read(block)
    except StreamplugError:
        parts = block.split()
        if len(parts) == 1:
            raise
    else:
        yield block, values
        return
    for part in parts:
        yield part, read(part)


def _finished(
    block: Block,
    use: Callable[[Block], Iterator[tuple[Block, Any]]],
    finish: Callable[[Block, Any], Any],
) -> Iterator[tuple[Block, Any]]:
    for part, values in use(block):
        yield part, finish(part, values)
