"""Fetching of sample ranges while others are decoded."""

from __future__ import annotations

from collections.abc import Sequence

from streamplug.read import NeedFetcher, PartialNeed
from streamplug.transfer import Job, ThreadPool

_MAX_RANGES_IN_FLIGHT = 64
_MIN_THREADS = 4  # of groups that are as large: one is decoded while others are fetched
# With a higher limit all ranges arrive late instead of some early, and less freed memory can be reused.
_MAX_BYTES_IN_FLIGHT = 16 << 20


class RangeFetcher(NeedFetcher):
    """Fetches needs in their order, and holds each until its samples are decoded."""

    def __init__(self, needs: Sequence[PartialNeed]) -> None:
        """Start fetching; a single need is fetched when one of its shards is waited for."""
        self._needs = {shard: need for need in needs for shard in need.shards}
        self._jobs: dict[PartialNeed, Job[object]] = {}
        self._single = needs[0] if len(needs) == 1 else None
        most = max((len(need.shards) for need in needs), default=1)
        num_threads = max(_MAX_RANGES_IN_FLIGHT // most, _MIN_THREADS)
        self._queue = ThreadPool(num_threads, _MAX_BYTES_IN_FLIGHT) if len(needs) > 1 else None
        if self._queue is None:
            return
        try:
            for need in needs:
                self._jobs[need] = self._queue.submit(need.ensure, need.weight)
        except BaseException:
            self.stop()
            raise

    def wait(self, shard: int) -> None:
        """Wait for the need of a shard, if there is one."""
        need = self._needs.get(shard)
        if need is None:
            return
        if self._single is not None:
            self._single.ensure()
            self._single = None
        job = self._jobs.get(need)
        if job is not None:
            job.wait()
            job.take()

    def release(self, shard: int) -> None:
        """Release the need of a shard, if there is one, when the samples of all of its shards are decoded."""
        need = self._needs.pop(shard, None)
        if need is not None and self._needs.keys().isdisjoint(need.shards):
            need.release()

    def stop(self) -> None:
        """Cancel pending fetches, and release all needs."""
        if self._queue is not None:
            self._queue.stop()
        for need in set(self._needs.values()):
            need.release()
