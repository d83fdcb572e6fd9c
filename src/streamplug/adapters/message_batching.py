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
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")

BatchMessage: TypeAlias = "tuple[int, list[T], Any]"
"""Number of the worker, some of its batches, and False; after its last batch True, or its wrapped error."""

MAX_BATCHES_PER_MESSAGE = 8
_MAX_MESSAGE_BYTES = 1 << 16
_MAX_MESSAGE_SECONDS = 0.005
"""Time after which a message is sent as soon as its next batch is ready."""

_MAX_QUEUED_BATCHES = 3 * MAX_BATCHES_PER_MESSAGE
"""Batches of a worker that may wait for those of others, before messages are of one batch."""


def group_batches(
    batches: Iterable[T],
    nbytes: Callable[[T], int],
    worker: int,
    *,
    max_batches: Callable[[], int],
    wrap_error: Callable[[], Any],
) -> Iterator[BatchMessage[T]]:
    """Yield messages of several batches of a worker; the first ones are small, to shorten the start.

    Args:
        batches: The batches. An error of the iterator is in the last message.
        nbytes: Returns the approximate bytes of a batch.
        worker: Number of the worker.
        max_batches: Returns the largest number of batches of the next message.
        wrap_error: Returns what is sent of the exception that is being handled.
    """
    remaining, count, end = iter(batches), 1, False
    while not end:
        message: list[T] = []
        free_bytes, started = _MAX_MESSAGE_BYTES, perf_counter()
        try:
            for batch in islice(remaining, count):
                message.append(batch)
                free_bytes -= nbytes(batch)
                if free_bytes <= 0 or perf_counter() - started > _MAX_MESSAGE_SECONDS:
                    break
            else:
                end = len(message) < count
        except Exception:  # noqa: BLE001 - raised by the loop
            end = wrap_error()
        if message or end:
            yield worker, message, end
        count = min(2 * count, max_batches())


def messages_after(
    changes: int, messages: Iterable[tuple[int, BatchMessage[T]]]
) -> Iterator[BatchMessage[T]]:
    """Yield the messages of workers that have followed this number of changes of the world, and errors."""
    for number, message in messages:
        if number == changes:
            yield message
        elif not isinstance(message[2], bool):
            yield message[0], [], message[2]


class WorkerError(Exception):
    """It is the turn of a batch whose worker failed; `wrapped` is the end of its last message."""

    def __init__(self, wrapped: Any) -> None:
        super().__init__(wrapped)
        self.wrapped = wrapped


def round_robin(messages: Iterable[BatchMessage[T]], workers: int, max_batches: Any) -> Iterator[T]:
    """Yield one batch of each worker in turn, as long as the worker has some; leave further messages.

    Args:
        messages: The messages, of which each worker sends the same number in the same time.
        workers: Number of workers.
        max_batches: An array or a tensor of one item, whose item is set to the largest number of batches of a
            message: batches of a fast worker would pile up if its messages had more of them than those of a
            slow one.

    Raises:
        WorkerError: When it is the turn of a worker that failed.
    """
    remaining = iter(messages)
    queues: list[deque[T]] = [deque() for _ in range(workers)]
    ends: dict[int, Any] = {}
    turn, max_batches[0] = 0, MAX_BATCHES_PER_MESSAGE
    while len(ends) < workers or any(queues) or any(end is not True for end in ends.values()):
        while not queues[turn] and turn not in ends:
            worker, batches, end = next(remaining)
            queues[worker].extend(batches)
            if end:
                ends[worker] = end
            is_ahead = max(map(len, queues)) > _MAX_QUEUED_BATCHES
            max_batches[0] = 1 if is_ahead else MAX_BATCHES_PER_MESSAGE
        if queues[turn]:
            yield queues[turn].popleft()
        elif ends[turn] is not True:
            raise WorkerError(ends[turn])
        turn = (turn + 1) % workers


def worker_batches(source: Any, changes: int, workers: int, max_batches: Any) -> Iterator[Any]:
    """Yield the batches in the messages of workers, see `round_robin` and `messages_after`.

    Args:
        source: A generator of the messages. The error of a worker is raised inside it, in the turn of the
            worker, so that it lets go of the workers.
        changes: As for `messages_after`.
        workers: Number of workers.
        max_batches: As for `round_robin`; the workers share it.
    """
    wrapped = None
    try:
        yield from round_robin(messages_after(changes, source), workers, max_batches)
    except WorkerError as error:
        wrapped = error.wrapped
    if wrapped is not None:
        try:
            wrapped.reraise()
        except Exception as error:  # noqa: BLE001 - any error of a worker
            original = error
        source.throw(original)
