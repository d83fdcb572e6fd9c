"""Bundles: batches that a worker hands over together, because each of them would cost more than it holds.

A message from one process to another takes about a tenth of a millisecond of processors, whatever is in it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from time import perf_counter
from typing import TypeAlias, TypeVar

T = TypeVar("T")

BatchMessage: TypeAlias = "tuple[int, list[T], bool]"
"""Number of the worker, some of its batches, and whether these are its last."""

_MOST = 8
_BYTES = 1 << 16
_SECONDS = 0.005
"""A batch waits for others so long, at most, and for the one that is being made then."""


def group_batches(
    batches: Iterable[T], nbytes: Callable[[T], int], worker: int
) -> Iterator[BatchMessage[T]]:
    """Yield the batches of a worker in bundles; the first ones are small, so that they are there sooner.

    Args:
        batches: In their order.
        nbytes: Returns about how many bytes one has.
        worker: Which one this is.

    Raises:
        Exception: What the batches raise, after those before that.
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
    """Yield the batches of some workers, one of each in turn, as long as it has some."""
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
    for _ in rest:  # so that those that made it see its end
        pass
