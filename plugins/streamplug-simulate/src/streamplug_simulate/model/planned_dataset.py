"""Planned: a data set of which only the plan and the index are looked at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from streamplug.cache.limit import limit_bytes
from streamplug.config import load, whole_number
from streamplug.dataset import StreamingDataset
from streamplug.errors import ConfigError
from streamplug.plan import Epoch
from streamplug.plugin.location import local_path
from streamplug.read import SampleReader
from streamplug.session.open_stream import OpenStream, read_all
from streamplug.session.sample_source import Block, SampleSource, plan_blocks
from streamplug.session.training_run import TrainingRun
from streamplug.stream import Stream
from streamplug.transfer.observer import Observer
from streamplug.transfer.prefetch import Limits
from streamplug.transfer.range_reader import RangeStore
from streamplug.transfer.tempdir import TemporaryDirectory
from streamplug.types import Int64, World
from streamplug_simulate.model.scenario import Assumed
from streamplug_simulate.model.shards import Shards


class Planned(StreamingDataset):
    """A data set that reads nothing but its index, into a directory of its own, as if all of it lay far away.

    Args:
        folder: The directory.
        **kwargs: As for `StreamingDataset`.

    Attributes:
        shards: The sizes of the shards.
        near: Whether some of it lies on this machine.

    Raises:
        ConfigError: If it is to be read by ranges, or as for `StreamingDataset`.
    """

    def __init__(self, *, folder: str, **kwargs: Any) -> None:
        self._folder, self._given = folder, kwargs
        self._loader: Mapping[str, Any] = {}
        # Nothing is decoded, and nobody is told.
        quiet = {"callbacks": (), "progress_bar": False, "allow_unsafe_types": True}
        super().__init__(**{**kwargs, **quiet, "world": World()})

    def open_streams(self, observer: Observer) -> list[OpenStream]:
        """Open the streams as if all of them were remote."""
        places, limits = [], []
        for stream in self.streams:
            if stream.fetch == "range":
                raise ConfigError(
                    f"{stream!r}: fetch='range' keeps no shards, so there is nothing to simulate; "
                    "simulate fetch='shard', to compare"
                )
            root, limit = stream.cache or (stream.url, _limit(stream, self._folder))
            places.append(str(root))
            limits.append(limit)
        self._limits = set(limits)
        self._caches = [sorted(set(places)).index(place) for place in places]
        self._keeps = [bool(stream.keep_zip) for stream in self.streams]
        self.near = any(_is_near(stream) for stream in self.streams)
        self.streams = [_far(s, f"{self._folder}/{n}") for n, s in enumerate(self.streams)]
        return super().open_streams(observer)

    def make_reader(
        self, opened: Sequence[OpenStream], columns: Sequence[str] | None
    ) -> SampleReader:
        """Return what reads the samples, and note the sizes of the shards."""
        if any(isinstance(each.store, RangeStore) for each in opened):
            raise ConfigError(
                "shards that are read by ranges are not kept: there is nothing to simulate"
            )
        self.shards = Shards([each.index for each in opened], self._caches, self._keeps)
        return read_all(opened, columns)

    def take_loader(self, loader: Mapping[str, Any]) -> None:
        """Note what a config says of the loader."""
        self._loader = loader

    @property
    def urls(self) -> list[str]:
        """Where the streams lie, without credentials."""
        return [stream.url for stream in self.streams]

    @property
    def starts(self) -> Int64:
        """First sample id of each shard, and the total, shape ``[shards + 1]``."""
        return self.session.reader.starts

    def assumed(self, **told: Any) -> Assumed:
        """Return what is assumed of a run: what is told, or else what the config says.

        Args:
            **told: Arguments of `Assumed`; a shuffle of ``"none"`` is none.

        Raises:
            ConfigError: If nobody says the batch size, or a value has no meaning.
        """
        given, loader = self._given, self._loader
        shuffle = given.get("shuffle_algo", "window") if given.get("shuffle") else None
        said = {
            "batch_size": given.get("batch_size") or _number(loader, "batch_size"),
            "workers": _number(loader, "num_workers") or 0,
            "prefetch_factor": _number(loader, "prefetch_factor") or 2,
            "shuffle": shuffle,
            "block_size": given.get("shuffle_block_size"),
            "canonical_nodes": given.get("num_canonical_nodes"),
            "predownload": given.get("predownload"),
        }
        if "cache_limit" not in told:
            if len(self._limits) > 1:
                raise ConfigError(
                    "the streams have caches of several limits: give one for all, cache_limit="
                )
            said["cache_limit"] = next(iter(self._limits))
        merged = {**said, **told}
        if merged["shuffle"] == "none":
            merged["shuffle"] = None
        if merged["batch_size"] is None:
            raise ConfigError("no batch size: give batch_size= in the config, or --batch-size")
        return Assumed(**merged)

    # -- what a run asks ------------------------------------------------------------

    def run_of(self, assumed: Assumed) -> TrainingRun:
        """Return the run of what is assumed.

        Raises:
            ConfigError: If the order has no meaning.
            PluginError: If there is no such shuffle.
        """
        shuffle = {} if assumed.shuffle is None else {"shuffle_algo": assumed.shuffle}
        return self.session.run.asked(
            assumed.batch_size,
            shuffle=assumed.shuffle is not None,
            **shuffle,
            shuffle_block_size=assumed.block_size,
            num_canonical_nodes=assumed.canonical_nodes,
        )

    def place_of(self, assumed: Assumed, rank: int, worker: int) -> World:
        """Return where a process stands."""
        workers = max(assumed.workers, 1)
        return World(assumed.nodes, assumed.ranks_per_node, workers, rank, worker)

    def world_of(self, place: World) -> World:
        """Return the world that the plan of a process is for: a group of replicas counts as one rank."""
        return self.session.placement.merge_replicas(place)

    def source_of(self, assumed: Assumed) -> SampleSource:
        """Return what the blocks of a run are read from."""
        if assumed.cache_limit is not None and assumed.cache_limit < self.shards.largest:
            raise ConfigError(
                f"cache_limit={assumed.cache_limit}: one shard alone takes {self.shards.largest} bytes; "
                "raise it"
            )
        # Of a reader, only what it says of needs is asked.
        reader = cast(
            SampleReader, Weighed(self.session.reader, self.shards.raw, assumed.cache_limit)
        )
        return replace(
            self.session.source, reader=reader, remote=True, predownload=assumed.predownload
        )


class Weighed:
    """What samples need, and how much that weighs.

    Attributes:
        cache_limit: Bytes that a cache may hold, or None.
        ranged: False: whole shards are fetched.
        in_turn: Whether batches that need the same shards are one block, as for the reader.
        asked: How many needs there were so far.
    """

    ranged = False

    def __init__(self, reader: SampleReader, weights: Int64, cache_limit: int | None) -> None:
        self._reader, self._weights, self.cache_limit = reader, weights.tolist(), cache_limit
        self.in_turn = reader.in_turn and cache_limit is None
        self.asked = 0

    def needs(self, ids: Int64) -> list[int]:
        """Return the shards of some samples, in the order of first need."""
        found = cast("list[int]", self._reader.needs(ids))
        self.asked += len(found)
        return found

    def weight(self, need: int) -> int:
        """Return the bytes of a shard."""
        weight: int = self._weights[need]
        return weight


def blocks_of(
    source: SampleSource, epoch: Epoch, place: World, world: World, batch: int
) -> tuple[Iterator[Block], Limits]:
    """Return the blocks that a process reads of an epoch, and how far ahead it fetches."""
    blocks = plan_blocks(epoch, world, batch, 0, source.rows_of_batches(threads=0))
    return source.bounded(blocks, place)


@contextmanager
def planned_of(config: Mapping[str, Any] | str, **more: Any) -> Iterator[Planned]:
    """Open a data set of which only the plan and the index are looked at.

    Args:
        config: As for `StreamingDataset.from_config`. Of a section ``loader``, numbers of workers and batches
            are taken.
        **more: Arguments that go before those of the config.

    Raises:
        StreamplugError: If it cannot be opened.
    """
    whole = load(config)
    with TemporaryDirectory() as folder:
        plan = Planned.from_config(whole, folder=str(folder), **more)
        loader = whole.get("loader") if "dataset" in whole else None
        plan.take_loader(loader if isinstance(loader, Mapping) else {})
        yield plan


def _number(loader: Mapping[str, Any], name: str) -> Any:
    value = loader.get(name)
    if isinstance(value, str) and value.isdecimal():  # of the environment
        value = int(value)
    return whole_number(f"loader.{name}", value, 0)


def _limit(stream: Stream, folder: str) -> int | None:
    """Return the limit of a stream that is read in place, where it has no meaning yet."""
    limit = stream.cache_limit
    return None if limit is None else limit_bytes(limit, Path(folder))


def _is_near(stream: Stream) -> bool:
    places = stream.remote if stream.remote is not None else stream.local
    return any(
        local_path(place) is not None
        for place in ([places] if isinstance(places, str) else places or [])
    )


def _far(stream: Stream, folder: str) -> Stream:
    """Return a stream whose cache is in a folder."""
    remote = stream.remote if stream.remote is not None else stream.local
    return replace(stream, remote=remote, local=folder, cache_limit=None, validate_hash=None)
