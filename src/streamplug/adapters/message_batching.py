"""Grouping of small batches into one message of a worker process.

A message between processes costs about 0.1 ms of processor time, whatever its size. In
``tests/benchmarks/bench_read.py`` the loader of small samples with two workers reads 35 % fewer samples per
second of processor time without the grouping.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from time import perf_counter
from typing import TypeAlias, TypeVar

T = TypeVar("T")

BatchMessage: TypeAlias = "tuple[int, list[T], bool]"
"""Number of the worker, some of its batches, and whether they are its last."""

_MAX_BATCHES_PER_MESSAGE = 8
_MAX_MESSAGE_BYTES = 1 << 16
_MAX_MESSAGE_SECONDS = 0.005
"""Time after which a message is sent as soon as its next batch is ready."""


def group_batches(
    batches: Iterable[T], nbytes: Callable[[T], int], worker: int
) -> Iterator[BatchMessage[T]]:
    """Yield messages of several batches of a worker; the first ones are small, to shorten the start.

    `nbytes` returns the approximate bytes of a batch. An exception of `batches` is raised after the batches
    before it were yielded.
    """
    remaining, max_batches = iter(batches), 1
    error, is_last = None, False
    while not is_last:
        message: list[T] = []
        free_bytes, started = _MAX_MESSAGE_BYTES, perf_counter()
        try:
            for batch in islice(remaining, max_batches):
                message.append(batch)
                free_bytes -= nbytes(batch)
                if free_bytes <= 0 or perf_counter() - started > _MAX_MESSAGE_SECONDS:
                    break
            else:
                is_last = len(message) < max_batches
        except Exception as raised:  # noqa: BLE001 - raised below
            error = raised
        if message or is_last:
            yield worker, message, is_last
        if error is not None:
            raise error
        max_batches = min(2 * max_batches, _MAX_BATCHES_PER_MESSAGE)


def messages_after(
    changes: int, messages: Iterable[tuple[int, BatchMessage[T]]]
) -> Iterator[BatchMessage[T]]:
    """Yield the messages of workers that have followed this number of changes of the world."""
    return (message for number, message in messages if number == changes)


def round_robin(messages: Iterable[BatchMessage[T]], workers: int) -> Iterator[T]:
    """Yield one batch of each worker in turn, as long as the worker has some; leave further messages."""
    remaining = iter(messages)
    queues: list[deque[T]] = [deque() for _ in range(workers)]
    ended: set[int] = set()
    turn = 0
    while len(ended) < workers or any(queues):
        while not queues[turn] and turn not in ended:
            worker, batches, is_last = next(remaining)
            queues[worker].extend(batches)
            if is_last:
                ended.add(worker)
        if queues[turn]:
            yield queues[turn].popleft()
        turn = (turn + 1) % workers
