"""Fetching of sample ranges while others are decoded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from streamplug.read.sample_range import FetchGroup, SampleRange
from streamplug.transfer.pool import Job, ThreadPool

_MAX_RANGES_IN_FLIGHT = 64
# With a higher limit all ranges arrive late instead of some early, and less freed memory can be reused.
_MAX_BYTES_IN_FLIGHT = 16 << 20


class RangeFetcher:
    """Fetches sample ranges in the order of need, and holds each until its samples are decoded."""

    def __init__(
        self,
        groups: Sequence[FetchGroup],
        fetch: Callable[[FetchGroup], object],
        release: Callable[[SampleRange], object],
    ) -> None:
        """Start fetching; a single group is fetched when one of its ranges is waited for."""
        self._fetch, self._release = fetch, release
        self._ranges: dict[int, tuple[SampleRange, Job[object] | None]] = {
            part.number: (part, None) for group in groups for part in group
        }
        self._single = groups[0] if len(groups) == 1 else None
        num_threads = max(_MAX_RANGES_IN_FLIGHT // max(map(len, groups), default=1), 1)
        self._queue = ThreadPool(num_threads, _MAX_BYTES_IN_FLIGHT) if len(groups) > 1 else None
        if self._queue is None:
            return
        try:
            for group in groups:
                weight = sum(part.weight for part in group)
                job = self._queue.submit(partial(fetch, group), weight)
                self._ranges.update((part.number, (part, job)) for part in group)
        except BaseException:
            self.stop()
            raise

    # `contextlib.contextmanager` leaves a reference cycle in Python 3.10 if GeneratorExit ends its block. It
    # would keep files mapped until the next garbage collection.
    def __enter__(self) -> RangeFetcher:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def wait(self, number: int) -> None:
        """Wait for the sample range of a shard, if there is one."""
        if number not in self._ranges:
            return
        if self._single is not None:
            self._fetch(self._single)
            self._single = None
        _, job = self._ranges[number]
        if job is not None:
            job.wait()
            if job.error is not None:
                raise job.error

    def release(self, number: int) -> None:
        """Release the sample range of a shard, if there is one, as its samples are decoded."""
        if number in self._ranges:
            self._release(self._ranges.pop(number)[0])

    def stop(self) -> None:
        """Cancel pending fetches, and release all sample ranges."""
        if self._queue is not None:
            self._queue.stop()
        for sample_range, _ in self._ranges.values():
            self._release(sample_range)
