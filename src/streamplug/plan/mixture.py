"""Number of samples that an epoch takes of each stream and shard.

As in mosaicml-streaming, the weights are all relative (`proportion`) or all absolute (the other options).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from streamplug.errors import ConfigError
from streamplug.plan.selection import AllSamples, Selection, ShardSampler
from streamplug.types import Int64

MAX_WEIGHT = 1e100
MAX_EPOCH_SAMPLES = 1 << 52
"""Exclusive upper bound of the samples of an epoch; below it, their number is exact as a float."""


@dataclass(frozen=True, slots=True)
class Weight:
    """Weight of a stream in an epoch: at most one option; without any, each sample is taken once.

    Attributes:
        proportion: Share of the epoch, relative to the other streams.
        repeat: Number of passes over the samples; 1.5 takes half of them twice.
        choose: Number of samples.
    """

    proportion: float | None = None
    repeat: float | None = None
    choose: float | None = None

    @property
    def options(self) -> dict[str, float]:
        """The given option and its value, if any."""
        names = ("proportion", "repeat", "choose")
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    def __post_init__(self) -> None:
        if len(self.options) > 1:
            raise ConfigError(
                f"a stream takes one of proportion, repeat and choose, got {self.options}"
            )
        for name, value in self.options.items():
            # Unchecked so far; a whole number may be a float such as 1e5. NumPy would multiply sizes in the
            # dtype of a number, such as int8 or float16.
            number: Any = value.item() if isinstance(value, np.generic) else value
            is_number = isinstance(number, (int, float, np.number)) and not isinstance(number, bool)
            is_number = is_number and 0 <= number < MAX_WEIGHT
            if not is_number or (name == "choose" and number != int(number)):
                what = "whole number" if name == "choose" else "number"
                raise ConfigError(f"{name}={value!r:.60}: must be a {what} of at least 0")
            object.__setattr__(self, name, number)


def choose_per_stream(
    sizes: Sequence[int],
    weights: Sequence[Weight],
    epoch_size: int | None,
    seed: int,
    *,
    round_up_zeros: bool = True,
) -> list[int]:
    """Return the number of samples that an epoch takes of each stream.

    Args:
        sizes: Number of samples of each stream.
        weights: Weight of each stream.
        epoch_size: Number of samples of an epoch; None for the sum of `sizes`, and with absolute weights.
        seed: Seed of the distribution of the remainder of rounding.
        round_up_zeros: Whether a stream with a share of 0 may get a sample of the remainder, as in
            mosaicml-streaming.

    Raises:
        ConfigError: If the weights contradict each other or `epoch_size`, or an empty stream gets samples.
    """
    relative = [w.proportion is not None for w in weights]
    absolute = [w.repeat is not None or w.choose is not None for w in weights]
    if any(relative) and not all(relative):
        raise ConfigError("give proportion= to every stream or to none")
    if any(absolute) and epoch_size is not None:
        raise ConfigError("epoch_size= goes with proportion=, or with no weights at all")
    if all(relative) or epoch_size is not None:
        shares = [w.proportion for w in weights] if all(relative) else sizes
        total = sum(sizes) if epoch_size is None else epoch_size
        chosen = _choose_by_share(shares, total, seed, round_up_zeros=round_up_zeros)
    else:
        chosen = [_choose_absolute(size, weight) for size, weight in zip(sizes, weights)]
    if not 0 <= sum(chosen) < MAX_EPOCH_SAMPLES:
        raise ConfigError(f"an epoch of {sum(chosen):.3g} samples exceeds the maximum of 2**52")
    for number, (size, taken) in enumerate(zip(sizes, chosen)):
        if taken and not size:
            raise ConfigError(f"stream {number} has no samples, but the epoch takes {taken} of it")
    return chosen


def _choose_absolute(size: int, weight: Weight) -> int:
    if weight.choose is not None:
        return int(weight.choose)
    return size if weight.repeat is None else int(weight.repeat * size)


def _choose_by_share(
    shares: Sequence[float | int | None], total: int, seed: int, *, round_up_zeros: bool
) -> list[int]:
    if total >= MAX_EPOCH_SAMPLES:
        raise ConfigError(f"epoch_size={total} exceeds the maximum of 2**52")
    parts = np.array(shares, np.float64)
    if parts.sum() <= 0:
        raise ConfigError("the proportions of the streams add up to 0")
    chosen = (total * (parts / parts.sum())).astype(np.int64)
    remainder = total - int(chosen.sum())
    streams = np.arange(len(parts)) if round_up_zeros else np.flatnonzero(parts)
    chosen[np.random.default_rng(seed).choice(streams, remainder, replace=False)] += 1
    return chosen.tolist()  # type: ignore[no-any-return]  # NumPy says Any


def proportion_per_stream(
    sizes: Sequence[int],
    weights: Sequence[Weight],
    epoch_size: int | None,
    choose: Sequence[int],
) -> list[float]:
    """Return each stream's share of an epoch before rounding, for the `choose` of `choose_per_stream`."""
    if all(w.proportion is not None for w in weights):
        parts = np.array([w.proportion for w in weights], np.float64)
    else:
        parts = np.array(choose if epoch_size is None else sizes, np.float64)
    return (parts / (parts.sum() or 1)).tolist()  # type: ignore[no-any-return]  # NumPy says Any


class Mixture(Protocol):
    """What epochs take of the streams."""

    @property
    def epoch_size(self) -> int:
        """Samples of an epoch."""

    def identity(self) -> dict[str, Any]:
        """Return its part of `OrderIdentity`, which states compare."""

    def select(
        self,
        starts: Int64,
        stream_shards: Sequence[int],
        seed: int,
        epoch: int,
        stream: int | None = None,
        *,
        shuffled: bool,
    ) -> Selection:
        """Return the samples of an epoch, of one stream or of all.

        Args:
            starts: First sample id of each shard over all streams, and the total, shape ``[shards + 1]``.
            stream_shards: First shard of each stream, and the total.
            seed: Seed of the run.
            epoch: Number of the epoch.
            stream: Number of the stream; None for all.
            shuffled: Whether the epoch is shuffled.

        Raises:
            ConfigError: If epochs are not made of parts of streams.
        """


@dataclass(frozen=True, slots=True)
class WeightedMixture:
    """Number of samples that an epoch takes of each stream, and how they are sampled.

    `method` is ``"balanced"`` (sampled anew in every epoch) or ``"fixed"``. `granularity` is the number of
    samples chosen of a shard at a time. `shares` are those of the streams before rounding, where batches
    depend on them. `is_relative` says whether the streams have proportions.
    """

    choose: tuple[int, ...]
    method: str
    granularity: int
    sampler: ShardSampler
    shares: tuple[float, ...] = ()
    is_relative: bool = False

    @property
    def epoch_size(self) -> int:
        return sum(self.choose)

    def identity(self) -> dict[str, Any]:
        return {
            "choose": list(self.choose),
            "sampling_method": self.method,
            "sampling_granularity": self.granularity,
            "shares": list(self.shares) or None,
        }

    def select(
        self,
        starts: Int64,
        stream_shards: Sequence[int],
        seed: int,
        epoch: int,
        stream: int | None = None,
        *,
        shuffled: bool,
    ) -> Selection:
        epoch = epoch if self.method == "balanced" else 0
        streams = range(len(self.choose)) if stream is None else range(stream, stream + 1)
        bounds = {number: stream_shards[number : number + 2] for number in streams}
        selected = starts[bounds[streams[0]][0] : bounds[streams[-1]][1] + 1]
        if all(
            self.choose[number] == starts[last] - starts[first]
            for number, (first, last) in bounds.items()
        ):
            return AllSamples(selected)
        chosen = [
            self.sampler.count_per_shard(
                np.diff(starts[first : last + 1]),
                self.choose[number],
                self.granularity,
                seed=seed,
                epoch=epoch,
                stream=number,
                shuffled=shuffled,
            )
            for number, (first, last) in bounds.items()
        ]
        return self.sampler.select(
            selected, np.concatenate(chosen), seed=seed, epoch=epoch, stream=stream or 0
        )
