"""The shards of one stream: which file has a shard, and fetching what samples need of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from streamplug.transfer import PrefetchLimits

if TYPE_CHECKING:
    from streamplug.errors import DataError
    from streamplug.interfaces import ShardInfo
    from streamplug.read.open_shards import OpenShard
    from streamplug.types import Int64


class PartialNeed(ABC):
    """Rows that are fetched without the rest of their shards, and held in memory.

    Attributes:
        shards: Numbers of the shards over all streams, in the order of first need.
        weight: Approximate bytes.
    """

    shards: Sequence[int]
    weight: int

    @abstractmethod
    def ensure(self) -> None:
        """Fetch the rows, and hold them until `release`.

        Raises:
            StreamplugError: If they cannot be fetched, or are damaged.
        """

    @abstractmethod
    def release(self) -> None:
        """Free the rows."""


Need: TypeAlias = "int | PartialNeed"
"""What must be fetched to read samples: a whole shard, by its number over all streams, or rows of shards."""


def first_shard(need: Need) -> int:
    """Return the number of a need's first shard over all streams."""
    return need if isinstance(need, int) else need.shards[0]


class NeedFetcher:
    """Fetches the partial needs of a batch while its samples are decoded; this one has none."""

    # `contextlib.contextmanager` leaves a reference cycle in Python 3.10 if GeneratorExit ends its block. It
    # would keep files mapped until the next garbage collection.
    def __enter__(self) -> NeedFetcher:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def wait(self, shard: int) -> None:
        """Wait for the rows of a shard, if they are fetched; `shard` counts the shards of all streams."""

    def release(self, shard: int) -> None:
        """Note that the rows of a shard are decoded."""

    def stop(self) -> None:
        """Cancel what has not been fetched, and release all needs."""


class StreamShards(ABC):
    """The shards of one stream. The defaults are those of shards that are always read as a whole.

    Attributes:
        limit: Cache limit in bytes; None is unlimited.
        is_whole: Whether samples always need whole shards.
        prefetch_limits: Limits of the prefetch window where all streams have the same.
        kinds: Kinds of the shards: those of equal kind can be read together. None is like no other.
        lock_free: Shards that are open, by number, for callers that mark what they use as recent.
    """

    limit: int | None = None
    is_whole: ClassVar[bool] = True
    prefetch_limits: ClassVar[PrefetchLimits] = PrefetchLimits()
    kinds: Sequence[object] = (None,)
    lock_free: Mapping[int, OpenShard] = MappingProxyType({})

    @abstractmethod
    def get(self, shard: int) -> OpenShard:
        """Return an open shard; its number is that in the stream, as in all methods but `needs`.

        Raises:
            StreamplugError: If it cannot be fetched, or is damaged.
        """

    @abstractmethod
    def if_open(self, shard: int) -> OpenShard | None:
        """Return a shard if it is open, or can be opened without fetching anything, else None."""

    @abstractmethod
    def info(self, shard: int) -> ShardInfo:
        """Return the metadata of a shard."""

    @abstractmethod
    def keep(self, shard: int, times: int) -> None:
        """Add `times` to the number of claims that keep a whole shard open."""

    @abstractmethod
    def repair(self, shard: int, damaged: OpenShard, error: DataError) -> OpenShard | None:
        """Fetch a damaged shard again, and return it; None if that is no use."""

    @abstractmethod
    def remember_failures(self) -> None:
        """Raise the error of a shard that cannot be fetched again without another attempt, from now on.

        Earlier errors are forgotten.
        """

    def needs(self, first: int, rows: Sequence[tuple[int, Int64]]) -> Sequence[Need]:
        """Return what must be fetched to read rows of shards.

        Args:
            first: Number of the stream's first shard over all streams.
            rows: Shards in the order of first need, each with its rows.
        """
        return [first + shard for shard, _ in rows]

    def missing(self, first: int, rows: Sequence[tuple[int, Int64]]) -> Sequence[PartialNeed]:
        """Return the partial needs of rows, as `needs`, that are not held in memory."""
        return ()

    def start_fetching(self, needs: Sequence[PartialNeed]) -> NeedFetcher:
        """Start fetching partial needs of a batch, of this and other streams."""
        return NeedFetcher()
