"""What users say of a mixture of streams, made into what the plan computes with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from streamplug.config import parse_count, whole_number
from streamplug.errors import ConfigError
from streamplug.plan import Curriculum, Mixture, choose_per_stream, proportion_per_stream
from streamplug.run import Wishes
from streamplug.stream import Stream
from streamplug.types import Int64


@dataclass(frozen=True, slots=True)
class Sampling:
    """What a user says of all streams together.

    Attributes:
        epoch_size: Samples of an epoch, or None.
        method: Whether what is chosen of a stream changes with the epoch.
        granularity: Samples that are chosen of a shard at a time.
        curriculum: Proportions by step, or None.
    """

    epoch_size: int | str | None
    method: str
    granularity: int
    curriculum: Mapping[int | str, Sequence[float]] | None


def mix(
    sampling: Sampling,
    streams: Sequence[Stream],
    starts: Int64,
    shards: Sequence[int],
    wishes: Wishes,
) -> Mixture | Curriculum:
    """Return what an epoch takes of the streams.

    Args:
        sampling: What is said of all of them.
        streams: What is said of each.
        starts: First sample id of each shard, and the total.
        shards: First shard of each stream, and the total.
        wishes: What is asked of the order.

    Raises:
        ConfigError: If what is said has no meaning, or contradicts itself.
    """
    if sampling.method not in ("balanced", "fixed"):
        raise ConfigError(f"sampling_method={sampling.method!r}: choose 'balanced' or 'fixed'")
    granularity = whole_number("sampling_granularity", sampling.granularity, 1)
    given, elastic = sampling.epoch_size, wishes.partition_algo == "elastic"
    size = None if given is None else parse_count(given, "epoch_size")
    sizes = [int(starts[last] - starts[first]) for first, last in pairwise(shards)]
    weights = [stream.weight for stream in streams]
    if sampling.curriculum is None:
        choose = choose_per_stream(sizes, weights, size, wishes.shuffle_seed)
        shares = proportion_per_stream(sizes, weights, size, choose)
        return Mixture(tuple(choose), sampling.method, granularity, not elastic, tuple(shares))
    if any(weight.given for weight in weights):
        raise ConfigError(
            "curriculum= takes the place of the streams' proportion, repeat and choose"
        )
    if not elastic:
        raise ConfigError("curriculum= needs partition_algo='elastic'")
    if (sampling.method, granularity) != ("balanced", 1):
        raise ConfigError(
            "curriculum= takes all of every stream: sampling_method= and sampling_granularity= have no "
            "meaning with it"
        )
    return Curriculum.read(sampling.curriculum, sizes, sum(sizes) if size is None else size)
