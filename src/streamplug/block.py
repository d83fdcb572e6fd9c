"""Block: some batches of one worker, to be read together; how the blocks of an epoch come about."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from typing import TypeVar

import numpy as np

from streamplug.errors import StreamplugError
from streamplug.fetch import Limits, Needs, prefetched
from streamplug.plan import Epoch
from streamplug.read import Reader
from streamplug.types import Int64, World

T = TypeVar("T")

_OF_RANGES = Limits(bytes=64 << 20, strict=True, active=16, busy=8 << 20)
"""Pieces of shards are held in memory, and most are small: more of them at once, fewer bytes ahead."""


class Block:
    """Some batches of one worker, to be read together.

    Attributes:
        ids: Their sample ids, one batch after the other.
    """

    def __init__(self, steps: Int64, ids: Int64) -> None:
        """Take the batches of `steps`, ids of shape ``[steps, batch]``, -1 where one is short."""
        taken = ids >= 0
        self.ids: Int64 = ids[taken]
        self._steps = steps.tolist()
        self._ends = np.cumsum(taken.sum(1)).tolist()

    def batches(self) -> Iterator[tuple[int, slice]]:
        """Yield the step of each batch that is not empty, and where its samples are."""
        for step, start, end in zip(self._steps, [0, *self._ends], self._ends):
            if start < end:
                yield step, slice(start, end)

    def split(self) -> list[Block]:
        """Return each batch as a block of its own."""
        return [
            Block(np.array([step]), self.ids[part].reshape(1, -1)) for step, part in self.batches()
        ]


def planned(
    plan: Epoch, world: World, batch: int, steps: Int64, each: int
) -> Generator[Block, None, None]:
    """Yield the blocks of a worker's epoch.

    Args:
        plan: The epoch.
        world: Where the worker stands.
        batch: Samples per batch.
        steps: The worker's steps, shape ``[n]``.
        each: Batches in a block; the first ones have fewer, so that they are there sooner.
    """
    start, count = 0, 1
    while start < len(steps):
        chunk = steps[start : start + count]
        yield Block(chunk, plan.ids(world, batch, chunk))
        start, count = start + count, min(2 * count, each)


def made_ready(
    blocks: Iterator[Block],
    reader: Reader,
    read: Callable[[Int64], T],
    predownload: int | None,
) -> Generator[tuple[Block, T], None, None]:
    """Yield blocks and what they read, as `read_in_parts`, fetching ahead; see `prefetched`."""
    needs = Needs(
        of=lambda block: reader.needs(block.ids),
        samples=lambda block: block.ids.size,
        bytes=reader.weight,
        ensure=reader.ensure,
        release=reader.release,
        split=Block.split,
    )
    limits = _OF_RANGES if reader.ranged else Limits()
    if reader.cache_limit is not None:
        # The rest is for what is being read, and for the shards of others.
        limits = replace(limits, bytes=min(limits.bytes, reader.cache_limit // 2), strict=True)
    limits = replace(limits, samples=predownload)
    return prefetched(blocks, needs, lambda block: read_in_parts(block, read), limits)


def read_in_parts(block: Block, read: Callable[[Int64], T]) -> Iterator[tuple[Block, T]]:
    """Yield a block and what it reads; in single batches, up to the one that fails, if one does.

    Raises:
        StreamplugError: What reading that batch raised.
    """
    try:
        values = read(block.ids)
    except StreamplugError:
        parts = block.split()
        if len(parts) == 1:
            raise
    else:
        yield block, values
        return
    for part in parts:
        yield part, read(part.ids)
