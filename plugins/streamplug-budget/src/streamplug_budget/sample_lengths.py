"""Lengths of the samples of a data set, by sample id."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_64

from streamplug.types import Int64

SAMPLES_PER_PASS = 1 << 22

Lengths: TypeAlias = NDArray[np.uint32]
"""Length of each sample, often memory-mapped."""


@dataclass(frozen=True, slots=True)
class StreamLengths:
    """Lengths of the samples of a stream.

    Attributes:
        packed: Two lengths in each item, as a memory-mapped array, which is pickled by reference.
        size: Number of samples.
        total: Sum of the lengths.
        longest: Largest length.
        digest: Digest of the lengths.
    """

    packed: Int64
    size: int
    total: int
    longest: int
    digest: str

    @property
    def lengths(self) -> Lengths:
        """Length of each sample, shape ``[size]``."""
        return unpack_lengths(self.packed, self.size)


def pack_lengths(lengths: Lengths) -> Int64:
    """Return lengths as int64, two in each item."""
    return np.append(lengths, np.zeros(len(lengths) % 2, np.uint32)).view(np.int64)


def unpack_lengths(packed: Int64, size: int) -> Lengths:
    """Return the lengths in the result of `pack_lengths`, without a copy."""
    return np.asarray(packed).view(np.uint32)[:size]


def summarize_lengths(lengths: Lengths) -> Int64:
    """Return the sum, the largest value, and a digest of lengths."""
    total, longest, digest = 0, 0, xxh3_64()
    for start in range(0, len(lengths), SAMPLES_PER_PASS):
        part = np.ascontiguousarray(lengths[start : start + SAMPLES_PER_PASS], "<u4")
        total, longest = total + int(part.sum(dtype=np.int64)), max(longest, int(part.max()))
        digest.update(part.data)
    return np.array([total, longest, digest.intdigest() >> 1], np.int64)


class SampleLengths:
    """Lengths of the samples of all streams.

    Attributes:
        mean: Mean length.
        longest: Largest length.
        digest: Digest of all lengths.
    """

    def __init__(self, streams: Sequence[StreamLengths]) -> None:
        self._streams = streams
        self.mean = sum(s.total for s in streams) / max(sum(s.size for s in streams), 1)
        self.longest = max(stream.longest for stream in streams)
        self.digest = " ".join(stream.digest for stream in streams)
        self._starts = np.array([0, *accumulate(stream.size for stream in streams)], np.int64)
        self._lengths = [stream.lengths for stream in streams]

    def __reduce__(self) -> tuple[type, tuple[Sequence[StreamLengths]]]:
        return type(self), (self._streams,)

    def of(self, samples: Int64) -> Int64:
        """Return the length of each sample, shape ``[n]``."""
        if len(self._lengths) == 1:
            return self._lengths[0][samples].astype(np.int64)
        streams = np.searchsorted(self._starts, samples, side="right") - 1
        lengths = np.empty_like(samples)
        for stream in np.unique(streams).tolist():
            of_stream = streams == stream
            rows = samples[of_stream] - self._starts[stream]
            lengths[of_stream] = self._lengths[stream][rows]
        return lengths

    def find_longest(self) -> int:
        """Return the first sample of the largest length."""
        for first, lengths in zip(self._starts.tolist(), self._lengths):
            for start in range(0, len(lengths), SAMPLES_PER_PASS):
                part = lengths[start : start + SAMPLES_PER_PASS]
                if int(part.max()) == self.longest:
                    return int(first) + start + int(part.argmax())
        return 0
