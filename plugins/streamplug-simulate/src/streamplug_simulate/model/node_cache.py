"""Shared cache of one node, and the download threads of its processes."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from functools import partial

from streamplug.cache import EXTRA_EVICTION_DIVISOR
from streamplug.read import USED_SECONDS
from streamplug.transfer import LOCK_POLL_SECONDS
from streamplug_simulate.model.events import EventQueue
from streamplug_simulate.model.network import NetworkLink
from streamplug_simulate.model.open_shards import OpenShardModel
from streamplug_simulate.model.shards import ShardSizes


class SimulatedJob:
    """Download of one shard by a thread of a process.

    Attributes:
        shard: Number of the shard.
        weight: Its bytes.
        done: Whether the shard is ready.
        error: Always None: downloads do not fail here.
    """

    __slots__ = ("done", "error", "listener", "shard", "threads", "weight")

    def __init__(self, threads: Threads, shard: int, weight: int) -> None:
        self.threads, self.shard, self.weight = threads, shard, weight
        self.done = False
        self.error: BaseException | None = None
        self.listener: Callable[[], None] | None = None

    def wait(self) -> None:
        """Do nothing: the waiting process has set `listener`, which is called on completion."""


class Threads:
    """Download threads of one process: a FIFO queue with a limit of running jobs.

    Attributes:
        unfinished: Number of unfinished jobs.
        weight: Bytes of unfinished jobs.
        opened: Open shards of the process.
    """

    def __init__(self, node: NodeCache, active: int) -> None:
        self._node, self._active = node, active
        self.opened = OpenShardModel(node.limit)
        self._queue: deque[SimulatedJob] = deque()
        self._running = 0
        self._busy = self._pending = False
        self.unfinished = self.weight = 0

    def submit(self, work: Callable[[], object], weight: int = 0) -> SimulatedJob:
        """Queue a job; `work` returns its shard."""
        job = SimulatedJob(self, work(), weight)  # type: ignore[arg-type]  # returns a shard here
        self.unfinished += 1
        self.weight += weight
        self._queue.append(job)
        if not self._pending:  # as in Python, threads start once the submitting one waits
            self._pending = True
            self._node.call_soon(self._begin)
        return job

    def stop(self) -> None:
        """Do nothing: a simulated run ends by itself."""

    def idle(self, change: int) -> None:
        """Let one thread wait for another process (-1) or resume (+1); queued jobs take its place."""
        self._running += change
        self._begin()

    def finish(self, job: SimulatedJob) -> None:
        """Mark a job as finished."""
        job.done = True
        self.opened.add(job.shard, job.weight)
        self._running -= 1
        self.unfinished -= 1
        self.weight -= job.weight
        if job.listener is not None:
            job.listener()
        self._begin()

    def _begin(self) -> None:
        self._pending = False
        if self._busy:  # jobs queued meanwhile are taken by the loop below
            return
        self._busy = True
        while self._queue and self._running < self._active:
            self._running += 1
            job = self._queue.popleft()
            if self.opened.has(job.shard):
                self.finish(job)
                continue
            self.opened.sweep(self._node.now, self._node.has)
            self._node.ensure(job)
        self._busy = False


class NodeCache:
    """Cache of one node.

    Attributes:
        bytes: Stored bytes downloaded so far.
        shards: Shard downloads so far.
        hits: How often a process found a shard cached or being downloaded.
        evictions: Evictions so far.
        evicted: Bytes of evicted shards.
        limit: Limit of each cache in bytes, or None.
        log: Time, bytes downloaded and bytes held after each download.
    """

    def __init__(
        self, events: EventQueue, link: NetworkLink, shards: ShardSizes, limit: int | None
    ) -> None:
        self._events, self._link, self._shards, self.limit = events, link, shards, limit
        self._files = shards.files  # caches and downloads are of these
        # By cache, each in LRU order.
        self._cached: list[OrderedDict[int, float]] = [OrderedDict() for _ in range(shards.caches)]
        self._held = [0] * shards.caches
        self._downloads: dict[int, list[tuple[SimulatedJob, float]]] = {}
        self._reserved = [0] * shards.caches
        self.bytes = self.shards = self.hits = self.evictions = self.evicted_bytes = 0
        self.log: list[tuple[float, int, int]] = [(0.0, 0, 0)]

    @property
    def held_bytes(self) -> int:
        """Bytes of all cached shards."""
        return sum(self._held)

    @property
    def now(self) -> float:
        """Seconds since the run began."""
        return self._events.now

    def call_soon(self, call: Callable[[], None]) -> None:
        """Schedule a call after the current one."""
        self._events.schedule(self._events.now, call)

    def has(self, shard: int) -> bool:
        """Return whether a shard is cached."""
        shard = self._files[shard]
        return shard in self._cached[self._shards.cache_of(shard)]

    def ensure(self, job: SimulatedJob) -> None:
        """Start or await the download of a job's shard."""
        shard = self._files[job.shard]
        cached = self._cached[self._shards.cache_of(shard)]
        if shard in cached:
            self._mark_used(shard, cached)
            self.hits += 1
            job.threads.finish(job)
        elif shard in self._downloads:
            self._downloads[shard].append((job, self._events.now))
            job.threads.idle(-1)
        else:
            self._start_download(job)

    def use(self, shards: Sequence[int]) -> None:
        """Update the last use of shards that are being read."""
        now = self._events.now
        for shard in map(self._files.__getitem__, shards if self.limit is not None else ()):
            cached = self._cached[self._shards.cache_of(shard)]
            if shard in cached and now - cached[shard] > USED_SECONDS:
                self._mark_used(shard, cached)

    def _mark_used(self, shard: int, cached: OrderedDict[int, float]) -> None:
        cached[shard] = self._events.now
        cached.move_to_end(shard)

    def _start_download(self, job: SimulatedJob) -> None:
        shard = self._files[job.shard]
        size = self._shards.sizes(shard)
        self._downloads[shard] = []
        if self.limit is not None:
            self._evict(size.cache, self.limit - size.room - self._reserved[size.cache])
        self._reserved[size.cache] += size.room
        self._link.download(size.stored, size.requests, partial(self._finish_download, job))

    def _finish_download(self, job: SimulatedJob) -> None:
        shard = self._files[job.shard]
        size = self._shards.sizes(shard)
        self._reserved[size.cache] -= size.room
        self._cached[size.cache][shard] = self._events.now
        self._held[size.cache] += size.kept
        if self.limit is not None:
            self._evict(size.cache, self.limit)
        self.bytes += size.stored
        self.shards += 1
        self.log.append((self._events.now, self.bytes, self.held_bytes))
        waiting = self._downloads.pop(shard)
        for other, since in waiting:
            self._events.schedule(self._next_lock_poll(since), partial(self._retry, other))
        job.threads.finish(job)

    def _next_lock_poll(self, since: float) -> float:
        """Return when a process that waits for a lock since `since` polls it again."""
        pause = 0.001
        time = since + pause
        while time < self._events.now:
            pause = min(2 * pause, LOCK_POLL_SECONDS)
            time += pause
        return time

    def _retry(self, job: SimulatedJob) -> None:
        job.threads.idle(+1)
        self.ensure(job)

    def _evict(self, cache: int, max_bytes: int) -> None:
        """Evict least recently used shards until at most `max_bytes` bytes are left, and then some more."""
        cached = self._cached[cache]
        more = len(cached) // EXTRA_EVICTION_DIVISOR if self._held[cache] > max_bytes else 0
        while cached and (self._held[cache] > max_bytes or more > 0):
            more -= self._held[cache] <= max_bytes
            shard, _ = cached.popitem(last=False)
            kept = self._shards.sizes(shard).kept
            self._held[cache] -= kept
            self.evictions += 1
            self.evicted_bytes += kept
