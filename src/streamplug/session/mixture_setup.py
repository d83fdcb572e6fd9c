"""What users say of one or several streams, made into what the plan computes with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamplug.config import parse_count, whole_number
from streamplug.errors import ConfigError
from streamplug.plan import (
    Curriculum,
    DatasetFingerprint,
    Mixture,
    Planner,
    choose_per_stream,
    proportion_per_stream,
)
from streamplug.read import SampleReader
from streamplug.session.order_options import OrderOptions, check_choice
from streamplug.session.training_run import TrainingRun
from streamplug.types import Int64

if TYPE_CHECKING:
    from streamplug.stream import Stream


@dataclass(frozen=True, slots=True)
class Sampling:
    """What a user says of all streams together.

    Attributes:
        epoch_size: Samples of an epoch, or None.
        method: Whether what is chosen of a stream changes with the epoch.
        granularity: Samples that are chosen of a shard at a time.
        curriculum: Proportions by step, or None.

    Raises:
        ConfigError: If one of them has no meaning.
    """

    epoch_size: float | str | None
    method: str
    granularity: int
    curriculum: Mapping[int | str, Sequence[float]] | None

    def __post_init__(self) -> None:
        check_choice("sampling_method", self.method, ("balanced", "fixed"))
        granularity = whole_number("sampling_granularity", self.granularity, 1)
        if granularity is None:
            raise ConfigError("sampling_granularity=None: must be a whole number of at least 1")
        object.__setattr__(self, "granularity", granularity)
        if self.epoch_size is not None:
            object.__setattr__(self, "epoch_size", parse_count(self.epoch_size, "epoch_size"))

    def check(self, streams: Sequence[Stream], options: OrderOptions) -> None:
        """Refuse combinations of options that have no meaning, whatever the streams hold.

        Raises:
            ConfigError: If there is one.
        """
        # What depends on the sizes of the streams is checked again when they are known.
        sizes = [1] * len(streams)
        if self.curriculum is None:
            size = None if self.epoch_size is None else int(self.epoch_size)
            choose_per_stream(sizes, [stream.weight for stream in streams], size, 0)
            return
        if any(stream.weight.options for stream in streams):
            raise ConfigError(
                "curriculum= takes the place of the streams' proportion, repeat and choose"
            )
        if not options.elastic:
            raise ConfigError("curriculum= needs partition_algo='elastic'")
        if (self.method, self.granularity) != ("balanced", 1):
            raise ConfigError(
                "curriculum= takes all of every stream: sampling_method= and sampling_granularity= have "
                "no meaning with it"
            )
        Curriculum.parse(self.curriculum, sizes, 1)


def complete_streams(streams: Sequence[Stream], **defaults: Any) -> list[Stream]:
    """Return streams with the data set's values for options that they leave open.

    Args:
        streams: The streams.
        **defaults: Values by the names of attributes.

    Raises:
        ConfigError: If streams limit one cache directory differently.
    """
    complete = [stream.with_defaults(**defaults) for stream in streams]
    limits: dict[Path, int | None] = {}
    for stream in complete:
        if stream.cache is not None:
            root, limit = stream.cache
            if limits.setdefault(root.resolve(), limit) != limit:
                raise ConfigError(
                    f"{stream!r}: cache_limit={stream.cache_limit!r}, but another stream says "
                    f"{limits[root.resolve()]} for {root}; streams that share a directory share its limit"
                )
    return complete


def mix(
    sampling: Sampling,
    streams: Sequence[Stream],
    starts: Int64,
    shards: Sequence[int],
    options: OrderOptions,
) -> Mixture | Curriculum:
    """Return what an epoch takes of the streams.

    Args:
        sampling: What is said of all of them, checked with them and `options`.
        streams: What is said of each.
        starts: First sample id of each shard, and the total.
        shards: First shard of each stream, and the total.
        options: What is asked of the order.

    Raises:
        ConfigError: If what is said has no meaning for streams of these sizes.
    """
    size = None if sampling.epoch_size is None else int(sampling.epoch_size)
    sizes = [int(starts[last] - starts[first]) for first, last in pairwise(shards)]
    if sampling.curriculum is not None:
        return Curriculum.parse(sampling.curriculum, sizes, sum(sizes) if size is None else size)
    weights = [stream.weight for stream in streams]
    choose = choose_per_stream(sizes, weights, size, options.shuffle_seed)
    shares = proportion_per_stream(sizes, weights, size, choose)
    algorithm = options.partition_algorithm()
    return Mixture(
        tuple(choose),
        sampling.method,
        sampling.granularity,
        algorithm.sampler,
        () if algorithm.elastic else tuple(shares),
    )


def make_run(
    sampling: Sampling,
    streams: Sequence[Stream],
    reader: SampleReader,
    options: OrderOptions,
    *,
    fingerprint: DatasetFingerprint,
    batch_size: int | None,
) -> TrainingRun:
    """Return the run over some streams.

    Args:
        sampling: What is said of all of them.
        streams: What is said of each.
        reader: Their samples.
        options: What is asked of the order.
        fingerprint: Of their shards.
        batch_size: Samples per batch of one rank, or None.

    Raises:
        ConfigError: As `mix`.
    """
    starts, shards = reader.starts, reader.stream_shards
    mixture = mix(sampling, streams, starts, shards, options)
    planner = Planner(
        starts,
        shards,
        mixture,
        options.algorithm(),
        options.partition_algorithm(),
        shuffled=options.shuffle,
    )
    return TrainingRun(planner, fingerprint, batch_size, options)
