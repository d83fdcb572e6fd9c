"""What a data set tells of itself as attributes, and what can be asked of the cache of its shards."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np

from streamplug.cache.store import ShardStore
from streamplug.config import whole_number
from streamplug.display.dataset_summary import DatasetRepr
from streamplug.errors import ConfigError
from streamplug.types import Int64


class DatasetAttributes(DatasetRepr):
    """A data set whose options and sizes can be read, and whose shards can be fetched and evicted by hand."""

    # -- sizes --------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """Number of samples of all streams."""
        return self._session.size

    num_samples = size

    @property
    def epoch_size(self) -> int:
        """Number of samples of an epoch, over all ranks, before it is filled up to whole batches."""
        return self._session.run.epoch_size

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
        """Number of samples of each shard, shape ``[num_shards]``; worked out at each call."""
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

    # -- the order ----------------------------------------------------------------------

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
        """Name of the shuffle algorithm, also where it is not used."""
        return self._session.run.options.shuffle_algo

    @property
    def shuffle_seed(self) -> int:
        """Seed of the order."""
        return self._session.run.options.shuffle_seed

    @property
    def shuffle_block_size(self) -> int:
        """Over how many samples the shuffle mixes."""
        return self._session.run.identity(self._session.world).shuffle_block_size

    @property
    def num_canonical_nodes(self) -> int:
        """Number of canonical nodes: as given, as a loaded state has it, or the default."""
        return self._session.run.identity(self._session.world).num_canonical_nodes

    @property
    def partition_algo(self) -> str:
        """How the order is dealt to ranks."""
        return self._session.run.options.partition_algo

    @property
    def batching_method(self) -> str:
        """What a batch is made of."""
        return self._session.run.options.batching_method

    @property
    def sampling_method(self) -> str | None:
        """Whether what is taken of a stream changes with the epoch; None with a `curriculum`."""
        return self._session.run.identity(self._session.world).sampling_method

    @property
    def sampling_granularity(self) -> int | None:
        """How many samples of a shard are chosen at a time; None with a `curriculum`."""
        return self._session.run.identity(self._session.world).sampling_granularity

    @property
    def replication(self) -> int:
        """How many ranks in a row get the same samples."""
        return self._session.placement.replication

    @property
    def next_epoch(self) -> int:
        """The epoch that the next iteration begins, or goes on with after a state was loaded."""
        return self._session.run.clock.next()[0]

    # -- the cache ----------------------------------------------------------------------

    @property
    def cache_limit(self) -> int | None:
        """Bytes that shards may take in the directories of all streams together; None for any number."""
        caches = [cache for stream in self.streams if (cache := stream.cache) is not None]
        limits: dict[Path, int | None] = dict(caches)
        given = [limit for limit in limits.values() if limit is not None]
        return sum(given) if given and len(given) == len(limits) else None

    def prepare_shard(self, shard_id: int) -> None:
        """Fetch a shard into the cache if it is not there, and unpack it; wait until that is done.

        Args:
            shard_id: Which shard, over all streams.

        Raises:
            ConfigError: If there is no such shard, or its stream keeps none.
            StorageError: If it cannot be downloaded.
            DataError: If it is damaged.
        """
        store, number = self._store_of(shard_id)
        store.ensure(number)

    def evict_shard(self, shard_id: int) -> None:
        """Remove a shard from the cache; it is fetched again when it is needed.

        Args:
            shard_id: Which shard, over all streams.

        Raises:
            ConfigError: If there is no such shard, its stream keeps none, or is read where it lies.
        """
        store, number = self._store_of(shard_id)
        store.evict(number)

    def _store_of(self, shard_id: int) -> tuple[ShardStore, int]:
        """Return what keeps a shard, and the shard's number in its stream."""
        shard = whole_number("shard_id", shard_id, 0)
        shards = self._session.reader.stream_shards
        if shard is None or shard >= shards[-1]:
            raise ConfigError(f"shard_id={shard_id!r:.60}: the data set has {shards[-1]} shards")
        stream = int(np.searchsorted(shards, shard, side="right")) - 1
        store = self._session.streams[stream].store
        if not isinstance(store, ShardStore):
            raise ConfigError(
                f"shard {shard} of {self.streams[stream]!r}: access='range' keeps no shards; use "
                "access='shard' to have them in a cache"
            )
        return store, shard - shards[stream]
