"""Makes shards ready ahead of need, in the background."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

_THREADS = 4


def prefetched(
    blocks: Iterable[T],
    *,
    shards_of: Callable[[T], list[int]],
    samples: Callable[[T], int],
    ensure: Callable[[int], object],
    ahead: int,
) -> Generator[T, None, None]:
    """Yield blocks once their shards are ready, fetching those of later blocks meanwhile.

    Args:
        blocks: Pieces of the plan, in the order of their use.
        shards_of: Returns the shards of a block, the most urgent first.
        samples: Returns how many samples a block has.
        ensure: Makes a shard ready; called on several threads at once.
        ahead: How many samples after the current block to look ahead.

    Yields:
        The blocks, unchanged.

    Raises:
        StreamplugError: What `ensure` raised for a shard, at the block that needs it first.
    """
    window: deque[tuple[T, list[int]]] = deque()
    pending: dict[int, Future[object]] = {}
    waiting = 0
    pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="streamplug-prefetch")

    def pop() -> T:
        block, shards = window.popleft()
        for shard in shards:
            if shard in pending:
                pending.pop(shard).result()
        return block

    try:
        for block in blocks:
            wanted = shards_of(block)
            for shard in wanted:
                if shard not in pending:
                    pending[shard] = pool.submit(ensure, shard)
            window.append((block, wanted))
            waiting += samples(block)
            while window and waiting - samples(window[0][0]) >= ahead:
                waiting -= samples(window[0][0])
                yield pop()
        while window:
            yield pop()
    finally:
        # The consumer stopped, or something failed: what has not begun is not needed any more.
        pool.shutdown(wait=True, cancel_futures=True)
