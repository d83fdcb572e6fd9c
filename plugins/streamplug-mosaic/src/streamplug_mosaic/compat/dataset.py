"""`StreamingDataset` with its attributes and methods in mosaicml-streaming."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any

import numpy as np

import streamplug
from streamplug.errors import ConfigError
from streamplug.types import Int64
from streamplug_mosaic.batching import MOSAIC_BATCHING_METHODS
from streamplug_mosaic.compat.checks import (
    SampleIndexError,
    check_batch_size,
    check_block_size,
    check_canonical_nodes,
    check_overrides,
    warn,
)
from streamplug_mosaic.compat.ordering import select
from streamplug_mosaic.compat.parser import bytes_to_int, number_abbrev_to_int
from streamplug_mosaic.compat.registry import construct_from_registry, streams_registry
from streamplug_mosaic.compat.shards import Shard, describe_index, get_many
from streamplug_mosaic.compat.streams import Stream, shards_of

_NEVER_CALLED = ("_each_sample_id", "_get_work", "_resume", "prepare_shard", "resample_streams")
"""Methods that mosaicml-streaming calls."""


class StreamingDataset(streamplug.StreamingDataset):
    """A `streamplug.StreamingDataset` with the defaults of mosaicml-streaming, whose order it has.

    A subclass may override `get_item`, through which all samples then go.

    Args:
        streams: The streams; or else give `remote`, `local`, `split` for a single one.
        remote: As for `streamplug.StreamingDataset`.
        local: Likewise.
        split: Likewise.
        stream_name: Name of the class of the single stream in the registry of streams.
        stream_config: More arguments of the single stream; those of this class take precedence.
        partition_algo: As for `streamplug.StreamingDataset`.
        shuffle_algo: Likewise.
        samples_per_epoch: Another name of `epoch_size`.
        **kwargs: Other arguments of `streamplug.StreamingDataset`.

    Raises:
        ConfigError: If `stream_name` is not registered, an epoch has two sizes, a subclass overrides what is
            never called, or as for `streamplug.StreamingDataset`.
    """

    def __init__(
        self,
        *,
        streams: Sequence[Stream] | None = None,
        remote: str | None = None,
        local: str | None = None,
        split: str | None = None,
        stream_name: str = "stream",
        stream_config: dict[str, Any] | None = None,
        partition_algo: str = "relaxed",
        shuffle_algo: str = "py1e",
        samples_per_epoch: float | str | None = None,
        **kwargs: Any,
    ) -> None:
        check_overrides(type(self), StreamingDataset, _NEVER_CALLED)
        place: dict[str, Any] = {"remote": remote, "local": local, "split": split}
        if streams and stream_config:
            raise ConfigError(
                "stream_config= is for the single stream of remote= and local=; leave it out"
            )
        if not streams and (remote or local or stream_config):
            place["format"] = kwargs.get("format")
            streams = [_make_stream(stream_name, stream_config or {}, place)]
            place = {}
        if samples_per_epoch is not None:
            if kwargs.get("epoch_size") is not None:
                raise ConfigError(
                    "give either epoch_size= or samples_per_epoch=, which are the same"
                )
            kwargs["epoch_size"] = samples_per_epoch
        for name in ("epoch_size", "cache_limit", "validate_hash", "num_canonical_nodes"):
            kwargs[name] = kwargs.get(name) or None  # 0 and "" are none
        size = kwargs["epoch_size"]
        if isinstance(size, str) or (isinstance(size, float) and math.isfinite(size)):
            kwargs["epoch_size"] = number_abbrev_to_int(size) or None
        cache_limit = kwargs["cache_limit"]
        if isinstance(cache_limit, str) and not cache_limit.strip().endswith("%"):
            kwargs["cache_limit"] = bytes_to_int(cache_limit)
        super().__init__(
            streams=streams or None,
            partition_algo=partition_algo,
            shuffle_algo=shuffle_algo,
            **place,
            **kwargs,
        )
        self.allow_unsafe_types: bool = kwargs.get("allow_unsafe_types", False)
        self._replication_argument: int | None = kwargs.get("replication")
        self._cache_limit_argument = kwargs.get("cache_limit")
        self._derive_weights(streams or ())
        self._shuffle_block_size: int | None = kwargs.get("shuffle_block_size")
        predownload = kwargs.get("predownload")
        if predownload is not None and self.batch_size and predownload < self.batch_size:
            warn(
                f"predownload < batch_size: {predownload} < {self.batch_size}. This may result in slower "
                f"batch time. Recommendation is to set at least predownload={self.batch_size}"
            )

    def check_epoch(self) -> None:
        """Check what mosaicml-streaming checks when an epoch begins.

        Raises:
            ConfigError: If there is no batch size, or py1e shuffles fewer samples than canonical nodes.
        """
        if not self.session.run.counts_batches:  # batches of a budget need none
            check_batch_size(self.batch_size)
        if self.shuffle and self.shuffle_algo == "py1e":
            check_block_size(self._shuffle_block_size, self.samples_per_shard)
            check_canonical_nodes(self._shuffled_sizes(), self.num_canonical_nodes)

    def _shuffled_sizes(self) -> dict[str, int]:
        """Return the number of samples of each sequence that is shuffled in an epoch, by what it holds."""
        if self.batching_method not in MOSAIC_BATCHING_METHODS:
            return {"an epoch": self.epoch_size}
        sizes = self.session.run.identity(self.session.world).choose or ()
        return {f"{stream.url} in an epoch": size for stream, size in zip(self.streams, sizes)}

    def _derive_weights(self, arguments: Sequence[Stream]) -> None:
        """Set the derived weights of the streams: those of this data set, and those of the user."""
        identity = self.session.run.identity(self.session.world)
        sizes, shares = identity.streams, identity.shares or [0.0] * len(identity.streams)
        for number, resolve_indices in enumerate(identity.choose or ()):
            used = self.streams[number]
            weights = {
                "proportion": shares[number] or resolve_indices / max(self.epoch_size, 1),
                "repeat": resolve_indices / max(sizes[number], 1),
                "choose": resolve_indices,
            }
            for stream in (used, arguments[number] if arguments else None):
                if isinstance(stream, Stream):
                    stream.complete(used, **weights)

    def __getitem__(self, at: Any) -> Any:
        """Return one sample (an int, negative from the end) or many (a slice, list or array, also nested).

        Raises:
            IndexError: If there is no such sample.
        """
        if self._has_own_get_item:
            return get_many(self.get_item, at, self.size, self.place)
        if isinstance(at, np.ndarray):
            is_nested = at.ndim > 1
        else:
            is_nested = isinstance(at, list) and isinstance(
                next(iter(at), None), (list, np.ndarray)
            )
        return [self[part] for part in at] if is_nested else super().__getitem__(at)

    def check_padding(self, at: Any, resolve: Callable[[Any, int], Any]) -> None:
        """Raise an `IndexError` as mosaicml-streaming does, also up to `len`, that names the data set.

        Raises:
            SampleIndexError: Always.
        """
        raise SampleIndexError(describe_index(at, self.size, self.place))

    @cached_property
    def place(self) -> str:
        """The data set by the locations of its streams, for errors."""
        urls = [stream.url for stream in self.streams]
        return f"data set {urls[0]}" if len(urls) == 1 else f"data set of {', '.join(urls)}"

    def __reversed__(self) -> Iterator[Any]:
        """Yield samples from number ``len - 1`` to 0; as in mosaicml-streaming, none if that is missing."""
        with suppress(IndexError):
            for number in reversed(range(len(self))):
                yield self[number]

    @property
    def one_by_one(self) -> bool:
        """Whether samples are read one by one, because a subclass has its own way to read them."""
        own = type(self).__getitem__ is not StreamingDataset.__getitem__
        return own or self._has_own_get_item

    @property
    def _has_own_get_item(self) -> bool:
        return type(self).get_item is not StreamingDataset.get_item

    def get_item(self, sample_id: int, retry: int = 7) -> Any:
        """Return a sample.

        Args:
            sample_id: Its number.
            retry: Ignored; `download_retry` is the number of retries.

        Raises:
            IndexError: If the number is out of range.
        """
        return super().__getitem__(sample_id)

    # -- attributes --------------------------------------------------------------------

    @property
    def shards(self) -> list[Shard]:
        """Shards of all streams, created at each access."""
        return shards_of(list(self.session.streams), self.session.reader.row)

    @property
    def length(self) -> int:
        """Number of samples of one rank in an epoch, without repeated ones."""
        return -(-self.epoch_size // self.session.world.ranks)

    @property
    def replication(self) -> int | None:  # type: ignore[override]  # None if not set
        """Number of consecutive ranks that get the same samples; None if not set."""
        return self._replication_argument

    @property
    def cache_limit(self) -> int | None:
        """Cache limit in bytes; None is unlimited."""
        limit = self._cache_limit_argument
        if isinstance(limit, str):  # a percentage
            return super().cache_limit
        return None if limit is None else int(limit)

    @property
    def epoch_seed_change(self) -> bool:
        """Whether each epoch samples the streams anew."""
        return self.shuffle and self.sampling_method == "balanced"

    @property
    def initial_physical_nodes(self) -> int | None:
        """Number of nodes on which the run began; None without a loaded state."""
        session = self.session
        segments = session.run.snapshot(session.world).segments
        return None if segments is None else segments[0].world.nodes

    @property
    def stream_per_shard(self) -> Int64:
        """Stream of each shard, shape ``[num_shards]``."""
        return np.repeat(np.arange(self.num_streams), self.shards_per_stream)

    @property
    def shard_offset_per_stream(self) -> Int64:
        """Number of the first shard of each stream, shape ``[num_streams]``."""
        return _before(self.shards_per_stream)

    @property
    def sample_offset_per_stream(self) -> Int64:
        """Number of the first sample of each stream, shape ``[num_streams]``."""
        return _before(self.samples_per_stream)

    @property
    def sample_offset_per_shard(self) -> Int64:
        """Number of the first sample of each shard, shape ``[num_shards]``."""
        return _before(self.samples_per_shard)

    def state_dict(
        self, num_samples: int | None = None, from_beginning: bool = True
    ) -> dict[str, Any]:
        """Return the state between two global batches, or after the last one, which may be short.

        Args:
            num_samples: As for `streamplug.StreamingDataset`.
            from_beginning: Likewise.

        Raises:
            StateError: If that many samples are no whole global batches, unless they complete the epoch.
        """
        session = self.session
        if num_samples and not session.run.counts_batches:
            ranks = session.world.ranks
            global_batch = session.batch * ranks
            first = 0 if from_beginning else session.run.current().done
            if first + num_samples == len(self) * ranks:
                num_samples += -num_samples % global_batch
        return super().state_dict(num_samples, from_beginning)

    def load_state_dict(self, obj: Mapping[str, Any]) -> None:
        """Continue from a state.

        Args:
            obj: A state that `state_dict` returned.

        Raises:
            StateError: If it was saved by a run whose order differs from this one's.
        """
        super().load_state_dict(obj)

    # -- the cache ----------------------------------------------------------------------

    @property
    def cache_usage(self) -> int:
        """Size of the local indexes and shards in bytes, computed at each access."""
        indexes = [stream.directory / "index.json" for stream in self.streams]
        files = [status for shard in self.shards for status in shard.stat_files()]
        return sum(path.stat().st_size for path in indexes if path.is_file()) + sum(
            status.st_size for status in files
        )

    def prepare_shard(self, shard_id: int, blocking: bool = True) -> None:
        """Download a shard into the cache if it is missing.

        Args:
            shard_id: Number of the shard in all streams.
            blocking: Ignored; it waits for others that download the shard.

        Raises:
            StreamplugError: As for `streamplug.StreamingDataset`.
        """
        super().prepare_shard(shard_id)

    def evict_coldest_shard(self) -> None:
        """Evict the least recently used shard.

        Raises:
            ConfigError: If no shard is in the cache.
        """
        used = {
            number: max(status.st_mtime_ns for status in statuses)
            for number, shard in enumerate(self.shards)
            if (statuses := shard.stat_files())
        }
        if not used:
            raise ConfigError("no shard is in the cache")
        self.evict_shard(min(used, key=used.__getitem__))

    # -- the order ----------------------------------------------------------------------

    def resample_streams(self, epoch: int, stream_id: int | None = None) -> tuple[Int64, Int64]:
        """Return the samples of an epoch before they are shuffled.

        Args:
            epoch: Number of the epoch.
            stream_id: Number of the stream; None for all.

        Returns:
            Number of samples of each shard or part of a shard, and the sample numbers, shard by shard.
        """
        selection = select(self.session.run, epoch, stream_id)
        return np.diff(selection.starts), selection.samples(np.arange(selection.size))


def _make_stream(name: str, config: Mapping[str, Any], place: Mapping[str, Any]) -> Stream:
    """Return a stream of the registry; `place` are arguments of the data set, which take precedence.

    Raises:
        ConfigError: If there is no such stream.
    """
    given = {argument: value for argument, value in place.items() if value is not None}
    arguments = {**config, **given}
    stream: Stream = construct_from_registry(name, streams_registry, False, kwargs=arguments)
    return stream


def _before(counts: Int64) -> Int64:
    offsets: Int64 = np.cumsum(counts) - counts
    return offsets


class DatasetDefaults(StreamingDataset):
    """A `StreamingDataset` with the defaults of the classes of well-known data sets."""

    def __init__(
        self,
        *,
        partition_algo: str = "orig",
        shuffle_algo: str = "py1s",
        shuffle_block_size: int = 1 << 18,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            partition_algo=partition_algo,
            shuffle_algo=shuffle_algo,
            shuffle_block_size=shuffle_block_size,
            **kwargs,
        )
