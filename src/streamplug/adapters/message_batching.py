"""Grouping of small batches into one message of a worker process.

A message between processes costs about 0.1 ms of processor time, whatever its size.
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

_MOST = 8
_BYTES = 1 << 16
_SECONDS = 0.005  # time after which a message is sent as soon as its next batch is ready


def group_batches(
    batches: Iterable[T], nbytes: Callable[[T], int], worker: int
) -> Iterator[BatchMessage[T]]:
    """Yield messages of several batches of a worker; the first ones are small, to shorten the start.

    `nbytes` returns the approximate bytes of a batch. An exception of `batches` is raised after the batches
    before it were yielded.
    """
    rest, most = iter(batches), 1
    error, last = None, False
    while not last:
        some: list[T] = []
        room, began = _BYTES, perf_counter()
        try:
            for batch in islice(rest, most):
                some.append(batch)
                room -= nbytes(batch)
                if room <= 0 or perf_counter() - began > _SECONDS:
                    break
            else:
                last = len(some) < most
        except Exception as raised:  # noqa: BLE001 - raised below
            error = raised
        if some or last:
            yield worker, some, last
        if error is not None:
            raise error
        most = min(2 * most, _MOST)


def round_robin(bundles: Iterable[BatchMessage[T]], workers: int) -> Iterator[T]:
    """Yield one batch of each worker in turn, as long as the worker has some."""
    rest = iter(bundles)
    waiting: list[deque[T]] = [deque() for _ in range(workers)]
    ended: set[int] = set()
    turn = 0
    while len(ended) < workers or any(waiting):
        while not waiting[turn] and turn not in ended:
            worker, some, last = next(rest)
            waiting[worker].extend(some)
            if last:
                ended.add(worker)
        if waiting[turn]:
            yield waiting[turn].popleft()
        turn = (turn + 1) % workers
    for _ in rest:  # exhaust the iterator, so that the workers end
        pass
