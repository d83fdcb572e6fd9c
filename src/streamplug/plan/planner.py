"""Planner of the epochs of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property, partial
from hashlib import blake2b
from itertools import pairwise

import numpy as np

from streamplug.errors import ConfigError
from streamplug.interfaces import ShuffleAlgorithm
from streamplug.plan.batch_planner import BatchPlanner, CurriculumEpochs
from streamplug.plan.curriculum import Curriculum, CurriculumSchedule
from streamplug.plan.epoch import Epoch, PartitionedEpoch
from streamplug.plan.interleave import Interleaving
from streamplug.plan.mixture import Mixture
from streamplug.plan.mixture_change import (
    ChangedMixture,
    ContinuedSamples,
    JoinedEpoch,
    StreamMixture,
)
from streamplug.plan.ordered_samples import OrderedSamples
from streamplug.plan.partition_algorithm import Parallelism, PartitionAlgorithm, WeightedStream
from streamplug.plan.selection import AllSamples, Selection
from streamplug.plan.stream_batching import MixedEpoch, PerStreamEpoch, StreamSchedule
from streamplug.plan.stream_samples import RepeatedPasses, SinglePass, StreamSamples
from streamplug.types import Int64, World

BATCHING_METHODS = ("random", "per_stream", "stratified", "device_per_stream")

MIN_SAMPLES_PER_CANONICAL_NODE = 64
"""Minimum size of a canonical node of a single stream, in samples."""


@dataclass(frozen=True, slots=True)
class EpochConfig:
    """Options of an epoch besides its number and the data.

    `block_size` is in samples. `initial_nodes` and `initial_batch_size` are those with which the run began:
    the first is for the partition ``relaxed``; with ``device_per_stream``, as many samples of one stream as
    the second stay together. `micro_batches` is the number of batches in a global batch, which the batching
    methods of plugins take. `initial_world` is the world for which a partition that is not elastic combines
    the streams; None for the current one.
    """

    seed: int
    canonical_nodes: int
    block_size: int
    partition_algo: str
    initial_nodes: int
    batching_method: str
    initial_batch_size: int
    micro_batches: int = 0
    initial_world: World | None = None

    def parallelism(self, world: World, batch: int) -> Parallelism:
        return Parallelism(self.canonical_nodes, world, batch, self.initial_nodes)


@dataclass
class Planner:
    """Planner of the epochs of a run over some streams.

    `starts` has the first sample id of each shard over all streams and the total, shape ``[shards + 1]``,
    and may be memory-mapped; `stream_shards` has the first shard of each stream and the total.
    """

    starts: Int64
    stream_shards: Sequence[int]
    mixture: StreamMixture
    algorithm: ShuffleAlgorithm
    partition_algorithm: PartitionAlgorithm
    _: KW_ONLY
    shuffled: bool
    batches: BatchPlanner | None = None

    @cached_property
    def first_ids(self) -> list[int]:
        """First sample id of each stream, and the total."""
        return [int(self.starts[shard]) for shard in self.stream_shards]

    @property
    def samples(self) -> int:
        return self.first_ids[-1]

    @property
    def shards(self) -> int:
        return self.stream_shards[-1]

    @property
    def size(self) -> int:
        """Samples of an epoch."""
        return self.mixture.epoch_size

    @property
    def streams(self) -> list[int]:
        """Number of samples of each stream."""
        return [last - first for first, last in pairwise(self.first_ids)]

    def selection(self, epoch: int, seed: int, stream: int | None = None) -> Selection:
        """Return the samples of an epoch in stored order, of one stream or of all; not with a curriculum."""
        if isinstance(self.mixture, Curriculum):
            raise ConfigError(
                "curriculum= reads streams pass after pass: no epoch is taken of them"
            )
        mixture = self.mixture.before if isinstance(self.mixture, ChangedMixture) else self.mixture
        starts = np.asarray(self.starts)
        return mixture.select(
            starts, self.stream_shards, seed, epoch, stream, shuffled=self.shuffled
        )

    def epoch(self, number: int, world: World, batch: int, config: EpochConfig) -> Epoch:
        """Return an epoch; `batch` is the number of samples per batch of one rank."""
        epochs, global_batch = self.curriculum_epochs(config), batch * world.ranks
        if epochs is not None:
            return epochs.epoch(number, world)
        if isinstance(self.mixture, Curriculum):
            return self._curriculum_epoch(self.mixture, number, global_batch, config)
        if isinstance(self.mixture, ChangedMixture):
            return self._changed_epoch(self.mixture, number, world, batch, config)
        if self.batches is not None:
            return self.batches.epoch(
                partial(self.ordered, number, config),
                number,
                order_key=f"{number} {self._order_key(config)}",
                world=world,
                canonical_nodes=config.canonical_nodes,
                micro_batches=config.micro_batches,
                seed=config.seed,
            )
        if config.batching_method == "random":
            parallelism = config.parallelism(world, batch)
            partition = self.partition_algorithm.partition(self.size, parallelism)
            return PartitionedEpoch(self.ordered(number, config), partition)
        if self.partition_algorithm.elastic:
            schedule, samples = self._single_passes(number, global_batch, config)
            return self._combine(schedule, samples, global_batch, config, range(schedule.total))
        return self._combined_epoch(self.mixture, number, world, batch, config)

    def ordered(self, number: int, config: EpochConfig) -> OrderedSamples:
        """Return the samples of an epoch in one order over all streams."""
        return self._order(self.selection(number, config.seed), number, config)

    def curriculum_epochs(self, config: EpochConfig) -> CurriculumEpochs | None:
        """Return the epochs of a curriculum whose batches vary in size; None for other runs."""
        if self.batches is None or not isinstance(self.mixture, Curriculum):
            return None
        return self.batches.curriculum_epochs(
            self.mixture,
            partial(self._repeat_streams, config),
            self.first_ids,
            order_key=self._order_key(config),
            canonical_nodes=config.canonical_nodes,
            micro_batches=config.micro_batches,
            seed=config.seed,
        )

    def _order_key(self, config: EpochConfig) -> str:
        """Return text that differs for different orders: it is part of the keys of cached plans."""
        digest = blake2b(np.ascontiguousarray(self.starts, "<i8").data, digest_size=16).hexdigest()
        sampler = self.mixture.sampler if isinstance(self.mixture, Mixture) else None
        parts = [_describe_algorithm(part) for part in (self.algorithm, sampler)]
        return f"{config} {self.mixture.identity()} {self.stream_shards} {parts} {digest}"

    def length(self, world: World, batch: int, config: EpochConfig) -> int:
        """Return the number of samples of a rank in an epoch, approximately with batches of varying size."""
        if self.batches is not None:
            return -(-self.size // world.ranks)
        global_batch = batch * world.ranks
        if isinstance(self.mixture, Curriculum):
            return -(-self.size // global_batch) * batch
        if isinstance(self.mixture, ChangedMixture):
            return replace(self, mixture=self.mixture.before).length(world, batch, config)
        if config.batching_method == "random":
            parallelism = config.parallelism(world, batch)
            return self.partition_algorithm.partition(self.size, parallelism).per_rank
        if not self.partition_algorithm.elastic:
            return self._combined_epoch(self.mixture, 0, world, batch, config).length(world, batch)
        unit = self._samples_per_slot(global_batch, config)
        slots = sum(-(-taken // unit) for taken in self.mixture.choose)
        return -(-slots // (global_batch // unit)) * batch

    def _single_passes(
        self, number: int, global_batch: int, config: EpochConfig
    ) -> tuple[Interleaving, list[SinglePass]]:
        unit = self._samples_per_slot(global_batch, config)
        unit_of_node = 1 if config.batching_method == "per_stream" else unit
        selections = self._select_streams(number, config)
        samples = [
            SinglePass(
                self._order_stream(selection, number, config, stream, self.size),
                self._canonical_nodes(selection.size, config),
                unit_of_node,
            )
            for stream, selection in enumerate(selections)
        ]
        return Interleaving([-(-selection.size // unit) for selection in selections]), samples

    def _curriculum_epoch(
        self, curriculum: Curriculum, number: int, global_batch: int, config: EpochConfig
    ) -> Epoch:
        slots_per_step = global_batch // self._samples_per_slot(global_batch, config)
        schedule = CurriculumSchedule(curriculum.changes, slots_per_step)
        slots = -(-curriculum.epoch_size // global_batch) * slots_per_step
        samples = self._repeat_streams(config)
        slots_of_epoch = range(number * slots, (number + 1) * slots)
        return self._combine(schedule, samples, global_batch, config, slots_of_epoch)

    def _changed_epoch(
        self, changed: ChangedMixture, number: int, world: World, batch: int, config: EpochConfig
    ) -> Epoch:
        """Return an epoch of a run that changed from a mixture to a curriculum at a step."""
        before = replace(self, mixture=changed.before)
        steps = self.length(world, batch, config) // batch
        start = changed.step - number * steps  # step of this epoch, perhaps of another one
        if start >= steps:
            return before.epoch(number, world, batch, config)
        global_batch = batch * world.ranks
        slots_per_step = global_batch // self._samples_per_slot(global_batch, config)
        epoch = self._combine(
            CurriculumSchedule(changed.after.changes, slots_per_step),
            self._continue_streams(*divmod(changed.step, steps), global_batch, config),
            global_batch,
            config,
            range(max(-start, 0) * slots_per_step, (steps - start) * slots_per_step),
        )
        if start <= 0:
            return epoch
        return JoinedEpoch(before.epoch(number, world, batch, config), start, epoch)

    def _continue_streams(
        self, epoch: int, step: int, global_batch: int, config: EpochConfig
    ) -> list[StreamSamples]:
        """Return the samples of each stream from a step of an epoch on: the rest of its pass, then new ones.

        With batching method ``random`` an epoch has no passes of single streams.
        """
        passes = self._repeat_streams(config, epoch + (step > 0))
        if not step or config.batching_method == "random":
            return passes
        unit = self._samples_per_slot(global_batch, config)
        schedule, samples = self._single_passes(epoch, global_batch, config)
        turns = schedule.turns_before(step * (global_batch // unit))
        return [
            ContinuedSamples(first, used * unit, first.size, then)
            for first, used, then in zip(samples, turns, passes)
        ]

    def _repeat_streams(self, config: EpochConfig, first_pass: int = 0) -> list[StreamSamples]:
        return [
            self._repeated_passes(stream, config, first_pass) for stream in range(len(self.streams))
        ]

    def _repeated_passes(self, stream: int, config: EpochConfig, first_pass: int) -> StreamSamples:
        first, last = self.stream_shards[stream], self.stream_shards[stream + 1]
        selection = AllSamples(np.asarray(self.starts)[first : last + 1])
        return RepeatedPasses(
            lambda number: self._order_stream(
                selection, first_pass + number, config, stream, self.samples
            ),
            selection.size,
            self._canonical_nodes(selection.size, config),
        )

    def _combine(
        self,
        schedule: StreamSchedule,
        samples: Sequence[StreamSamples],
        global_batch: int,
        config: EpochConfig,
        slots: range,
    ) -> Epoch:
        epoch_class = PerStreamEpoch if config.batching_method == "per_stream" else MixedEpoch
        return epoch_class(
            schedule,
            samples,
            self.first_ids,
            unit=self._samples_per_slot(global_batch, config),
            global_batch=global_batch,
            slots=slots,
        )

    def _samples_per_slot(self, global_batch: int, config: EpochConfig) -> int:
        if config.batching_method == "device_per_stream":
            if global_batch % config.initial_batch_size:
                raise ConfigError(
                    f"batching_method='device_per_stream': a global batch of {global_batch} is no multiple "
                    f"of {config.initial_batch_size}, the batch size with which the run began"
                )
            return config.initial_batch_size
        return global_batch if config.batching_method == "per_stream" else 1

    def _combined_epoch(
        self, mixture: Mixture, number: int, world: World, batch: int, config: EpochConfig
    ) -> Epoch:
        initial = config.initial_world or world
        initial_batch = batch * world.ranks // initial.ranks
        streams = []
        for selection, share in zip(self._select_streams(number, config), mixture.shares):
            block_size = max(int(config.block_size * share), 1)
            ordered = self._order(selection, number, replace(config, block_size=block_size))
            streams.append(WeightedStream(ordered, share))
        # The sequence of streams changes with the epoch if they are shuffled and resampled.
        offset = number if self.shuffled and mixture.method == "balanced" else 0
        parallelism = config.parallelism(initial, initial_batch)
        return self.partition_algorithm.combine_streams(
            config.batching_method, streams, parallelism, config.seed + offset
        )

    def _select_streams(self, number: int, config: EpochConfig) -> list[Selection]:
        return [self.selection(number, config.seed, stream) for stream in range(len(self.streams))]

    def _order_stream(
        self, selection: Selection, epoch: int, config: EpochConfig, stream: int, total: int
    ) -> OrderedSamples:
        """Order the samples of one stream, with a block size by its share of `total` samples."""
        of_stream = replace(
            config,
            seed=config.seed + (stream << 40),  # streams of equal size need different orders
            canonical_nodes=self._canonical_nodes(selection.size, config),
            block_size=max(config.block_size * selection.size // max(total, 1), 1),
        )
        return self._order(selection, epoch, of_stream)

    def _canonical_nodes(self, size: int, config: EpochConfig) -> int:
        # A small stream has too few shards for many canonical nodes, and is ordered faster with fewer.
        return max(min(config.canonical_nodes, size // MIN_SAMPLES_PER_CANONICAL_NODE), 1)

    def _order(self, selection: Selection, epoch: int, config: EpochConfig) -> OrderedSamples:
        order = self.algorithm.order(
            selection.starts,
            canonical_nodes=config.canonical_nodes,
            seed=config.seed,
            epoch=epoch,
            block_size=config.block_size,
        )
        return OrderedSamples(selection, order, config.canonical_nodes)


def _describe_algorithm(algorithm: object) -> str:
    """Return the class and the options of an algorithm.

    The text of an option may differ between processes, which then only misses a cached plan.
    """
    options = sorted(getattr(algorithm, "__dict__", {}).items())
    return f"{type(algorithm).__module__}.{type(algorithm).__qualname__} {options}"
