"""Conversion of stream and sampling options into the mixture and the run of a data set."""

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
    """Validated sampling options that apply to all streams; `epoch_size` is converted to samples."""

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
        """Refuse invalid combinations of options before the sizes of the streams are known."""
        # Checked again when the sizes of the streams are known.
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
    """Return streams with the data set's values for the options that they leave as None."""
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
    """Return the mixture of streams of an epoch; `starts` and `shards` end with the totals."""
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
    """Return the run over the streams that `reader` reads."""
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
