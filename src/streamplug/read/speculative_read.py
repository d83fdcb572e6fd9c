"""What comes with the head of a shard."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from streamplug.transfer.spans import located
from streamplug.types import Bytes1D, Int64

_NONE = np.empty((0, 2), np.int64)


class SpeculativeRead:
    """Bytes of a shard that came with its head.

    Attributes:
        spans: Where in the file they lie, shape ``[n, 2]``; ascending and apart.
        parts: They themselves.
        staked: How many spans were guessed in the hope that samples are among them.
    """

    __slots__ = ("parts", "spans", "staked")

    def __init__(
        self, spans: Int64 = _NONE, parts: Sequence[Bytes1D] = (), *, staked: int = 0
    ) -> None:
        self.spans, self.parts, self.staked = spans, parts, staked

    def has(self, ranges: Int64) -> NDArray[np.bool_]:
        """Say of each range of the file, shape ``[n, 2]``, whether it is there."""
        return located(ranges, self.spans)[0] >= 0

    def cut(self, ranges: Int64) -> list[Bytes1D]:
        """Return ranges that are there, as copies lest what came beside them stays in memory."""
        parts, places = located(ranges, self.spans)
        sizes = (ranges[:, 1] - ranges[:, 0]).tolist()
        found = zip(parts.tolist(), places.tolist(), sizes)
        return [_copied(self.parts[part], at, size) for part, at, size in found]


def _copied(part: Bytes1D, at: int, size: int) -> Bytes1D:
    return part if size == len(part) else part[at : at + size].copy()
