"""Attributes of a data set, and manual control of its world and its shard cache."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np

from streamplug.cache import ShardStore
from streamplug.config import whole_number
from streamplug.display import DatasetRepr
from streamplug.errors import ConfigError, prefix_errors
from streamplug.run.map_source import MapSource
from streamplug.types import Int64, World


class DatasetAttributes(DatasetRepr):
    """Mixin with the options and sizes of a data set, its `resize`, and control of single shards."""

    @property
    def size(self) -> int:
        """Number of samples of all streams."""
        return self._session.size

    num_samples = size

    @property
    def epoch_size(self) -> int:
        """Number of samples of an epoch over all ranks, before padding to whole batches."""
        return self._session.run.planner.streams.epoch_size

    @property
    def num_shards(self) -> int:
        """Number of shards of all streams."""
        return len(self._session.reader.starts) - 1

    @property
    def num_streams(self) -> int:
        """Number of streams."""
        return len(self.streams)

    @property
    def samples_per_shard(self) -> Int64:
        """Number of samples of each shard, shape ``[num_shards]``; computed at each call."""
        return np.diff(self._session.reader.starts)

    @property
    def samples_per_stream(self) -> Int64:
        """Number of samples of each stream, shape ``[num_streams]``."""
        starts = self._session.reader.starts
        return np.diff([int(starts[shard]) for shard in self._session.reader.stream_shards])

    @property
    def shards_per_stream(self) -> Int64:
        """Number of shards of each stream, shape ``[num_streams]``."""
        return np.array(
            [end - begin for begin, end in pairwise(self._session.reader.stream_shards)]
        )

    @property
    def batch_size(self) -> int | None:
        """Samples per batch of one rank."""
        return self._session.run.batch_size

    @property
    def shuffle(self) -> bool:
        """Whether samples are shuffled."""
        return self._session.run.options.shuffle

    @property
    def shuffle_algo(self) -> str:
        """Name of the shuffle algorithm, set even if `shuffle` is false."""
        return self._session.run.options.shuffle_algo

    @property
    def shuffle_seed(self) -> int:
        """Seed of the sample order."""
        return self._session.run.options.shuffle_seed

    @property
    def shuffle_block_size(self) -> int:
        """Number of samples that are shuffled together."""
        return self._session.run.identity(self._session.world).shuffle_block_size

    @property
    def num_canonical_nodes(self) -> int:
        """Number of canonical nodes, from the argument, the loaded state or the default, in this order."""
        return self._session.run.identity(self._session.world).num_canonical_nodes

    @property
    def partition_algo(self) -> str:
        """Name of the algorithm that partitions the order among ranks."""
        return self._session.run.options.partition_algo

    @property
    def batching_method(self) -> str:
        """How batches are composed of streams."""
        return self._session.run.options.batching_method

    @property
    def sampling_method(self) -> str | None:
        """``"balanced"`` or ``"fixed"``; None with a `curriculum`."""
        return self._session.run.identity(self._session.world).sampling_method

    @property
    def sampling_granularity(self) -> int | None:
        """Number of consecutive samples of a shard that are chosen together; None with a `curriculum`."""
        return self._session.run.identity(self._session.world).sampling_granularity

    @property
    def predownload(self) -> int | None:
        """Number of samples to prefetch; None adapts to their size and the throughput."""
        return self._session.run.options.predownload

    @property
    def replication(self) -> int:
        """Number of consecutive ranks that read the same samples."""
        return self._session.placement.replication

    @property
    def next_epoch(self) -> int:
        """Number of the epoch that the next iteration starts, or resumes after a state was loaded."""
        return self._session.run.next().epoch

    @property
    def cache_limit(self) -> int | None:
        """Sum of the cache limits of all cache directories in bytes; None if any is unlimited."""
        caches = [cache for stream in self.streams if (cache := stream.cache) is not None]
        limits: dict[Path, int | None] = dict(caches)
        finite = [limit for limit in limits.values() if limit is not None]
        return sum(finite) if finite and len(finite) == len(limits) else None

    def check_epoch(self) -> None:
        """Check the options at the start of an epoch; subclasses may override this."""

    def as_source(self) -> MapSource:
        """Return the stored samples by sample id, for loaders that order samples themselves.

        The source has `len`, ``[i]`` and ``__getitems__``, and may be pickled: it is a map-style data set for
        torch's `DataLoader` and samplers, and a data source for Grain.
        """
        return MapSource(self)

    def resize(self, world: World, *, rewind: int = 0, batch_size: int | None = None) -> None:
        """Go on in another world from the next global batch on.

        Call it between two batches, on all ranks after the same step. A loop that runs in this process goes
        on. The global batch stays the same unless `batch_size` is given, and what defaults to the number of
        nodes stays as it was. Ranks that join load the state of another rank.

        Args:
            world: Place of this process from now on.
            rewind: Number of global batches, yielded last, that come again, because their step failed.
                Changes of the global batch and of proportions since are taken back.
            batch_size: Samples per batch of one rank from here on, if the global batch changes, such as for
                ranks that do not divide it. The sequence of samples stays the same; only one order over all
                streams (``batching_method="random"``, without a curriculum) can be cut otherwise.

        Raises:
            ConfigError: If the number of ranks does not divide the global batch, the order is not elastic or
                has no other global batches, `rewind` goes beyond the epoch, or a batch is used in part.
            StateError: If loader workers read the data set: then use `StreamingDataLoader.resize`.
        """
        self._session.resize(world, rewind, batch_size)

    def prepare_shard(self, shard_id: int) -> None:
        """Download a shard into the cache and decompress it, if it is not there; wait until it is done.

        Args:
            shard_id: Number of the shard over all streams.

        Raises:
            ConfigError: If there is no such shard, or its stream has no cache.
            StorageError: If it cannot be downloaded.
            DataError: If it is damaged.
        """
        store, number = self._store_of(shard_id)
        store.ensure(number)

    def evict_shard(self, shard_id: int) -> None:
        """Remove a shard from the cache; it is downloaded again when it is needed.

        Args:
            shard_id: Number of the shard over all streams.

        Raises:
            ConfigError: If there is no such shard, or its stream has no cache or is read in place.
        """
        store, number = self._store_of(shard_id)
        store.evict(number)

    def _store_of(self, shard_id: int) -> tuple[ShardStore, int]:
        shard = whole_number("shard_id", shard_id, 0)
        shards = self._session.reader.stream_shards
        if shard is None or shard >= shards[-1]:
            raise ConfigError(f"shard_id={shard_id!r:.60}: the data set has {shards[-1]} shards")
        stream = int(np.searchsorted(shards, shard, side="right")) - 1
        with prefix_errors(f"shard {shard}", ConfigError):
            return self._session.streams[stream].store, shard - shards[stream]
