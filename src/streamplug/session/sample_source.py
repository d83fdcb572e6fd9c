"""Block: some batches of one worker, to be read together; how the blocks of an epoch come about."""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TypeVar

import numpy as np

from streamplug.errors import StreamplugError
from streamplug.plan import Epoch, worker_steps
from streamplug.read import SampleReader
from streamplug.session import hints as advice
from streamplug.session.open_stream import OpenStream
from streamplug.transfer.decode_pool import decode_blocks
from streamplug.transfer.observer import Observer
from streamplug.transfer.prefetch import BlockRequirements, PrefetchLimits, prefetch_blocks
from streamplug.types import Int64, World

T = TypeVar("T")

_OF_RANGES = PrefetchLimits(bytes=64 << 20, strict=True, active=16, busy=8 << 20)
"""Pieces of shards are held in memory, and most are small: more of them at once, fewer bytes ahead."""

_BYTES = 4 << 20
_DECODED = 32 << 20
_ROWS = 1024
_VALUES = 1 << 14
"""More at once costs more than it saves: fresh memory, and Python objects beyond the caches."""

_ROWS_OF_BATCHES = 4096
"""More where columns are read: few of the values are Python objects, or batches are decoded in turn."""


class Block:
    """Some batches of one worker, to be read together.

    Attributes:
        ids: Their sample ids, one batch after the other.
    """

    def __init__(self, steps: Int64, ids: Int64) -> None:
        """Take the batches of `steps`, ids of shape ``[steps, batch]``, -1 where one is short."""
        self._table = steps, ids
        taken = ids >= 0
        self.ids: Int64 = ids[taken]
        self._steps = steps.tolist()
        self._ends = np.cumsum(taken.sum(1)).tolist()
        self._given = 0

    def batches(self) -> Iterator[tuple[int, slice]]:
        """Yield the step of each batch that is not empty, and where its samples are."""
        for step, start, end in zip(self._steps, [0, *self._ends], self._ends):
            if start < end:
                self._given = end
                yield step, slice(start, end)

    @property
    def parts(self) -> list[slice]:
        """Where the samples of each batch are that is not empty."""
        return [slice(start, end) for start, end in pairwise([0, *self._ends]) if start < end]

    def given(self) -> tuple[int, int]:
        """Return how many batches, and samples, `batches` has yielded so far."""
        return len({end for end in self._ends if 0 < end <= self._given}), self._given

    def halves(self) -> list[Block]:
        """Return both halves of its batches as blocks of their own; of a single batch, none."""
        cut = len(self._steps) // 2
        return [self._cut(0, cut), self._cut(cut, len(self._steps))] if cut else []

    def by_needs(
        self, needs: Callable[[Int64], Sequence[Hashable]], rows: int
    ) -> Generator[Block, None, None]:
        """Yield its batches as blocks that need nothing beyond what their first batches do.

        Args:
            needs: Returns what some samples need.
            rows: So many samples, whatever they need, stay together.
        """
        steps, ids = self._table
        each = max(rows // ids.shape[1], 1)
        first, there = 0, set[Hashable]()
        for at in range(0, len(steps), each):
            part = ids[at : at + each]
            needed = set(needs(part[part >= 0]))
            if not needed <= there:
                if at:
                    yield self._cut(first, at)
                first, there = at, needed
        yield self._cut(first, len(steps))

    def _cut(self, start: int, stop: int) -> Block:
        steps, ids = self._table
        return Block(steps[start:stop], ids[start:stop])

    def split(self) -> list[Block]:
        """Return each batch as a block of its own."""
        return [
            Block(np.array([step]), self.ids[part].reshape(1, -1)) for step, part in self.batches()
        ]


def plan_blocks(
    plan: Epoch, world: World, batch: int, first: int, rows: int
) -> Generator[Block, None, None]:
    """Yield the blocks of a worker's epoch.

    Args:
        plan: The epoch.
        world: Where the worker stands.
        batch: Samples per batch.
        first: The step that the epoch begins with.
        rows: About how many samples to a block. The first ones are small, so that they are there sooner.
    """
    steps = worker_steps(world, first, plan.steps)
    each = max(rows // batch, 1)
    start, count = 0, 1
    while start < len(steps):
        chunk = np.array(steps[start : start + count], np.int64)
        yield Block(chunk, plan.ids(world, batch, chunk))
        start, count = start + count, min(2 * count, each)


@dataclass(frozen=True)
class SampleSource:
    """What the blocks of a data set are read from.

    Attributes:
        reader: Reads samples.
        remote: Whether anything may have to be fetched.
        row_bytes: About how many bytes a sample takes.
        decoded: What is known of the memory that a sample takes when it is decoded.
        columns: How many columns are read.
        objects: Of how many of them a batch is no array.
        predownload: How many samples ahead to fetch; None adapts.
    """

    reader: SampleReader
    remote: bool
    row_bytes: int
    decoded: int
    columns: int
    objects: int
    predownload: int | None

    @classmethod
    def of(
        cls,
        streams: Sequence[OpenStream],
        reader: SampleReader,
        columns: Sequence[str] | None,
        predownload: int | None,
    ) -> SampleSource:
        """Describe streams that `reader` reads, and of them these columns, or all for None."""
        size = sum(stream.index.raw_bytes for stream in streams)
        schemas = [schema for stream in streams for schema in stream.index.schemas]
        read = [
            [c for c in schema.columns if columns is None or c.name in columns]
            for schema in schemas
        ]
        return cls(
            reader,
            remote=any(stream.store.fetches for stream in streams),
            row_bytes=max(size // max(int(reader.starts[-1]), 1), 1),
            decoded=max((schema.decoded_bytes for schema in schemas), default=0),
            columns=max(map(len, read), default=1),
            objects=max((sum(c.encoding.dtype is None for c in each) for each in read), default=1),
            predownload=predownload,
        )

    @property
    def rows(self) -> int:
        """About how many samples to read at once."""
        return self._rows(_ROWS, self.columns)

    def rows_of_batches(self, *, num_threads: int) -> int:
        """About how many to read at once where only some columns become Python objects."""
        if self.remote and (num_threads or not self._together):
            return self.rows  # what all of them need would be waited for
        if self.reader.decodes_lazily and not num_threads:
            return _ROWS_OF_BATCHES
        return self._rows(_ROWS_OF_BATCHES, self.objects)

    @property
    def _together(self) -> bool:
        """Whether all that needs the same is one block: not if it is said how far ahead of one to fetch."""
        return self.reader.decodes_lazily and self.predownload is None

    def _rows(self, most: int, columns: int) -> int:
        fitting = min(_BYTES // self.row_bytes, _DECODED // max(self.decoded, 1))
        return max(min(most, fitting, _VALUES // max(columns, 1)), 1)

    def parts(
        self,
        blocks: Iterator[Block],
        read: Callable[[Block], T],
        place: World,
        observer: Observer,
        *,
        num_threads: int,
    ) -> Generator[tuple[Block, T], None, None]:
        """Yield blocks and what they read, as `read_in_parts`, fetching ahead; see `prefetch_blocks`.

        Args:
            blocks: Those of a worker.
            read: Reads the samples of a block.
            place: Where the worker stands; what all of its node read is fetched at the same time.
            observer: Told of what is waited for.
            num_threads: How many blocks to read at once, ahead of use; 0 reads each when it is asked for.
        """
        use = partial(read_in_parts, read=read)
        if not self.remote:
            return decode_blocks(blocks, use, num_threads)
        reader = self.reader
        needs = BlockRequirements(
            of=lambda block: reader.needs(block.ids),
            samples=lambda block: block.ids.size,
            bytes=reader.weight,
            ensure=reader.ensure,
            claim=reader.claim,
            release=reader.release,
            split=Block.split,
            waiting=lambda need: observer.waiting(*reader.file_of(need)),
        )
        blocks, limits = self.bounded(blocks, place)
        return prefetch_blocks(blocks, needs, use, limits, threads=num_threads)

    def bounded(
        self, blocks: Iterator[Block], place: World
    ) -> tuple[Iterator[Block], PrefetchLimits]:
        """Return the blocks of a worker, cut to what a limited cache holds, and how far ahead to fetch."""
        reader = self.reader
        limits = _OF_RANGES if reader.reads_ranges else PrefetchLimits()
        if reader.cache_limit is not None:
            share = _Share(reader, reader.cache_limit, self.row_bytes, place)
            limits = replace(
                limits, bytes=min(limits.bytes, share.bytes), strict=True, most=share.samples
            )
            blocks = share.fitting(blocks)
        if self._together:
            blocks = (part for block in blocks for part in block.by_needs(reader.needs, self.rows))
        return blocks, replace(limits, samples=self.predownload)


class _Share:
    """What one process may ask of a cache with a limit, so that it is not emptied before it is used.

    The processes of a machine read neighbouring samples: what one of them reads ahead, all do together. In
    an order that hardly mixes these lie in as many shards as their bytes fill, of which one process has
    only some; in one that mixes well, every process needs nearly all shards that any needs. So both are
    bounded, the bytes of all and the shards of one, and half of the limit is left for what was read before.

    Attributes:
        bytes: What the shards may take that a process needs for what it reads and has ahead.
        samples: How many it may have ahead.
    """

    def __init__(self, reader: SampleReader, limit: int, row_bytes: int, place: World) -> None:
        self._reader, self._limit, self._place = reader, limit, place
        self.bytes = limit // 2
        self.samples = self.bytes // (row_bytes * place.ranks_per_node * place.workers_per_rank)

    def fitting(self, blocks: Iterator[Block]) -> Iterator[Block]:
        """Yield the batches of blocks in such that keep to it, and half of that for what comes after."""
        for block in blocks:
            fits = self._fits(block)
            halves = [] if fits else block.halves()
            if halves:
                yield from self.fitting(iter(halves))
                continue
            if not fits:
                advice.on_cache(self._needed(block), self._limit, self._place)
            yield block

    def _fits(self, block: Block) -> bool:
        return 2 * block.ids.size <= self.samples and self._needed(block) <= self.bytes

    def _needed(self, block: Block) -> int:
        return sum(map(self._reader.weight, self._reader.needs(block.ids)))


def read_in_parts(block: Block, read: Callable[[Block], T]) -> Iterator[tuple[Block, T]]:
    """Yield a block and what it reads; in single batches, up to the one that fails, if one does.

    Raises:
        StreamplugError: What reading that batch raised.
    """
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
