"""How many samples of each stream, and of each of its shards, make up an epoch.

The rules for streams are those of mosaicml-streaming: weights are either all relative (proportions of
the epoch) or all absolute (repeat, choose, or each sample once).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamplug.errors import ConfigError
from streamplug.plan.selection import Drawn, Keyed, Selection, Whole
from streamplug.types import Int64

_HUGE = 1e100
_MOST = 1 << 52
"""An epoch has fewer samples, so that their number is exact as a float."""


@dataclass(frozen=True, slots=True)
class Weight:
    """How much of a stream an epoch takes; at most one of the three, each sample once without any.

    Attributes:
        proportion: Share of the epoch, relative to the other streams'.
        repeat: How often each sample is taken; 1.5 takes half of them twice.
        choose: How many samples are taken.
    """

    proportion: float | None = None
    repeat: float | None = None
    choose: float | None = None

    @property
    def given(self) -> dict[str, float]:
        """Which of the three is given: none or one."""
        names = ("proportion", "repeat", "choose")
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    def __post_init__(self) -> None:
        if len(self.given) > 1:
            raise ConfigError(
                f"a stream takes one of proportion, repeat and choose, got {self.given}"
            )
        for name, value in self.given.items():
            number: Any = (
                value  # of whatever type; a whole one may be 1e5, which is a float in Python
            )
            is_number = isinstance(number, (int, float, np.number)) and 0 <= number < _HUGE
            if not is_number or (name == "choose" and number != int(number)):
                what = "whole number" if name == "choose" else "number"
                raise ConfigError(f"{name}={value!r:.60}: must be a {what} of at least 0")


def choose_per_stream(
    sizes: Sequence[int], weights: Sequence[Weight], epoch_size: int | None, seed: int
) -> list[int]:
    """Return how many samples of each stream an epoch takes.

    Args:
        sizes: Samples of each stream.
        weights: Weight of each stream.
        epoch_size: Samples of an epoch; None for as many as the streams have.
        seed: Decides which streams get the samples that rounding leaves over.

    Raises:
        ConfigError: If relative and absolute weights are mixed, or absolute ones contradict an
            `epoch_size`.
    """
    relative = [w.proportion is not None for w in weights]
    absolute = [w.repeat is not None or w.choose is not None for w in weights]
    if any(relative) and not all(relative):
        raise ConfigError("give proportion= to every stream or to none")
    if any(absolute) and epoch_size is not None:
        raise ConfigError("epoch_size= goes with proportion=, or with no weights at all")
    if all(relative) or epoch_size is not None:
        shares = [w.proportion for w in weights] if all(relative) else sizes
        chosen = _by_share(shares, sum(sizes) if epoch_size is None else epoch_size, seed)
    else:
        chosen = [_absolute(size, weight) for size, weight in zip(sizes, weights)]
    if not 0 <= sum(chosen) < _MOST:
        raise ConfigError(f"an epoch of {sum(chosen):.3g} samples is more than can be planned")
    for number, (size, taken) in enumerate(zip(sizes, chosen)):
        if taken and not size:
            raise ConfigError(f"stream {number} has no samples, and {taken} are to be taken of it")
    return chosen


def _absolute(size: int, weight: Weight) -> int:
    if weight.choose is not None:
        return int(weight.choose)
    return size if weight.repeat is None else int(weight.repeat * size)


def _by_share(shares: Sequence[float | int | None], total: int, seed: int) -> list[int]:
    if total >= _MOST:
        raise ConfigError(f"epoch_size={total} is more than can be planned")
    parts = np.array(shares, np.float64)
    if parts.sum() <= 0:
        raise ConfigError("the proportions of the streams add up to 0")
    chosen = (total * (parts / parts.sum())).astype(np.int64)
    left = total - int(chosen.sum())
    chosen[np.random.default_rng(seed).choice(len(parts), left, replace=False)] += 1
    return chosen.tolist()  # type: ignore[no-any-return]  # NumPy says Any


def proportion_per_stream(
    sizes: Sequence[int],
    weights: Sequence[Weight],
    epoch_size: int | None,
    choose: Sequence[int],
) -> list[float]:
    """Return the share of an epoch that each stream was given: of what is chosen, before rounding.

    Args:
        sizes: Samples of each stream.
        weights: Weight of each stream.
        epoch_size: Samples of an epoch, as for `choose_per_stream`.
        choose: What that returned.
    """
    if all(w.proportion is not None for w in weights):
        parts = np.array([w.proportion for w in weights], np.float64)
    else:
        parts = np.array(choose if epoch_size is None else sizes, np.float64)
    return (parts / (parts.sum() or 1)).tolist()  # type: ignore[no-any-return]  # NumPy says Any


def choose_per_shard(sizes: Int64, choose: int, granularity: int, seed: int) -> Int64:
    """Return how many samples of each shard are taken, bit for bit as mosaicml-streaming does.

    What does not go up in whole passes over the stream is picked in runs of `granularity` samples.
    Takes memory for each run of the stream; `spread_over_shards` does not.

    Args:
        sizes: Samples of each shard, shape ``[shards]``.
        choose: Samples of the stream to take.
        granularity: Samples per pick.
        seed: Of the picks.
    """
    total = int(sizes.sum())
    passes, rest = divmod(choose, max(total, 1))
    chosen: Int64 = sizes * passes
    if not rest:
        return chosen
    counts = -(-sizes // granularity)
    shard = np.repeat(np.arange(len(sizes)), counts)
    pick = np.full(len(shard), granularity, np.int64)
    ends = np.cumsum(counts)
    short = sizes > 0
    pick[ends[short] - 1] = (sizes - (counts - 1) * granularity)[short]
    order = np.random.default_rng(seed).permutation(len(shard))
    taken = np.cumsum(pick[order])
    last = int(np.searchsorted(taken, rest))
    amounts = pick[order][: last + 1]
    amounts[-1] -= taken[last] - rest
    np.add.at(chosen, shard[order][: last + 1], amounts)
    return chosen


def spread_over_shards(sizes: Int64, choose: int, granularity: int, seed: tuple[int, ...]) -> Int64:
    """Return how many samples of each shard are taken, in memory for the shards alone.

    What does not go up in whole passes is dealt to the shards in a random order, in runs of
    `granularity` samples at equal distances: a shard gets its share of them, give or take one run.

    Args:
        sizes: Samples of each shard, shape ``[shards]``.
        choose: Samples of the stream to take.
        granularity: Samples per run.
        seed: Of the order and of the first distance.
    """
    total = int(sizes.sum())
    passes, rest = divmod(choose, max(total, 1))
    chosen: Int64 = sizes * passes
    if not rest:
        return chosen
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(sizes))
    dealt = sizes[order]
    # Products of two large counts would not fit an int64; the sum is made exact below.
    reached = np.cumsum(dealt) * (rest / total) / granularity + rng.random()
    runs = np.diff(np.floor(reached).astype(np.int64), prepend=0)
    taken = np.minimum(np.minimum(runs * granularity, dealt), rest)
    taken -= np.clip(np.cumsum(taken) - rest, 0, taken)  # too many, behind
    spare = dealt - taken
    missing = rest - int(taken.sum())
    taken += np.clip(missing - (np.cumsum(spare) - spare), 0, spare)  # too few, in front
    chosen[order] += taken
    return chosen


@dataclass(frozen=True, slots=True)
class Mixture:
    """What an epoch takes of some streams.

    Attributes:
        choose: Samples of each stream.
        method: ``"balanced"`` chooses anew in every epoch, ``"fixed"`` once.
        granularity: Samples that are chosen of a shard at a time.
        exact: Whether to choose bit for bit as mosaicml-streaming does, in memory for every sample
            of a stream of which a part is chosen.
        shares: Share of the epoch that each stream was given, for batches made stream by stream.
    """

    choose: tuple[int, ...]
    method: str
    granularity: int
    exact: bool
    shares: tuple[float, ...] = ()

    @property
    def epoch_size(self) -> int:
        """Samples of an epoch."""
        return sum(self.choose)

    def identity(self) -> dict[str, Any]:
        """Return what a state says of the mixture."""
        return {
            "choose": list(self.choose),
            "sampling_method": self.method,
            "sampling_granularity": self.granularity,
            "shares": list(self.shares) if self.exact and self.shares else None,
        }

    def select(
        self, starts: Int64, streams: Sequence[int], seed: int, epoch: int, *, shuffled: bool
    ) -> Selection:
        """Return the samples of an epoch.

        Args:
            starts: First sample id of each shard over all streams, and the total.
            streams: First shard of each stream, and the total.
            seed: The run's seed.
            epoch: Which epoch.
            shuffled: Whether the epoch is shuffled; ``exact`` chooses shards anew only then.
        """
        epoch = epoch if self.method == "balanced" else 0
        if all(
            taken == starts[last] - starts[first]
            for taken, first, last in zip(self.choose, streams, streams[1:])
        ):
            return Whole(starts)
        picks = epoch if shuffled else 0
        chosen = [
            choose_per_shard(sizes, taken, self.granularity, seed + picks)
            if self.exact
            else spread_over_shards(sizes, taken, self.granularity, (seed, epoch, number))
            for number, (taken, sizes) in enumerate(self._streams(starts, streams))
        ]
        if self.exact:
            return Drawn(starts, np.concatenate(chosen), np.random.default_rng(seed + epoch))
        return Keyed(starts, np.concatenate(chosen), seed, epoch)

    def select_streams(
        self, starts: Int64, streams: Sequence[int], seed: int, epoch: int, *, shuffled: bool
    ) -> list[Selection]:
        """Return the samples of an epoch, those of each stream by themselves; see `select`.

        With ``exact`` each stream is drawn by a generator of its own that begins with the same seed.
        """
        epoch = epoch if self.method == "balanced" else 0
        picks = epoch if shuffled else 0
        selections: list[Selection] = []
        for number, (taken, first, last) in enumerate(zip(self.choose, streams, streams[1:])):
            own = starts[first : last + 1]
            sizes, each = np.diff(own), self.granularity
            if taken == own[-1] - own[0]:
                selections.append(Whole(own))
            elif self.exact:
                chosen = choose_per_shard(sizes, taken, each, seed + picks)
                selections.append(Drawn(own, chosen, np.random.default_rng(seed + epoch)))
            else:
                chosen = spread_over_shards(sizes, taken, each, (seed, epoch, number))
                selections.append(Keyed(own, chosen, seed, epoch, number))
        return selections

    def _streams(self, starts: Int64, streams: Sequence[int]) -> Iterator[tuple[int, Int64]]:
        for taken, first, last in zip(self.choose, streams, streams[1:]):
            yield taken, np.diff(starts[first : last + 1])
