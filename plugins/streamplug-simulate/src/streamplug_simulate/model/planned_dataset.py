"""Data set of which only the plan and the index are read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, cast

from streamplug_tools.config_sections import check_loader

from streamplug.cache import parse_cache_limit
from streamplug.config import configured_class, load, whole_number
from streamplug.dataset import StreamingDataset
from streamplug.errors import ConfigError
from streamplug.plan import Epoch
from streamplug.plugin import local_path
from streamplug.read import SampleReader
from streamplug.run import Block, Feed, Run, plan_blocks
from streamplug.source import OpenSources
from streamplug.stream import Stream
from streamplug.transfer import Observer, PrefetchLimits, TemporaryDirectory
from streamplug.types import Int64, World
from streamplug_simulate.model.scenario import Scenario
from streamplug_simulate.model.shards import ShardSizes


class SimulatedDataset(StreamingDataset):
    """Data set that reads only its index, into a directory of its own, as if it were remote.

    `open_dataset` derives it from the class of the configured data set, whose rows it then has.

    Args:
        folder: Directory of the index.
        **kwargs: Arguments of `StreamingDataset`.

    Attributes:
        shards: Sizes of the shards.
        is_local: Whether some of it is on this machine.

    Raises:
        ConfigError: If it is read by ranges, or as `StreamingDataset`.
    """

    _counts_rows: ClassVar[bool] = False
    """Whether rows are made of samples that are read to count them, such as rows of tokens."""

    def __init__(self, *, folder: str, **kwargs: Any) -> None:
        self._folder, self._options = folder, kwargs
        self._loader: Mapping[str, Any] = {}
        changes: dict[str, Any] = {"callbacks": (), "progress_bar": False, "world": World()}
        if kwargs.get("batch_budget") is None and not self._counts_rows:
            changes["allow_unsafe_types"] = True  # nothing is decoded
        super().__init__(**{**kwargs, **changes})

    def open_streams(self, observer: Observer) -> OpenSources:
        """Open the streams as if all of them were remote."""
        places, limits = [], []
        for stream in self.streams:
            if stream.access not in (None, "shard"):
                raise ConfigError(
                    f"{stream!r}: access={stream.access!r} does not cache all shards, which is what is "
                    "simulated; use access='shard'"
                )
            root, limit = stream.cache or (stream.url, _limit(stream, self._folder))
            places.append(str(root))
            limits.append(limit)
        self._limits = set(limits)
        self._caches = [sorted(set(places)).index(place) for place in places]
        self._directories = [str(stream.directory) for stream in self.streams]
        self._keeps = [bool(stream.keep_zip) for stream in self.streams]
        self.is_local = any(_is_local(stream) for stream in self.streams)
        self.streams = [_cached_copy(s, f"{self._folder}/{n}") for n, s in enumerate(self.streams)]
        return super().open_streams(observer)

    def make_reader(self, opened: OpenSources, columns: Sequence[str] | None) -> SampleReader:
        """Return the reader of the samples, and store the sizes of the shards."""
        opened = opened.stored(None)
        if any(stream.shard_files.store is None for stream in opened):
            raise ConfigError("shards read by ranges are not cached: there is nothing to simulate")
        self.shards = ShardSizes(opened.indexes, self._caches, self._directories, self._keeps)
        return super().make_reader(opened, columns)

    def set_loader_config(self, loader: Mapping[str, Any]) -> None:
        """Store the loader section of a config."""
        self._loader = loader

    @property
    def urls(self) -> list[str]:
        """URLs of the streams, without credentials."""
        return [stream.url for stream in self.streams]

    @property
    def starts(self) -> Int64:
        """First sample id of each shard, and the total, shape ``[shards + 1]``."""
        return self.session.reader.starts

    def scenario(self, **changes: Any) -> Scenario:
        """Return a scenario from the config and changes of it.

        Args:
            **changes: Arguments of `Scenario`; the shuffle ``"none"`` is none.

        Raises:
            ConfigError: If there is no batch size, or a value is invalid.
        """
        options, loader = self._options, self._loader
        shuffle = options.get("shuffle_algo", "window") if options.get("shuffle") else None
        defaults = {
            "batch_size": options.get("batch_size") or _number(loader, "batch_size"),
            "workers": _number(loader, "num_workers") or 0,
            "prefetch_factor": _number(loader, "prefetch_factor") or 2,
            "shuffle": shuffle,
            "block_size": options.get("shuffle_block_size"),
            "canonical_nodes": options.get("num_canonical_nodes"),
            "predownload": options.get("predownload"),
        }
        if "cache_limit" not in changes:
            if len(self._limits) > 1:
                raise ConfigError(
                    "the streams have different cache limits: pass one for all, cache_limit="
                )
            defaults["cache_limit"] = next(iter(self._limits))
        merged = {**defaults, **changes}
        if merged["shuffle"] == "none":
            merged["shuffle"] = None
        if self.session.run.counts_batches:  # the mean, for rates and estimates
            merged["batch_size"] = self._mean_batch_size(merged)
        if merged["batch_size"] is None:
            raise ConfigError("no batch size: give batch_size in the config, or --batch-size")
        return Scenario(**merged)

    def _mean_batch_size(self, options: Mapping[str, Any]) -> int:
        if options["batch_size"] != self.session.run.batch_size:
            raise ConfigError(
                f"batch_size={options['batch_size']}: batches of a budget have as many samples as it allows"
            )
        ranks = World(options.get("nodes", 1), options.get("ranks_per_node", 1))
        world = self.session.placement.merge_replicas(ranks)
        return self.session.run.epoch(0, world).rows_per_step(world)

    # -- parts of a simulated run ---------------------------------------------------

    def training_run(self, scenario: Scenario) -> Run:
        """Return the training run of a scenario.

        Raises:
            ConfigError: If the order is invalid.
            PluginError: If there is no such shuffle.
        """
        run, opened = self.session.run, self.session.streams
        options = replace(
            run.options,
            batch_size=run.batch_size if run.counts_batches else scenario.batch_size,
            shuffle=scenario.shuffle is not None,
            shuffle_algo=scenario.shuffle or run.options.shuffle_algo,
            shuffle_block_size=scenario.block_size,
            num_canonical_nodes=scenario.canonical_nodes,
        )
        streams = replace(
            run.planner.streams,
            algorithm=options.shuffle_algorithm(),
            shuffled=options.shuffle,
            shuffle_block_size=options.shuffle_block_size,
        )
        planner = options.order().planner(options, streams, opened)
        limit, stored = scenario.cache_limit, sum(index.raw_bytes for index in opened.indexes)
        share = None if limit is None else limit / max(stored, 1)
        return Run(planner, self.make_fingerprint(opened), options, cache_share=share)

    def process_world(self, scenario: Scenario, rank: int, worker: int) -> World:
        """Return the world of a process."""
        workers = max(scenario.workers, 1)
        return World(scenario.nodes, scenario.ranks_per_node, workers, rank, worker)

    def replica_world(self, place: World) -> World:
        """Return the world of the plan, in which a replica group is one rank."""
        return self.session.placement.merge_replicas(place)

    def sample_source(self, scenario: Scenario) -> Feed:
        """Return the source of the blocks of a run."""
        if scenario.cache_limit is not None and scenario.cache_limit < self.shards.largest:
            raise ConfigError(
                f"cache_limit={scenario.cache_limit}: one shard alone takes {self.shards.largest} bytes; "
                "raise it"
            )
        # Of a reader, only its needs are used.
        reader = cast(
            SampleReader, WeighedReader(self.session.reader, self.shards.raw, scenario.cache_limit)
        )
        return replace(
            self.session.feed, reader=reader, remote=True, predownload=scenario.predownload
        )


class WeighedReader:
    """Reader that returns the shards of samples and their sizes, and counts them.

    Attributes:
        cache_limit: Cache limit in bytes, or None.
        starts: As `SampleReader.starts`.
        prefetch_limits: Those of whole shards.
        decodes_lazily: As `SampleReader.decodes_lazily`.
        need_count: Number of needs so far.
    """

    prefetch_limits = PrefetchLimits()

    def __init__(self, reader: SampleReader, weights: Int64, cache_limit: int | None) -> None:
        self._reader, self._weights, self.cache_limit = reader, weights.tolist(), cache_limit
        self.starts = reader.starts
        self.decodes_lazily = reader.decodes_lazily and cache_limit is None
        self.need_count = 0

    def needs(self, ids: Int64) -> list[int]:
        """Return the shards of samples, in the order of first use."""
        shards = cast("list[int]", self._reader.needs(ids))
        self.need_count += len(shards)
        return shards

    def weight(self, need: int) -> int:
        """Return the bytes of a shard."""
        weight: int = self._weights[need]
        return weight


def plan_process_blocks(
    source: Feed, epoch: Epoch, place: World, world: World
) -> tuple[Iterator[Block], PrefetchLimits]:
    """Return the blocks of a process in an epoch, and its prefetch limits."""
    rows, size = source.rows_of_batches(num_threads=0), int(source.reader.starts[-1])
    blocks = plan_blocks(epoch, world, 0, rows, size=size)
    return source.bounded(blocks, place)


@contextmanager
def open_dataset(config: Mapping[str, Any] | str, **more: Any) -> Iterator[SimulatedDataset]:
    """Open a data set for simulation; only its index is read, and what its rows depend on.

    Those of tokens depend on the lengths of the documents, which are counted as in training.

    Args:
        config: As `StreamingDataset.from_config`; of the section ``loader``, workers and batches are used.
        **more: Arguments that replace those of the config.

    Raises:
        StreamplugError: If it cannot be opened.
    """
    whole = load(config)
    check_loader(whole)
    with TemporaryDirectory() as folder:
        plan = _simulated(configured_class(StreamingDataset, whole, more)).from_config(
            whole, folder=str(folder), **more
        )
        loader = whole.get("loader") if "dataset" in whole else None
        plan.set_loader_config(loader if isinstance(loader, Mapping) else {})
        yield plan


def _simulated(cls: type[StreamingDataset]) -> type[SimulatedDataset]:
    """Return the class that simulates a run of data sets of a class."""
    if cls is StreamingDataset:
        return SimulatedDataset
    # `SimulatedDataset` is before `cls` in the MRO, so that its `make_reader` calls that of `cls`.
    return type(SimulatedDataset.__name__, (SimulatedDataset, cls), {"_counts_rows": True})


def _number(loader: Mapping[str, Any], name: str) -> Any:
    value = loader.get(name)
    if isinstance(value, str) and value.isdecimal():  # from the environment
        value = int(value)
    return whole_number(f"loader.{name}", value, 0)


def _limit(stream: Stream, folder: str) -> int | None:
    """Return the cache limit of a stream that is read in place."""
    limit = stream.cache_limit
    return None if limit is None else parse_cache_limit(limit, Path(folder))


def _is_local(stream: Stream) -> bool:
    places = stream.remote if stream.remote is not None else stream.local
    return any(
        local_path(place) is not None
        for place in ([places] if isinstance(places, str) else places or [])
    )


def _cached_copy(stream: Stream, folder: str) -> Stream:
    """Return the stream with its cache in a folder."""
    remote = stream.remote if stream.remote is not None else stream.local
    return replace(stream, remote=remote, local=folder, cache_limit=None, validate_hash=None)
