"""Planner of the bins of an epoch, or of a part of it."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b

import numpy as np
from streamplug_tokens.length_cache import ArrayCache

from streamplug.errors import class_name
from streamplug.plan import Streams, WeightedMixture
from streamplug_budget.bin_counts import complete_global_batch, count_bins_until
from streamplug_budget.epoch import EpochPart
from streamplug_budget.sequence import Sequences
from streamplug_budget.windows import CostModel, EpochWindows

_MIN_CACHED_SAMPLES = 1 << 20
"""Samples of an epoch from which on the numbers of bins are worth a file."""
_GENERATOR_USE = 32
"""Distinguishes the random numbers from those of shuffles."""


@dataclass(frozen=True, slots=True)
class PartPlanner:
    """Packs samples into bins, and the bins into global batches.

    Attributes:
        streams: The streams.
        model: Costs of samples and batches.
        canonical_nodes: Number of canonical nodes.
        micro_batches: Bins of a global batch.
        cache: Keeps the numbers of bins of large epochs for all processes.
    """

    streams: Streams
    model: CostModel
    canonical_nodes: int
    micro_batches: int
    cache: ArrayCache

    def part(
        self, epoch: int, sequences: Sequences, most: int | None = None, *, key: str = ""
    ) -> EpochPart:
        """Return the bins of an epoch, or of a part of it.

        Args:
            epoch: Number of the epoch.
            sequences: Its samples.
            most: Number of bins after which proportions change; None to read all of them.
            key: Text that differs for different parts of an epoch.
        """
        offset = np.random.default_rng([_GENERATOR_USE, self.streams.seed, epoch]).integers(1 << 63)
        windows = EpochWindows(sequences, self.model, self.micro_batches, int(offset))
        count = partial(count_bins_until, windows, most)
        if self.streams.epoch_size < _MIN_CACHED_SAMPLES:
            counts = count()
        else:
            counts = self.cache.array(f"{self._key()} {epoch} {key} {most}", count)
        completed = complete_global_batch(windows, counts, self.micro_batches)
        return EpochPart(windows, completed, most)

    def _key(self) -> str:
        """Return text that differs for different orders."""
        options = self.canonical_nodes, self.micro_batches, self.streams.epoch_size
        return f"bins of windows {self.model.identity()} {options} {_order_key(self.streams)}"


def _order_key(streams: Streams) -> str:
    mixture, starts = streams.mixture, np.ascontiguousarray(streams.starts, "<i8")
    sampler = mixture.sampler if isinstance(mixture, WeightedMixture) else None
    parts = [_describe_algorithm(part) for part in (streams.algorithm, sampler)]
    options = (streams.seed, streams.shuffle_block_size, streams.shuffled)
    digest = blake2b(starts.data, digest_size=16).hexdigest()
    return f"{options} {mixture.identity()} {streams.stream_shards} {parts} {digest}"


def _describe_algorithm(algorithm: object) -> str:
    """Return the class of an algorithm, and a digest of its options.

    The pickle may differ between processes, which then only misses a cached plan.
    """
    try:
        options = pickle.dumps(algorithm)
    except Exception:  # noqa: BLE001 - any, for a class of a function
        options = repr(sorted(getattr(algorithm, "__dict__", {}).items())).encode()
    return f"{class_name(type(algorithm))} {blake2b(options, digest_size=16).hexdigest()}"
