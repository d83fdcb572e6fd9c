"""Callbacks, and the events and statistics of reading a data set."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from streamplug.errors import ConfigError
from streamplug.types import World


@dataclass(frozen=True, slots=True)
class Stats:
    """What has happened since a data set was made, in all processes of one rank.

    Attributes:
        samples: Samples that iteration handed out: to the loop, or by a loader worker to the loader.
        batches: Batches that these were; every sample is one where there is no batch size.
        downloads: Files that were downloaded.
        downloaded_bytes: Their sizes, as they were stored.
        download_seconds: How long the downloads took, with all attempts; they run side by side.
        cache_hits: Files that were in the cache, or that another process brought, when they were opened.
        range_requests: Parts of files that ``access="range"`` asked for.
        ranged_bytes: Their sizes.
        retries: Attempts that failed and were made again.
        evictions: Files that were removed from the cache to make room.
        evicted_bytes: Their sizes.
        repairs: Damaged files that were removed from the cache, to be downloaded again.
        wait_seconds: How long iteration waited for bytes that were not there yet: the loop itself, or
            the loader workers, added up, which need not have held up the loop.
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
    wait_seconds: float = 0.0

    def as_dict(self) -> dict[str, int | float]:
        """Return it as plain JSON values, by name."""
        return asdict(self)


# -- events ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened; its fields are plain values, and hold no credentials."""

    def as_dict(self) -> dict[str, Any]:
        """Return its fields as plain JSON values, and its kind as ``event``."""
        return {"event": type(self).__name__, **asdict(self)}


@dataclass(frozen=True, slots=True)
class ShardDownloaded(Event):
    """A file was downloaded.

    Attributes:
        url: Which.
        bytes: Its size, as it is stored.
        seconds: How long that took, with all attempts and the pauses between them.
        attempts: How many requests it took beyond those that a client repeats by itself; for a file that
            comes in parts, 1 and those that were made again.
    """

    url: str
    bytes: int
    seconds: float
    attempts: int


@dataclass(frozen=True, slots=True)
class CacheHit(Event):
    """A file was there already when it was opened.

    Attributes:
        path: Which.
        bytes: Its size.
    """

    path: str
    bytes: int


@dataclass(frozen=True, slots=True)
class RangesRead(Event):
    """Parts of a file were fetched, by ``access="range"``.

    Attributes:
        url: Which file.
        requests: How many parts.
        bytes: Their sizes together.
        seconds: How long that took, with all attempts and the pauses between them.
    """

    url: str
    requests: int
    bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class RequestRetried(Event):
    """An attempt failed in passing, and will be made again.

    Attributes:
        url: Which file, or where the data set lies if it is about its index.
        cause: What went wrong.
        pause: Seconds until the next attempt.
    """

    url: str
    cause: str
    pause: float


@dataclass(frozen=True, slots=True)
class ShardEvicted(Event):
    """A file was removed from the cache to make room.

    Attributes:
        path: Which.
        bytes: Its size.
    """

    path: str
    bytes: int


@dataclass(frozen=True, slots=True)
class ShardRepaired(Event):
    """A damaged file was removed from the cache, so that it comes anew.

    Attributes:
        path: Which.
    """

    path: str


@dataclass(frozen=True, slots=True)
class Stalled(Event):
    """Iteration waited for bytes that were not there yet.

    Attributes:
        shard: Of which shard, by its number over all streams.
        file: The name of that shard's first file.
        seconds: How long.
    """

    shard: int
    file: str
    seconds: float


@dataclass(frozen=True, slots=True)
class EpochStarted(Event):
    """A loop over the data set began, or a loader worker's part of one.

    Attributes:
        epoch: Which epoch.
        step: Its first step here: 0 unless it was resumed.
    """

    epoch: int
    step: int


@dataclass(frozen=True, slots=True)
class EpochEnded(Event):
    """That loop ended.

    Attributes:
        epoch: Which epoch.
        complete: Whether it came to its end, rather than being left.
    """

    epoch: int
    complete: bool


# -- who is told ------------------------------------------------------------------


class Callback(ABC):
    """Is told of events, in the process and the thread in which they happen.

    It travels to loader workers with the data set, so it must pickle (cloudpickle counts), and several
    threads may call it at once. It should be quick, and must not read the data set: locks of the cache
    may be held. An exception that it raises is logged, once for each of its kinds, and reading goes on.

    Attributes:
        api_version: Version of this interface that a subclass was written for.
    """

    api_version: ClassVar[int] = 1

    @classmethod
    def from_spec(cls, argument: str | None) -> Callback:
        """Make the callback for what follows its name: None for the bare name.

        Raises:
            ConfigError: If the argument has no meaning.
        """
        if argument is not None:
            raise ConfigError(f"{cls.__name__} takes no argument, got {argument!r}")
        return cls()

    def on_attach(  # noqa: B027 - to be told of events is enough for most
        self, stats: Callable[[], Stats], urls: Sequence[str], place: World
    ) -> None:
        """Be told of the data set, once, in the process that makes it and before all events.

        Args:
            stats: Returns the statistics of the rank, its loader workers' included; it keeps neither
                files nor the data set.
            urls: Where the streams lie, without credentials.
            place: Where the rank stands.
        """

    @abstractmethod
    def on_event(self, event: Event, place: World) -> None:
        """Be told of an event.

        Args:
            event: What happened, an object of one of the subclasses of `Event`.
            place: Where: the rank, and the loader worker if it is one.
        """
