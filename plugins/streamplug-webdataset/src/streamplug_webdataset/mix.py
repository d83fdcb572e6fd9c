"""Mixtures of pipelines, round robin or random."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from streamplug.errors import ConfigError
from streamplug_webdataset.iterable_dataset import IterableDataset


class RoundRobin(IterableDataset):  # type: ignore[type-arg]  # generic in its stubs only
    """One sample of each data set in turn.

    It has no state; use streams of a `StreamingDataset` with proportions to resume.

    Attributes:
        datasets: Data sets to mix.
        longest: Whether to continue with the others when one ends.
    """

    def __init__(self, datasets: Sequence[Iterable[Any]], longest: bool = False) -> None:
        """Mix data sets; ends with the first that ends, unless `longest`."""
        self.datasets, self.longest = datasets, longest

    def __iter__(self) -> Iterator[Any]:
        sources = [iter(dataset) for dataset in self.datasets]
        at = 0
        while sources:
            at %= len(sources)
            try:
                sample = next(sources[at])
            except StopIteration:
                if not self.longest:
                    return
                del sources[at]
                continue
            at += 1
            yield sample


class RandomMix(IterableDataset):  # type: ignore[type-arg]  # generic in its stubs only
    """Samples of data sets at random, another order in each loop.

    It has no state; use streams of a `StreamingDataset` with proportions to resume, in an order given by the
    seed.

    Attributes:
        datasets: Data sets to mix.
        probs: Relative probability of each; None for equal ones.
        longest: Whether to go on with the others when one ends.
    """

    def __init__(
        self,
        datasets: Sequence[Iterable[Any]],
        probs: Sequence[float] | None = None,
        longest: bool = False,
    ) -> None:
        """Mix data sets; ends with the first that ends, unless `longest`.

        Raises:
            ConfigError: If `probs` does not have one number per data set, or none is above 0.
        """
        if probs is not None and (
            len(probs) != len(datasets) or min(probs, default=0) < 0 or not sum(probs)
        ):
            raise ConfigError(
                f"RandomMix(probs={probs!r:.80}): expected {len(datasets)} numbers of 0 or more, one for "
                "each data set, not all of them 0"
            )
        self.datasets, self.probs, self.longest = datasets, probs, longest

    def __iter__(self) -> Iterator[Any]:
        sources = [iter(dataset) for dataset in self.datasets]
        weights = [1.0] * len(sources) if self.probs is None else list(self.probs)
        while sources and sum(weights):
            at = random.choices(range(len(sources)), weights)[0]
            try:
                sample = next(sources[at])
            except StopIteration:
                if not self.longest:
                    return
                del sources[at], weights[at]
                continue
            yield sample


class MockDataset(IterableDataset):  # type: ignore[type-arg]  # generic in its stubs only
    """One sample, repeated, to measure the stages after it.

    Attributes:
        sample: The sample.
        length: Number of repetitions.
    """

    def __init__(self, sample: Any, length: int) -> None:
        """Yield `sample` `length` times."""
        self.sample, self.length = sample, length

    def __iter__(self) -> Iterator[Any]:
        for _ in range(self.length):
            yield self.sample
