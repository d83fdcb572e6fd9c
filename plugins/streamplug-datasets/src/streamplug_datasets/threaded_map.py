"""Mapping of samples in threads ahead of use, with an exact state."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from streamplug.config import whole_number
from streamplug.dataset import StreamingDataset
from streamplug.types import Sample
from streamplug_datasets.transform import map_rows

T = TypeVar("T")


def map_samples(
    dataset: StreamingDataset, change: Callable[[Sample], T], *, num_threads: int
) -> Generator[T, None, None]:
    """Yield this worker's samples of the next epoch, mapped by threads ahead of use.

    Args:
        dataset: The data set. Its `state_dict` is that after the last sample yielded, whatever was mapped
            ahead.
        change: Maps a stored sample to what is yielded, for example by downloading a file that it names;
            called in several threads at once.
        num_threads: Number of threads, and of samples ahead.

    Raises:
        ConfigError: If `num_threads` is less than 1.
    """
    num_threads = whole_number("num_threads", num_threads, 1) or 1
    pool = ThreadPoolExecutor(num_threads, thread_name_prefix="ahead")
    try:
        yield from map_rows(dataset, lambda rows: _in_order(pool, change, rows, num_threads))
    finally:
        pool.shutdown(cancel_futures=True)


def _in_order(
    pool: ThreadPoolExecutor, change: Callable[[Sample], T], rows: list[Sample], ahead: int
) -> Iterator[T]:
    pending: deque[Future[Any]] = deque()
    for row in rows:
        pending.append(pool.submit(change, row))
        if len(pending) > ahead:
            yield pending.popleft().result()
    while pending:
        yield pending.popleft().result()
