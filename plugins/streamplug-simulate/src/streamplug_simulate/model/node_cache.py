"""Node: the cache of one machine, which all processes on it share, and what is fetched into it."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from functools import partial

from streamplug.cache.quota import MORE
from streamplug.read.open_shards import USED_SECONDS
from streamplug.transfer.file_lock import LONGEST_PAUSE
from streamplug_simulate.model.events import Events
from streamplug_simulate.model.network import Link
from streamplug_simulate.model.open_shards import Opened
from streamplug_simulate.model.shards import Shards


class Job:
    """A shard that a thread of some process makes ready.

    Attributes:
        shard: Which.
        weight: Its bytes.
        done: Whether it has been.
        error: None; nothing fails here.
    """

    __slots__ = ("done", "error", "listener", "shard", "threads", "weight")

    def __init__(self, threads: Threads, shard: int, weight: int) -> None:
        self.threads, self.shard, self.weight = threads, shard, weight
        self.done = False
        self.error: BaseException | None = None
        self.listener: Callable[[], None] | None = None

    def wait(self) -> None:
        """Do nothing: who waits has set `listener`, which is called when it is done."""


class Threads:
    """The threads of one process that fetch: first come, first served, so many at a time.

    Attributes:
        unfinished: Jobs that have not ended.
        weight: What those weigh together, in bytes.
        opened: The shards that the process has open.
    """

    def __init__(self, node: Node, active: int) -> None:
        self._node, self._active = node, active
        self.opened = Opened(node.limit)
        self._queue: deque[Job] = deque()
        self._running = 0
        self._busy = self._due = False
        self.unfinished = self.weight = 0

    def submit(self, work: Callable[[], object], weight: int = 0) -> Job:
        """Queue a job; `work` tells which shard it is about."""
        job = Job(self, work(), weight)  # type: ignore[arg-type]  # the simulation's own says a shard
        self.unfinished += 1
        self.weight += weight
        self._queue.append(job)
        if not self._due:  # threads begin when who submits has to wait, as Python's do
            self._due = True
            self._node.soon(self._begin)
        return job

    def stop(self) -> None:
        """Do nothing: a run that is simulated ends by itself."""

    def idle(self, change: int) -> None:
        """Have one thread wait for another process (-1), or go on (+1): others work in its place."""
        self._running += change
        self._begin()

    def finish(self, job: Job) -> None:
        """Note that a job has ended."""
        job.done = True
        self.opened.add(job.shard, job.weight)
        self._running -= 1
        self.unfinished -= 1
        self.weight -= job.weight
        if job.listener is not None:
            job.listener()
        self._begin()

    def _begin(self) -> None:
        self._due = False
        if self._busy:  # what a job here leads to is seen by the loop below
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


class Node:
    """One machine.

    Attributes:
        bytes: Bytes fetched so far, as they are stored.
        shards: Shards fetched so far.
        hits: How often a process found a shard that was there, or was being fetched by another.
        evictions: Shards evicted so far.
        evicted: Their bytes.
        limit: Bytes that each of its caches may hold, or None.
        log: Second, bytes fetched and bytes held, whenever a shard has come.
    """

    def __init__(self, events: Events, link: Link, shards: Shards, limit: int | None) -> None:
        self._events, self._link, self._shards, self.limit = events, link, shards, limit
        # By cache, each in the order of last use.
        self._there: list[OrderedDict[int, float]] = [OrderedDict() for _ in range(shards.caches)]
        self._held = [0] * shards.caches
        self._coming: dict[int, list[tuple[Job, float]]] = {}
        self._promised = [0] * shards.caches
        self.bytes = self.shards = self.hits = self.evictions = self.evicted = 0
        self.log: list[tuple[float, int, int]] = [(0.0, 0, 0)]

    @property
    def held(self) -> int:
        """Bytes of the shards that are there."""
        return sum(self._held)

    @property
    def now(self) -> float:
        """Seconds since the run began."""
        return self._events.now

    def soon(self, call: Callable[[], None]) -> None:
        """Call something when what happens now is over."""
        self._events.at(self._events.now, call)

    def has(self, shard: int) -> bool:
        """Say whether a shard is there."""
        return shard in self._there[self._shards.cache_of(shard)]

    def ensure(self, job: Job) -> None:
        """Make the shard of a job ready."""
        shard = job.shard
        there = self._there[self._shards.cache_of(shard)]
        if shard in there:
            self._touch(shard, there)
            self.hits += 1
            job.threads.finish(job)
        elif shard in self._coming:
            self._coming[shard].append((job, self._events.now))
            job.threads.idle(-1)
        else:
            self._fetch(job)

    def use(self, wanted: Sequence[int]) -> None:
        """Note that shards are being read."""
        now = self._events.now
        for shard in wanted if self.limit is not None else ():
            there = self._there[self._shards.cache_of(shard)]
            if shard in there and now - there[shard] > USED_SECONDS:
                self._touch(shard, there)

    def _touch(self, shard: int, there: OrderedDict[int, float]) -> None:
        there[shard] = self._events.now
        there.move_to_end(shard)

    def _fetch(self, job: Job) -> None:
        shard = job.shard
        size = self._shards.sizes(shard)
        self._coming[shard] = []
        if self.limit is not None:
            self._evict(size.cache, self.limit - size.room - self._promised[size.cache])
        self._promised[size.cache] += size.room
        self._link.fetch(size.stored, size.requests, partial(self._come, job))

    def _come(self, job: Job) -> None:
        size = self._shards.sizes(job.shard)
        self._promised[size.cache] -= size.room
        self._there[size.cache][job.shard] = self._events.now
        self._held[size.cache] += size.kept
        if self.limit is not None:
            self._evict(size.cache, self.limit)
        self.bytes += size.stored
        self.shards += 1
        self.log.append((self._events.now, self.bytes, self.held))
        waiting = self._coming.pop(job.shard)
        for other, since in waiting:
            self._events.at(self._looks_again(since), partial(self._go_on, other))
        job.threads.finish(job)

    def _looks_again(self, since: float) -> float:
        """Return when a process that waits since then for a lock looks at it again."""
        pause = 0.001
        time = since + pause
        while time < self._events.now:
            pause = min(2 * pause, LONGEST_PAUSE)
            time += pause
        return time

    def _go_on(self, job: Job) -> None:
        job.threads.idle(+1)
        self.ensure(job)

    def _evict(self, cache: int, most: int) -> None:
        """Evict what was not used for longest until so many bytes are left, and then a part of the rest."""
        there = self._there[cache]
        more = len(there) // MORE if self._held[cache] > most else 0
        while there and (self._held[cache] > most or more > 0):
            more -= self._held[cache] <= most
            shard, _ = there.popitem(last=False)
            kept = self._shards.sizes(shard).kept
            self._held[cache] -= kept
            self.evictions += 1
            self.evicted += kept
