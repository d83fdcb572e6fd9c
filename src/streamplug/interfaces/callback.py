"""Callbacks, and the events and statistics of reading a data set."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from streamplug.interfaces.plugin import Plugin
from streamplug.types import World


@dataclass(frozen=True, slots=True)
class Stats:
    """Counters of one data set since its creation, over all processes of one rank.

    Attributes:
        samples: Samples yielded to the training loop, or by a loader worker to the loader.
        batches: Batches yielded; every sample counts as one without a batch size.
        downloads: Files downloaded into the cache; no downloads that were cancelled, as by leaving a loop.
        downloaded_bytes: Their stored size.
        download_seconds: Sum of the download times, including retries; downloads overlap.
        cache_hits: Files that were in the cache when opened, or that another process downloaded.
        range_requests: Ranges requested by ``access="range"``.
        range_bytes: Bytes of these ranges.
        retries: Failed attempts that were retried.
        evictions: Files evicted from the cache.
        evicted_bytes: Bytes of these files.
        repairs: Damaged files removed from the cache to be downloaded again.
        substitutions: Samples that could not be read, in whose place others were yielded.
        storage_wait_seconds: Seconds that the loop spent in `next()` while it waited for downloads or ranges.
        decode_wait_seconds: Seconds for planning, for opening shards, and for decoding samples.
        transform_wait_seconds: Seconds in functions of the user: transforms and `collate_fn`.
        handover_wait_seconds: Seconds for the rest: collation, copies, and waiting for workers or threads
            while they did nothing for the loop, as when they start.
    """

    samples: int = 0
    batches: int = 0
    downloads: int = 0
    downloaded_bytes: int = 0
    download_seconds: float = 0.0
    cache_hits: int = 0
    range_requests: int = 0
    range_bytes: int = 0
    retries: int = 0
    evictions: int = 0
    evicted_bytes: int = 0
    repairs: int = 0
    substitutions: int = 0
    storage_wait_seconds: float = 0.0
    decode_wait_seconds: float = 0.0
    transform_wait_seconds: float = 0.0
    handover_wait_seconds: float = 0.0

    @property
    def wait_seconds(self) -> float:
        """Seconds that the loop spent in `next()`, for all causes."""
        return (
            self.storage_wait_seconds
            + self.decode_wait_seconds
            + self.transform_wait_seconds
            + self.handover_wait_seconds
        )

    def as_dict(self) -> dict[str, int | float]:
        """Return the counters by name, as JSON values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Event:
    """An event of reading; its fields are JSON values without credentials."""

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values, and the class name as ``event``."""
        return {"event": type(self).__name__, **asdict(self)}


@dataclass(frozen=True, slots=True)
class ShardDownloaded(Event):
    """A file was downloaded, and is in the cache.

    Attributes:
        url: URL of the file.
        bytes: Its stored size.
        seconds: Duration, including retries and the pauses before them.
        attempts: Number of requests, without those that the client retries itself; for a file downloaded
            in parts, 1 plus the number of retried requests.
    """

    url: str
    bytes: int
    seconds: float
    attempts: int


@dataclass(frozen=True, slots=True)
class CacheHit(Event):
    """A file was already in the cache when it was opened.

    Attributes:
        path: Path of the file.
        bytes: Its size.
    """

    path: str
    bytes: int


@dataclass(frozen=True, slots=True)
class RangesRead(Event):
    """Ranges of a file were downloaded by ``access="range"``.

    Attributes:
        url: URL of the file.
        requests: Number of ranges.
        bytes: Sum of their sizes.
        seconds: Duration, including retries and the pauses before them.
    """

    url: str
    requests: int
    bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class RequestRetried(Event):
    """An attempt failed with a transient error and will be retried.

    Attributes:
        url: URL of the file, or of the data set if its index failed.
        cause: Description of the error.
        pause: Seconds until the next attempt.
    """

    url: str
    cause: str
    pause: float


@dataclass(frozen=True, slots=True)
class ShardEvicted(Event):
    """A file was evicted from the cache.

    Attributes:
        path: Path of the file.
        bytes: Its size.
    """

    path: str
    bytes: int


@dataclass(frozen=True, slots=True)
class ShardRepaired(Event):
    """A damaged file was removed from the cache, to be downloaded again.

    Attributes:
        path: Path of the file.
    """

    path: str


@dataclass(frozen=True, slots=True)
class SampleSubstituted(Event):
    """A sample could not be read, and another one of its step took its place (``on_error="substitute"``).

    Attributes:
        epoch: Number of the epoch.
        step: Number of the step in the epoch.
        sample: Sample id.
        substitute: Sample id of the other one.
        stream: Number of the stream of `sample`.
        shard: Number of its shard in that stream.
        file: Base name of the shard's raw file.
        index: Position in the shard.
        cause: Description of the error.
    """

    epoch: int
    step: int
    sample: int
    substitute: int
    stream: int
    shard: int
    file: str
    index: int
    cause: str


@dataclass(frozen=True, slots=True)
class Stalled(Event):
    """Iteration waited for data.

    Attributes:
        shard: Number of the shard over all streams.
        file: Name of the shard's first file.
        seconds: Duration of the wait.
    """

    shard: int
    file: str
    seconds: float


@dataclass(frozen=True, slots=True)
class EpochStarted(Event):
    """Iteration over the data set started, in the loop or in one loader worker.

    Attributes:
        epoch: Number of the epoch.
        step: First step; 0 unless the epoch was resumed.
    """

    epoch: int
    step: int


@dataclass(frozen=True, slots=True)
class EpochEnded(Event):
    """Iteration over the data set ended.

    Attributes:
        epoch: Number of the epoch.
        complete: Whether the epoch was read to its end.
    """

    epoch: int
    complete: bool


class Callback(Plugin):
    """A receiver of events, called in the process and thread in which they happen.

    Callbacks are sent to loader workers, so they must pickle (with cloudpickle if need be), and several
    threads may call one at once. They must be quick and must not read the data set: locks of the cache
    may be held. An exception is logged once per type, and reading goes on.
    """

    def on_attach(self, stats: Callable[[], Stats], urls: Sequence[str], world: World) -> None:
        """Handle the creation of a data set; called once, in its process, before all events.

        Args:
            stats: Returns the statistics of the rank, including its loader workers; keeps neither files
                nor the data set alive.
            urls: Locations of the streams, without credentials.
            world: Rank and world size.
        """

    @abstractmethod
    def on_event(self, event: Event, world: World) -> None:
        """Handle an event.

        Args:
            event: Instance of a subclass of `Event`.
            world: Rank and loader worker in which it happened.
        """
