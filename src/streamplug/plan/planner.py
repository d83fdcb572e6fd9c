"""Planner: makes the epochs of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from streamplug.errors import ConfigError
from streamplug.interfaces import ShuffleAlgorithm
from streamplug.plan.apportion import Apportionment
from streamplug.plan.batching import Mixed, PerStream, Schedule
from streamplug.plan.curriculum import Curriculum, Lessons
from streamplug.plan.epoch import Dealt, Epoch
from streamplug.plan.exact import Batching, Exact, Part
from streamplug.plan.feed import Feed
from streamplug.plan.mixture import Mixture
from streamplug.plan.orig import make_partition
from streamplug.plan.partition import Partition
from streamplug.plan.selection import Selection, Whole
from streamplug.plan.source import Once, Passes, Source
from streamplug.types import Int64, World

BATCHINGS = ("random", "per_stream", "stratified", "device_per_stream")
"""Names of the batching methods."""

_LANE = 64
"""Samples that a lane of a single stream has at least."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What an epoch depends on besides its number and what is read.

    Attributes:
        seed: Of the shuffle and of what is chosen.
        lanes: Canonical nodes.
        block_size: Distance in samples over which samples are mixed.
        partition: Name of the partition.
        first_nodes: Nodes on which the run began, for the partition ``relaxed``.
        batching: Name of the batching method.
        unit: For ``device_per_stream``: samples of one stream that stay together, the batch size of a
            rank when the run began.
    """

    seed: int
    lanes: int
    block_size: int
    partition: str
    first_nodes: int
    batching: str
    unit: int


class Planner:
    """Makes the epochs of a run over some streams.

    Attributes:
        mixture: What an epoch takes of each stream.
        algorithm: Puts samples in order.
    """

    def __init__(
        self,
        starts: Int64,
        streams: Sequence[int],
        mixture: Mixture | Curriculum,
        algorithm: ShuffleAlgorithm,
        *,
        shuffled: bool,
    ) -> None:
        """Describe what is read.

        Args:
            starts: First sample id of each shard over all streams, and the total.
            streams: First shard of each stream, and the total.
            mixture: What an epoch takes of each stream.
            algorithm: Puts samples in order.
            shuffled: Whether that is a shuffle.
        """
        self.mixture, self.algorithm = mixture, algorithm
        self._mapped, self._streams, self._shuffled = starts, streams, shuffled
        self._firsts = [int(starts[shard]) for shard in streams]

    def ordered(self, algorithm: ShuffleAlgorithm, *, shuffled: bool) -> Planner:
        """Return a planner of the same that puts samples in order by another algorithm."""
        return Planner(self._mapped, self._streams, self.mixture, algorithm, shuffled=shuffled)

    @property
    def _starts(self) -> Int64:
        return np.asarray(self._mapped)  # a mapped array is an ordinary one from here on

    @property
    def samples(self) -> int:
        """Number of samples of all streams."""
        return self._firsts[-1]

    @property
    def shards(self) -> int:
        """Number of shards of all streams."""
        return self._streams[-1]

    @property
    def size(self) -> int:
        """Samples of an epoch."""
        return self.mixture.epoch_size

    def selections(self, epoch: int, seed: int, stream: int | None = None) -> Selection:
        """Return what an epoch takes, before it is put in order: of all streams, or of one by itself.

        Args:
            epoch: Number of the epoch.
            seed: Seed of the order.
            stream: Which stream; None for all.

        Raises:
            ConfigError: With a curriculum, which takes no epochs of the streams.
        """
        mixture, shuffled = self.mixture, self._shuffled
        if isinstance(mixture, Curriculum):
            raise ConfigError(
                "curriculum= reads streams pass after pass: no epoch is taken of them"
            )
        if stream is None:
            return mixture.select(self._starts, self._streams, seed, epoch, shuffled=shuffled)
        found = mixture.select_streams(self._starts, self._streams, seed, epoch, shuffled=shuffled)
        return found[stream]

    @property
    def streams(self) -> list[int]:
        """Number of samples of each stream."""
        return [last - first for first, last in pairwise(self._firsts)]

    def epoch(self, number: int, world: World, batch: int, setting: Setting) -> Epoch:
        """Return an epoch.

        Args:
            number: Which one.
            world: Who reads it.
            batch: Samples per batch of one rank.
            setting: What else decides the order.

        Raises:
            ConfigError: If the setting cannot serve this world.
        """
        global_batch = batch * world.ranks
        if isinstance(self.mixture, Curriculum):
            return self._lessons(self.mixture, number, global_batch, setting)
        if setting.batching == "random":
            selection = self.mixture.select(
                self._starts, self._streams, setting.seed, number, shuffled=self._shuffled
            )
            feed = self._feed(selection, number, setting)
            return Dealt(feed, self._partition(world, batch, setting))
        if setting.partition != "elastic":
            return self._exact(self.mixture, number, world, batch, setting)
        return self._batches(self.mixture, number, global_batch, setting)

    def length(self, world: World, batch: int, setting: Setting) -> int:
        """Return how many samples a rank gets in an epoch.

        Raises:
            ConfigError: As `epoch`.
        """
        total = batch * world.ranks
        if isinstance(self.mixture, Curriculum):
            return -(-self.size // total) * batch
        if setting.batching == "random":
            return self._partition(world, batch, setting).per_rank
        if setting.partition != "elastic":
            return self._exact(self.mixture, 0, world, batch, setting).length(world.rank)
        unit = self._unit(total, setting)
        slots = sum(-(-taken // unit) for taken in self.mixture.choose)
        return -(-slots // (total // unit)) * batch

    def _partition(self, world: World, batch: int, setting: Setting) -> Partition:
        return make_partition(
            setting.partition,
            self.size,
            setting.lanes,
            world,
            batch,
            first_nodes=setting.first_nodes,
        )

    def _feed(
        self, selection: Selection, epoch: int, setting: Setting, stream: int | None = None
    ) -> Feed:
        """Put a selection in order: of all streams, or else of one, which takes its part of a block."""
        lanes, seed, block = setting.lanes, setting.seed, setting.block_size
        if stream is not None:
            lanes = self._lanes(selection.size, setting)
            seed += stream << 40  # streams of one size need orders of their own
            whole = self.samples if isinstance(self.mixture, Curriculum) else self.size
            block = max(block * selection.size // max(whole, 1), 1)
        order = self.algorithm.order(
            selection.starts, canonical_nodes=lanes, seed=seed, epoch=epoch, block_size=block
        )
        return Feed(selection, order, lanes)

    def _lanes(self, size: int, setting: Setting) -> int:
        # A small stream has hardly a shard for each lane, and is put in order faster without them.
        return max(min(setting.lanes, size // _LANE), 1)

    # -- schedules of streams -----------------------------------------------------

    def _batches(self, mixture: Mixture, number: int, global_batch: int, setting: Setting) -> Epoch:
        """Return an epoch of batches made of single streams' orders."""
        unit = self._unit(global_batch, setting)
        inside = 1 if setting.batching == "per_stream" else unit
        selections = self._select_streams(mixture, number, setting)
        sources = [
            Once(
                self._feed(selection, number, setting, stream),
                self._lanes(selection.size, setting),
                inside,
            )
            for stream, selection in enumerate(selections)
        ]
        schedule = Apportionment([-(-selection.size // unit) for selection in selections])
        return self._scheduled(schedule, sources, global_batch, setting, range(schedule.total))

    def _exact(
        self, mixture: Mixture, number: int, world: World, batch: int, setting: Setting
    ) -> Exact:
        """Return an epoch of batches made of single streams' orders as mosaicml-streaming makes them."""
        parts = []
        for selection, share in zip(self._select_streams(mixture, number, setting), mixture.shares):
            block = max(int(setting.block_size * share), 1)
            order = self.algorithm.order(
                selection.starts,
                canonical_nodes=setting.lanes,
                seed=setting.seed,
                epoch=number,
                block_size=block,
            )
            parts.append(Part(Feed(selection, order, setting.lanes), share))
        # They take other turns in every epoch where they are shuffled and chosen anew.
        turns = number if self._shuffled and mixture.method == "balanced" else 0
        batching = Batching(
            setting.partition,
            setting.lanes,
            world,
            batch,
            setting.first_nodes,
            setting.seed + turns,
        )
        return batching.epoch(setting.batching, parts)

    def _select_streams(self, mixture: Mixture, number: int, setting: Setting) -> list[Selection]:
        return mixture.select_streams(
            self._starts, self._streams, setting.seed, number, shuffled=self._shuffled
        )

    def _lessons(
        self, curriculum: Curriculum, number: int, global_batch: int, setting: Setting
    ) -> Epoch:
        """Return some steps of a run without end."""
        slots = global_batch // self._unit(global_batch, setting)
        schedule = Lessons(curriculum.changes, slots)
        each = -(-curriculum.epoch_size // global_batch) * slots
        sources = [self._passes(stream, setting) for stream in range(len(self._firsts) - 1)]
        span = range(number * each, (number + 1) * each)
        return self._scheduled(schedule, sources, global_batch, setting, span)

    def _passes(self, stream: int, setting: Setting) -> Source:
        first, last = self._streams[stream], self._streams[stream + 1]
        whole = Whole(self._starts[first : last + 1])
        return Passes(
            lambda number: self._feed(whole, number, setting, stream),
            whole.size,
            self._lanes(whole.size, setting),
        )

    def _scheduled(
        self,
        schedule: Schedule,
        sources: Sequence[Source],
        global_batch: int,
        setting: Setting,
        slots: range,
    ) -> Epoch:
        kind = PerStream if setting.batching == "per_stream" else Mixed
        return kind(
            schedule,
            sources,
            self._firsts,
            unit=self._unit(global_batch, setting),
            global_batch=global_batch,
            slots=slots,
        )

    def _unit(self, global_batch: int, setting: Setting) -> int:
        """Return how many samples in a row are of one stream."""
        if setting.batching == "device_per_stream":
            if global_batch % setting.unit:
                raise ConfigError(
                    f"batching_method='device_per_stream': a global batch of {global_batch} is not made "
                    f"of batches of {setting.unit}, with which the run began"
                )
            return setting.unit
        return global_batch if setting.batching == "per_stream" else 1
